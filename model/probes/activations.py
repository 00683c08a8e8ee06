"""Activations: how large they are, how they spread and what dies, on one fixed validation batch.

They are measured in eval mode and in the trainer's precision; statistics are in float32 or better,
over the N real positions only. Every series is defined in docs/probes.md.

Legend: B batch, T time, C channels, H heads, D head size, V vocabulary.
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
from model.probes.probe import Probe, fixed_batch, look, series, wide
from model.sites import sites
from model.steps import due

DEAD = 1e-3  # a hidden unit is dead if its GELU stays below this for every token of the batch
LOGITS = 2**20  # of attention in memory at a time: 4 MB, whatever batch and block size are

Values = dict[str, torch.Tensor]
Measure = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], Values]  # of input, output, real


class Activations(Probe):
    """Logs the activations of the net as a due step left it; hooks exist only meanwhile."""

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


def attention_statistics(
    q: torch.Tensor, k: torch.Tensor, real: torch.Tensor
) -> dict[str, torch.Tensor]:
    """The largest logit and the mean relative entropy of causal attention, as GPT computes it.

    q and k are (B, T, H, D) as they enter the product, and `real` (B, T) is True where there is no
    padding; real positions see none of it, since it is on the right. Logits are q_t k_s / sqrt(D)
    for s <= t. The entropy -sum_s p_ts ln p_ts, p being their softmax, is divided by its maximum
    ln t: 1 means equal attention to all of the past, 0 to one position. It is the mean over rows,
    heads and real positions from t = 2 on, left out if there are none; t counts from 1.
    """
    T, H, D = q.shape[1:]
    t = torch.arange(1, T + 1, device=q.device)
    future = t > t[:, None]  # (T, T)
    largest, entropies = [], []
    rows = max(1, LOGITS // (H * T * T))
    for q_part, k_part, real_part in zip(*(z.split(rows) for z in (q, k, real)), strict=True):
        with torch.autocast(q.device.type, enabled=False):  # in float32 if q and k are
            logits = torch.einsum("bthd,bshd->bhts", q_part, k_part) / math.sqrt(D)
        logits = logits.masked_fill(future, -math.inf).transpose(1, 2)[real_part]  # (N, H, T)
        largest.append(logits.amax())
        seen = t.expand(len(real_part), T)[real_part]  # (N,)
        entropy = torch.special.entr(logits.softmax(-1)).sum(-1)  # (N, H)
        entropies.append(entropy[seen > 1] / seen[seen > 1, None].to(q.dtype).log())
    relative = torch.cat(entropies)
    values = {"attention_logit_max": torch.stack(largest).amax()}
    return values | ({"attention_entropy": relative.mean()} if len(relative) else {})


def at_norm(name: str, norm: Any, x: torch.Tensor, y: torch.Tensor, real: torch.Tensor) -> Values:
    """Of a norm's input x and output y, (B, T, ...); more if the norm knows where it saturates."""
    x = wide(x[real])
    y = wide(y[real])
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
        z = wide(z[real])
        values[f"probe/residual_rms/{blocks}"] = rms(z)
        values[f"probe/residual_peak/{blocks}"] = torch.linalg.vector_norm(z, math.inf) / rms(z)
    return values


def at_gelu(n: int, x: torch.Tensor, z: torch.Tensor, real: torch.Tensor) -> Values:
    """The share of block n's hidden units, z (B, T, 4 C) before the GELU, that are dead."""
    most = torch.linalg.vector_norm(F.gelu(wide(z[real])), math.inf, dim=0)  # (4 C,)
    return {f"probe/dead_gelu/{n}": wide(most < DEAD).mean()}


def rms(x: torch.Tensor) -> torch.Tensor:
    """The root mean square of all numbers."""
    norm: torch.Tensor = torch.linalg.vector_norm(x)
    return norm / math.sqrt(x.numel())
