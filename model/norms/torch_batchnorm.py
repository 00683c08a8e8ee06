"""`nn.BatchNorm1d` of PyTorch on the (B*T, C) view, to compare `batchnorm` with.

    y = (x - mean) / sqrt(var + eps) * weight + bias    each feature over all tokens of the batch

Training uses the statistics of the batch, so the future leaks; evaluation uses running ones. The
lesson is in batchnorm.py.
"""

import torch
from torch import nn


def reference(x: torch.Tensor, layer: nn.BatchNorm1d, training: bool) -> torch.Tensor:
    """The definition, for x (B, T, C)."""
    assert layer.running_mean is not None and layer.running_var is not None
    mean, var = layer.running_mean, layer.running_var
    if training:
        mean = x.mean((0, 1))
        var = x.var((0, 1), correction=0)
    return (x - mean) / (var + layer.eps).sqrt() * layer.weight + layer.bias


class TorchBatchNorm(nn.Module):
    """Normalize each feature over batch and time, (B, T, C) -> the same; any (..., C) works.

    Args:
        dim: C, the number of features.
        eps: added to the variance; PyTorch refuses 0.
        momentum: weight of the newest batch in the running statistics; None averages over all.

    Raises:
        ValueError: an option out of its range, or, in training, fewer than two (real) tokens.

    >>> x = torch.randn(4, 3, 8)
    >>> torch.equal(TorchBatchNorm(8)(x), nn.BatchNorm1d(8)(x.view(12, 8)).view(4, 3, 8))
    True
    """

    def __init__(self, dim: int, *, eps: float = 1e-5, momentum: float | None = 0.1) -> None:
        super().__init__()
        if eps <= 0:
            raise ValueError(f"norm.eps must be a number above 0, got {eps}")
        if momentum is not None and not 0 <= momentum <= 1:
            raise ValueError(f"norm.momentum must be a number from 0 to 1 or null, got {momentum}")
        self.dim = dim
        self.eps = eps
        self.tokens_per_statistic = 0  # of the newest training batch
        self.layer = nn.BatchNorm1d(dim, eps=eps, momentum=momentum)

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        """Normalize x, (B, T, C): the tokens where `mask` (B, T) is True; the others become 0."""
        y = x.to(torch.promote_types(x.dtype, self.layer.weight.dtype))  # PyTorch wants one type
        tokens = y.reshape(-1, self.dim) if mask is None else y[mask]  # (n, C)
        if self.training:
            n = len(tokens)
            if n < 2:
                raise ValueError(
                    f"a variance needs at least 2 tokens, got {n}: raise data.batch_size"
                )
            self.tokens_per_statistic = n
        z: torch.Tensor = self.layer(tokens)
        z = z if mask is None else torch.zeros_like(y).masked_scatter(mask[..., None], z)
        return z.view(x.shape).to(x.dtype)

    def extra_repr(self) -> str:
        """What `print(net)` shows."""
        return f"{self.dim}, eps={self.eps}, momentum={self.layer.momentum}"
