"""Whether later tokens reach earlier logits: the score, at the start and at the end of training."""

import lightning.pytorch as pl


class Causality(pl.Callback):
    """Logs the largest change of earlier logits over their RMS (LitGPT.causality), in both modes.

    On the four rows that `causal_in_training` of result.json is judged by: 1e-5 and less counts as
    causal. At step 0 and at the last evaluation, where training's clock stands still.
    """

    def on_train_start(self, trainer: pl.Trainer, lit: pl.LightningModule) -> None:
        """At initialization; not when a run goes on."""
        if trainer.global_step == 0:
            self.look(trainer, lit)

    def on_validation_epoch_end(self, trainer: pl.Trainer, lit: pl.LightningModule) -> None:
        """After the last step."""
        if not trainer.sanity_checking and trainer.global_step == trainer.max_steps:
            self.look(trainer, lit)

    def look(self, trainer: pl.Trainer, lit: pl.LightningModule) -> None:
        """Measure and log."""
        rows = trainer.datamodule.windows()[0][:4].to(lit.device)  # type: ignore[attr-defined]
        modes = {"train": True, "eval": False}
        scores = {
            f"probe/causality_{mode}": lit.causality(rows, training)  # type: ignore[operator]
            for mode, training in modes.items()
        }
        lit.log_now(scores)  # type: ignore[operator]
