r"""BatchNorm over batch and time (Ioffe, Szegedy 2015, arxiv.org/abs/1502.03167, algorithm 1).

Every feature is normalized on its own, over all tokens of the batch:

    mu_c  = mean over (b, t) of x_btc       var_c = mean over (b, t) of (x_btc - mu_c)^2
    (biased) y_btc = (x_btc - mu_c) / sqrt(var_c + eps) * weight_c + bias_c

            C features
          [ . . . . . ]     The statistics run down the columns, through every token of every
          sequence.
    B x T [ . . . . . ]
          [ . . . . . ]
            | | | | |  -> mu, var of each feature

**Training and evaluation differ.** In training the statistics are the batch's own, and the running
ones move towards them: `running = (1 - momentum) * running + momentum * batch`, with the *unbiased*
variance n / (n - 1) var. In evaluation the running ones are used and nothing moves. They start at
mean 0 and variance 1, of which (1 - momentum)^n is left after n steps: 35 % after 10, 1 % after 44.
Early validation losses are poor for that reason alone.

**In training the future leaks.** mu and var at position t contain the tokens after t, which are
what the model is asked to predict (and so do the other sequences' tokens, whose windows may overlap
this one). A language model can lower its *training* loss through that channel; in evaluation the
channel is closed. So the training loss of a BatchNorm model is not comparable with another norm's:
compare in eval mode.
"""

import torch
from torch import nn


class BatchNorm(nn.Module):
    """Normalize each feature over batch and time, (B, T, C) -> the same; any (..., C) works.

    Equal to `nn.BatchNorm1d(C)` on the (B*T, C) view: outputs, gradients and buffers; a
    `state_dict` of it loads. `weight` starts at 1, `bias` at 0, eps 1e-5 and momentum 0.1 are
    PyTorch's.

    Args:
        dim: C, the number of features.
        eps: added to the variance.
        momentum: weight of the newest batch in the running statistics; None averages over all
            batches.
        weight: learn a gain.
        bias: learn a shift.

    Raises:
        ValueError: in training, fewer than two (real) tokens, which have no variance.

    >>> x = torch.randn(4, 3, 8, dtype=torch.float64)
    >>> ours, theirs = BatchNorm(8).double(), nn.BatchNorm1d(8).double()
    >>> torch.allclose(ours(x), theirs(x.view(12, 8)).view(4, 3, 8), rtol=0, atol=1e-12)
    True
    >>> torch.allclose(ours.running_var, theirs.running_var, rtol=0, atol=1e-12)
    True
    """

    weight: nn.Parameter | None
    bias: nn.Parameter | None
    running_mean: torch.Tensor
    running_var: torch.Tensor
    num_batches_tracked: torch.Tensor

    def __init__(
        self,
        dim: int,
        *,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        weight: bool = True,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.dim, self.eps, self.momentum = dim, eps, momentum
        self.register_parameter("weight", nn.Parameter(torch.ones(dim)) if weight else None)
        self.register_parameter("bias", nn.Parameter(torch.zeros(dim)) if bias else None)
        self.register_buffer("running_mean", torch.zeros(dim))
        self.register_buffer("running_var", torch.ones(dim))
        self.register_buffer("num_batches_tracked", torch.tensor(0))

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        """Normalize x, (B, T, C). Only tokens where `mask` (B, T) is True enter the statistics."""
        if x.shape[-1] != self.dim:
            raise ValueError(
                f"BatchNorm({self.dim}) got an input of shape {tuple(x.shape)}: "
                "the last axis must be the features"
            )
        # Half precision has too few digits for a sum of squares: statistics in float32 or better.
        y = x.to(torch.promote_types(x.dtype, torch.float32))
        if self.training:
            mean, var = self._batch_statistics(y.reshape(-1, self.dim) if mask is None else y[mask])
        else:
            mean, var = self.running_mean, self.running_var
        y = (y - mean) * torch.rsqrt(var + self.eps)
        if self.weight is not None:
            y = y * self.weight
        if self.bias is not None:
            y = y + self.bias
        return y.to(x.dtype)

    def _batch_statistics(self, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Mean and biased variance of (n, C) tokens; moves the running statistics on the way."""
        n = len(tokens)
        if n < 2:
            raise ValueError(
                f"BatchNorm in training needs at least 2 tokens to take a variance over, got {n}: "
                "raise data.batch_size or data.block_size"
            )
        mean = tokens.mean(0)
        var = (tokens - mean).square().mean(0)
        with torch.no_grad():  # or the graph would grow from step to step
            self.num_batches_tracked += 1
            weight = 1 / int(self.num_batches_tracked) if self.momentum is None else self.momentum
            self.running_mean.lerp_(mean.to(self.running_mean.dtype), weight)
            self.running_var.lerp_((var * (n / (n - 1))).to(self.running_var.dtype), weight)
        return mean, var

    def extra_repr(self) -> str:
        """What `print(net)` shows."""
        return (
            f"{self.dim}, eps={self.eps}, momentum={self.momentum}, "
            f"weight={self.weight is not None}, bias={self.bias is not None}"
        )
