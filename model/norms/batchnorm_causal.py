r"""Causal BatchNorm: the statistics at position t see the batch up to t.

Every feature is normalized over all sequences and all positions so far:

    mu_tc  = mean over b and s <= t of x_bsc
    var_tc = mean over b and s <= t of (x_bsc - mu_tc)^2            the biased variance
    y_btc  = (x_btc - mu_tc) / sqrt(var_tc + eps) * weight_c + bias_c

       T time steps
      [ . . . . . ]
    B [ . . . . . ]
      [ . . . . . ]
       |-|               mu, var at t = 0, from B tokens
       |-----|           mu, var at t = 2, from 3 B tokens

So a statistic has many tokens, as in BatchNorm, without its leak; only those of the first positions
have few. (Other sequences do enter, and their windows of the text may overlap this one.)

**Training and evaluation differ.** In training the statistics are those of the batch. Running
statistics keep the mean and the (unbiased) variance of each prefix, (T, C), move towards the
batch's by `momentum` at each step, and are used in evaluation. Positions past the last trained one
use that one's. Where the tokens so far are fewer than two, or all the same (every line starts
alike), there is no variance: the running statistics are used, and do not move.

The source is this project; the leak that this norm closes has been reported often (docs/norms.md).
"""

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
    """The definition, prefix by prefix, for x (B, T, C) where all positions have been trained.

    Running statistics, (block_size, C), are those from before this step.
    """
    outputs = []
    for t in range(x.shape[1]):
        mean = running_mean[min(t, block_size - 1)]
        var = running_var[min(t, block_size - 1)]
        so_far = x[:, : t + 1].flatten(0, 1)
        if training and len(so_far) > 1:
            mean = so_far.mean(0)
            var = so_far.var(0, correction=0)
        outputs.append((x[:, t] - mean) / (var + eps).sqrt() * weight + bias)
    return torch.stack(outputs, dim=1)


class BatchNormCausal(nn.Module):
    """Normalize each feature over the batch and the positions so far, (B, T, C) -> the same.

    `weight` and `bias` start at 1 and 0; eps and momentum are PyTorch's.

    Args:
        dim: C, the number of features.
        block_size: the most positions that running statistics are kept for.
        eps: added to the variance.
        momentum: weight of the newest batch in the running statistics; None averages over all.

    Raises:
        ValueError: an option out of its range, or, in training, fewer than two real tokens in all.

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
        if block_size < 1:
            raise ValueError(
                f"norm.block_size must be a whole number of at least 1, got {block_size}"
            )
        if eps < 0:
            raise ValueError(f"norm.eps must be a number of at least 0, got {eps}")
        if momentum is not None and not 0 <= momentum <= 1:
            raise ValueError(f"norm.momentum must be a number from 0 to 1 or null, got {momentum}")
        self.dim = dim
        self.block_size = block_size
        self.eps = eps
        self.momentum = momentum
        self.tokens_per_statistic = 0  # of the newest training batch, the mean over positions
        self.weight = nn.Parameter(torch.ones(dim))
        self.bias = nn.Parameter(torch.zeros(dim))
        self.register_buffer("running_mean", torch.zeros(block_size, dim))
        self.register_buffer("running_var", torch.ones(block_size, dim))
        self.register_buffer("num_batches_tracked", torch.zeros(block_size, dtype=torch.long))

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        """Normalize x, (B, T, C), over the tokens where `mask` (B, T) is True."""
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
            n = real.sum(0).cumsum(0)  # (T, 1), tokens so far
            # sum(y^2) alone cancels (24 % off at mean 1000 in float32), so the sums are of y less
            # the mean of the first position, which every later one may know
            shift = torch.where(real[:, 0] > 0, y[:, 0], 0).sum(0).detach() / n[0].clamp(min=1)
            y = torch.where(real > 0, y - shift, 0)
            rest = y.sum(0).cumsum(0) / n.clamp(min=1)  # (T, C), the mean less the shift
            batch_var = y.square().sum(0).cumsum(0) / n.clamp(min=1) - rest.square()
            batch_var = batch_var.clamp(min=0)  # rounding may have taken it below
            rounding = (16 * torch.finfo(y.dtype).eps * (rest + shift)).square()
            enough = (n > 1) & (batch_var > rounding)
            self._move(rest + shift, batch_var, n, enough)
            mean = torch.where(enough, rest, mean - shift)
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
        sizes = f"{self.dim}, block_size={self.block_size}"
        return f"{sizes}, eps={self.eps}, momentum={self.momentum}"
