r"""Batch Renormalization (Ioffe 2017, https://arxiv.org/abs/1702.03275, algorithm 1).

BatchNorm whose training output is pulled to what evaluation would give. For each feature, over all
B T tokens, with sigma = sqrt(var + eps), mu_B and sigma_B of the batch, mu and sigma running:

    xhat = (x - mu_B) / sigma_B * r + d
    y    = xhat * weight + bias
    r    = clip(sigma_B / sigma, 1 / r_max, r_max)
    d    = clip((mu_B - mu) / sigma, -d_max, d_max)

r and d count as constants in the backward pass. Where no clip acts, xhat = (x - mu) / sigma: the
running statistics' output, with BatchNorm's gradient (which `batchnorm_running` lacks).

            C features
          [ . . . . . ]
    B x T [ . . . . . ]
          [ . . . . . ]
            | | | | |
            statistics of each feature

In the warm-up (r_max = 1, d_max = 0) this is BatchNorm, and the future leaks. After it the future
leaks only where a clip acts; elsewhere nothing of this batch's statistics is left in y.

**Training and evaluation differ** in the warm-up and in the clips. Running statistics move as in
BatchNorm: by `momentum` towards the mean and the unbiased variance of the batch. They are used in
evaluation.

The bounds open linearly after the warm-up, over as many steps again, to r_max = 3 and d_max = 5,
the paper's (there: 5,000 steps of BatchNorm, r_max open at 40,000, d_max at 25,000). Steps are
forward passes in training.
"""

import torch
from torch import nn


def reference(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    eps: float,
    warmup_steps: int,
    running_mean: torch.Tensor,
    running_var: torch.Tensor,
    num_batches_tracked: int,
    training: bool,
) -> torch.Tensor:
    """The definition, for x (B, T, C); running statistics are those from before this step."""
    sigma = (running_var + eps).sqrt()
    if not training:
        return (x - running_mean) / sigma * weight + bias
    mean = x.mean((0, 1))
    sigma_batch = (x.var((0, 1), correction=0) + eps).sqrt()
    opened = min(max((int(num_batches_tracked) / int(warmup_steps)) - 1, 0.0), 1.0)
    r_max = 1 + 2 * opened
    d_max = 5 * opened
    r = torch.clamp(sigma_batch / sigma, 1 / r_max, r_max).detach()
    d = torch.clamp((mean - running_mean) / sigma, -d_max, d_max).detach()
    return ((x - mean) / sigma_batch * r + d) * weight + bias


class BatchRenorm(nn.Module):
    """Normalize each feature over batch and time, close to evaluation, (B, T, C) -> the same.

    `weight` and `bias` start at 1 and 0; eps and momentum are PyTorch's (the paper's momentum for
    long training is 0.01).

    Args:
        dim: C, the number of features.
        total_steps: of the training.
        warmup: the fraction of them that is plain BatchNorm.
        eps: added to the variance.
        momentum: weight of the newest batch in the running statistics; None averages over all.

    Raises:
        ValueError: an option out of its range, an input whose last axis is not `dim`, or, in
            training, fewer than two (real) tokens.

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
        self,
        dim: int,
        *,
        total_steps: int,
        warmup: float = 0.1,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
    ) -> None:
        super().__init__()
        if total_steps < 1:
            raise ValueError(
                f"norm.total_steps must be a whole number of at least 1, got {total_steps}"
            )
        if not 0 <= warmup <= 1:
            raise ValueError(f"norm.warmup must be a number from 0 to 1, got {warmup}")
        if eps < 0:
            raise ValueError(f"norm.eps must be a number of at least 0, got {eps}")
        if momentum is not None and not 0 <= momentum <= 1:
            raise ValueError(f"norm.momentum must be a number from 0 to 1 or null, got {momentum}")
        self.dim = dim
        self.total_steps = total_steps
        self.warmup = warmup
        self.eps = eps
        self.momentum = momentum
        self.tokens_per_statistic = 0  # of the newest training batch
        self.weight = nn.Parameter(torch.ones(dim))
        self.bias = nn.Parameter(torch.zeros(dim))
        self.register_buffer("running_mean", torch.zeros(dim))
        self.register_buffer("running_var", torch.ones(dim))
        self.register_buffer("num_batches_tracked", torch.tensor(0))
        # saved: a run that is resumed with another total_steps must not warm up again
        self.register_buffer("warmup_steps", torch.tensor(round(warmup * total_steps)))

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        """Normalize x, (B, T, C), over the tokens where `mask` (B, T) is True; the rest is 0."""
        if x.shape[-1] != self.dim:
            raise ValueError(f"expected {self.dim} features in the last axis, got {tuple(x.shape)}")
        y = x.to(torch.promote_types(x.dtype, torch.float32))  # a sum of squares needs the digits
        std = (self.running_var + self.eps).sqrt()
        if not self.training:
            return ((y - self.running_mean) / std * self.weight + self.bias).to(x.dtype)
        tokens = y.reshape(-1, self.dim) if mask is None else y[mask]  # (n, C)
        n = len(tokens)
        if n < 2:
            raise ValueError(f"a variance needs at least 2 tokens, got {n}: raise data.batch_size")
        mean = tokens.mean(0)
        centred = tokens - mean
        var = centred.square().mean(0)
        r_max, d_max = self._bounds(y.dtype)
        r = ((var + self.eps).sqrt() / std).detach().clamp(1 / r_max, r_max)
        d = ((mean - self.running_mean) / std).detach().clamp(-d_max, d_max)
        z = torch.addcmul(d, centred, r * torch.rsqrt(var + self.eps)) * self.weight + self.bias
        self._move(mean, var, n)
        z = z if mask is None else torch.zeros_like(y).masked_scatter(mask[..., None], z)
        return z.view(x.shape).to(x.dtype)

    def _bounds(self, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
        """r_max and d_max of this step."""
        later = (self.num_batches_tracked - self.warmup_steps).to(dtype)
        opened = (later / self.warmup_steps.clamp(min=1)).clamp(0, 1)
        return 1 + 2 * opened, 5 * opened

    @torch.no_grad()
    def _move(self, mean: torch.Tensor, var: torch.Tensor, n: int) -> None:
        """Move the running statistics towards the mean and variance (C) of n tokens."""
        self.tokens_per_statistic = n
        self.num_batches_tracked += 1
        rate = 1 / int(self.num_batches_tracked) if self.momentum is None else self.momentum
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), rate)
        self.running_var.lerp_((var * (n / (n - 1))).to(self.running_var.dtype), rate)

    def extra_repr(self) -> str:
        """What `print(net)` shows."""
        steps = f"total_steps={self.total_steps}, warmup={self.warmup}"
        return f"{self.dim}, {steps}, eps={self.eps}, momentum={self.momentum}"
