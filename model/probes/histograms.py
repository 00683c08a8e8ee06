"""What a norm does to the distribution of values: histograms before and after it, in TensorBoard.

Each site is a group of its own, such as `values.blocks.0.attention_norm`, which shows side by side
`1_input`, `2_output` and the norm's parameters (`weight`, `bias`; a single number has no
histogram). They are of the fixed probe batch, in eval mode, without padding.
"""

import math
from functools import partial
from typing import Any

import lightning.pytorch as pl
import torch
from torch import nn

from model.lit import PADDING, LitGPT
from model.probes.probe import Probe, fixed_batch, look
from model.sites import sites
from model.steps import evaluation_due

BINS = 64  # of many values; TensorBoard draws 30, and its own binning takes several times as long


class Histograms(Probe):
    """Writes histograms at the start, and at about `points` evaluations of a run."""

    def __init__(self, points: int) -> None:
        self.points = points

    def on_train_start(self, trainer: pl.Trainer, lit: Any) -> None:
        """Write those of the initialization; not when a run is resumed."""
        if trainer.global_step == 0:
            self.write(trainer, lit)

    def on_validation_end(self, trainer: pl.Trainer, lit: Any) -> None:
        """Write those of some evaluations."""
        if evaluation_due(trainer, self.points, trainer.max_steps):
            self.write(trainer, lit)

    def write(self, trainer: pl.Trainer, lit: LitGPT) -> None:
        """Write the histograms of all sites."""
        with trainer.precision_plugin.forward_context():
            seen = values(lit.net, fixed_batch(trainer))
        step = trainer.global_step
        for name, x in seen.items():
            if (summary := histogram(x)) is not None:
                writer = trainer.logger.experiment  # type: ignore[union-attr]
                writer.add_histogram_raw(f"values.{name}", **summary, global_step=step)


def values(net: nn.Module, batch: torch.Tensor) -> dict[str, torch.Tensor]:
    """Each norm's input and output on a batch (B, T + 1), and its parameters, by name.

    Inputs and outputs are (N, C) for N real tokens; (N, H, D) for a norm on q or k.
    """
    seen: dict[str, torch.Tensor] = {}
    real = batch[:, 1:] != PADDING

    def note(site: str, norm: nn.Module, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
        seen[f"{site}/1_input"] = inputs[0][real]
        seen[f"{site}/2_output"] = output[real]

    hooks = [norm.register_forward_hook(partial(note, site)) for site, norm in sites(net).items()]
    look(net, batch, hooks)
    for site, norm in sites(net).items():
        seen |= {f"{site}/{n}": p.detach() for n, p in norm.named_parameters() if p.numel() > 1}
    return seen


def histogram(x: torch.Tensor) -> dict[str, Any] | None:
    """Equal bins over the finite values, as add_histogram_raw takes them; None if there are none.

    There are as many bins as the root of the number of values, for few values in many bins look
    like a comb, and at most BINS.
    """
    finite = x.flatten().float()
    finite = finite[finite.isfinite()]
    if not finite.numel():
        return None
    least, most = finite.min().item(), finite.max().item()
    if most - least <= 1e-6 * max(abs(least), abs(most)):  # a narrow peak, not a point
        half = 0.01 * max(1.0, abs(least))
        least, most = least - half, most + half
    bins = min(BINS, math.isqrt(finite.numel()))
    return {
        "min": least,
        "max": most,
        "num": finite.numel(),
        "sum": finite.sum().item(),
        "sum_squares": finite.square().sum().item(),
        "bucket_limits": torch.linspace(least, most, bins + 1)[1:].tolist(),
        "bucket_counts": torch.histc(finite, bins, least, most).tolist(),
    }
