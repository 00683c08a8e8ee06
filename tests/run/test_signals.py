"""When a signal is only noted, and when it ends the program."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import lightning.pytorch as pl
import pytest

from run.result import read_result
from run.signals import StopOnSignal


def test_a_signal_is_only_noted_while_training_and_exits_before_and_after() -> None:
    stop = StopOnSignal()
    with pytest.raises(SystemExit) as left:
        stop.handle(2, None)
    assert left.value.code == 130
    stop.on_train_start(SimpleNamespace(), SimpleNamespace())
    stop.handle(15, None)
    assert stop.received == 15
    stop.on_train_end(SimpleNamespace(), SimpleNamespace())
    stop.handle(2, None)  # a second one does not disturb the saving
    assert stop.received == 15
    untouched = StopOnSignal()
    untouched.on_train_start(SimpleNamespace(), SimpleNamespace())
    untouched.on_train_end(SimpleNamespace(), SimpleNamespace())
    with pytest.raises(SystemExit) as left:
        untouched.handle(15, None)
    assert left.value.code == 143


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2])
def test_what_a_scheduler_or_a_closed_terminal_sends_saves_and_ends_like_sigterm(
    number: int, tmp_path: Path, run: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "write", gone)  # the terminal is closed
    folder = tmp_path / "run"
    hit = f"+probes.callbacks.hit={{_target_:tests.run.test_signals.Hit,number:{int(number)}}}"
    with pytest.raises(SystemExit) as left:
        run(folder, "trainer.max_steps=100", hit)
    assert left.value.code == 128 + number
    result = read_result(folder)
    assert (result["status"], result["steps"]) == ("interrupted", 3)
    assert result["error"] == f"stopped by {signal.Signals(number).name}"
    assert (folder / "checkpoints" / "last.ckpt").exists()


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM])
def test_a_signal_that_was_ignored_at_the_start_stays_ignored(
    number: signal.Signals, tmp_path: Path, run: Callable[..., Path]
) -> None:
    """As under nohup."""
    signal.signal(number, signal.SIG_IGN)
    hit = f"+probes.callbacks.hit={{_target_:tests.run.test_signals.Hit,number:{int(number)}}}"
    result = read_result(run(tmp_path / "run", "trainer.max_steps=5", hit))
    assert (result["status"], result["steps"]) == ("finished", 5)


def gone(*_: object) -> None:
    """Stand in for writing to a terminal that has been closed."""
    raise OSError(5, "Input/output error")


class Hit(pl.Callback):
    """Sends this process a signal in its third step."""

    def __init__(self, number: int) -> None:
        self.number = number

    def on_train_batch_start(self, trainer: pl.Trainer, *_: object) -> None:
        if trainer.global_step == 2:
            os.kill(os.getpid(), self.number)
