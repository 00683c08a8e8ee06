"""How the text that a net writes changes while it trains: a few characters at evaluations."""

from typing import Any

import lightning.pytorch as pl
import torch

from model.probes.schedule import sparse


class Samples(pl.Callback):
    """Shows `sample/while_training` in TensorBoard, at about `points` evaluations of a run.

    Args:
        characters: as many at most.
        sample: how sample.txt is made: max_new_tokens, temperature, top_k.
    """

    def __init__(self, points: int, characters: int, sample: dict[str, Any]) -> None:
        self.points = points
        self.how = sample | {"max_new_tokens": min(characters, sample["max_new_tokens"])}

    def on_validation_end(self, trainer: pl.Trainer, lit: Any) -> None:
        """Write with a random generator of its own, the same each time; the mode is put back."""
        if trainer.sanity_checking or not sparse(trainer, self.points):
            return
        training = lit.net.training
        eager = torch.compiler.set_stance("force_eager")  # or each length would be compiled
        with trainer.precision_plugin.forward_context(), eager:
            text = trainer.datamodule.sample(lit.net.eval(), seed=lit.seed, **self.how)  # type: ignore[attr-defined]
        lit.net.train(training)
        trainer.logger.log_text("sample/while_training", text, trainer.global_step)  # type: ignore[union-attr]
