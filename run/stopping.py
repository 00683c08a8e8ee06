"""The signals that ask a program to end."""

import signal
from collections.abc import Callable, Collection
from types import FrameType

STOPPING = (
    signal.SIGINT,  # Ctrl+C
    signal.SIGTERM,  # kill
    signal.SIGHUP,  # the terminal was closed
    signal.SIGUSR1,  # a cluster's scheduler sends one of these before the time is over
    signal.SIGUSR2,
)


def heard() -> list[int]:
    """Those of them that this process was not started to ignore, as `nohup` ignores SIGHUP."""
    return [number for number in STOPPING if signal.getsignal(number) is not signal.SIG_IGN]


def listen(handler: Callable[[int, FrameType | None], None], numbers: Collection[int]) -> None:
    """Let `handler` hear these signals; the others of them are ignored."""
    for number in STOPPING:
        signal.signal(number, handler if number in numbers else signal.SIG_IGN)
