r"""PowerNorm (Shen et al. 2020, https://arxiv.org/abs/2003.07845, algorithms 1 and 2).

BatchNorm for language: no mean, and *running* second moments in training too. Each of G slices of a
token is first divided by its root mean square (the authors' GroupScaling); then, for each feature,

    xhat  = x / sqrt(psi^2 + eps)
    y     = xhat * weight + bias
    psi^2 = (1 - m) psi^2 + m mean(x^2)             over all B T tokens; m = 0.1 (alpha = 0.9)

            C features
          [ . . . . . ]
    B x T [ . . . . . ]
          [ . . . . . ]
            | | | | |
            psi of each feature

In the warm-up psi^2 is this batch's mean(x^2), over all tokens, so the future leaks. After it psi^2
is that of earlier steps, and nothing leaks. The authors' warm-up of 10,000 steps never ends in a
short run: it is 10 % of the steps here. Steps are forward passes in training.

**Training and evaluation differ** in the warm-up; after it psi only moves between two steps.

**The backward pass is not the derivative.** With g = dy weight and nu, another running statistic,

    dx = (g - nu xhat) / sqrt(psi^2 + eps)
    nu = nu (1 - m mean(xhat^2)) + m mean(g xhat)

which approximates BatchNorm's gradient, where mean(g xhat) takes the place of nu. The backward pass
writes nu, and nu is saved with the weights.
"""

from functools import partial

import torch
from torch import nn


def reference(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    slices: int | None,
    eps: float,
    running_square: torch.Tensor,
    nu: torch.Tensor,
    num_batches_tracked: int,
    warmup_steps: int,
    training: bool,
) -> torch.Tensor:
    """The definition, for x (B, T, C), with the paper's gradient in training.

    Running statistics are those from before this step.
    """
    x = scaled(x, slices, eps)
    warming = training and num_batches_tracked < warmup_steps
    square = x.detach().square().mean((0, 1)) if warming else running_square
    xhat = x / (square + eps).sqrt()
    if training and xhat.requires_grad:
        xhat.register_hook(partial(torch.sub, other=nu * xhat.detach()))
    return xhat * weight + bias


def scaled(x: torch.Tensor, slices: int | None, eps: float) -> torch.Tensor:
    """GroupScaling: each slice of a token's features over its root mean square, (..., C)."""
    parts = x.unflatten(-1, (slices or x.shape[-1], -1))
    rms = (parts.square().mean(-1, keepdim=True) + eps).sqrt()
    return x if slices is None else (parts / rms).flatten(-2)


class PowerNorm(nn.Module):
    """Scale each feature by its running root mean square, (B, T, C) -> the same.

    `weight` and psi^2 start at 1, `bias` and nu at 0.

    Args:
        dim: C, the number of features.
        total_steps: of the training.
        warmup: the fraction of them that uses the batch's own psi.
        groups: G, the slices of the scaling, None for no scaling; must divide C (a C below G is
            one slice).
        eps: added to the mean squares.
        momentum: m; None averages over all batches.

    Raises:
        ValueError: an option out of its range, or G does not divide C.

    >>> x, norm = torch.randn(4, 3, 8), PowerNorm(8, total_steps=9, groups=None, eps=0.0)
    >>> torch.allclose(norm(x).square().mean((0, 1)), torch.ones(8))  # warming up
    True
    """

    running_square: torch.Tensor
    nu: torch.Tensor
    num_batches_tracked: torch.Tensor
    warmup_steps: torch.Tensor

    def __init__(
        self,
        dim: int,
        *,
        total_steps: int,
        warmup: float = 0.1,
        groups: int | None = 4,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
    ) -> None:
        super().__init__()
        if total_steps < 1:
            raise ValueError(
                f"norm.total_steps must be a whole number of at least 1, got {total_steps}"
            )
        if not 0 <= warmup <= 1:
            raise ValueError(f"norm.warmup must be a number from 0 to 1, got {warmup}")
        if groups is not None and groups < 1:
            raise ValueError(
                f"norm.groups must be a whole number of at least 1 or null, got {groups}"
            )
        if groups is not None and dim >= groups and dim % groups:
            raise ValueError(f"norm.groups={groups} must divide the {dim} features, or be null")
        if eps < 0:
            raise ValueError(f"norm.eps must be a number of at least 0, got {eps}")
        if momentum is not None and not 0 <= momentum <= 1:
            raise ValueError(f"norm.momentum must be a number from 0 to 1 or null, got {momentum}")
        self.dim = dim
        self.total_steps = total_steps
        self.warmup = warmup
        self.groups = groups
        self.slices = groups if groups is None or dim >= groups else 1
        self.eps = eps
        self.momentum = momentum
        self.tokens_per_statistic = 0  # of the newest training batch
        self.weight = nn.Parameter(torch.ones(dim))
        self.bias = nn.Parameter(torch.zeros(dim))
        self.register_buffer("running_square", torch.ones(dim))
        self.register_buffer("nu", torch.zeros(dim))
        self.register_buffer("num_batches_tracked", torch.tensor(0))
        # saved: a run that is resumed with another total_steps must not warm up again
        self.register_buffer("warmup_steps", torch.tensor(round(warmup * total_steps)))

    @torch.compiler.disable  # type: ignore[untyped-decorator]  # backward writes nu
    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        """Normalize x, (B, T, C); only tokens where `mask` (B, T) is True enter the statistics."""
        y = scaled(x.to(torch.promote_types(x.dtype, torch.float32)), self.slices, self.eps)
        square = self.running_square
        if not self.training:
            return (y * torch.rsqrt(square + self.eps) * self.weight + self.bias).to(x.dtype)
        real = torch.ones_like(y[..., :1]) if mask is None else mask[..., None].to(y.dtype)
        n = real.sum().clamp(min=1)
        y = torch.where(real > 0, y, 0)
        batch = y.detach().square().flatten(0, -2).sum(0) / n
        square = torch.where(self.num_batches_tracked < self.warmup_steps, batch, square)
        xhat = y * torch.rsqrt(square + self.eps)
        self.num_batches_tracked += 1
        self.tokens_per_statistic = int(n)
        rate = 1 / int(self.num_batches_tracked) if self.momentum is None else self.momentum
        self.running_square.lerp_(batch.to(self.running_square.dtype), rate)
        if xhat.requires_grad:
            xhat.register_hook(partial(self._gradient, xhat.detach(), real / n, rate))
        return torch.addcmul(self.bias, xhat, self.weight).to(x.dtype)

    def _gradient(
        self, xhat: torch.Tensor, share: torch.Tensor, rate: float, g: torch.Tensor
    ) -> torch.Tensor:
        """What backward takes for the gradient of xhat; share (B, T, 1) is 1/n, 0 for padding."""
        nu = self.nu.clone()
        square = (xhat.square() * share).flatten(0, -2).sum(0)
        g_xhat = (g * xhat * share).flatten(0, -2).sum(0)
        self.nu.copy_(nu * (1 - rate * square) + rate * g_xhat)
        return g - nu * xhat

    def extra_repr(self) -> str:
        """What `print(net)` shows."""
        steps = f"total_steps={self.total_steps}, warmup={self.warmup}, groups={self.groups}"
        return f"{self.dim}, {steps}, eps={self.eps}, momentum={self.momentum}"
