"""When a signal is only noted, and when it ends the program."""

from types import SimpleNamespace

import pytest

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
