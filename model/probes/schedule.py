"""When a probe looks, and at what."""

import lightning.pytorch as pl
import torch


def due(step: int, every: int, last: int) -> bool:
    """Whether step `step` (the first is 1) of `last` is looked at.

    >>> [step for step in range(1, 26) if due(step, every=10, last=25)]
    [1, 10, 20, 25]
    """
    return step % every == 0 or step in (1, last)


def fixed_batch(trainer: pl.Trainer) -> torch.Tensor:
    """The probe batch (B, T + 1): as many validation windows as a training batch has rows."""
    data = trainer.datamodule  # type: ignore[attr-defined]
    windows: torch.Tensor = next(iter(data.val_dataloader()))[: data.batch_size]
    return windows.to(trainer.lightning_module.device)


def sparse(trainer: pl.Trainer, points: int) -> bool:
    """Whether this evaluation is looked at too: about `points` of a run's are, and the last.

    It is the first one in its share (one of `points`) of the steps; so a resumed run takes those
    that it would have taken.
    """
    assert isinstance(trainer.val_check_interval, int)
    step, last = trainer.global_step, trainer.max_steps
    before = step - trainer.val_check_interval // trainer.accumulate_grad_batches
    return step == last or step * points // last > before * points // last
