"""No normalization: y = x, over no axis, the same in training and evaluation, no parameters.

The baseline that shows what a norm is for. It trains at the default scale of the weights, but
slowly: its blocks see embeddings of size 0.02, which every norm would blow up to 1.
`model.embed_scale=8` gives it an equal footing (docs/norms.md).
"""

import torch
from torch import nn


def reference(x: torch.Tensor) -> torch.Tensor:
    """The definition."""
    return 1 * x


class NoNorm(nn.Module):
    """The identity with a norm's signature (`nn.Identity` takes no mask and any option).

    Args:
        dim: C, the number of features; nothing depends on it.

    >>> x = torch.randn(2, 3, 4)
    >>> torch.equal(NoNorm(4)(x), nn.Identity()(x))
    True
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        """Return x, (..., C), as it is."""
        return x

    def extra_repr(self) -> str:
        """What `print(net)` shows."""
        return f"{self.dim}"
