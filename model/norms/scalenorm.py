"""ScaleNorm (Nguyen, Salazar 2019, https://arxiv.org/abs/1910.05895, equation 5).

Every token is put on a sphere of one learned radius:

    y_c = weight * x_c / max(||x||, eps)         ||x||^2 = sum_c x_c^2

        C features           RMSNorm with one gain for all features: ||x|| = sqrt(C) RMS(x), so at
      [ . . . . . ]  -> norm the start (weight = sqrt(C)) it is RMSNorm at its start. The statistics
    T [ . . . . . ]  -> norm come from the token alone: training and evaluation compute the same
      [ . . . . . ]  -> norm thing, a batch of one works, no future token can leak.

Rescaling a token changes nothing; shifting all its features does, unlike in LayerNorm.
"""

import math

import torch
from torch import nn


class ScaleNorm(nn.Module):
    """Normalize over the last axis, (..., C) -> the same, in training and evaluation alike.

    `weight`, a single number, starts at sqrt(C) (section 3.2 of the paper; GPT-NeoX starts at 1).

    Args:
        dim: C.
        eps: the least length to divide by, 1e-5 as in the authors' code.

    Raises:
        ValueError: the input's last axis is not `dim`.

    >>> x = torch.randn(2, 3, 8, dtype=torch.float64)
    >>> theirs = nn.RMSNorm(8, eps=0.0).double()
    >>> torch.allclose(ScaleNorm(8).double()(x), theirs(x), rtol=0, atol=1e-6)  # sqrt(8): float32
    True
    """

    def __init__(self, dim: int, *, eps: float = 1e-5) -> None:
        super().__init__()
        self.dim, self.eps = dim, eps
        self.weight = nn.Parameter(torch.tensor(math.sqrt(dim)))

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        """Normalize x, (..., C); no use for `mask`: a token uses only itself."""
        if x.shape[-1] != self.dim:
            raise ValueError(
                f"ScaleNorm({self.dim}) got an input of shape {tuple(x.shape)}: "
                "its last axis must be the features"
            )
        # Half precision has too few digits for a sum of squares: the length in float32 or better.
        y = x.to(torch.promote_types(x.dtype, torch.float32))
        length: torch.Tensor = torch.linalg.vector_norm(y, dim=-1, keepdim=True)
        return (y * (self.weight / length.clamp(min=self.eps))).to(x.dtype)

    def extra_repr(self) -> str:
        """What `print(net)` shows."""
        return f"{self.dim}, eps={self.eps}"


def reference(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """The formula, for the tests."""
    return weight * x / x.square().sum(-1, keepdim=True).sqrt().clamp(min=eps)
