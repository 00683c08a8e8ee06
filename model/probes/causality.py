"""Whether a net is causal: whether its logits at a position ignore all later tokens."""

import copy
import math
from typing import Any

import lightning.pytorch as pl
import torch
from torch import nn

from model.lit import PADDING, LitGPT, logits_of
from model.probes.probe import Probe

ROWS = 4  # of a batch: so few show a leak
THRESHOLD = 1e-5  # far above the rounding of float32, far below any leak


class Causality(Probe):
    """Logs the score in train and in eval mode.

    It is measured on the same rows as `causal_in_training` and `causal_at_end` of result.json, at
    step 0 and at the last evaluation.
    """

    def on_train_start(self, trainer: pl.Trainer, lit: Any) -> None:
        """Measure the initialization; not when a run is resumed."""
        if trainer.global_step == 0:
            self.log_scores(trainer, lit)

    def on_validation_epoch_end(self, trainer: pl.Trainer, lit: Any) -> None:
        """Measure after the last step."""
        if trainer.global_step == trainer.max_steps:
            self.log_scores(trainer, lit)

    def log_scores(self, trainer: pl.Trainer, lit: LitGPT) -> None:
        """Measure and log."""
        batch = trainer.datamodule.windows()[0].to(lit.device)  # type: ignore[attr-defined]
        train, evaluation = (causality(lit.net, batch, training=mode) for mode in (True, False))
        lit.log_now({"probe/causality_train": train, "probe/causality_eval": evaluation})


def is_causal(net: nn.Module, batch: torch.Tensor) -> bool | None:
    """Whether later tokens leave earlier logits unchanged in train mode, on a batch (B, T + 1).

    None means unknown: the logits are not finite.
    """
    score = causality(net, batch, training=True)
    return score <= THRESHOLD if math.isfinite(score) else None


@torch.no_grad()
def causality(net: nn.Module, batch: torch.Tensor, *, training: bool) -> float:
    """The largest change of earlier logits when later tokens change, over the logits' RMS.

    In the first rows of a batch (B, T + 1) every token of the second half of the longest row is
    replaced, padding stays; in a causal net the logits of the first half stay the same. With
    `training` in train mode, with the same dropout both times. The net and the global random
    generator do not change.
    """
    batch = batch[:ROWS]
    net = copy.deepcopy(net).train(training)
    for parameter in net.parameters():
        if not parameter.any():  # a gate that starts at 0 hides what leaks behind it
            parameter.fill_(1.0)
    before, real = batch[:, :-1], batch[:, 1:] != PADDING
    half = (int(real.sum(1).max()) + 1) // 2
    second = torch.arange(before.shape[1], device=batch.device) >= half
    after = torch.where(real & second, (before + 1) % (before.max() + 1), before)
    logits = []
    for tokens in (before, after):
        fresh = copy.deepcopy(net)  # running statistics move
        with torch.random.fork_rng():
            torch.manual_seed(0)
            logits.append(logits_of(fresh, tokens, real)[real & ~second])  # (positions, V)
    change = (logits[0] - logits[1]).abs().max()
    rms = logits[0].square().mean().sqrt()
    return float(change / rms) if change else 0.0
