"""Derf, Dynamic erf (Chen et al. 2025, https://arxiv.org/abs/2512.10938).

DyT's successor: the error function in the place of tanh, and a learned shift inside:

    y_c    = weight_c * erf(alpha * x_c + shift) + bias_c
    erf(z) = 2 / sqrt(pi) * integral from 0 to z of exp(-u^2) du

with one learned alpha and one learned shift for a layer.

       C features
      [ . . . . . ]
    T [ . . . . . ]     each number alone, no axis is reduced
      [ . . . . . ]

So **training and evaluation** compute the same thing, a batch of one works, and no future token can
leak. Nothing is rescaled.

Like DyT it needs inputs of size about 1: use `model.embed_scale=11.3` (sqrt(n_embd)). erf is the
steeper of the two (its slope at 0 is 1.13, that of tanh 1) and saturates sooner.
"""

import torch
from torch import nn


def reference(
    x: torch.Tensor,
    alpha: torch.Tensor,
    shift: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
) -> torch.Tensor:
    """The definition, with erf(z) = 2 Phi(sqrt(2) z) - 1 through the normal distribution."""
    phi: torch.Tensor = torch.special.ndtr(2**0.5 * (alpha * x + shift))
    return weight * (2 * phi - 1) + bias


class Derf(nn.Module):
    """Squash each number, (..., C) -> the same, in training and evaluation alike.

    `weight` starts at 1, `bias` and `shift` at 0, alpha at 0.5 (the authors' code; its GPT-2 has
    1.0 for every site).

    Args:
        dim: C, the number of features.
        alpha: its start, any number.

    Raises:
        ValueError: an input whose last axis is not `dim`.

    >>> x = torch.randn(2, 3, 8)
    >>> torch.equal(Derf(8, alpha=0.5)(x), torch.erf(0.5 * x))
    True
    """

    def __init__(self, dim: int, *, alpha: float = 0.5) -> None:
        super().__init__()
        self.dim = dim
        self.start = alpha
        self.alpha = nn.Parameter(torch.tensor(float(alpha)))
        self.shift = nn.Parameter(torch.tensor(0.0))
        self.weight = nn.Parameter(torch.ones(dim))
        self.bias = nn.Parameter(torch.zeros(dim))

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        """Squash x, (..., C); no use for `mask`: a number uses only itself."""
        if x.shape[-1] != self.dim:
            raise ValueError(f"expected {self.dim} features in the last axis, got {tuple(x.shape)}")
        y = x.to(torch.promote_types(x.dtype, torch.float32))
        y = torch.erf(self.alpha * y + self.shift)
        return torch.addcmul(self.bias, y, self.weight).to(x.dtype)

    def saturated(self, x: torch.Tensor) -> torch.Tensor:
        """Where x saturates: |alpha x + shift| > 1.48, erf above 0.96 as DyT's tanh at 2."""
        return (self.alpha * x + self.shift).abs() > 1.48

    def extra_repr(self) -> str:
        """What `print(net)` shows."""
        return f"{self.dim}, alpha={self.start}"
