"""When the state of a run is saved, and how: last.ckpt and best.ckpt."""

import math
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.fabric.plugins.io import TorchCheckpointIO
from lightning.pytorch.utilities.exceptions import SIGTERMException

from run.files import replace_file
from run.state import read_state


class AtomicCheckpointIO(TorchCheckpointIO):
    """Writes beside the target, then renames: a kill leaves the earlier checkpoint whole."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, *_: Any, **__: Any) -> None:
        """Save to `path` (relative names and plain types inside, loaded with weights_only=True)."""
        Path(path).parent.mkdir(exist_ok=True)
        with replace_file(Path(path)) as file:
            torch.save(checkpoint, file)

    def load_checkpoint(self, path: Any, *_: Any, **__: Any) -> dict[str, Any]:
        """Load from `path`; a damaged file is refused by its name."""
        return read_state(Path(path))


class Checkpoint(pl.Callback):
    """Saves last.ckpt at every evaluation and at a stop signal, best.ckpt when the loss improves.

    Nothing is saved after any other exception (a batch half done would count twice in BatchNorm's
    buffers), inside an accumulation (its gradients are in no checkpoint), or with weights that are
    not finite.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.val_best = math.inf
        self.val_best_step = 0

    def on_validation_end(self, trainer: pl.Trainer, lit: Any) -> None:
        """Keep the state after an evaluation."""
        loss = float(lit.loss_val)
        if loss < self.val_best:
            self.val_best = loss
            self.val_best_step = trainer.global_step
            self._save(trainer, "best.ckpt")
        self._save(trainer, "last.ckpt")

    def on_exception(self, trainer: pl.Trainer, lit: Any, exception: BaseException) -> None:
        """Keep the state at a stop signal."""
        done = trainer.fit_loop.epoch_loop.batch_progress.current.processed  # type: ignore[attr-defined]
        if isinstance(exception, SIGTERMException) and done % trainer.accumulate_grad_batches == 0:
            self._save(trainer, "last.ckpt")

    def _save(self, trainer: pl.Trainer, name: str) -> None:
        if all(torch.isfinite(p).all() for p in trainer.lightning_module.parameters()):
            trainer.save_checkpoint(self.folder / name)

    def state_dict(self) -> dict[str, Any]:
        """What resuming needs to know of the best step so far."""
        return {"val_best": self.val_best, "val_best_step": self.val_best_step}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the best step so far."""
        vars(self).update(state_dict)
