r"""BatchNorm with the *running* statistics in training too. Didactic: it hardly trains.

Every feature is normalized with what earlier steps have seen, not with this batch:

    y_c = (x_c - running_mean_c) / sqrt(running_var_c + eps) * weight_c + bias_c

and only then the running statistics move towards the batch's mean and (unbiased) variance over all
tokens, as in batchnorm.py.

            C features       Nothing of this batch enters, so in training no future token and no
          [ . . . . . ]      other sequence does, and training and evaluation use one formula (the
    B x T [ . . . . . ]      numbers in it move between two steps).
            | | | | |  -> for the next step

Why it is not the cure for BatchNorm's leak: the gradient takes the statistics for constants. It
does not know that a step which blows x up will be divided away, so activations and gradients drift
against the normalization (Ioffe 2017, section 2). `batchrenorm` is the serious form.
"""

import torch
from torch import nn


class BatchNormRunning(nn.Module):
    """Normalize each feature with earlier batches' statistics, (B, T, C) -> the same.

    `weight` and `bias` start at 1 and 0, the statistics at mean 0 and variance 1, so the first step
    is the identity; eps and momentum are PyTorch's.

    Args:
        dim: C.
        eps: added to the variance.
        momentum: weight of the newest batch in the running statistics; None averages over all.

    Raises:
        ValueError: in training, fewer than two (real) tokens, which have no variance.

    >>> x, norm = torch.randn(4, 3, 8), BatchNormRunning(8, eps=0.0)
    >>> torch.equal(norm(x), x), torch.equal(norm(x), x)
    (True, False)
    """

    running_mean: torch.Tensor
    running_var: torch.Tensor
    num_batches_tracked: torch.Tensor

    def __init__(self, dim: int, *, eps: float = 1e-5, momentum: float | None = 0.1) -> None:
        super().__init__()
        self.dim, self.eps, self.momentum, self.tokens_per_statistic = dim, eps, momentum, 0
        self.weight, self.bias = nn.Parameter(torch.ones(dim)), nn.Parameter(torch.zeros(dim))
        self.register_buffer("running_mean", torch.zeros(dim))
        self.register_buffer("running_var", torch.ones(dim))
        self.register_buffer("num_batches_tracked", torch.tensor(0))

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        """Normalize x, (B, T, C); tokens where `mask` (B, T) is True move the statistics."""
        if x.shape[-1] != self.dim:
            raise ValueError(f"BatchNorm({self.dim}) needs that last axis, got {tuple(x.shape)}")
        y = x.to(torch.promote_types(x.dtype, torch.float32))  # a sum of squares needs the digits
        scale = self.weight * torch.rsqrt(self.running_var + self.eps)
        z = torch.addcmul(self.bias, y - self.running_mean, scale)
        if self.training:
            self._move(y.reshape(-1, self.dim) if mask is None else y[mask])
        return z.to(x.dtype)

    @torch.no_grad()
    def _move(self, tokens: torch.Tensor) -> None:
        """Move the running statistics towards those of (n, C) tokens."""
        if (n := len(tokens)) < 2:
            more = "raise data.batch_size or data.block_size"
            raise ValueError(f"BatchNorm needs at least 2 tokens, got {n}: {more}")
        self.tokens_per_statistic = n
        self.num_batches_tracked += 1
        rate = 1 / int(self.num_batches_tracked) if self.momentum is None else self.momentum
        centred = tokens - tokens.mean(0)
        unbiased = centred.square().sum(0) / (n - 1)
        self.running_mean.lerp_(tokens.mean(0).to(self.running_mean.dtype), rate)
        self.running_var.lerp_(unbiased.to(self.running_var.dtype), rate)

    def extra_repr(self) -> str:
        """What `print(net)` shows."""
        return f"{self.dim}, eps={self.eps}, momentum={self.momentum}"


def reference(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float,
    running_mean: torch.Tensor, running_var: torch.Tensor,
) -> torch.Tensor:  # fmt: skip
    """The formula, for the tests; running statistics as they were before this step."""
    return (x - running_mean) / (running_var + eps).sqrt() * weight + bias
