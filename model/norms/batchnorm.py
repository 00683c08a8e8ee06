r"""BatchNorm over batch and time.

The source is Ioffe, Szegedy 2015 (https://arxiv.org/abs/1502.03167), algorithm 1. Every feature is
normalized on its own, over all n = B T tokens of the batch:

    mu_c  = mean of x_c over the n tokens
    var_c = mean of (x_c - mu_c)^2                                  the biased variance
    y_c   = (x_c - mu_c) / sqrt(var_c + eps) * weight_c + bias_c

            C features
          [ . . . . . ]
    B x T [ . . . . . ]
          [ . . . . . ]
            | | | | |
            mu, var of each feature

The statistics run down the columns, through every token of every sequence.

**In training the future leaks.** At position t the statistics contain the tokens after t, and a
model can lower its *training* loss through that channel. In evaluation it is closed, so compare
norms in evaluation mode.

**Training and evaluation differ.** In training the statistics are those of the (micro-)batch.
Running statistics move towards them at each step,

    running = (1 - momentum) running + momentum batch

with the *unbiased* variance n / (n - 1) var, and are used in evaluation. They start at 0 and 1; of
this start 35 % is left after 10 steps and 1 % after 44.

With `ghost` the batch is cut into sub-batches that are normalized one after another, each with its
own statistics (Hoffer, Hubara, Soudry 2017, https://arxiv.org/abs/1705.08741).
"""

from itertools import repeat
from typing import Any

import torch
from torch import nn


def reference(
    x: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    eps: float,
    ghost: int | None,
    running_mean: torch.Tensor,
    running_var: torch.Tensor,
    training: bool,
) -> torch.Tensor:
    """The definition, for x (B, T, C); running statistics are those from before this step."""
    outputs = []
    for rows in x.split(ghost or len(x)):
        mean, var = running_mean, running_var
        if training:
            mean = rows.mean((0, 1))
            var = (rows - mean).square().mean((0, 1))
        outputs.append((rows - mean) / (var + eps).sqrt())
    y = torch.cat(outputs)
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


class BatchNorm(nn.Module):
    """Normalize each feature over batch and time, (B, T, C) -> the same; any (..., C) works.

    `weight` starts at 1 and `bias` at 0. Equal to `nn.BatchNorm1d(C)` on the (B*T, C) view, whose
    `state_dict` loads.

    Args:
        dim: C, the number of features.
        eps: added to the variance.
        momentum: weight of the newest batch in the running statistics; None averages over all.
        affine: learn a gain and a shift.
        ghost: sequences in a sub-batch with its own statistics (the last may be smaller), or None.
        use_mask: leave padding out of the statistics (it becomes 0 in training).

    Raises:
        ValueError: an option out of its range, an input whose last axis is not `dim`, or, in
            training, fewer than two (real) tokens.

    >>> x = torch.randn(4, 3, 8)
    >>> torch.allclose(BatchNorm(8)(x), nn.BatchNorm1d(8)(x.mT).mT, atol=1e-5)
    True
    """

    weight: nn.Parameter | None
    bias: nn.Parameter | None
    running_mean: torch.Tensor
    running_var: torch.Tensor
    num_batches_tracked: torch.Tensor

    def __init__(
        self,
        dim: int,
        *,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        ghost: int | None = None,
        use_mask: bool = True,
    ) -> None:
        super().__init__()
        if eps < 0:
            raise ValueError(f"norm.eps must be a number of at least 0, got {eps}")
        if momentum is not None and not 0 <= momentum <= 1:
            raise ValueError(f"norm.momentum must be a number from 0 to 1 or null, got {momentum}")
        if ghost is not None and ghost < 1:
            raise ValueError(
                f"norm.ghost must be a whole number of at least 1 or null, got {ghost}"
            )
        self.dim = dim
        self.eps = eps
        self.momentum = momentum
        self.affine = affine
        self.ghost = ghost
        self.use_mask = use_mask
        self.tokens_per_statistic = 0  # of the newest training batch
        self.register_parameter("weight", nn.Parameter(torch.ones(dim)) if affine else None)
        self.register_parameter("bias", nn.Parameter(torch.zeros(dim)) if affine else None)
        self.register_buffer("running_mean", torch.zeros(dim))
        self.register_buffer("running_var", torch.ones(dim))
        self.register_buffer("num_batches_tracked", torch.tensor(0))

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        """Normalize x, (B, T, C), over the tokens where `mask` (B, T) is True."""
        if x.shape[-1] != self.dim:
            raise ValueError(f"expected {self.dim} features in the last axis, got {tuple(x.shape)}")
        if self.training and self.ghost and len(x) > self.ghost:
            masks = repeat(None) if mask is None else mask.split(self.ghost)
            parts = zip(x.split(self.ghost), masks)  # noqa: B905  `repeat` has no end
            return torch.cat([self.forward(part, real) for part, real in parts])
        y = x.to(torch.promote_types(x.dtype, torch.float32))  # a sum of squares needs the digits
        weight = y.new_ones(1) if self.weight is None else self.weight
        bias = y.new_zeros(1) if self.bias is None else self.bias
        if not self.training:
            scale = weight * torch.rsqrt(self.running_var + self.eps)
            return ((y - self.running_mean) * scale + bias).to(x.dtype)
        mask = mask if self.use_mask else None
        tokens = y if mask is None else y[mask]  # (..., C), n of them
        n = tokens.numel() // self.dim
        if n < 2:
            raise ValueError(f"a variance needs at least 2 tokens, got {n}: raise data.batch_size")
        normalize: Any = _Normalize.apply
        z, mean, var = normalize(tokens, weight, bias, self.eps)
        self._move(mean, var, n)
        z = z if mask is None else torch.zeros_like(y).masked_scatter(mask[..., None], z)
        return z.to(x.dtype)

    def _move(self, mean: torch.Tensor, var: torch.Tensor, n: int) -> None:
        """Move the running statistics towards the mean and variance (C) of n tokens."""
        self.tokens_per_statistic = n
        self.num_batches_tracked += 1
        rate = 1 / int(self.num_batches_tracked) if self.momentum is None else self.momentum
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), rate)
        self.running_var.lerp_((var * (n / (n - 1))).to(self.running_var.dtype), rate)

    def extra_repr(self) -> str:
        """What `print(net)` shows."""
        options = f"eps={self.eps}, momentum={self.momentum}, affine={self.affine}"
        return f"{self.dim}, {options}, ghost={self.ghost}, use_mask={self.use_mask}"


class _Normalize(torch.autograd.Function):
    """The fast path in training: tokens (..., C) -> output, mean, var, with a backward of its own.

    A change of x moves the statistics too. With xhat = (x - mu) / sqrt(var + eps), g = dy weight
    and means over the n tokens,

        dx = (g - mean(g) - xhat mean(g xhat)) / sqrt(var + eps)
        dweight = sum of dy xhat
        dbias = sum of dy

    Autograd finds the same from the definition, slower. Rows are (n, C).
    """

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: Any, bias: Any, eps: float) -> Any:
        mean = x.reshape(-1, x.shape[-1]).mean(0)
        centred = x.reshape(-1, x.shape[-1]) - mean
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
        rows = dy.reshape(centred.shape)
        share = scale / -len(centred)
        product = rows * centred
        dbias = rows.sum(0)
        dweight = product.sum(0).mul_(rstd)
        product = torch.addcmul(share * dbias, rows, scale, out=product)
        dx = product.addcmul_(centred, share * rstd * dweight).view(dy.shape)
        return dx, dweight, dbias, None
