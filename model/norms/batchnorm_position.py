r"""BatchNorm per position: what the LayerNorm paper describes for sequences.

The source is Ba, Kiros, Hinton 2016 (https://arxiv.org/abs/1607.06450), section 3.1. Every feature
at every time step is normalized on its own, over the B sequences of the batch:

    mu_tc  = mean over b of x_btc
    var_tc = mean over b of (x_btc - mu_tc)^2                       the biased variance
    y_btc  = (x_btc - mu_tc) / sqrt(var_tc + eps) * weight_c + bias_c

       T time steps
      [ . . . . . ]
    B [ . . . . . ]
      [ . . . . . ]
        | | | | |
        mu, var of each position and feature

The statistics run over the sequences at one position, so no later token enters and nothing leaks
from the future. (Other sequences do enter, and their windows of the text may overlap this one.)
B numbers make a noisy statistic.

**Training and evaluation differ.** In training the statistics are those of the batch. Running
statistics keep the mean and the (unbiased) variance of each position, (T, C), move towards the
batch's by `momentum` at each step, and are used in evaluation. Positions that training never saw
have none, which is the paper's objection: they use those of the last trained position. Where fewer
than two tokens are real, or all are the same (every line starts alike), there is no variance: the
running statistics are used, and do not move.

With `ghost` the batch is cut into sub-batches that are normalized one after another, each with its
own statistics (Hoffer, Hubara, Soudry 2017, https://arxiv.org/abs/1705.08741).
"""

from itertools import repeat
from typing import Any

import torch
from torch import nn


def reference(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    eps: float,
    block_size: int,
    running_mean: torch.Tensor,
    running_var: torch.Tensor,
    training: bool,
) -> torch.Tensor:
    """The definition, position by position, for x (B, T, C) where all have been trained.

    Running statistics, (block_size, C), are those from before this step.
    """
    outputs = []
    for t, here in enumerate(x.unbind(1)):  # (B, C)
        mean = running_mean[min(t, block_size - 1)]
        var = running_var[min(t, block_size - 1)]
        if training and len(here) > 1:
            mean = here.mean(0)
            var = here.var(0, correction=0)
        outputs.append((here - mean) / (var + eps).sqrt() * weight + bias)
    return torch.stack(outputs, dim=1)


class BatchNormPosition(nn.Module):
    """Normalize each position and feature over the batch, (B, T, C) -> the same.

    `weight` and `bias` (C) start at 1 and 0; eps and momentum are PyTorch's.

    Args:
        dim: C, the number of features.
        block_size: the most positions that running statistics are kept for.
        eps: added to the variance.
        momentum: weight of the newest batch in the running statistics; None averages over all.
        ghost: sequences in a sub-batch with its own statistics (the last may be smaller), or None.

    Raises:
        ValueError: an option out of its range, or, in training, fewer than two real tokens in all.

    >>> x = torch.randn(4, 3, 8)
    >>> y = nn.BatchNorm1d(3 * 8)(x.flatten(1)).view(4, 3, 8)
    >>> torch.allclose(BatchNormPosition(8, block_size=3)(x), y, atol=1e-5)
    True
    """

    running_mean: torch.Tensor
    running_var: torch.Tensor
    num_batches_tracked: torch.Tensor

    def __init__(
        self,
        dim: int,
        *,
        block_size: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        ghost: int | None = None,
    ) -> None:
        super().__init__()
        if block_size < 1:
            raise ValueError(
                f"norm.block_size must be a whole number of at least 1, got {block_size}"
            )
        if eps < 0:
            raise ValueError(f"norm.eps must be a number of at least 0, got {eps}")
        if momentum is not None and not 0 <= momentum <= 1:
            raise ValueError(f"norm.momentum must be a number from 0 to 1 or null, got {momentum}")
        if ghost is not None and ghost < 1:
            raise ValueError(
                f"norm.ghost must be a whole number of at least 1 or null, got {ghost}"
            )
        self.dim = dim
        self.block_size = block_size
        self.eps = eps
        self.momentum = momentum
        self.ghost = ghost
        self.tokens_per_statistic = 0  # of the newest training batch, the mean over positions
        self.weight = nn.Parameter(torch.ones(dim))
        self.bias = nn.Parameter(torch.zeros(dim))
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
        mean = self.running_mean[position]  # (T, C)
        var = self.running_var[position]
        if self.training:
            real = torch.ones_like(y[..., :1]) if mask is None else mask[..., None].to(y.dtype)
            if (k := int(real.sum())) < 2:
                raise ValueError(
                    f"a variance needs at least 2 tokens, got {k}: raise data.batch_size"
                )
            y = torch.where(real > 0, y, 0)
            n = real.sum(0)  # (T, 1)
            batch_mean = y.sum(0) / n.clamp(min=1)
            batch_var = ((y - batch_mean) * real).square().sum(0) / n.clamp(min=1)
            rounding = (16 * torch.finfo(y.dtype).eps * batch_mean).square()
            enough = (n > 1) & (batch_var > rounding)
            self._move(batch_mean, batch_var, n, enough)
            mean = torch.where(enough, batch_mean, mean)
            var = torch.where(enough, batch_var, var)
        y = (y - mean) * torch.rsqrt(var + self.eps)
        return torch.addcmul(self.bias, y, self.weight).to(x.dtype)

    @torch.no_grad()
    def _move(self, mean: torch.Tensor, var: torch.Tensor, n: torch.Tensor, enough: Any) -> None:
        """Move the running statistics where there is a variance; n (T, 1), the others (T, C)."""
        self.tokens_per_statistic = round(float(n.mean()))
        T = min(len(n), self.block_size)
        unbiased = (var * n / (n - 1).clamp(min=1))[:T]
        enough = enough[:T]
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
