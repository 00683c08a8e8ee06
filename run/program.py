"""How each program starts: its configurations, its console, its mistakes on one line."""

import os
import sys
from collections.abc import Callable
from concurrent.futures import BrokenExecutor

from run.encoding import write_anywhere
from run.errors import MISTAKES, one_line


def start(
    main: Callable[[], object], rewrite: Callable[[list[str]], list[str]] | None = None
) -> None:
    """Run a program, with its command line rewritten first; a user's mistake exits with 1."""
    os.environ.setdefault("HYDRA_FULL_ERROR", "1")  # else Hydra prints a traceback itself
    write_anywhere()
    try:
        if rewrite is not None:
            sys.argv[1:] = rewrite(sys.argv[1:])
        main()
    except BrokenPipeError:  # `| head` has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (*MISTAKES, BrokenExecutor) as error:  # joblib's, when a worker was killed
        sys.exit(f"error: {one_line(error)}")
