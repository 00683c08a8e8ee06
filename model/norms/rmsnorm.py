r"""RMSNorm (Zhang, Sennrich 2019, https://arxiv.org/abs/1910.07467, equation 4).

LayerNorm without the centring: every token is divided by its own root mean square,

    rms = sqrt(1/k sum_{c <= k} x_c^2 + eps)
    y_c = x_c / rms * weight_c

with k = C, all features. pRMSNorm (section 3.2) estimates rms from the first k = p C of them.

       C features
      [ . . . . . ]  -> rms
    T [ . . . . . ]  -> rms
      [ . . . . . ]  -> rms

The statistics come from the token alone, so **training and evaluation** compute the same thing, a
batch of one works, and no future token can leak. Rescaling a token changes nothing; shifting all
its features does, unlike in LayerNorm.

eps is added inside the root, as in Llama (1e-5) and PyTorch; the authors' code adds 1e-8 outside.
There is no bias in the paper's text models, and none here.
"""

from typing import Any

import torch
from torch import nn
from torch.autograd.function import once_differentiable


def reference(x: torch.Tensor, weight: Any, k: int, eps: float) -> torch.Tensor:
    """The definition, over the last axis."""
    y = x.to(torch.promote_types(x.dtype, torch.float32))  # a sum of squares needs the digits
    y = y * torch.rsqrt(y[..., :k].square().mean(-1, keepdim=True) + eps)
    return (y if weight is None else y * weight).to(x.dtype)


class RMSNorm(nn.Module):
    """Normalize over the last axis, (..., C) -> the same, in training and evaluation alike.

    `weight` starts at 1. A `state_dict` of `nn.RMSNorm` loads.

    Args:
        dim: C, the number of features.
        p: the fraction of the features that rms is taken from, at least one feature (6.25 % in the
            paper's pRMSNorm).
        eps: added to the mean square.
        weight: learn a gain.

    Raises:
        ValueError: an option out of its range, or an input whose last axis is not `dim`.

    >>> x = torch.randn(2, 3, 8, dtype=torch.float64)
    >>> ours, theirs = RMSNorm(8).double(), nn.RMSNorm(8, eps=1e-5).double()
    >>> torch.allclose(ours(x), theirs(x), rtol=0, atol=1e-12)
    True
    """

    weight: nn.Parameter | None

    def __init__(self, dim: int, *, p: float = 1.0, eps: float = 1e-5, weight: bool = True) -> None:
        super().__init__()
        if not 0 < p <= 1:
            raise ValueError(f"norm.p must be a number above 0 and at most 1, got {p}")
        if eps < 0:
            raise ValueError(f"norm.eps must be a number of at least 0, got {eps}")
        self.dim = dim
        self.p = p
        self.k = max(1, int(p * dim + 1e-9))  # 0.29 of 100 are 29
        self.eps = eps
        self.register_parameter("weight", nn.Parameter(torch.ones(dim)) if weight else None)

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        """Normalize x, (..., C); no use for `mask`: a token uses only itself."""
        if x.shape[-1] != self.dim:
            raise ValueError(f"expected {self.dim} features in the last axis, got {tuple(x.shape)}")
        # torch.compile makes fast code of the definition by itself
        normalize: Any = reference if torch.compiler.is_compiling() else _Normalize.apply
        y: torch.Tensor = normalize(x, self.weight, self.k, self.eps)
        return y

    def extra_repr(self) -> str:
        """What `print(net)` shows."""
        return f"{self.dim}, p={self.p}, eps={self.eps}, weight={self.weight is not None}"


class _Normalize(torch.autograd.Function):
    """The fast path: `reference` with a backward of its own, each working in one buffer.

    With xhat = x / rms and g_c = dy_c weight_c,

        dx_c = (g_c - [c <= k] xhat_c 1/k sum(g xhat)) / rms

    and dweight is the sum of dy xhat over the tokens. For k = C the gradient is orthogonal to x
    (where eps is small), but not centred. Autograd finds the same from the definition, slower.
    Rows are (N, C).
    """

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: Any, k: int, eps: float) -> torch.Tensor:
        rows = x.reshape(-1, x.shape[-1]).to(torch.promote_types(x.dtype, torch.float32))
        length = torch.linalg.vector_norm(rows[:, :k], dim=1, keepdim=True)
        rstd = (length * length).div_(k).add_(eps).rsqrt_()  # (N, 1)
        gain = rows.new_ones(rows.shape[1]) if weight is None else weight.to(rows.dtype)
        ctx.save_for_backward(rows, rstd, gain)  # not xhat: x is kept anyway
        ctx.k = k
        y: torch.Tensor = (rows * rstd).mul_(gain)
        return y.view(x.shape).to(x.dtype)

    @staticmethod
    @once_differentiable  # a second derivative raises, or it would be silently wrong
    def backward(ctx: Any, dy: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        x, rstd, gain = ctx.saved_tensors
        rows = dy.reshape(x.shape).to(x.dtype)
        buffer = (x * rstd).mul_(rows)  # xhat dy
        dweight = buffer.sum(0) if ctx.needs_input_grad[1] else None
        # sum of g xhat over the features; `out` keeps autocast's hands off
        g_xhat = torch.mv(buffer, gain, out=rstd.new_empty(len(x))).unsqueeze(1)
        torch.mul(x, g_xhat.mul_(rstd).div_(-ctx.k), out=buffer)
        buffer[:, ctx.k :] = 0  # features that rms does not see
        dx = buffer.addcmul_(rows, gain).mul_(rstd)
        return dx.view(dy.shape).to(dy.dtype), dweight, None, None
