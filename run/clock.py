"""How long a run has trained, over all its legs, and how fast."""

import time
from datetime import UTC, datetime
from typing import Any

import lightning.pytorch as pl
import torch

from model.steps import completes_step


class Clock(pl.Callback):
    """Counts the seconds of training over all legs, without evaluations, and logs the speed.

    It pauses at an evaluation, checkpoints included, until the next micro-batch.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self.legs = 0
        self.tokens = 0
        self.started = datetime.now(UTC).isoformat(timespec="seconds")
        self._since: float | None = None  # None: paused
        self._logged = (0.0, 0)  # seconds and tokens at the last point of the curve

    def on_train_start(self, *_: Any) -> None:
        """Start a leg."""
        self.legs += 1
        self._logged = (self.seconds, self.tokens)

    def on_train_batch_start(self, *_: Any) -> None:
        """End a pause."""
        if self._since is None:
            self._since = time.perf_counter()

    def on_train_batch_end(
        self, trainer: pl.Trainer, lit: Any, outputs: Any, batch: torch.Tensor, batch_idx: int
    ) -> None:
        """Count a micro-batch (B, T + 1) without its padding (-1); log at the curves' points."""
        self.tokens += int((batch[:, 1:] >= 0).sum())
        if not completes_step(trainer, batch_idx):
            return
        step = trainer.global_step
        if step % lit.log_every == 0 or step == trainer.max_steps:
            self._count()
            seconds = self.seconds - self._logged[0]
            tokens = self.tokens - self._logged[1]
            self._logged = (self.seconds, self.tokens)
            lit.log_now({"speed/tokens_per_second": tokens / seconds, "tokens": self.tokens})

    def on_validation_start(self, *_: Any) -> None:
        """Pause until the next micro-batch."""
        self._count()
        self._since = None

    on_exception: Any = on_validation_start  # ends the leg

    def _count(self) -> None:
        if self._since is not None:
            now = time.perf_counter()
            self.seconds += now - self._since
            self._since = now

    def state_dict(self) -> dict[str, Any]:
        """The legs so far."""
        self._count()
        return {name: getattr(self, name) for name in ("seconds", "legs", "tokens", "started")}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the legs so far."""
        vars(self).update(state_dict)
