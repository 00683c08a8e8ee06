"""Norms with running statistics: find them, put them into train mode, re-estimate what they keep.

Such a norm is a module that keeps running statistics with a `momentum` (None means the average over
all batches), ours or PyTorch's. No norm is named here.
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn


def with_statistics(net: nn.Module) -> list[nn.Module]:
    """The modules of a net that keep running statistics."""
    stateful = (m for m in net.modules() if next(m.buffers(recurse=False), None) is not None)
    return [m for m in stateful if hasattr(m, "momentum")]


def batch_mode(net: nn.Module) -> list[Any]:
    """Put these norms into train mode and all else into eval mode (no dropout); return them."""
    norms = with_statistics(net.eval())
    for norm in norms:
        norm.train()
    return norms


@torch.no_grad()
def reestimate(net: nn.Module, batches: Iterable[Any], forward: Callable[[Any], Any]) -> None:
    """Replace all running statistics by their average over training batches; no weight changes.

    Running statistics lag behind the weights that they belong to. `forward` is called with each
    batch and must run the net. Only these norms are in train mode, so there is no dropout;
    afterwards each module is in the mode it was in.
    """
    modes = [(module, module.training) for module in net.modules()]
    norms = batch_mode(net)
    before = [(norm.momentum, norm.num_batches_tracked.clone()) for norm in norms]
    for norm in norms:
        norm.momentum = None
        norm.num_batches_tracked.zero_()
    try:
        for batch in batches:
            forward(batch)
    finally:
        for norm, (momentum, tracked) in zip(norms, before, strict=True):
            norm.momentum = momentum
            seen = norm.num_batches_tracked
            seen.copy_(tracked.maximum(seen))  # at 0 a norm's warm-up would begin again
        for module, training in modes:
            module.training = training
