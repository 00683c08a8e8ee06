"""One writer per folder: a lock that ends with its process, however that ends."""

import errno
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from run.errors import Refused

try:
    import fcntl
except ImportError:  # Windows
    sys.exit("error: normlab runs on Linux and macOS only: it needs POSIX file locks and signals")

UNSUPPORTED = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)


def lock(folder: Path, busy: str) -> int:
    """Keep other programs that lock it out of a folder, until the handle is closed.

    On a file system without locks this is only a warning.

    Raises:
        Refused: another program holds it; `busy` says what to do.
    """
    handle = os.open(folder / ".lock", os.O_WRONLY | os.O_CREAT)
    try:
        fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)  # forked data.num_workers do not hold it
    except (BlockingIOError, PermissionError):  # both mean that another program has it
        os.close(handle)
        raise Refused(busy) from None
    except OSError as error:
        if error.errno not in UNSUPPORTED:
            raise
        logging.getLogger("normlab").warning(
            f"the file system of {folder} has no locks; start nothing else in this folder meanwhile"
        )
    return handle


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Be the only program that trains in a run folder.

    Raises:
        Refused: another program is training in it.
    """
    busy = f"a run is being trained in {folder}; wait for it, stop it, or choose another folder"
    folder.mkdir(parents=True, exist_ok=True)
    handle = lock(folder, busy)
    try:
        yield
    finally:
        os.close(handle)
