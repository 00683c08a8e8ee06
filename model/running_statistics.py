"""Norms with batch statistics, whichever they are: re-estimate them, share them among processes.

Such a norm is a module that keeps running statistics with a `momentum` (None = the average over all
batches), ours or torch's. No norm is named here.
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import distributed, nn


def with_statistics(net: nn.Module) -> list[nn.Module]:
    """The modules of a net that keep running statistics."""
    stateful = (m for m in net.modules() if next(m.buffers(recurse=False), None) is not None)
    return [m for m in stateful if hasattr(m, "momentum")]


def batch_mode(net: nn.Module) -> list[Any]:
    """Put these norms into train mode and all else into eval mode: no dropout; returns them."""
    norms = with_statistics(net.eval())
    for norm in norms:
        norm.train()
    return norms


@torch.no_grad()
def reestimate(net: nn.Module, batches: Iterable[Any], forward: Callable[[Any], Any]) -> None:
    """Replace all running statistics by their average over batches; no weight changes.

    Running statistics lag behind the weights that they belong to. Only these norms are in train
    mode, so that there is no dropout; afterwards each module is in the mode it was in.

    Args:
        net: changed in its buffers.
        batches: of training data.
        forward: called with each batch, must run the net.
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
            seen.copy_(tracked.maximum(seen))  # or a warm-up that goes by it would begin again
        for module, training in modes:
            module.training = training


def synchronize(net: nn.Module) -> None:
    """Let every norm with batch statistics see the batches of all processes while it trains.

    Values, gradients and buffers are then those of one process with the whole batch, for any norm:
    its inputs are gathered, every process runs it on all of them, and takes its own rows on. That
    moves B T C numbers where a norm written for it could do with 2 C. All processes need batches
    of one shape; `torch_batchnorm`, whose inner layer gets the real tokens only, cannot take a mask
    then. Gradients of the norm's parameters are to be summed over the processes, as others.
    """
    gather: Any = _Gather.apply
    take_own: Any = _TakeOwn.apply

    def before(norm: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(z if z is None or not norm.training else gather(z) for z in inputs)

    def after(norm: nn.Module, inputs: tuple[Any, ...], y: torch.Tensor) -> Any:
        return take_own(y) if norm.training else y

    for norm in with_statistics(net):
        norm.register_forward_pre_hook(before)
        norm.register_forward_hook(after)
        for parameter in norm.parameters(recurse=False):  # every process has the whole gradient
            parameter.register_hook(lambda gradient: gradient / distributed.get_world_size())


def _all_rows(x: torch.Tensor) -> torch.Tensor:
    """The batches of all processes, (B, ...) -> (world B, ...)."""
    parts = [torch.empty_like(x) for _ in range(distributed.get_world_size())]
    distributed.all_gather(parts, x.contiguous())
    return torch.cat(parts)


def _own_rows(x: torch.Tensor) -> torch.Tensor:
    """This process's part of a gathered batch."""
    return x.chunk(distributed.get_world_size())[distributed.get_rank()].clone()


class _Gather(torch.autograd.Function):
    """All rows; backward, where all processes have the whole gradient, this one's rows of it."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return _all_rows(x)

    @staticmethod
    def backward(ctx: Any, dx: torch.Tensor) -> torch.Tensor:
        return _own_rows(dx)


class _TakeOwn(torch.autograd.Function):
    """This process's rows; backward, the gradients of all processes."""

    @staticmethod
    def forward(ctx: Any, y: torch.Tensor) -> torch.Tensor:
        return _own_rows(y)

    @staticmethod
    def backward(ctx: Any, dy: torch.Tensor) -> torch.Tensor:
        return _all_rows(dy.contiguous())
