r"""Causal BatchNorm: the statistics at position t see the batch up to t.

Every feature is normalized over all sequences and all positions so far:

    mu_tc = mean over b, s <= t of x_bsc         var_tc = mean over b, s <= t of (x_bsc - mu_tc)^2
    y_btc = (x_btc - mu_tc) / sqrt(var_tc + eps) * weight_c + bias_c

         T time steps
       [ . . . . . ]        BatchNorm's many tokens a statistic, without its leak. The first
     B [ . . . . . ]        positions' statistics are of few tokens. (Other sequences do enter, and
       [ . . . . . ]        their windows may overlap this one.)
        |-|               mu, var at t = 0 ... B tokens
        |-----|           mu, var at t = 2 ... 3 B tokens

**Training and evaluation differ** as in batchnorm.py: the batch's statistics in training, running
ones in evaluation, which keep the prefix moments of each position, (T, C), and move in training.
Positions past the last trained one use that one's. Where the tokens so far are fewer than two, or
all the same (every line starts alike), the running statistics are used, and do not move.

The sums are cumulative, of x minus a shift: sum(x^2) alone cancels (24 % off at mean 1000 in
float32). The shift is the mean of the first position, which every later one may know.
"""

from typing import Any

import torch
from torch import nn


class BatchNormCausal(nn.Module):
    """Normalize each feature over the batch and the positions so far, (B, T, C) -> the same.

    `weight` and `bias` start at 1 and 0; eps and momentum are PyTorch's. The source is this
    project; the leak that it closes has been reported often (docs/norms.md).

    Args:
        dim: C.
        block_size: the most positions that running statistics are kept for.
        eps: added to the variance.
        momentum: weight of the newest batch in the running statistics; None averages over all.

    Raises:
        ValueError: in training, fewer than two real tokens in all.

    >>> x = torch.randn(4, 3, 8)
    >>> last = nn.BatchNorm1d(8)(x.mT).mT[:, -1]
    >>> torch.allclose(BatchNormCausal(8, block_size=3)(x)[:, -1], last, atol=1e-5)
    True
    """

    running_mean: torch.Tensor
    running_var: torch.Tensor
    num_batches_tracked: torch.Tensor

    def __init__(
        self, dim: int, *, block_size: int, eps: float = 1e-5, momentum: float | None = 0.1
    ) -> None:
        super().__init__()
        self.dim, self.block_size, self.eps, self.momentum = dim, block_size, eps, momentum
        self.tokens_per_statistic = 0
        self.weight, self.bias = nn.Parameter(torch.ones(dim)), nn.Parameter(torch.zeros(dim))
        self.register_buffer("running_mean", torch.zeros(block_size, dim))
        self.register_buffer("running_var", torch.ones(block_size, dim))
        self.register_buffer("num_batches_tracked", torch.zeros(block_size, dtype=torch.long))

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        """Normalize x, (B, T, C), over the tokens where `mask` (B, T) is True."""
        y = x.to(torch.promote_types(x.dtype, torch.float32))  # a sum of squares needs the digits
        seen = torch.arange(self.block_size, device=x.device) * (self.num_batches_tracked > 0)
        position = torch.arange(x.shape[1], device=x.device).clamp(max=seen.max())
        mean, var = self.running_mean[position], self.running_var[position]  # (T, C)
        if self.training:
            real = torch.ones_like(y[..., :1]) if mask is None else mask[..., None].to(y.dtype)
            if (k := int(real.sum())) < 2:
                raise ValueError(f"BatchNorm needs at least 2 tokens, got {k}: raise batch_size")
            n = real.sum(0).cumsum(0)  # (T, 1), tokens so far
            shift = torch.where(real[:, 0] > 0, y[:, 0], 0).sum(0).detach() / n[0].clamp(min=1)
            y = torch.where(real > 0, y - shift, 0)
            rest = y.sum(0).cumsum(0) / n.clamp(min=1)  # (T, C), the mean less the shift
            batch_var = y.square().sum(0).cumsum(0) / n.clamp(min=1) - rest.square()
            batch_var = batch_var.clamp(min=0)  # rounding
            rounding = (16 * torch.finfo(y.dtype).eps * (rest + shift)).square()
            enough = (n > 1) & (batch_var > rounding)
            self._move(rest + shift, batch_var, n, enough)
            mean, var = torch.where(enough, rest, mean - shift), torch.where(enough, batch_var, var)
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
        sizes = f"{self.dim}, block_size={self.block_size}"
        return f"{sizes}, eps={self.eps}, momentum={self.momentum}"


def reference(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float, block_size: int,
    running_mean: torch.Tensor, running_var: torch.Tensor, training: bool,
) -> torch.Tensor:  # fmt: skip
    """The formula, prefix by prefix, for the tests (all positions trained)."""
    outputs = []
    for t in range(x.shape[1]):
        mean, var = running_mean[min(t, block_size - 1)], running_var[min(t, block_size - 1)]
        so_far = x[:, : t + 1].flatten(0, 1)
        if training and len(so_far) > 1:
            mean, var = so_far.mean(0), so_far.var(0, correction=0)
        outputs.append((x[:, t] - mean) / (var + eps).sqrt() * weight + bias)
    return torch.stack(outputs, dim=1)
