"""The lock of a sweep's folder: only one sweep runs in it at a time."""

import os
import sys
from functools import cache
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows
    sys.exit("error: normlab runs on Linux and macOS only: it needs POSIX file locks and signals")


@cache
def hold(folder: Path) -> int:
    """Keep other sweeps out of a folder until this process ends, however it ends.

    Raises:
        ValueError: another sweep is running in it.
    """
    handle = os.open(folder / ".lock", os.O_WRONLY | os.O_CREAT)
    try:
        fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)  # forked data.num_workers do not hold it
    except BlockingIOError:
        os.close(handle)
        raise ValueError(
            f"a sweep is running in {folder}; wait for it, or choose another hydra.sweep.dir"
        ) from None
    return handle
