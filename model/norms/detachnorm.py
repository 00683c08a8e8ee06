"""DetachNorm (Xu et al. 2019, https://arxiv.org/abs/1911.07013, section 4): why LayerNorm helps.

The forward pass is LayerNorm's, over the features of each token:

    y_c = (x_c - mu) / sqrt(var + eps) * weight_c + bias_c

but the backward pass takes mu, var or both for constants, as if they did not depend on x:

    detach=both    dx = dy * weight / sqrt(var + eps), nothing is projected out
    detach=mean    the gradient is no longer re-centred (its sum over c is not 0)
    detach=var     the gradient is no longer re-scaled (not orthogonal to x - mu)

       C features
      [ . . . . . ]  -> mu, var
    T [ . . . . . ]  -> mu, var
      [ . . . . . ]  -> mu, var

The statistics come from the token alone, so **training and evaluation** compute the same thing, a
batch of one works, and no future token can leak.

If DetachNorm trains worse than LayerNorm, what helps is not the normalized forward pass but the
re-centred and re-scaled gradient. Its gradient is *not* the derivative of its output: a finite
difference check fails, by design.
"""

import torch
from torch import nn


def reference(
    x: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    eps: float,
    detach: str,
) -> torch.Tensor:
    """The definition, over the last axis: what is detached is a constant for the gradient."""
    mean = x.mean(-1, keepdim=True)
    var = x.var(-1, correction=0, keepdim=True)
    mean = mean if detach == "var" else mean.detach()
    var = var if detach == "mean" else var.detach()
    y = (x - mean) / (var + eps).sqrt()
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


class DetachNorm(nn.Module):
    """LayerNorm with statistics that no gradient flows through, (..., C) -> the same.

    `weight` starts at 1, `bias` at 0, eps 1e-5, as in LayerNorm.

    Args:
        dim: C, the number of features.
        detach: which statistics are constants for the gradient, `mean`, `var` or `both`.
        eps: added to the variance.
        weight: learn a gain.
        bias: learn a shift.

    Raises:
        ValueError: an option out of its range, or an input whose last axis is not `dim`.

    >>> x = torch.randn(2, 3, 8, dtype=torch.float64)
    >>> torch.allclose(DetachNorm(8).double()(x), nn.LayerNorm(8).double()(x), rtol=0, atol=1e-12)
    True
    """

    weight: nn.Parameter | None
    bias: nn.Parameter | None

    def __init__(
        self,
        dim: int,
        *,
        detach: str = "both",
        eps: float = 1e-5,
        weight: bool = True,
        bias: bool = True,
    ) -> None:
        super().__init__()
        if detach not in ("mean", "var", "both"):
            raise ValueError(f"norm.detach={detach} is not known; use mean, var or both")
        if eps < 0:
            raise ValueError(f"norm.eps must be a number of at least 0, got {eps}")
        self.dim = dim
        self.detach = detach
        self.eps = eps
        self.register_parameter("weight", nn.Parameter(torch.ones(dim)) if weight else None)
        self.register_parameter("bias", nn.Parameter(torch.zeros(dim)) if bias else None)

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        """Normalize x, (..., C); no use for `mask`: a token uses only itself."""
        if x.shape[-1] != self.dim:
            raise ValueError(f"expected {self.dim} features in the last axis, got {tuple(x.shape)}")
        y = x.to(torch.promote_types(x.dtype, torch.float32))  # a sum of squares needs the digits
        mean = y.mean(-1, keepdim=True)
        centred = y - (mean if self.detach == "var" else mean.detach())
        var = (y - mean).square().mean(-1, keepdim=True)
        y = centred * torch.rsqrt((var if self.detach == "mean" else var.detach()) + self.eps)
        if self.weight is not None:
            y = y * self.weight
        if self.bias is not None:
            y = y + self.bias
        return y.to(x.dtype)

    def extra_repr(self) -> str:
        """What `print(net)` shows."""
        weight = self.weight is not None
        bias = self.bias is not None
        return f"{self.dim}, detach={self.detach}, eps={self.eps}, weight={weight}, bias={bias}"
