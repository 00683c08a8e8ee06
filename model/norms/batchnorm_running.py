r"""BatchNorm with the *running* statistics in training too. Didactic: it hardly trains.

Every feature is normalized with what earlier steps have seen, not with this batch:

    y_c = (x_c - running_mean_c) / sqrt(running_var_c + eps) * weight_c + bias_c

and only then the running statistics move, by `momentum`, towards the mean and the (unbiased)
variance of this batch over all its tokens.

            C features
          [ . . . . . ]
    B x T [ . . . . . ]
          [ . . . . . ]
            | | | | |
            mean, var of each feature, for the next step

Nothing of this batch enters, so in training no future token and no other sequence does.
**Training and evaluation** use one formula; the numbers in it move between two training steps.

Why this is not the cure for BatchNorm's leak: the gradient takes the statistics for constants. It
does not know that a step which blows x up will be divided away, so activations and gradients drift
against the normalization (Ioffe 2017, https://arxiv.org/abs/1702.03275, section 2). `batchrenorm`
is the serious form.
"""

import torch
from torch import nn


def reference(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    eps: float,
    running_mean: torch.Tensor,
    running_var: torch.Tensor,
) -> torch.Tensor:
    """The definition, for x (..., C); running statistics are those from before this step."""
    return (x - running_mean) / (running_var + eps).sqrt() * weight + bias


class BatchNormRunning(nn.Module):
    """Normalize each feature with earlier batches' statistics, (B, T, C) -> the same.

    `weight` and `bias` start at 1 and 0, the statistics at mean 0 and variance 1, so the first step
    is the identity; eps and momentum are PyTorch's.

    Args:
        dim: C, the number of features.
        eps: added to the variance.
        momentum: weight of the newest batch in the running statistics; None averages over all.

    Raises:
        ValueError: an option out of its range, an input whose last axis is not `dim`, or, in
            training, fewer than two (real) tokens.

    >>> x, norm = torch.randn(4, 3, 8), BatchNormRunning(8, eps=0.0)
    >>> torch.equal(norm(x), x), torch.equal(norm(x), x)
    (True, False)
    """

    running_mean: torch.Tensor
    running_var: torch.Tensor
    num_batches_tracked: torch.Tensor

    def __init__(self, dim: int, *, eps: float = 1e-5, momentum: float | None = 0.1) -> None:
        super().__init__()
        if eps < 0:
            raise ValueError(f"norm.eps must be a number of at least 0, got {eps}")
        if momentum is not None and not 0 <= momentum <= 1:
            raise ValueError(f"norm.momentum must be a number from 0 to 1 or null, got {momentum}")
        self.dim = dim
        self.eps = eps
        self.momentum = momentum
        self.tokens_per_statistic = 0  # of the newest training batch
        self.weight = nn.Parameter(torch.ones(dim))
        self.bias = nn.Parameter(torch.zeros(dim))
        self.register_buffer("running_mean", torch.zeros(dim))
        self.register_buffer("running_var", torch.ones(dim))
        self.register_buffer("num_batches_tracked", torch.tensor(0))

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        """Normalize x, (B, T, C); tokens where `mask` (B, T) is True move the statistics."""
        if x.shape[-1] != self.dim:
            raise ValueError(f"expected {self.dim} features in the last axis, got {tuple(x.shape)}")
        y = x.to(torch.promote_types(x.dtype, torch.float32))  # a sum of squares needs the digits
        scale = self.weight * torch.rsqrt(self.running_var + self.eps)
        z = torch.addcmul(self.bias, y - self.running_mean, scale)
        if self.training:
            self._move(y.reshape(-1, self.dim) if mask is None else y[mask])
        return z.to(x.dtype)

    @torch.no_grad()
    def _move(self, tokens: torch.Tensor) -> None:
        """Move the running statistics towards those of (n, C) tokens."""
        n = len(tokens)
        if n < 2:
            raise ValueError(f"a variance needs at least 2 tokens, got {n}: raise data.batch_size")
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
