r"""LayerNorm (Ba, Kiros, Hinton 2016, https://arxiv.org/abs/1607.06450, equation 3).

Every token is normalized on its own, over its features:

    mu    = 1/C sum_c x_c
    var   = 1/C sum_c (x_c - mu)^2          the biased variance
    y_c   = (x_c - mu) / sqrt(var + eps) * weight_c + bias_c

        C features              The statistics of a token come from that row alone: no other token,
      [ . . . . . ]  -> mu,var  no other sequence, no memory of earlier batches. So training and
    T [ . . . . . ]  -> mu,var  evaluation compute the same thing, a batch of one works, and no
      [ . . . . . ]  -> mu,var  future token can leak into an earlier one.

The paper has no eps. Inside the root it keeps the gradient finite where a token is constant;
outside (`std + eps`) the gradient there is NaN. Rescaling or shifting all of a token's features
changes nothing.
"""

from collections.abc import Sequence

import torch
from torch import nn


class LayerNorm(nn.Module):
    """Normalize over the last `len(normalized_shape)` axes, (..., *normalized_shape) -> the same.

    In training and in evaluation alike. `weight` starts at 1 and `bias` at 0 (section 6 of the
    paper); eps is PyTorch's and nanoGPT's 1e-5. A `state_dict` of `nn.LayerNorm` loads.

    Args:
        normalized_shape: C, or a tuple such as (C, H, W): one mean and variance for each leading
            index.
        eps: added to the variance.
        weight: learn a gain.
        bias: learn a shift.

    Raises:
        ValueError: the input's last axes are not `normalized_shape`.

    >>> x = torch.randn(2, 3, 8, dtype=torch.float64)
    >>> ours, theirs = LayerNorm(8).double(), nn.LayerNorm(8).double()
    >>> torch.allclose(ours(x), theirs(x), rtol=0, atol=1e-12)
    True
    """

    weight: nn.Parameter | None
    bias: nn.Parameter | None

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        *,
        eps: float = 1e-5,
        weight: bool = True,
        bias: bool = True,
    ) -> None:
        super().__init__()
        shape = (
            (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
        )
        self.normalized_shape, self.eps = shape, eps
        self.register_parameter("weight", nn.Parameter(torch.ones(shape)) if weight else None)
        self.register_parameter("bias", nn.Parameter(torch.zeros(shape)) if bias else None)

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        """Normalize x, (..., *normalized_shape); no use for `mask`: a token uses only itself."""
        if x.shape[-len(self.normalized_shape) :] != self.normalized_shape:
            raise ValueError(
                f"LayerNorm({self.normalized_shape}) got an input of shape {tuple(x.shape)}: "
                "its last axes must be the normalized ones"
            )
        axes = tuple(range(-len(self.normalized_shape), 0))
        # Half precision has too few digits for a sum of squares: statistics in float32 or better.
        y = x.to(torch.promote_types(x.dtype, torch.float32))
        # Two passes. mean(x^2) - mu^2 cancels: in float32 it is off by 25 % at mean 2000, then
        # negative.
        centred = y - y.mean(axes, keepdim=True)
        centred = centred - centred.mean(axes, keepdim=True)  # takes out the first mean's rounding
        y = centred * torch.rsqrt(centred.square().mean(axes, keepdim=True) + self.eps)
        if self.weight is not None:
            y = y * self.weight
        if self.bias is not None:
            y = y + self.bias
        return y.to(x.dtype)

    def extra_repr(self) -> str:
        """What `print(net)` shows."""
        return (
            f"{self.normalized_shape}, eps={self.eps}, "
            f"weight={self.weight is not None}, bias={self.bias is not None}"
        )
