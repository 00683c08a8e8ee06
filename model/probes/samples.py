"""How the text that a net writes changes while it trains: a few characters at evaluations."""

from typing import Any

import lightning.pytorch as pl
import torch

from model.lit import eval_mode
from model.probes.probe import Probe
from model.steps import evaluation_due


class Samples(Probe):
    """Shows `sample/while_training` in TensorBoard, at about `points` evaluations of a run.

    Args:
        characters: the most characters of a text.
        sample: how sample.txt is made: max_new_tokens, temperature, top_k.
    """

    def __init__(self, points: int, characters: int, sample: dict[str, Any]) -> None:
        self.points = points
        self.how = sample | {"max_new_tokens": min(characters, sample["max_new_tokens"])}

    def on_validation_end(self, trainer: pl.Trainer, lit: Any) -> None:
        """Write a text with a random generator of its own, seeded the same each time."""
        if not evaluation_due(trainer, self.points, trainer.max_steps):
            return
        eager = torch.compiler.set_stance("force_eager")  # or each length would be compiled
        with eval_mode(lit.net), trainer.precision_plugin.forward_context(), eager:
            text = trainer.datamodule.sample(lit.net, seed=lit.seed, **self.how)  # type: ignore[attr-defined]
        trainer.logger.log_text("sample/while_training", text, trainer.global_step)  # type: ignore[union-attr]
