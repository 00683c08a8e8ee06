"""DyT, Dynamic Tanh (Zhu et al. 2025, https://arxiv.org/abs/2503.10622, equation 4).

No statistics at all; a norm's S-shaped response is imitated by a learned squashing of each number:

    y_c = weight_c * tanh(alpha * x_c) + bias_c        alpha: one learned number for a layer

       C features
      [ . . . . . ]
    T [ . . . . . ]     each number alone, no axis is reduced
      [ . . . . . ]

So **training and evaluation** compute the same thing, a batch of one works, and no future token can
leak. Nothing is rescaled either: where alpha * x is small, tanh is the identity and shrinks
nothing. Where |alpha x| > 2 it saturates.

**It needs inputs of size about 1.** Behind nanoGPT's N(0, 0.02) embeddings every block sees numbers
of 0.02, and training stays at the loss of guessing by frequency, at any learning rate. It trains
with `model.embed_scale=11.3` (sqrt(n_embd)). The paper's language models have a learned number that
starts there: add `model.learn_embed_scale=true`.
"""

import torch
from torch import nn


def reference(
    x: torch.Tensor, alpha: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor
) -> torch.Tensor:
    """The definition, with tanh written out."""
    return weight * (1 - 2 / (1 + torch.exp(2 * alpha * x))) + bias


class DyT(nn.Module):
    """Squash each number, (..., C) -> the same, in training and evaluation alike.

    `weight` starts at 1, `bias` at 0. alpha starts at 0.5 in the paper's vision models; in its
    language models the start falls with the width (1.0 at 1024, table 11), so here 1.0; try 0.5, 1
    and 2. A site can have its own: `+norm@model.attention_norm=dyt model.attention_norm.alpha=2`.

    Args:
        dim: C, the number of features.
        alpha: its start, any number.

    Raises:
        ValueError: an input whose last axis is not `dim`.

    >>> x = torch.randn(2, 3, 8)
    >>> torch.equal(DyT(8, alpha=0.5)(x), torch.tanh(0.5 * x))
    True
    """

    def __init__(self, dim: int, *, alpha: float = 1.0) -> None:
        super().__init__()
        self.dim = dim
        self.start = alpha
        self.alpha = nn.Parameter(torch.tensor(float(alpha)))
        self.weight = nn.Parameter(torch.ones(dim))
        self.bias = nn.Parameter(torch.zeros(dim))

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        """Squash x, (..., C); no use for `mask`: a number uses only itself."""
        if x.shape[-1] != self.dim:
            raise ValueError(f"expected {self.dim} features in the last axis, got {tuple(x.shape)}")
        y = x.to(torch.promote_types(x.dtype, torch.float32))
        return torch.addcmul(self.bias, torch.tanh(self.alpha * y), self.weight).to(x.dtype)

    def saturated(self, x: torch.Tensor) -> torch.Tensor:
        """Where x saturates: |alpha x| > 2, tanh above 0.96. The probes log the share of these."""
        return (self.alpha * x).abs() > 2

    def extra_repr(self) -> str:
        """What `print(net)` shows."""
        return f"{self.dim}, alpha={self.start}"
