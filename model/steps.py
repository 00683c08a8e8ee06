"""When something is due in training, counted in optimizer steps; the first step is 1."""

import lightning.pytorch as pl


def completes_step(trainer: pl.Trainer, batch_idx: int) -> bool:
    """Whether micro-batch `batch_idx` (the first is 0) is the last one of its optimizer step."""
    return (batch_idx + 1) % trainer.accumulate_grad_batches == 0


def due(step: int, every: int, last: int) -> bool:
    """Whether a step is a multiple of `every`, the first or the last.

    >>> [step for step in range(1, 26) if due(step, every=10, last=25)]
    [1, 10, 20, 25]
    """
    return step % every == 0 or step in (1, last)


def evaluation_due(trainer: pl.Trainer, times: int, steps: int) -> bool:
    """Whether this evaluation is one of about `times` in each `steps` steps, or the last one.

    It is the first evaluation at or after a multiple of steps / times. This depends on the step
    alone, so a resumed run chooses the same evaluations.
    """
    assert isinstance(trainer.val_check_interval, int)
    step = trainer.global_step
    before = step - trainer.val_check_interval // trainer.accumulate_grad_batches
    return step == trainer.max_steps or step * times // steps > before * times // steps
