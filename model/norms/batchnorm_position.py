r"""BatchNorm per position: what the LayerNorm paper describes for sequences (section 3.1).

Every feature at every time step is normalized on its own, over the batch:

    mu_tc = mean over b of x_btc            var_tc = mean over b of (x_btc - mu_tc)^2   (biased)
    y_btc = (x_btc - mu_tc) / sqrt(var_tc + eps) * weight_c + bias_c

         T time steps
       [ . . . . . ]        The statistics run over the sequences, at one position: no later token
     B [ . . . . . ]        enters, nothing leaks from the future. (Other sequences do enter, and
       [ . . . . . ]        their windows may overlap this one.) B numbers are a noisy statistic.
         | | | | |  -> mu, var of each position and feature
**Training and evaluation differ** as in batchnorm.py: the batch's statistics, then running ones.
Positions that training never saw have none (what the paper holds against it): they use those of the
last trained position. Where fewer than two tokens are real, or all are the same (every line starts
alike), there is no variance: the running statistics are used, and do not move.
"""

from itertools import repeat
from typing import Any

import torch
from torch import nn


class BatchNormPosition(nn.Module):
    """Normalize each position and feature over the batch, (B, T, C) -> the same.

    `weight` and `bias` (C) start at 1 and 0; eps and momentum are PyTorch's.

    Args:
        dim: C.
        block_size: positions that running statistics are kept for.
        eps: added to the variance.
        momentum: weight of the newest batch in the running statistics; None averages over all.
        ghost: sequences in a sub-batch (the last may be smaller) with its own statistics, or None.

    Raises:
        ValueError: in training, fewer than two real tokens in all, or a `ghost` below 1.

    >>> x = torch.randn(4, 3, 8)
    >>> y = nn.BatchNorm1d(3 * 8)(x.flatten(1)).view(4, 3, 8)
    >>> torch.allclose(BatchNormPosition(8, block_size=3)(x), y, atol=1e-5)
    True
    """

    running_mean: torch.Tensor
    running_var: torch.Tensor
    num_batches_tracked: torch.Tensor

    def __init__(
        self, dim: int, *, block_size: int, eps: float = 1e-5, momentum: float | None = 0.1,
        ghost: int | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        if ghost is not None and ghost < 1:
            raise ValueError(f"norm.ghost={ghost} must be at least 1 sequence, or null")
        self.dim, self.block_size, self.eps, self.momentum = dim, block_size, eps, momentum
        self.ghost, self.tokens_per_statistic = ghost, 0
        self.weight, self.bias = nn.Parameter(torch.ones(dim)), nn.Parameter(torch.zeros(dim))
        self.register_buffer("running_mean", torch.zeros(block_size, dim))
        self.register_buffer("running_var", torch.ones(block_size, dim))
        self.register_buffer("num_batches_tracked", torch.zeros(block_size, dtype=torch.long))

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        """Normalize x, (B, T, C), over the sequences whose token is real: `mask` (B, T) is True."""
        if self.training and self.ghost and len(x) > self.ghost:
            masks = repeat(None) if mask is None else mask.split(self.ghost)
            parts = zip(x.split(self.ghost), masks)  # noqa: B905  `repeat` has no end
            return torch.cat([self.forward(part, real) for part, real in parts])
        y = x.to(torch.promote_types(x.dtype, torch.float32))  # a sum of squares needs the digits
        seen = torch.arange(self.block_size, device=x.device) * (self.num_batches_tracked > 0)
        position = torch.arange(x.shape[1], device=x.device).clamp(max=seen.max())
        mean, var = self.running_mean[position], self.running_var[position]  # (T, C)
        if self.training:
            real = torch.ones_like(y[..., :1]) if mask is None else mask[..., None].to(y.dtype)
            if (k := int(real.sum())) < 2:
                raise ValueError(f"BatchNorm needs at least 2 tokens, got {k}: raise batch_size")
            y = torch.where(real > 0, y, 0)
            n = real.sum(0)  # (T, 1)
            batch_mean = y.sum(0) / n.clamp(min=1)
            batch_var = ((y - batch_mean) * real).square().sum(0) / n.clamp(min=1)
            rounding = (16 * torch.finfo(y.dtype).eps * batch_mean).square()
            enough = (n > 1) & (batch_var > rounding)
            self._move(batch_mean, batch_var, n, enough)
            mean, var = torch.where(enough, batch_mean, mean), torch.where(enough, batch_var, var)
        y = (y - mean) * torch.rsqrt(var + self.eps)
        return torch.addcmul(self.bias, y, self.weight).to(x.dtype)

    @torch.no_grad()
    def _move(self, mean: torch.Tensor, var: torch.Tensor, n: torch.Tensor, enough: Any) -> None:
        """Move the running statistics where there is a variance; n (T, 1), the others (T, C)."""
        self.tokens_per_statistic = round(float(n.mean()))
        T = min(len(n), self.block_size)
        unbiased, enough = (var * n / (n - 1).clamp(min=1))[:T], enough[:T]
        self.num_batches_tracked[:T] += enough.any(1)
        tracked = self.num_batches_tracked[:T, None].to(self.running_mean.dtype)
        rate = 1 / tracked if self.momentum is None else torch.full_like(tracked, self.momentum)
        rate = torch.where(enough, rate, 0)
        self.running_mean[:T].lerp_(mean[:T].to(rate.dtype), rate)
        self.running_var[:T].lerp_(unbiased.to(rate.dtype), rate)

    def extra_repr(self) -> str:
        """What `print(net)` shows."""
        options = f"eps={self.eps}, momentum={self.momentum}, ghost={self.ghost}"
        return f"{self.dim}, block_size={self.block_size}, {options}"


def reference(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float, block_size: int,
    running_mean: torch.Tensor, running_var: torch.Tensor, training: bool,
) -> torch.Tensor:  # fmt: skip
    """The formula, position by position, for the tests (all positions trained)."""
    outputs = []
    for t, here in enumerate(x.unbind(1)):
        mean, var = (z[min(t, block_size - 1)] for z in (running_mean, running_var))
        if training and len(here) > 1:
            mean, var = here.mean(0), here.var(0, correction=0)
        outputs.append((here - mean) / (var + eps).sqrt() * weight + bias)
    return torch.stack(outputs, dim=1)
