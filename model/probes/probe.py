"""What probes share: the end of a step, the batch they measure on, names and precision."""

from typing import Any

import lightning.pytorch as pl
import torch
from torch.utils.hooks import RemovableHandle

from model.lit import PADDING, LitGPT, eval_mode, logits_of
from model.steps import completes_step


class Probe(pl.Callback):
    """A callback that measures the net while it trains, and never changes training.

    It logs with `lit.log_now`. What it logs at an evaluation in `on_validation_epoch_end` comes
    before the checkpoint, so that a resumed run has these values exactly once. A probe's `every` is
    the number of optimizer steps between two measurements (the first and the last step count, too),
    and its `points` is about how many evaluations of a run it measures at.
    """

    def after_step(self, trainer: pl.Trainer, lit: LitGPT) -> None:
        """After optimizer step number `trainer.global_step`."""

    def on_train_batch_end(
        self, trainer: pl.Trainer, lit: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Call `after_step` when this micro-batch completes a step."""
        if completes_step(trainer, batch_idx):
            self.after_step(trainer, lit)


def fixed_batch(trainer: pl.Trainer) -> torch.Tensor:
    """The probe batch (B, T + 1): as many validation windows as a training batch has rows."""
    data = trainer.datamodule  # type: ignore[attr-defined]
    windows: torch.Tensor = next(iter(data.val_dataloader()))[: data.batch_size]
    return windows.to(trainer.lightning_module.device)


@torch.no_grad()
def look(net: Any, batch: torch.Tensor, hooks: list[RemovableHandle]) -> torch.Tensor:
    """Logits (N, V) at the real positions of a batch (B, T + 1), in eval mode; removes the hooks.

    The uncompiled forward runs: compiled code ignores hooks that were added later.
    """
    real = batch[:, 1:] != PADDING
    try:
        with eval_mode(net):
            return logits_of(net.forward, batch[:, :-1], real)[real]
    finally:
        for hook in hooks:
            hook.remove()


def series(what: str, name: str) -> str:
    """The name of a value that is measured at the module `name` of the net.

    >>> series("input_std", "final_norm")
    'probe/input_std_final_norm'
    >>> series("input_std", "blocks.3.attention.q_norm"), series("dead_gelu", "blocks.3")
    ('probe/input_std_attention_q_norm/3', 'probe/dead_gelu/3')
    """
    if not name.startswith("blocks."):
        return f"probe/{what}_{name.replace('.', '_')}"
    _, block, *inside = name.split(".")
    return f"probe/{'_'.join([what, *inside])}/{block}"


def wide(x: torch.Tensor) -> torch.Tensor:
    """The same numbers in float32 or better."""
    return x.to(torch.promote_types(x.dtype, torch.float32))
