"""What the console shows while a run trains, and nothing of Lightning's own tips."""

import logging
import sys
import threading
import warnings
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.callbacks import TQDMProgressBar
from lightning.pytorch.callbacks.progress.tqdm_progress import Tqdm

from run.clock import Clock

logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)  # no tips, no list of devices
warnings.filterwarnings("ignore", ".*LeafSpec|.*does not have many workers", module="lightning")


class Progress(TQDMProgressBar):
    """Shows a bar on a terminal; elsewhere, and in train.log, one line per evaluation.

    A sweep prints one line per job and takes the console from its jobs' logging: then there is no
    bar.
    """

    def __init__(self, clock: Clock) -> None:
        super().__init__(refresh_rate=10)
        self.clock = clock
        console = any(handler.name == "console" for handler in logging.getLogger().handlers)
        self.bar = console and sys.stdout.isatty()
        Tqdm.set_lock(threading.RLock())  # its own is a semaphore, which a killed worker leaks
        if not self.bar:
            self.disable()

    def get_metrics(self, trainer: pl.Trainer, lit: Any) -> dict[str, Any]:
        """The losses beside the bar."""
        return {"train": f"{lit.loss_train:.3f}", "val": f"{lit.loss_val:.3f}"}

    def init_validation_tqdm(self) -> Any:
        """Show no second bar: an evaluation takes a second."""
        return Tqdm(disable=True)

    def on_train_epoch_start(self, trainer: pl.Trainer, *args: Any) -> None:
        """Let one bar cover all micro-batches; Lightning knows no end of an endless epoch."""
        self.train_progress_bar.reset(total=trainer.max_steps * trainer.accumulate_grad_batches)
        self.train_progress_bar.set_description(f"{trainer.max_steps} steps")

    def on_validation_end(self, trainer: pl.Trainer, lit: pl.LightningModule) -> None:
        """Report an evaluation."""
        super().on_validation_end(trainer, lit)
        speed = self.clock.tokens / max(self.clock.seconds, 1e-9)
        per_step = self.clock.seconds / max(trainer.global_step, 1)
        left = (trainer.max_steps - trainer.global_step) * per_step
        logging.getLogger("file" if self.bar else "normlab").info(
            f"step {trainer.global_step:>5}/{trainer.max_steps}   train {lit.loss_train:.3f}   "
            f"val {lit.loss_val:.3f} nats   {speed:,.0f} tokens/s   {left:.0f} s left"
        )
