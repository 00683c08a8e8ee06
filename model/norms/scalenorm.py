"""ScaleNorm (Nguyen, Salazar 2019, https://arxiv.org/abs/1910.05895, equation 5).

Every token is put on a sphere of one learned radius:

    ||x||^2 = sum_c x_c^2
    y_c     = weight * x_c / max(||x||, eps)

       C features
      [ . . . . . ]  -> ||x||
    T [ . . . . . ]  -> ||x||
      [ . . . . . ]  -> ||x||

The length comes from the token alone, so **training and evaluation** compute the same thing, a
batch of one works, and no future token can leak.

It is RMSNorm with one gain for all features: ||x|| = sqrt(C) rms(x), so with weight = sqrt(C) at
the start it equals RMSNorm at its start. Rescaling a token changes nothing; shifting all its
features does, unlike in LayerNorm.
"""

import math

import torch
from torch import nn


def reference(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """The definition, over the last axis."""
    return weight * x / x.square().sum(-1, keepdim=True).sqrt().clamp(min=eps)


class ScaleNorm(nn.Module):
    """Normalize over the last axis, (..., C) -> the same, in training and evaluation alike.

    `weight`, a single number, starts at sqrt(C) (section 3.2 of the paper; GPT-NeoX starts at 1).

    Args:
        dim: C, the number of features.
        eps: the least length to divide by, 1e-5 as in the authors' code.

    Raises:
        ValueError: a negative eps, or an input whose last axis is not `dim`.

    >>> x = torch.randn(2, 3, 8, dtype=torch.float64)
    >>> theirs = nn.RMSNorm(8, eps=0.0).double()
    >>> torch.allclose(ScaleNorm(8).double()(x), theirs(x), rtol=0, atol=1e-6)  # sqrt(8): float32
    True
    """

    def __init__(self, dim: int, *, eps: float = 1e-5) -> None:
        super().__init__()
        if eps < 0:
            raise ValueError(f"norm.eps must be a number of at least 0, got {eps}")
        self.dim = dim
        self.eps = eps
        self.weight = nn.Parameter(torch.tensor(math.sqrt(dim)))

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        """Normalize x, (..., C); no use for `mask`: a token uses only itself."""
        if x.shape[-1] != self.dim:
            raise ValueError(f"expected {self.dim} features in the last axis, got {tuple(x.shape)}")
        y = x.to(torch.promote_types(x.dtype, torch.float32))  # a sum of squares needs the digits
        length: torch.Tensor = torch.linalg.vector_norm(y, dim=-1, keepdim=True)
        return (y * (self.weight / length.clamp(min=self.eps))).to(x.dtype)

    def extra_repr(self) -> str:
        """What `print(net)` shows."""
        return f"{self.dim}, eps={self.eps}"
