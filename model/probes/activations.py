"""Activations: how large they are, how they spread and what dies, on one fixed validation batch.

They are measured in eval mode and in the trainer's precision; statistics are in float32 or better,
over real positions only. Every series is defined in docs/probes.md.

Legend: B batch, T time, C channels, V vocabulary.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import lightning.pytorch as pl
import torch
from torch import nn
from torch.nn import functional as F

from model.lit import PADDING, LitGPT
from model.probes.attention import attention_statistics
from model.probes.probe import Probe, fixed_batch, look
from model.probes.series import series
from model.probes.weights import wide
from model.sites import sites
from model.steps import due

DEAD = 1e-3  # a hidden unit is dead if its GELU stays below this for every token of the batch

Values = dict[str, torch.Tensor]
Measure = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], Values]  # of input, output, real


class Activations(Probe):
    """Logs the activations of the net as a due step left it; hooks exist only meanwhile.

    Args:
        every: optimizer steps between two measurements; the first and the last step count, too.
    """

    def __init__(self, every: int) -> None:
        self.every = every

    def after_step(self, trainer: pl.Trainer, lit: LitGPT) -> None:
        """Measure and log, if the step is due."""
        if due(trainer.global_step, self.every, trainer.max_steps):
            with trainer.precision_plugin.forward_context():
                values = measure(lit.net, fixed_batch(trainer))
            lit.log_now(values)


@torch.no_grad()
def measure(net: nn.Module, batch: torch.Tensor) -> dict[str, float]:
    """All statistics of a batch (B, T + 1) in eval mode."""
    values: Values = {}
    logits = wide(look(net, batch, watch(net, batch[:, 1:] != PADDING, values)))  # (N, V)
    values["probe/logits_rms"] = rms(logits)
    values["probe/log_z"] = logits.logsumexp(-1).mean()
    numbers = torch.stack(list(values.values())).tolist()
    return dict(zip(values, numbers, strict=True))


def watch(net: Any, real: torch.Tensor, values: Values) -> list[Any]:
    """Hooks that write the statistics of a forward pass on positions `real` (B, T) to `values`."""

    def hook(module: nn.Module, of: Measure) -> Any:
        return module.register_forward_hook(lambda _, xs, y: values.update(of(xs[0], y, real)))

    hooks = [hook(norm, partial(at_norm, name, norm)) for name, norm in sites(net).items()]
    for n, block in enumerate(net.blocks):
        hooks.append(hook(block, partial(at_block, n)))
        hooks.append(hook(block.mlp.fc, partial(at_gelu, n)))
        hooks += watch_attention(n, block.attention, real, values)
    return hooks


def watch_attention(n: int, attention: Any, real: torch.Tensor, values: Values) -> list[Any]:
    """Hooks that catch q and k (B, T, H, D) and measure them when the attention is done."""
    caught: Values = {}

    def split(_: nn.Module, xs: Any, y: torch.Tensor) -> None:
        caught["q"], caught["k"], _v = y.unflatten(-1, (3, attention.n_head, -1)).unbind(2)

    def finish(*_: Any) -> None:
        q, k = wide(caught.pop("q")), wide(caught.pop("k"))
        for what, value in attention_statistics(q, k, real).items():
            values[series(what, f"blocks.{n}")] = value

    hooks = [attention.qkv.register_forward_hook(split)]
    for part, norm in (("q", attention.q_norm), ("k", attention.k_norm)):
        if norm is not None:
            hooks.append(norm.register_forward_hook(lambda _, xs, y, p=part: caught.update({p: y})))
    return [*hooks, attention.register_forward_hook(finish)]


def at_norm(name: str, norm: Any, x: torch.Tensor, y: torch.Tensor, real: torch.Tensor) -> Values:
    """Of a norm's input x and output y, (B, T, ...); more if the norm knows where it saturates."""
    x = selected(x, real)
    y = selected(y, real)
    mean = x.mean()
    std = rms(x - mean)  # torch.var_mean takes five times as long
    values = {"input_mean": mean, "input_std": std, "output_rms": rms(y)}
    if hasattr(norm, "saturated"):
        values["saturated"] = norm.saturated(x).to(x.dtype).mean()
    if isinstance(getattr(norm, "alpha", None), nn.Parameter):
        values["alpha_times_std"] = (norm.alpha * std).mean()
    return {series(what, name): value for what, value in values.items()}


def at_block(n: int, x: torch.Tensor, y: torch.Tensor, real: torch.Tensor) -> Values:
    """Of the residual stream: block n's output y (B, T, C), and the input x of the first block."""
    values = {}
    for blocks, z in ((n, x), (n + 1, y)) if n == 0 else ((n + 1, y),):
        z = selected(z, real)
        values[f"probe/residual_rms/{blocks}"] = rms(z)
        values[f"probe/residual_peak/{blocks}"] = torch.linalg.vector_norm(z, math.inf) / rms(z)
    return values


def at_gelu(n: int, x: torch.Tensor, z: torch.Tensor, real: torch.Tensor) -> Values:
    """The share of block n's hidden units, z (B, T, 4 C) before the GELU, that are dead."""
    most = torch.linalg.vector_norm(F.gelu(selected(z, real)), math.inf, dim=0)  # (4 C,)
    return {f"probe/dead_gelu/{n}": wide(most < DEAD).mean()}


def selected(x: torch.Tensor, real: torch.Tensor) -> torch.Tensor:
    """The N real positions of x (B, T, ...): (N, ...), in float32 or better."""
    return wide(x[real])


def rms(x: torch.Tensor) -> torch.Tensor:
    """The root mean square of all numbers."""
    norm: torch.Tensor = torch.linalg.vector_norm(x)
    return norm / math.sqrt(x.numel())
