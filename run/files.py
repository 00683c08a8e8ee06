"""Files that are replaced in one piece: a reader, or a kill, never meets half of one."""

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any


@contextmanager
def replace_file(path: Path, mode: str = "wb") -> Iterator[IO[Any]]:
    """Open a temporary file in the same folder that takes `path`'s place, whole, at the end."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with temporary.open(mode, encoding=None if "b" in mode else "utf-8") as file:
            yield file
            file.flush()
            sync(file)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def sync(file: IO[Any]) -> None:
    """Have the system write a file to the disk, where the file system can be asked to."""
    try:
        os.fsync(file.fileno())
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.ENOSYS):
            raise


def remove_temporary(folder: Path) -> None:
    """Remove the temporary files that a killed process left in a folder and those in it."""
    for path in [*folder.glob(".*.*"), *folder.glob("*/.*.*")]:
        if re.fullmatch(r"\..+\.\d+", path.name):  # named as in replace_file
            path.unlink(missing_ok=True)
