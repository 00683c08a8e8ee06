r"""LayerNorm (Ba, Kiros, Hinton 2016, https://arxiv.org/abs/1607.06450, equation 3).

Every token is normalized on its own, over its features:

    mu     = 1/C sum_c x_c
    var    = 1/C sum_c (x_c - mu)^2                                 the biased variance
    xhat_c = (x_c - mu) / sqrt(var + eps)
    y_c    = xhat_c * weight_c + bias_c

       C features
      [ . . . . . ]  -> mu, var
    T [ . . . . . ]  -> mu, var
      [ . . . . . ]  -> mu, var

The statistics of a token come from its row alone: no other token, no other sequence, no memory of
earlier batches. So **training and evaluation** compute the same thing, a batch of one works, and no
future token can leak into an earlier one.

The paper has no eps; inside the root it keeps the gradient finite where a token is constant.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.autograd.function import once_differentiable


def reference(x: torch.Tensor, weight: Any, bias: Any, eps: float) -> torch.Tensor:
    """The definition, over the last axis. mean(x^2) - mu^2 would cancel: 25 % off at mean 2000."""
    y = x.to(torch.promote_types(x.dtype, torch.float32))  # a sum of squares needs the digits
    y = y - y.mean(-1, keepdim=True)
    y = y * torch.rsqrt(y.square().mean(-1, keepdim=True) + eps)
    y = y if weight is None else y * weight
    return (y if bias is None else y + bias).to(x.dtype)


class LayerNorm(nn.Module):
    """Normalize over the last `len(normalized_shape)` axes, (..., *normalized_shape) -> the same.

    `weight` starts at 1 and `bias` at 0 (section 6 of the paper); eps is PyTorch's and nanoGPT's
    1e-5. A `state_dict` of `nn.LayerNorm` loads.

    Args:
        normalized_shape: C, the number of features, or a tuple such as (C, H, W).
        eps: added to the variance.
        weight: learn a gain.
        bias: learn a shift.

    Raises:
        ValueError: a negative eps, or an input whose last axes are not `normalized_shape`.

    >>> x = torch.randn(2, 3, 8, dtype=torch.float64)
    >>> ours, theirs = LayerNorm(8).double(), nn.LayerNorm(8).double()
    >>> torch.allclose(ours(x), theirs(x), rtol=0, atol=1e-12)
    True
    """

    weight: nn.Parameter | None
    bias: nn.Parameter | None

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        *,
        eps: float = 1e-5,
        weight: bool = True,
        bias: bool = True,
    ) -> None:
        super().__init__()
        if eps < 0:
            raise ValueError(f"norm.eps must be a number of at least 0, got {eps}")
        shape = normalized_shape if isinstance(normalized_shape, Sequence) else (normalized_shape,)
        self.normalized_shape = tuple(shape)
        self.eps = eps
        self.register_parameter("weight", nn.Parameter(torch.ones(shape)) if weight else None)
        self.register_parameter("bias", nn.Parameter(torch.zeros(shape)) if bias else None)

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        """Normalize x, (..., *normalized_shape); no use for `mask`: a token uses only itself."""
        shape = self.normalized_shape
        if x.shape[-len(shape) :] != shape:
            raise ValueError(f"expected {shape} as the last axes, got {tuple(x.shape)}")
        # torch.compile makes fast code of the definition by itself
        normalize: Any = reference if torch.compiler.is_compiling() else _Normalize.apply
        if len(shape) == 1:
            return normalize(x, self.weight, self.bias, self.eps)  # type: ignore[no-any-return]
        weight = None if self.weight is None else self.weight.flatten()
        bias = None if self.bias is None else self.bias.flatten()
        y: torch.Tensor = normalize(x.flatten(-len(shape)), weight, bias, self.eps)
        return y.view(x.shape)

    def extra_repr(self) -> str:
        """What `print(net)` shows."""
        weight = self.weight is not None
        bias = self.bias is not None
        return f"{self.normalized_shape}, eps={self.eps}, weight={weight}, bias={bias}"


class _Normalize(torch.autograd.Function):
    """The fast path: `reference` with a backward of its own, each working in one buffer.

    A change of x moves mu and var too. With g_c = dy_c weight_c and means over the features,

        dx_c = (g_c - mean(g) - xhat_c mean(g xhat)) / sqrt(var + eps)

    so dx is centred and orthogonal to xhat. dweight and dbias are the sums of dy xhat and of dy
    over the tokens. Autograd finds the same from the definition, slower. Rows are (N, C).
    """

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: Any, bias: Any, eps: float) -> torch.Tensor:
        rows = x.reshape(-1, x.shape[-1]).to(torch.promote_types(x.dtype, torch.float32))
        mean = rows.mean(1, keepdim=True)
        y = rows - mean
        length = torch.linalg.vector_norm(y, dim=1, keepdim=True)
        rstd = (length * length).div_(y.shape[1]).add_(eps).rsqrt_()  # (N, 1)
        gain = y.new_ones(y.shape[1]) if weight is None else weight.to(y.dtype)
        shift = y.new_zeros(1) if bias is None else bias.to(y.dtype)
        ctx.save_for_backward(rows, mean, rstd, gain)  # not xhat: x is kept anyway
        return torch.addcmul(shift, y.mul_(rstd), gain, out=y).view(x.shape).to(x.dtype)

    @staticmethod
    @once_differentiable  # a second derivative raises, or it would be silently wrong
    def backward(ctx: Any, dy: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        x, mean, rstd, gain = ctx.saved_tensors
        N, C = x.shape
        rows = dy.reshape(x.shape).to(x.dtype)
        dbias = rows.sum(0) if ctx.needs_input_grad[2] else None
        buffer = (x - mean).mul_(rstd).mul_(rows)  # xhat dy
        dweight = buffer.sum(0) if ctx.needs_input_grad[1] else None
        # sum of g and of g xhat over the features; `out` keeps autocast's hands off
        g = torch.mv(rows, gain, out=rstd.new_empty(N)).unsqueeze(1)
        g_xhat = torch.mv(buffer, gain, out=rstd.new_empty(N)).unsqueeze(1)
        torch.sub(x, mean, out=buffer).mul_(g_xhat.mul_(rstd)).add_(g)
        dx = buffer.addcmul_(rows, gain, value=-C).mul_(rstd / -C)
        return dx.view(dy.shape).to(dy.dtype), dweight, dbias, None
