"""DetachNorm (Xu et al. 2019, https://arxiv.org/abs/1911.07013, section 4): why LayerNorm helps.

The forward pass is LayerNorm's, to the bit of the formula:

    y_c = (x_c - mu) / sqrt(var + eps) * weight_c + bias_c

but the backward pass takes mu, var or both for constants, as if they did not depend on x:

    detach=both    dx = dy * weight / sqrt(var + eps)                    nothing is projected out
    detach=mean    the gradient is no longer re-centred (its sum over c is not 0)
    detach=var     the gradient is no longer re-scaled (not orthogonal to x - mu)

        C features           Over the features of each token, as LayerNorm: training and evaluation
      [ . . . . . ]  -> mu,var compute the same thing, a batch of one works, no future can leak.
    T [ . . . . . ]  -> mu,var

If DetachNorm trains worse than LayerNorm, what helps is not the normalized forward pass but the
re-centred and re-scaled gradient. Its gradient is *not* the derivative of its output: a finite
difference check fails, by design.
"""

import torch
from torch import nn


class DetachNorm(nn.Module):
    """LayerNorm with statistics that no gradient flows through, (..., C) -> the same.

    `weight` starts at 1, `bias` at 0, eps 1e-5, as in LayerNorm.

    Args:
        dim: C.
        detach: which statistics are constants for the gradient, `mean`, `var` or `both`.
        eps: added to the variance.
        weight: learn a gain.
        bias: learn a shift.

    Raises:
        ValueError: another `detach`, or the input's last axis is not `dim`.

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
        self.dim, self.detach, self.eps = dim, detach, eps
        self.register_parameter("weight", nn.Parameter(torch.ones(dim)) if weight else None)
        self.register_parameter("bias", nn.Parameter(torch.zeros(dim)) if bias else None)

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        """Normalize x, (..., C); no use for `mask`: a token uses only itself."""
        if x.shape[-1] != self.dim:
            raise ValueError(
                f"DetachNorm({self.dim}) got an input of shape {tuple(x.shape)}: "
                "its last axis must be the features"
            )
        # Half precision has too few digits for a sum of squares: statistics in float32 or better.
        y = x.to(torch.promote_types(x.dtype, torch.float32))
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
        return (
            f"{self.dim}, detach={self.detach}, eps={self.eps}, "
            f"weight={self.weight is not None}, bias={self.bias is not None}"
        )


def reference(
    x: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    eps: float,
    detach: str,
) -> torch.Tensor:
    """The formula, for the tests: what is detached is a leaf of its own."""
    mean, var = x.mean(-1, keepdim=True), x.var(-1, correction=0, keepdim=True)
    mean = mean if detach == "var" else mean.detach()
    var = var if detach == "mean" else var.detach()
    y = (x - mean) / (var + eps).sqrt()
    y = y if weight is None else y * weight
    return y if bias is None else y + bias
