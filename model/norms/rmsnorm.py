r"""RMSNorm (Zhang, Sennrich 2019, https://arxiv.org/abs/1910.07467, equation 4).

LayerNorm without the centring: every token is divided by its own root mean square,

    rms = sqrt(1/k sum_{c <= k} x_c^2 + eps)        y_c = x_c / rms * weight_c

with k = C, all features. pRMSNorm (section 3.2) estimates rms from the first k = p C of them.

        C features           The statistics come from the token alone: training and evaluation
      [ . . . . . ]  -> rms  compute the same thing, a batch of one works, no future token can
    T [ . . . . . ]  -> rms  leak. Rescaling a token changes nothing; shifting all its features
      [ . . . . . ]  -> rms  does, unlike in LayerNorm.

eps stands inside the root, as in Llama (1e-5) and PyTorch; the authors' code adds 1e-8 outside.
There is no bias in the paper's text models, and none here.

Backward. With xhat = x / rms and g_c = dy_c weight_c,

    dx_c = (g_c - [c <= k] xhat_c 1/k sum(g xhat)) / rms        dweight = sum of dy xhat

For k = C the gradient is orthogonal to x (where eps is small), but not centred.
"""

from typing import Any

import torch
from torch import nn
from torch.autograd.function import once_differentiable


class RMSNorm(nn.Module):
    """Normalize over the last axis, (..., C) -> the same, in training and evaluation alike.

    `weight` starts at 1. A `state_dict` of `nn.RMSNorm` loads.

    Args:
        dim: C.
        p: the fraction of the features that rms is taken from; at least one is (6.25 % in the
            paper's pRMSNorm).
        eps: added to the mean square.
        weight: learn a gain.

    Raises:
        ValueError: p not above 0 and at most 1, or the input's last axis is not `dim`.

    >>> x = torch.randn(2, 3, 8, dtype=torch.float64)
    >>> ours, theirs = RMSNorm(8).double(), nn.RMSNorm(8, eps=1e-5).double()
    >>> torch.allclose(ours(x), theirs(x), rtol=0, atol=1e-12)
    True
    """

    weight: nn.Parameter | None

    def __init__(self, dim: int, *, p: float = 1.0, eps: float = 1e-5, weight: bool = True) -> None:
        super().__init__()
        if not 0 < p <= 1:
            raise ValueError(f"norm.p={p} must be above 0 and at most 1, a fraction of features")
        self.dim, self.p, self.eps = dim, p, eps
        self.k = max(1, int(p * dim + 1e-9))  # 0.29 of 100 are 29
        self.register_parameter("weight", nn.Parameter(torch.ones(dim)) if weight else None)

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        """Normalize x, (..., C); no use for `mask`: a token uses only itself."""
        if x.shape[-1] != self.dim:
            raise ValueError(
                f"RMSNorm({self.dim}) got an input of shape {tuple(x.shape)}: "
                "its last axis must be the features"
            )
        normalize: Any = reference if torch.compiler.is_compiling() else _Normalize.apply
        y: torch.Tensor = normalize(x, self.weight, self.k, self.eps)
        return y

    def extra_repr(self) -> str:
        """What `print(net)` shows."""
        return f"{self.dim}, p={self.p}, eps={self.eps}, weight={self.weight is not None}"


def reference(x: torch.Tensor, weight: Any, k: int, eps: float) -> torch.Tensor:
    """The formula over the last axis."""
    y = x.to(torch.promote_types(x.dtype, torch.float32))  # a sum of squares needs the digits
    y = y * torch.rsqrt(y[..., :k].square().mean(-1, keepdim=True) + eps)
    return (y if weight is None else y * weight).to(x.dtype)


class _Normalize(torch.autograd.Function):
    """`reference` and its derivative, working in one buffer each: rows are (N, C)."""

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
