"""`nn.RMSNorm` of PyTorch as it is, to compare `rmsnorm` with, in value and in speed.

    y = x / sqrt(mean(x^2) + eps) * weight              over the C features of each token

Training and evaluation compute the same thing. The lesson is in rmsnorm.py.
"""

import torch
from torch import nn


def reference(x: torch.Tensor, layer: nn.RMSNorm, eps: float) -> torch.Tensor:
    """The definition, over the last axis."""
    y = x / (x.square().mean(-1, keepdim=True) + eps).sqrt()
    return y if layer.weight is None else y * layer.weight


class TorchRMSNorm(nn.Module):
    """Normalize over the last axis, (..., C) -> the same; takes a mask and ignores it.

    Args:
        dim: C, the number of features.
        eps: added to the mean square. (PyTorch's own default, None, is the smallest step of the
            input's type: it changes the output with the precision.)
        weight: learn a gain.

    Raises:
        ValueError: a negative eps.

    >>> x = torch.randn(2, 3, 8)
    >>> torch.equal(TorchRMSNorm(8)(x), nn.RMSNorm(8, eps=1e-5)(x))
    True
    """

    def __init__(self, dim: int, *, eps: float = 1e-5, weight: bool = True) -> None:
        super().__init__()
        if eps < 0:
            raise ValueError(f"norm.eps must be a number of at least 0, got {eps}")
        self.dim = dim
        self.eps = eps
        self.layer = nn.RMSNorm(dim, eps=eps, elementwise_affine=weight)

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        """Normalize x, (..., C)."""
        dtype = next(self.parameters(), x).dtype  # PyTorch wants one for input and gain
        y: torch.Tensor = self.layer(x.to(torch.promote_types(x.dtype, dtype)))
        return y.to(x.dtype)

    def extra_repr(self) -> str:
        """What `print(net)` shows."""
        return f"{self.dim}, eps={self.eps}, weight={self.layer.weight is not None}"
