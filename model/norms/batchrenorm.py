r"""Batch Renormalization (Ioffe 2017, https://arxiv.org/abs/1702.03275, algorithm 1).

BatchNorm whose training output is pulled to what evaluation would give. Per feature, over all B T
tokens, with the batch's mu_B, sigma_B and the running mu, sigma (sigma = sqrt(var + eps)):

    xhat = (x - mu_B) / sigma_B * r + d          y = xhat * weight + bias
    r = clip(sigma_B / sigma, 1/r_max, r_max)    d = clip((mu_B - mu) / sigma, -d_max, d_max)

r and d count as constants in the backward pass. Where no clip acts, xhat = (x - mu) / sigma: the
running statistics' output, with BatchNorm's gradient (which `batchnorm_running` lacks).

            C features       Statistics of each feature over all tokens. In the warm-up (r_max = 1,
          [ . . . . . ]      d_max = 0: BatchNorm) the future leaks; after it only where a clip
    B x T [ . . . . . ]      acts: else no value of this batch's statistics is left in y.
            | | | | |

**Training and evaluation differ** in the warm-up and in the clips. Running statistics move as in
batchnorm.py and are used in evaluation. The bounds open linearly after the warm-up, over as many
steps again, to r_max = 3 and d_max = 5, the paper's (there: 5,000 steps of BatchNorm, r_max open at
40,000, d_max at 25,000). Steps are forward passes in training.
"""

import torch
from torch import nn


class BatchRenorm(nn.Module):
    """Normalize each feature over batch and time, close to evaluation, (B, T, C) -> the same.

    `weight` and `bias` start at 1 and 0; eps and momentum are PyTorch's (the paper's momentum for
    long training is 0.01).

    Args:
        dim: C.
        total_steps: of the training.
        warmup: the fraction of them that is plain BatchNorm.
        eps: added to the variance.
        momentum: weight of the newest batch in the running statistics; None averages over all.

    Raises:
        ValueError: in training, fewer than two (real) tokens, which have no variance.

    >>> x = torch.randn(4, 3, 8)
    >>> y = nn.BatchNorm1d(8)(x.mT).mT
    >>> torch.allclose(BatchRenorm(8, total_steps=100)(x), y, atol=1e-5)  # in the warm-up
    True
    """

    running_mean: torch.Tensor
    running_var: torch.Tensor
    num_batches_tracked: torch.Tensor
    warmup_steps: torch.Tensor

    def __init__(
        self, dim: int, *, total_steps: int, warmup: float = 0.1, eps: float = 1e-5,
        momentum: float | None = 0.1,
    ) -> None:  # fmt: skip
        super().__init__()
        self.dim, self.eps, self.momentum, self.tokens_per_statistic = dim, eps, momentum, 0
        self.total_steps, self.warmup = total_steps, warmup
        self.weight, self.bias = nn.Parameter(torch.ones(dim)), nn.Parameter(torch.zeros(dim))
        self.register_buffer("running_mean", torch.zeros(dim))
        self.register_buffer("running_var", torch.ones(dim))
        self.register_buffer("num_batches_tracked", torch.tensor(0))
        # saved: a run that is resumed with another total_steps must not warm up again
        self.register_buffer("warmup_steps", torch.tensor(round(warmup * total_steps)))

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        """Normalize x, (B, T, C), over the tokens where `mask` (B, T) is True; the rest is 0."""
        if x.shape[-1] != self.dim:
            raise ValueError(f"BatchRenorm({self.dim}) needs that last axis, got {tuple(x.shape)}")
        y = x.to(torch.promote_types(x.dtype, torch.float32))  # a sum of squares needs the digits
        std = (self.running_var + self.eps).sqrt()
        if not self.training:
            return ((y - self.running_mean) / std * self.weight + self.bias).to(x.dtype)
        tokens = y.reshape(-1, self.dim) if mask is None else y[mask]  # (n, C)
        if (n := len(tokens)) < 2:
            more = "raise data.batch_size or data.block_size"
            raise ValueError(f"BatchNorm needs at least 2 tokens, got {n}: {more}")
        self.tokens_per_statistic = n
        mean = tokens.mean(0)
        centred = tokens - mean
        var = centred.square().mean(0)
        later = (self.num_batches_tracked - self.warmup_steps).to(y.dtype)
        open_ = (later / self.warmup_steps.clamp(min=1)).clamp(0, 1)
        r_max, d_max = 1 + 2 * open_, 5 * open_
        r = ((var + self.eps).sqrt() / std).detach().clamp(1 / r_max, r_max)
        d = ((mean - self.running_mean) / std).detach().clamp(-d_max, d_max)
        z = torch.addcmul(d, centred, r * torch.rsqrt(var + self.eps)) * self.weight + self.bias
        with torch.no_grad():
            self.num_batches_tracked += 1
            rate = 1 / int(self.num_batches_tracked) if self.momentum is None else self.momentum
            self.running_mean.lerp_(mean.to(self.running_mean.dtype), rate)
            self.running_var.lerp_((var * (n / (n - 1))).to(self.running_var.dtype), rate)
        z = z if mask is None else torch.zeros_like(y).masked_scatter(mask[..., None], z)
        return z.view(x.shape).to(x.dtype)

    def extra_repr(self) -> str:
        """What `print(net)` shows."""
        steps = f"total_steps={self.total_steps}, warmup={self.warmup}"
        return f"{self.dim}, {steps}, eps={self.eps}, momentum={self.momentum}"


def reference(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float, warmup_steps: int,
    running_mean: torch.Tensor, running_var: torch.Tensor, num_batches_tracked: int, training: bool,
) -> torch.Tensor:  # fmt: skip
    """The formula, for the tests; running statistics as they were before this step."""
    sigma = (running_var + eps).sqrt()
    if not training:
        return (x - running_mean) / sigma * weight + bias
    mean, sigma_batch = x.mean((0, 1)), (x.var((0, 1), correction=0) + eps).sqrt()
    opened = min(max((int(num_batches_tracked) / int(warmup_steps)) - 1, 0.0), 1.0)
    r_max, d_max = 1 + 2 * opened, 5 * opened
    r = torch.clamp(sigma_batch / sigma, 1 / r_max, r_max).detach()
    d = torch.clamp((mean - running_mean) / sigma, -d_max, d_max).detach()
    return ((x - mean) / sigma_batch * r + d) * weight + bias
