"""What happens around a training step: checkpoints, signals, the clock, progress.

`lit` is the LightningModule; these callbacks use its `loss_train`, `loss_val`, `log_every` and
`log_now`.
"""

import logging
import math
import os
import signal
import sys
import threading
import time
import warnings
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.fabric.plugins.io import TorchCheckpointIO
from lightning.pytorch.callbacks import TQDMProgressBar
from lightning.pytorch.callbacks.progress.tqdm_progress import Tqdm
from lightning.pytorch.utilities.exceptions import SIGTERMException

from run.folder import replace_file

logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)  # no tips, no list of devices
warnings.filterwarnings("ignore", ".*LeafSpec|.*does not have many workers", module="lightning")


class AtomicCheckpointIO(TorchCheckpointIO):
    """Write beside the target, then rename: a kill leaves the earlier checkpoint whole."""

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None
    ) -> None:
        """Save to `path` (relative names and plain types inside, loaded with weights_only=True)."""
        Path(path).parent.mkdir(exist_ok=True)
        with replace_file(Path(path)) as file:
            torch.save(checkpoint, file)

    def load_checkpoint(
        self, path: Any, map_location: Any = None, weights_only: bool | None = None
    ) -> dict[str, Any]:
        """Load tensors and plain types only, to the CPU."""
        return torch.load(path, map_location=map_location or "cpu", weights_only=True)  # type: ignore[no-any-return]


class Checkpoint(pl.Callback):
    """`last.ckpt` after every evaluation and at a stop signal, `best.ckpt` before it on a new best.

    Not after any other exception (a batch half done would count twice in BatchNorm's buffers), not
    inside an accumulation (its gradients are in no checkpoint), not with weights that are not
    finite.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.val_best, self.val_best_step = math.inf, 0

    def on_validation_end(self, trainer: pl.Trainer, lit: pl.LightningModule) -> None:
        """Keep the state after an evaluation."""
        if trainer.sanity_checking:
            return
        loss = float(lit.loss_val)  # type: ignore[arg-type]
        if loss < self.val_best:
            self.val_best, self.val_best_step = loss, trainer.global_step
            self._save(trainer, "best.ckpt")
        self._save(trainer, "last.ckpt")

    def on_exception(
        self, trainer: pl.Trainer, lit: pl.LightningModule, exception: BaseException
    ) -> None:
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
        """Take up the best step so far."""
        self.val_best, self.val_best_step = state_dict["val_best"], state_dict["val_best_step"]


class StopOnSignal(pl.Callback):
    """SIGINT and SIGTERM end training after the optimizer step and a due evaluation.

    While training, the handler only notes the signal. It is handed to Lightning when a step is
    complete, so that no accumulation is cut short; Lightning then evaluates if that is due and
    raises SIGTERMException. Before and after training, the program exits at once.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self.training = False
        self.pid = os.getpid()
        self.lightning: Any = None
        self._listen()

    def _listen(self) -> None:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, self.handle)
            signal.signal(signal.SIGTERM, self.handle)

    def handle(self, signum: int, frame: FrameType | None) -> None:
        """Note the first signal while training, exit otherwise."""
        if self.received is not None:  # it is being seen to
            return
        if os.getpid() != self.pid:  # a loader's worker inherited this handler: the parent decides
            if signum == signal.SIGTERM:
                os._exit(128 + signum)
        elif not self.training:
            sys.exit(128 + signum)
        else:
            self.received = signum
            # not by print, which this may have interrupted
            os.write(2, b"stopping: this step is ended and saved first\n")

    def leave_if_received(self) -> None:
        """Exit with 128 + n after signal n: a stopped run is no success, and ends a sweep."""
        if self.received is not None:
            sys.exit(128 + self.received)

    def on_train_start(self, trainer: pl.Trainer, lit: pl.LightningModule) -> None:
        """From here on a signal waits for the step's end."""
        self.training = True
        self.lightning = signal.getsignal(signal.SIGTERM)
        self._listen()

    def on_train_batch_end(
        self,
        trainer: pl.Trainer,
        lit: pl.LightningModule,
        outputs: Any,
        batch: torch.Tensor,
        batch_idx: int,
    ) -> None:
        """Hand a noted signal on when the step is complete."""
        complete = (batch_idx + 1) % trainer.accumulate_grad_batches == 0
        if self.received is not None and complete and callable(self.lightning):
            self.lightning(signal.SIGTERM, None)

    def on_train_end(self, trainer: pl.Trainer, lit: pl.LightningModule) -> None:
        """The last checkpoint is written."""
        self.training = False

    def on_exception(
        self, trainer: pl.Trainer, lit: pl.LightningModule, exception: BaseException
    ) -> None:
        """The loop is left."""
        self.training = False


