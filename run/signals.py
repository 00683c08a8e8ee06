"""Stopping a run by Ctrl+C, SIGTERM or a like signal without losing a step."""

import os
import signal
import sys
import threading
from contextlib import suppress
from types import FrameType
from typing import Any

import lightning.pytorch as pl

from model.steps import completes_step
from run.stopping import heard, listen


class StopOnSignal(pl.Callback):
    """Lets a signal to stop end training after the optimizer step and a due evaluation.

    While training, the handler only notes the signal. It is handed to Lightning when a step is
    complete, so that no accumulation is cut short; Lightning then evaluates if that is due and
    raises SIGTERMException. Before and after training, the program exits at once.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self.training = False
        self.pid = os.getpid()
        self.lightning: Any = None
        self.heard = heard()
        self._listen()

    def _listen(self) -> None:
        if threading.current_thread() is threading.main_thread():
            listen(self.handle, self.heard)

    def handle(self, signum: int, frame: FrameType | None) -> None:
        """Note the first signal while training, exit otherwise."""
        if self.received is not None:  # the run is being stopped already
            return
        if os.getpid() != self.pid:  # a loader's worker inherited this handler: the parent decides
            if signum == signal.SIGTERM:
                os._exit(128 + signum)
        elif not self.training:
            sys.exit(128 + signum)
        else:
            self.received = signum
            with suppress(OSError):  # the terminal may be gone
                # not by print, which this may have interrupted
                os.write(2, b"stopping after this step, once it is saved\n")

    def leave_if_received(self) -> None:
        """Exit with 128 + n after signal n: a stopped run is not a success, and ends a sweep."""
        if self.received is not None:
            sys.exit(128 + self.received)

    def on_train_start(self, *_: Any) -> None:
        """Let signals wait for the end of the step from here on."""
        self.training = True
        self.lightning = signal.getsignal(signal.SIGTERM)
        self._listen()

    def on_train_batch_end(
        self, trainer: pl.Trainer, lit: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Hand a noted signal on when the step is complete."""
        complete = completes_step(trainer, batch_idx)
        if self.received is not None and complete and callable(self.lightning):
            self.lightning(signal.SIGTERM, None)

    def on_train_end(self, *_: Any) -> None:
        """Stop waiting: the last checkpoint is written."""
        self.training = False

    def on_exception(self, *_: Any) -> None:
        """Stop waiting: training has ended early."""
        self.training = False
