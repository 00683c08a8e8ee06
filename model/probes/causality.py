"""Whether later tokens reach earlier logits: the score at the start and at the end of training."""

from typing import Any

import lightning.pytorch as pl

from model.causality import causality
from model.lit import LitGPT
from model.probes.probe import Probe


class Causality(Probe):
    """Logs the score of model/causality.py in train and in eval mode.

    It is measured on the same rows as `causal_in_training` and `causal_at_end` of result.json, at
    step 0 and at the last evaluation.
    """

    def on_train_start(self, trainer: pl.Trainer, lit: Any) -> None:
        """Measure the initialization; not when a run is resumed."""
        if trainer.global_step == 0:
            self.log_scores(trainer, lit)

    def on_validation_epoch_end(self, trainer: pl.Trainer, lit: Any) -> None:
        """Measure after the last step."""
        if trainer.global_step == trainer.max_steps and not trainer.sanity_checking:
            self.log_scores(trainer, lit)

    def log_scores(self, trainer: pl.Trainer, lit: LitGPT) -> None:
        """Measure and log."""
        batch = trainer.datamodule.windows()[0].to(lit.device)  # type: ignore[attr-defined]
        modes = {"train": True, "eval": False}
        scores = {
            f"probe/causality_{mode}": causality(lit.net, batch, training=training)
            for mode, training in modes.items()
        }
        lit.log_now(scores)
