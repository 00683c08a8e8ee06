"""What a sweep does around its jobs: refuse a taken folder, name every failure, exit with 1."""

import logging
import os
import signal
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hydra.experimental.callback import Callback
from omegaconf import DictConfig

from job.folder import read_result

log = logging.getLogger(__name__)


def on_signals(leave: Callable[[int], None]) -> None:
    """Call `leave` with 128 + n on SIGINT and SIGTERM. Training has a handler of its own."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda received, frame: leave(128 + received))


class Sweep(Callback):
    """Names every failed job with its overrides; Hydra's own sweep shows one and forgets the rest.

    Statuses are read from disk, since jobs may run in other processes. Hydra turns an exception
    raised here into a warning and exit code 0, so the verdict is a `sys.exit`.
    """

    def on_job_start(self, config: DictConfig, **kwargs: Any) -> None:
        """Leave a job (single, in a sweep or in a worker process) at once.

        Torch is about to be imported, and swallows exceptions while it is: no SystemExit here.
        """
        on_signals(os._exit)

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        """Stop before the first job if the sweep's folder holds runs already.

        A signal takes a launcher's workers along, which would live on as orphans otherwise.
        """
        on_signals(sys.exit)
        folder = Path(config.hydra.sweep.dir)
        if any(folder.glob("*/.hydra/overrides.yaml")):
            sys.exit(
                f"hydra.sweep.dir={folder} already holds runs; choose another, "
                "or go on with one of them: resume=<its folder>"
            )

    def on_multirun_end(self, config: DictConfig, **kwargs: Any) -> None:
        """List what failed; exit 1 if anything did."""
        folder = Path(config.hydra.sweep.dir)
        results = [read_result(path.parent) for path in sorted(folder.glob("*/result.json"))]
        failed = [result for result in results if result["status"] == "failed"]
        counts = Counter(result["status"] for result in results)
        ended = ", ".join(f"{n} {status}" for status, n in counts.items())
        log.info(f"{len(results)} jobs: {ended}; tensorboard --logdir {folder}")
        for result in failed:
            log.error(f"failed: {' '.join(result['overrides'])}: {result['error']}")
        if failed:
            sys.exit(1)
