r"""BatchNorm over batch and time (Ioffe, Szegedy 2015, arxiv.org/abs/1502.03167, algorithm 1).

Every feature is normalized on its own, over all n = B T tokens:

    mu_c = mean of x_c     var_c = mean of (x_c - mu_c)^2     y_c = (x_c - mu_c) / sqrt(var_c + eps)
            C features      then times weight_c, plus bias_c. The statistics run down the columns,
          [ . . . . . ]     through every token of every sequence.
    B x T [ . . . . . ]     **In training the future leaks**: at position t they contain the tokens
            | | | | |       after t, and a model can lower its *training* loss through that channel.
          mu, var of each   In evaluation it is closed: compare in eval mode.

**Training and evaluation differ.** In training the statistics are the (micro-)batch's. Running ones
move towards them, `running = (1 - momentum) running + momentum batch`, with the *unbiased* variance
n / (n - 1) var, for evaluation. Of their start, 0 and 1, 35 % is left after 10 steps, 1 % after 44.
"""

from itertools import repeat
from typing import Any

import torch
from torch import nn


class BatchNorm(nn.Module):
    """Normalize each feature over batch and time, (B, T, C) -> the same; any (..., C) works.

    Equal to `nn.BatchNorm1d(C)` on the (B*T, C) view; its `state_dict` loads.

    Args:
        dim: C, the number of features.
        eps: added to the variance.
        momentum: weight of the newest batch in the running statistics; None averages over all.
        affine: learn a gain and a shift.
        ghost: sequences in a sub-batch with its own statistics (Hoffer et al. 2017), or None.
        use_mask: leave padding out of the statistics (it becomes 0 in training).

    Raises:
        ValueError: in training, fewer than two (real) tokens.

    >>> x = torch.randn(4, 3, 8)
    >>> torch.allclose(BatchNorm(8)(x), nn.BatchNorm1d(8)(x.mT).mT, atol=1e-5)
    True
    """

    running_mean: torch.Tensor
    running_var: torch.Tensor
    num_batches_tracked: torch.Tensor

    def __init__(
        self, dim: int, *, eps: float = 1e-5, momentum: float | None = 0.1,
        affine: bool = True, ghost: int | None = None, use_mask: bool = True,
    ) -> None:  # fmt: skip
        super().__init__()
        if ghost is not None and ghost < 1:
            raise ValueError(f"norm.ghost={ghost} must be at least 1 sequence, or null")
        self.dim, self.eps, self.momentum, self.affine = dim, eps, momentum, affine
        self.ghost, self.use_mask, self.tokens_per_statistic = ghost, use_mask, 0
        self.weight: Any = nn.Parameter(torch.ones(dim)) if affine else None
        self.bias: Any = nn.Parameter(torch.zeros(dim)) if affine else None
        self.register_buffer("running_mean", torch.zeros(dim))
        self.register_buffer("running_var", torch.ones(dim))
        self.register_buffer("num_batches_tracked", torch.tensor(0))

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        """Normalize x, (B, T, C), over the tokens where `mask` (B, T) is True."""
        if x.shape[-1] != self.dim:
            raise ValueError(f"BatchNorm({self.dim}) needs that last axis, got {tuple(x.shape)}")
        if self.training and self.ghost and len(x) > self.ghost:
            masks = repeat(None) if mask is None else mask.split(self.ghost)
            parts = zip(x.split(self.ghost), masks)  # noqa: B905  `repeat` has no end
            return torch.cat([self.forward(part, real) for part, real in parts])
        y = x.to(torch.promote_types(x.dtype, torch.float32))  # a sum of squares needs the digits
        weight, bias = (self.weight, self.bias) if self.affine else (y.new_ones(1), y.new_zeros(1))
        if not self.training:
            scale = weight * torch.rsqrt(self.running_var + self.eps)
            return ((y - self.running_mean) * scale + bias).to(x.dtype)
        mask = mask if self.use_mask else None
        tokens = y if mask is None else y[mask]  # (..., C), n of them
        if (n := tokens.numel() // self.dim) < 2:
            raise ValueError(f"BatchNorm needs at least 2 tokens, got {n}: raise data.batch_size")
        z, mean, var = _Normalize.apply(tokens, weight, bias, self.eps)  # type: ignore
        self.tokens_per_statistic = n
        self.num_batches_tracked += 1
        rate = 1 / int(self.num_batches_tracked) if self.momentum is None else self.momentum
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), rate)
        self.running_var.lerp_((var * (n / (n - 1))).to(self.running_var.dtype), rate)
        z = z if mask is None else torch.zeros_like(y).masked_scatter(mask[..., None], z)
        return z.to(x.dtype)

    def extra_repr(self) -> str:
        """What `print(net)` shows."""
        options = f"eps={self.eps}, momentum={self.momentum}, affine={self.affine}"
        return f"{self.dim}, {options}, ghost={self.ghost}, use_mask={self.use_mask}"


class _Normalize(torch.autograd.Function):
    """x -> y, mean, var; dx = (g - mean(g) - xhat mean(g xhat)) / sqrt(var + eps), g = dy gain."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: Any, bias: Any, eps: float) -> Any:
        mean = x.reshape(-1, x.shape[-1]).mean(0)
        centred = x.reshape(-1, x.shape[-1]) - mean  # (n, C)
        buffer = centred * centred
        var = buffer.mean(0)
        rstd = torch.rsqrt(var + eps)
        scale = rstd * weight
        ctx.save_for_backward(centred, rstd, scale)
        ctx.mark_non_differentiable(mean, var)
        return torch.addcmul(bias, centred, scale, out=buffer).view(x.shape), mean, var

    @staticmethod
    @torch.autograd.function.once_differentiable  # a second derivative raises
    def backward(ctx: Any, dy: torch.Tensor, *_: Any) -> tuple[torch.Tensor | None, ...]:
        centred, rstd, scale = ctx.saved_tensors
        rows, share = dy.reshape(centred.shape), scale / -len(centred)
        product = rows * centred
        dbias, dweight = rows.sum(0), product.sum(0).mul_(rstd)
        product = torch.addcmul(share * dbias, rows, scale, out=product)
        dx = product.addcmul_(centred, share * rstd * dweight).view(dy.shape)
        return dx, dweight, dbias, None