class Clock(pl.Callback):
    """Seconds of training over all legs, without evaluations and checkpoints; logs the speed.

    It pauses at an evaluation and goes on with the next micro-batch.
    """

    def __init__(self) -> None:
        self.seconds, self.legs, self.tokens = 0.0, 0, 0
        self.started = datetime.now(UTC).isoformat(timespec="seconds")
        self._since: float | None = None  # None: paused
        self._logged = (0.0, 0)

    def on_train_start(self, trainer: pl.Trainer, lit: pl.LightningModule) -> None:
        """Start a leg."""
        self.legs += 1
        self._logged = (self.seconds, self.tokens)

    def on_train_batch_start(
        self, trainer: pl.Trainer, lit: pl.LightningModule, batch: torch.Tensor, batch_idx: int
    ) -> None:
        """Go on after a pause."""
        if self._since is None:
            self._since = time.perf_counter()

    def on_train_batch_end(
        self,
        trainer: pl.Trainer,
        lit: pl.LightningModule,
        outputs: Any,
        batch: torch.Tensor,
        batch_idx: int,
    ) -> None:
        """Count a micro-batch (B, T + 1) without its padding (-1); log at the curves' points."""
        self.tokens += int((batch[:, 1:] >= 0).sum())
        step = trainer.global_step
        logs = step % lit.log_every == 0 or step == trainer.max_steps  # type: ignore[operator]
        if (batch_idx + 1) % trainer.accumulate_grad_batches == 0 and logs:
            self._count()
            seconds, tokens = self.seconds - self._logged[0], self.tokens - self._logged[1]
            self._logged = (self.seconds, self.tokens)
            values = {"speed/tokens_per_second": tokens / seconds, "tokens": self.tokens}
            lit.log_now(values)  # type: ignore[operator]

    def on_validation_start(self, trainer: pl.Trainer, lit: pl.LightningModule) -> None:
        """Pause until the next micro-batch."""
        self._count()
        self._since = None

    def on_exception(
        self, trainer: pl.Trainer, lit: pl.LightningModule, exception: BaseException
    ) -> None:
        """End the leg."""
        self._count()
        self._since = None

    def _count(self) -> None:
        if self._since is not None:
            now = time.perf_counter()
            self.seconds, self._since = self.seconds + now - self._since, now

    def state_dict(self) -> dict[str, Any]:
        """The legs so far."""
        self._count()
        return {
            "seconds": self.seconds,
            "legs": self.legs,
            "tokens": self.tokens,
            "started": self.started,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take up the legs so far."""
        self.seconds, self.legs = state_dict["seconds"], state_dict["legs"]
        self.tokens, self.started = state_dict["tokens"], state_dict["started"]


class Progress(TQDMProgressBar):
    """A bar on a terminal; elsewhere (and in train.log) one line an evaluation.

    A sweep has a line a job and takes the console from its jobs' logging: then there is no bar.
    """

    def __init__(self, clock: Clock) -> None:
        super().__init__(refresh_rate=10)
        self.clock = clock
        console = any(handler.name == "console" for handler in logging.getLogger().handlers)
        self.bar = console and sys.stdout.isatty()
        Tqdm.set_lock(threading.RLock())  # its own is a semaphore, which a killed worker leaks
        if not self.bar:
            self.disable()

    def get_metrics(
        self, trainer: pl.Trainer, lit: pl.LightningModule
    ) -> dict[str, int | str | float | dict[str, float]]:
        """The losses beside the bar."""
        return {"train": f"{lit.loss_train:.3f}", "val": f"{lit.loss_val:.3f}"}

    def init_validation_tqdm(self) -> Any:
        """No second bar: an evaluation takes a second."""
        return Tqdm(disable=True)

    def on_train_epoch_start(self, trainer: pl.Trainer, *args: Any) -> None:
        """One bar over all micro-batches; Lightning knows no end of an endless epoch."""
        self.train_progress_bar.reset(total=trainer.max_steps * trainer.accumulate_grad_batches)
        self.train_progress_bar.set_description(f"{trainer.max_steps} steps")

    def on_validation_end(self, trainer: pl.Trainer, lit: pl.LightningModule) -> None:
        """Report an evaluation."""
        super().on_validation_end(trainer, lit)
        if trainer.sanity_checking:
            return
        speed = self.clock.tokens / max(self.clock.seconds, 1e-9)
        left = (
            (trainer.max_steps - trainer.global_step)
            * self.clock.seconds
            / max(trainer.global_step, 1)
        )
        logging.getLogger("file" if self.bar else "normlab").info(
            f"step {trainer.global_step:>5}/{trainer.max_steps}   train {lit.loss_train:.3f}   "
            f"val {lit.loss_val:.3f} nats   {speed:,.0f} tokens/s   {left:.0f} s left"
        )
