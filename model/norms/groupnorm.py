"""GroupNorm of each token (Wu, He 2018, https://arxiv.org/abs/1803.08494, equation 1).

A token's features are cut into G slices, and each slice is normalized on its own:

    mu_g  = mean of the slice
    var_g = mean of (x_c - mu_g)^2 over the slice                   the biased variance
    y_c   = (x_c - mu_g) / sqrt(var_g + eps) * weight_c + bias_c    g: the slice that c lies in

       C features, G = 2
      [ . . . | . . . ]  -> mu, var of each half
    T [ . . . | . . . ]  -> mu, var of each half
      [ . . . | . . . ]  -> mu, var of each half

The statistics come from the token alone, so **training and evaluation** compute the same thing, a
batch of one works, and no future token can leak. G = 1 is LayerNorm.

`nn.GroupNorm` on (B, C, T) is another norm: it averages over time too, so the future leaks.
"""

import torch
from torch import nn


def reference(
    x: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    slices: int,
    eps: float,
) -> torch.Tensor:
    """The definition, slice by slice, over the last axis."""
    parts = []
    for part in x.chunk(slices, dim=-1):
        var = part.var(-1, correction=0, keepdim=True)
        parts.append((part - part.mean(-1, keepdim=True)) / (var + eps).sqrt())
    y = torch.cat(parts, dim=-1)
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


class GroupNorm(nn.Module):
    """Normalize G slices of the last axis, (..., C) -> the same, in training and evaluation alike.

    `weight` starts at 1, `bias` at 0, eps 1e-5 as in PyTorch. A `state_dict` of `nn.GroupNorm`
    loads.

    Args:
        dim: C, the number of features.
        groups: G, must divide C. A width below G is taken as one slice.
        eps: added to the variance.
        weight: learn a gain.
        bias: learn a shift.

    Raises:
        ValueError: an option out of its range, G does not divide C, or an input whose last axis is
            not `dim`.

    >>> x = torch.randn(2, 3, 8, dtype=torch.float64)
    >>> ours, theirs = GroupNorm(8, groups=2).double(), nn.GroupNorm(2, 8).double()
    >>> torch.allclose(ours(x), theirs(x.view(6, 8)).view(2, 3, 8), rtol=0, atol=1e-12)
    True
    """

    weight: nn.Parameter | None
    bias: nn.Parameter | None

    def __init__(
        self,
        dim: int,
        *,
        groups: int = 4,
        eps: float = 1e-5,
        weight: bool = True,
        bias: bool = True,
    ) -> None:
        super().__init__()
        if groups < 1:
            raise ValueError(f"norm.groups must be a whole number of at least 1, got {groups}")
        if dim >= groups and dim % groups:
            raise ValueError(f"norm.groups={groups} must divide the {dim} features")
        if eps < 0:
            raise ValueError(f"norm.eps must be a number of at least 0, got {eps}")
        self.dim = dim
        self.groups = groups
        self.slices = groups if dim >= groups else 1
        self.eps = eps
        self.register_parameter("weight", nn.Parameter(torch.ones(dim)) if weight else None)
        self.register_parameter("bias", nn.Parameter(torch.zeros(dim)) if bias else None)

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        """Normalize x, (..., C); no use for `mask`: a token uses only itself."""
        if x.shape[-1] != self.dim:
            raise ValueError(f"expected {self.dim} features in the last axis, got {tuple(x.shape)}")
        y = x.to(torch.promote_types(x.dtype, torch.float32))  # a sum of squares needs the digits
        parts = y.unflatten(-1, (self.slices, -1))  # (..., G, C / G)
        # Two passes: mean(x^2) - mu^2 cancels where the mean is large.
        centred = parts - parts.mean(-1, keepdim=True)
        length = torch.linalg.vector_norm(centred, dim=-1, keepdim=True)
        rstd = torch.rsqrt(length.square() / parts.shape[-1] + self.eps)
        y = torch.mul(centred, rstd).flatten(-2)  # (..., C)
        if self.weight is not None:
            y = y * self.weight
        if self.bias is not None:
            y = y + self.bias
        return y.to(x.dtype)

    def extra_repr(self) -> str:
        """What `print(net)` shows."""
        weight = self.weight is not None
        bias = self.bias is not None
        return f"{self.dim}, groups={self.groups}, eps={self.eps}, weight={weight}, bias={bias}"
