"""`nn.LayerNorm` of PyTorch as it is, to compare `layernorm` with, in value and in speed.

    y = (x - mean) / sqrt(var + eps) * weight + bias    over the C features of each token

Training and evaluation compute the same thing. The lesson is in layernorm.py.
"""

import torch
from torch import nn


def reference(x: torch.Tensor, layer: nn.LayerNorm, eps: float) -> torch.Tensor:
    """The definition, over the last axis."""
    y = x - x.mean(-1, keepdim=True)
    y = y / (y.square().mean(-1, keepdim=True) + eps).sqrt()
    y = y if layer.weight is None else y * layer.weight
    return y if layer.bias is None else y + layer.bias


class TorchLayerNorm(nn.Module):
    """Normalize over the last axis, (..., C) -> the same; takes a mask and ignores it.

    Args:
        dim: C, the number of features.
        eps: added to the variance.
        weight: learn a gain.
        bias: learn a shift (only with a gain, as in PyTorch).

    Raises:
        ValueError: a negative eps.

    >>> x = torch.randn(2, 3, 8)
    >>> torch.equal(TorchLayerNorm(8)(x), nn.LayerNorm(8)(x))
    True
    """

    def __init__(
        self, dim: int, *, eps: float = 1e-5, weight: bool = True, bias: bool = True
    ) -> None:
        super().__init__()
        if eps < 0:
            raise ValueError(f"norm.eps must be a number of at least 0, got {eps}")
        self.dim = dim
        self.eps = eps
        self.layer = nn.LayerNorm(dim, eps=eps, elementwise_affine=weight, bias=bias)

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        """Normalize x, (..., C)."""
        dtype = next(self.parameters(), x).dtype  # PyTorch wants one for input and gain
        y: torch.Tensor = self.layer(x.to(torch.promote_types(x.dtype, dtype)))
        return y.to(x.dtype)

    def extra_repr(self) -> str:
        """What `print(net)` shows."""
        weight = self.layer.weight is not None
        bias = self.layer.bias is not None
        return f"{self.dim}, eps={self.eps}, weight={weight}, bias={bias}"
