"""`nn.BatchNorm1d` of PyTorch on the (B*T, C) view: the reference for `batchnorm`.

    y = (x - mean) / sqrt(var + eps) * weight + bias    each feature over all tokens of the batch

In training with the batch's statistics, so the future leaks; in evaluation with running ones. The
lesson is in batchnorm.py.
"""

import torch
from torch import nn


class TorchBatchNorm(nn.Module):
    """Normalize each feature over batch and time, (B, T, C) -> the same; any (..., C) works.

    Args:
        dim: C.
        eps: added to the variance.
        momentum: weight of the newest batch in the running statistics.

    Raises:
        ValueError: in training, fewer than two (real) tokens, which have no variance.

    >>> x = torch.randn(4, 3, 8)
    >>> torch.equal(TorchBatchNorm(8)(x), nn.BatchNorm1d(8)(x.view(12, 8)).view(4, 3, 8))
    True
    """

    def __init__(self, dim: int, *, eps: float = 1e-5, momentum: float | None = 0.1) -> None:
        super().__init__()
        self.dim, self.eps, self.tokens_per_statistic = dim, eps, 0
        self.layer = nn.BatchNorm1d(dim, eps=eps, momentum=momentum)

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        """Normalize x, (B, T, C): the tokens where `mask` (B, T) is True; the others become 0."""
        y = x.to(torch.promote_types(x.dtype, self.layer.weight.dtype))  # PyTorch wants one type
        tokens = y.reshape(-1, self.dim) if mask is None else y[mask]  # (n, C)
        if self.training:
            self.tokens_per_statistic = len(tokens)
            if len(tokens) < 2:
                raise ValueError(
                    "BatchNorm needs at least 2 tokens to take a variance over, "
                    f"got {len(tokens)}: raise data.batch_size or data.block_size"
                )
        z: torch.Tensor = self.layer(tokens)
        z = z if mask is None else torch.zeros_like(y).masked_scatter(mask[..., None], z)
        return z.view(x.shape).to(x.dtype)

    def extra_repr(self) -> str:
        """What `print(net)` shows."""
        return f"{self.dim}, eps={self.eps}, momentum={self.layer.momentum}"


def reference(x: torch.Tensor, layer: nn.BatchNorm1d, training: bool) -> torch.Tensor:
    """The formula, for the tests."""
    assert layer.running_mean is not None and layer.running_var is not None
    mean, var = layer.running_mean, layer.running_var
    if training:
        mean, var = x.mean((0, 1)), x.var((0, 1), correction=0)
    return (x - mean) / (var + layer.eps).sqrt() * layer.weight + layer.bias
