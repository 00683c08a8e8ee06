"""What a sweep does around its jobs: one line per job, every failure named, exit code 1 if any.

Jobs may run in processes of their own (hydra/launcher=joblib); what they came to is read from disk.
"""

import logging
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from hydra.core.utils import JobReturn
from hydra.experimental.callback import Callback
from hydra.types import RunMode
from omegaconf import DictConfig, read_write

from run.encoding import write_anywhere
from run.errors import one_line
from run.result import read_result
from run.stopping import heard, listen
from sweep import grid
from sweep.folders import refuse_nested, without_result
from sweep.starts import ENDED, hold, results

log = logging.getLogger(__name__)


def on_signals(leave: Callable[[int], None]) -> None:
    """Call `leave` with 128 + n on a signal to stop. Training has a handler of its own."""
    listen(lambda received, frame: leave(128 + received), heard())


@cache
def end_with(parent: int) -> None:
    """Let this worker end when its parent does, also by kill -9, since the sweep may be resumed."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.3)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


class Sweep(Callback):
    """Makes a sweep resumable and its failures visible: Hydra alone shows one and forgets the rest.

    Hydra turns an exception raised here into a warning and exit code 0, hence `sys.exit`. Under
    joblib each worker has a copy of this object, as it was after `on_multirun_start`.
    """

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.folder = Path()
        self.total = 0  # jobs of the sweep; 0: not known beforehand
        self.before = 0  # jobs that had ended before this command
        self.side_by_side = 1
        self.started = 0.0  # when this command started, in seconds since the epoch

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        """See what is in the folder. A signal ends joblib's workers too."""
        on_signals(sys.exit)
        try:
            self.begin(config)
        except Exception as error:
            sys.exit(f"error: {one_line(error)}")

    def begin(self, config: DictConfig) -> None:
        """Refuse what would mix two sweeps; count the jobs that have ended.

        Raises:
            ValueError: another sweep is running or ran in the folder, or nothing is to be tuned.
        """
        self.folder = Path(config.hydra.sweep.dir).absolute()
        self.folder.mkdir(parents=True, exist_ok=True)
        hold(self.folder)
        jobs, self.total = grid.jobs_of(config)
        grid.refuse_unknown_options(config, jobs)
        grid.refuse_settings_of_hydra(jobs)
        grid.name_placements(config, jobs)
        refuse_nested(config, jobs)
        grid.refuse_other_jobs(self.folder, config, jobs)
        ended = sum(result["status"] in ENDED for result in results(self.folder))
        self.before = min(ended, self.total) if self.total else ended  # a longer list had more
        self.started = time.time()
        launcher = config.hydra.launcher
        if launcher.get("batch_size") == "auto":
            # jobs that had ended are short, so joblib would give out the others in bundles
            with read_write(config):
                launcher.batch_size = 1
        workers = launcher.get("n_jobs", 1)  # -1: one per CPU
        self.side_by_side = workers if workers > 0 else os.cpu_count() or 1
        log.info(self.first_line(config))

    def first_line(self, config: DictConfig) -> str:
        """How many jobs run in which folder, and how to resume them after a kill."""
        folder = config.hydra.sweep.dir
        line = f"{jobs_in_words(self.total)} in {folder}"
        if self.before:
            return f"{line}, {self.before} of them have ended already"
        if "hydra.sweep.dir" in grid.typed_for_hydra(config):
            return line
        return f"{line} (to resume it: the same command with hydra.sweep.dir={folder})"

    def on_job_start(self, config: DictConfig, **kwargs: Any) -> None:
        """Let a signal end a job at once until it trains; keep the console free of a sweep's jobs.

        Torch is about to be imported, and swallows exceptions meanwhile, SystemExit too.
        """
        on_signals(os._exit)
        if config.hydra.mode == RunMode.MULTIRUN:
            root = logging.getLogger()
            root.handlers = [handler for handler in root.handlers if handler.name != "console"]
            if os.getpid() != self.pid:
                write_anywhere()
                end_with(self.pid)

    def on_job_end(self, config: DictConfig, job_return: JobReturn, **kwargs: Any) -> None:
        """Print the line of a job, if this command has run it."""
        path = Path(config.hydra.runtime.output_dir, "result.json")
        if config.hydra.mode != RunMode.MULTIRUN or not path.exists():
            return
        if path.stat().st_mtime >= self.started:
            print(self.line(path.parent), flush=True)

    def line(self, folder: Path) -> str:
        """Count, name, status and loss of a job, and the time left by this command's jobs."""
        result = read_result(folder)
        times = [path.stat().st_mtime for path in self.folder.glob("*/result.json")]
        now = sum(written >= self.started for written in times)
        done = self.before + now
        if result["status"] == "finished":
            what = f"validation {result['val_final']:.4f} nats/char"
        else:
            what = result["error"]
        per_job = (time.time() - self.started) / max(now, self.side_by_side)
        left = duration(per_job * (self.total - done)) if done < self.total else ""
        count = f"{done:>{len(str(self.total))}}/{self.total or '?'}"
        return f"{count}  {folder.name:<24}  {result['status']:<8}  {what}{left}"

    def on_multirun_end(self, config: DictConfig, **kwargs: Any) -> None:
        """Compare the runs, list what failed; exit 1 if a job or the comparison failed."""
        found = results(self.folder)
        counts = Counter(result["status"] for result in found)
        ended = ", ".join(f"{n} {status}" for status, n in counts.items())
        log.info(
            f"{jobs_in_words(len(found))}: {ended}; tensorboard --logdir {config.hydra.sweep.dir}"
        )
        compared = self.compare([r["norm"] for r in found if r["status"] in ENDED])
        failed = [result for result in found if result["status"] not in ENDED]
        for result in failed:
            overrides = " ".join(result["overrides"])
            log.error(f"{result['status']}: {overrides}: {result['error']}")
        jobs, total = grid.jobs_of(config)
        missing = without_result(self.folder, config, jobs) if len(jobs) == total else []
        for job in missing:
            log.error(f"without a result: {job}")
        if failed or missing or not compared:
            sys.exit(1)

    def compare(self, norms: list[str]) -> bool:
        """Print the table and write the page; the baseline is layernorm, or else the first norm."""
        if not norms:
            return True
        try:
            from report.compare import compare  # late: pandas and matplotlib take a second

            print(compare(self.folder, "layernorm" if "layernorm" in norms else norms[0]))
        except Exception as error:
            log.exception(f"the comparison failed: {one_line(error)}")
            return False
        return True


def jobs_in_words(number: int) -> str:
    """`1 job`, `2 jobs`; `jobs` if their number is not known."""
    return "1 job" if number == 1 else f"{number or ''} jobs".strip()


def duration(seconds: float) -> str:
    """The time left, in a suitable unit.

    >>> duration(100), duration(1000), duration(10000)
    ('  100 s left', '  17 min left', '  2.8 h left')
    """
    if seconds < 120:
        return f"  {seconds:.0f} s left"
    return f"  {seconds / 60:.0f} min left" if seconds < 7200 else f"  {seconds / 3600:.1f} h left"
