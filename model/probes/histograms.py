"""What a norm does to the distribution of values: histograms before and after it, in TensorBoard.

Each site of a norm is a group of its own, `values.blocks.0.attention_norm`, in which stand side by
side `1_input`, `2_output`, and its parameters (`weight`, `bias`; a single number is no histogram).
On the fixed probe batch, in eval mode, without padding.
"""

import math
from typing import Any

import lightning.pytorch as pl
import torch
from torch import nn

from model.lit import PADDING, logits_of
from model.probes.schedule import fixed_batch, sparse
from model.sites import sites

BINS = 64  # of many values; TensorBoard draws 30, and its own binning takes several times as long


class Histograms(pl.Callback):
    """At the start, and at about `points` evaluations of a run."""

    def __init__(self, points: int) -> None:
        self.points = points

    def on_train_start(self, trainer: pl.Trainer, lit: Any) -> None:
        """The initialization."""
        if trainer.global_step == 0:
            self.look(trainer, lit)

    def on_validation_end(self, trainer: pl.Trainer, lit: Any) -> None:
        """As training goes on."""
        if not trainer.sanity_checking and sparse(trainer, self.points):
            self.look(trainer, lit)

    def look(self, trainer: pl.Trainer, lit: Any) -> None:
        """Write the histograms of all sites; the net is left as it was."""
        with trainer.precision_plugin.forward_context():
            seen = values(lit.net, fixed_batch(trainer))
        writer = trainer.logger.experiment  # type: ignore[union-attr]
        for name, x in seen.items():
            if (summary := histogram(x)) is not None:
                writer.add_histogram_raw(
                    f"values.{name}", **summary, global_step=trainer.global_step
                )


@torch.no_grad()
def values(net: nn.Module, batch: torch.Tensor) -> dict[str, torch.Tensor]:
    """What each site gets and makes of a batch (B, T + 1), by name; and its parameters.

    Returns:
        Of each site (N, C), its N real tokens; (N, H, D) of one on q or k.
    """
    seen: dict[str, torch.Tensor] = {}
    real = batch[:, 1:] != PADDING

    def note(name: str, norm: nn.Module, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
        seen[f"{name}/1_input"], seen[f"{name}/2_output"] = inputs[0][real], output[real]

    hooks = [
        norm.register_forward_hook(lambda *seen_by, name=name: note(name, *seen_by))
        for name, norm in sites(net).items()
    ]
    training = net.training
    net.eval()
    try:
        with torch.compiler.set_stance("force_eager"):  # compiled code passes hooks by
            logits_of(net, batch[:, :-1], real)
    finally:
        net.train(training)
        for hook in hooks:
            hook.remove()
    for site, norm in sites(net).items():
        seen |= {f"{site}/{n}": p for n, p in norm.named_parameters() if p.numel() > 1}
    return seen


def histogram(x: torch.Tensor) -> dict[str, Any] | None:
    """Equal bins over the finite values, as add_histogram_raw takes them; None without any.

    As many as the root of their number (few values in many bins are a comb), at most BINS.
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
