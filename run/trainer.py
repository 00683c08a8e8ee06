"""The Trainer of a run: Lightning's, with our callbacks, loggers and checkpoints."""

from pathlib import Path
from typing import Any

import lightning.pytorch as pl
from hydra.utils import instantiate

from run.checkpoint import AtomicCheckpointIO, Checkpoint
from run.clock import Clock
from run.loggers import loggers
from run.progress import Progress
from run.signals import StopOnSignal


def build_trainer(
    cfg: Any, folder: Path, probes: dict[str, pl.Callback]
) -> tuple[pl.Trainer, StopOnSignal, Clock, Checkpoint]:
    """The trainer of `cfg.trainer`, and those of its callbacks that know how the run went."""
    stop = StopOnSignal()
    clock = Clock()
    checkpoint = Checkpoint(folder / "checkpoints")
    trainer = instantiate(
        cfg.trainer,
        val_check_interval=cfg.eval_every * cfg.trainer.accumulate_grad_batches,
        callbacks=[stop, checkpoint, clock, Progress(clock), *probes.values()],
        logger=loggers(folder, cfg.resume),
        plugins=[AtomicCheckpointIO()],
    )
    return trainer, stop, clock, checkpoint
