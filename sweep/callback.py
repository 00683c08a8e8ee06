"""A sweep around its jobs: what goes on, a line a job, every failure named, exit code 1.

`python train.py -m ...` again, with the same hydra.sweep.dir, takes up what is in the folder. Jobs
may run in processes of their own (hydra/launcher=joblib); what they came to is read from disk.
"""

import fcntl
import logging
import math
import os
import signal
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
from omegaconf import DictConfig, OmegaConf, read_write

from run import folder as run_folder
from run.folder import key_of, read_result
from run.resume import refuse_changes
from sweep.grid import jobs_of, name_placements, refuse_other_jobs, refuse_unknown_options

log = logging.getLogger(__name__)
ENDED = ("finished", "diverged")  # results; a job that ended so is not run again


def take_up(cfg: DictConfig, folder: Path) -> float | None:
    """Look at what an earlier start of this sweep left in a job's folder.

    Returns:
        The best validation loss (nats a character) of a job that has ended. Otherwise None, and the
        job is to run: from last.ckpt (put into `cfg.resume`), or anew if there is none yet.

    Raises:
        Refused: the folder holds a run of another configuration.
    """
    if (folder / ".hydra" / "overrides.yaml").exists():
        refuse_changes(folder, OmegaConf.to_container(cfg, resolve=True))
    result = read_result(folder)
    if result.get("status") in ENDED:
        loss = result["val_best"]
        return math.inf if loss is None else float(loss)
    checkpoint = folder / "checkpoints" / "last.ckpt"
    run_folder.tidy(folder, anew=not checkpoint.exists())
    cfg.resume = str(checkpoint) if checkpoint.exists() else None
    return None


def on_signals(leave: Callable[[int], None]) -> None:
    """Call `leave` with 128 + n on SIGINT and SIGTERM. Training has a handler of its own."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda received, frame: leave(128 + received))


@cache
def end_with(parent: int) -> None:
    """Let this worker end when its parent does, also by kill -9: the sweep may be run again."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.3)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@cache
def hold(folder: Path) -> int:
    """Keep other sweeps out of a folder until this process ends, however it ends.

    Raises:
        Refused: another one is running in it.
    """
    handle = os.open(folder / ".lock", os.O_WRONLY | os.O_CREAT)
    try:
        fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)  # forked data.num_workers do not hold it
    except BlockingIOError:
        os.close(handle)
        raise run_folder.Refused(
            f"a sweep is running in {folder}; wait for it, or choose another hydra.sweep.dir"
        ) from None
    return handle


class Sweep(Callback):
    """Hydra's own sweep cannot go on, shows one failure and forgets the rest.

    Hydra turns an exception raised here into a warning and exit code 0, hence `sys.exit`. Under
    joblib each worker has a copy of this object, as it was after `on_multirun_start`.
    """

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.folder = Path()
        self.total = 0  # jobs; 0: not known beforehand
        self.before = 0  # of them had ended
        self.side_by_side = 1
        self.started = 0.0  # this command, in seconds since the epoch

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        """See what is in the folder. A signal takes joblib's workers along."""
        on_signals(sys.exit)
        try:
            self.begin(config)
        except Exception as error:
            sys.exit(f"error: {run_folder.one_line(error)}")

    def begin(self, config: DictConfig) -> None:
        """Refuse what would mix two sweeps; count what is there.

        Raises:
            Refused: another sweep is running in the folder, or ran in it.
            ValueError: there is nothing to tune.
        """
        self.folder = Path(config.hydra.sweep.dir).absolute()
        self.folder.mkdir(parents=True, exist_ok=True)
        hold(self.folder)
        jobs, self.total = jobs_of(config)
        refuse_unknown_options(config, jobs)
        name_placements(config, jobs)
        refuse_other_jobs(self.folder, config, jobs)
        ended = sum(result["status"] in ENDED for result in results(self.folder))
        self.before = min(ended, self.total) if self.total else ended  # more: of a longer list
        self.started = time.time()
        launcher = config.hydra.launcher
        if launcher.get("batch_size") == "auto":  # joblib: jobs that had ended are short, so it
            with read_write(config):  # would give the others out in bundles
                launcher.batch_size = 1
        workers = launcher.get("n_jobs", 1)  # -1: a job a CPU
        self.side_by_side = workers if workers > 0 else os.cpu_count() or 1
        log.info(self.first_line(config))

    def first_line(self, config: DictConfig) -> str:
        """How many jobs go where; and how to go on, also after a kill that lets nothing be said."""
        folder = config.hydra.sweep.dir
        line = f"{jobs_in_words(self.total)} in {folder}"
        if self.before:
            return f"{line}, {self.before} of them ended already"
        if "hydra.sweep.dir" in map(key_of, config.hydra.overrides.hydra):
            return line
        return f"{line} (if stopped, go on with the same command and hydra.sweep.dir={folder})"

    def on_job_start(self, config: DictConfig, **kwargs: Any) -> None:
        """Leave a job (single, in a sweep or in a worker process) at once; keep a sweep's quiet.

        Torch is about to be imported, and swallows exceptions while it is: no SystemExit here.
        """
        on_signals(os._exit)
        if config.hydra.mode == RunMode.MULTIRUN:
            root = logging.getLogger()
            root.handlers = [handler for handler in root.handlers if handler.name != "console"]
            if os.getpid() != self.pid:
                end_with(self.pid)

    def on_job_end(self, config: DictConfig, job_return: JobReturn, **kwargs: Any) -> None:
        """Print the line of a job that this command has run."""
        path = Path(config.hydra.runtime.output_dir, "result.json")
        if config.hydra.mode != RunMode.MULTIRUN or not path.exists():
            return
        if path.stat().st_mtime >= self.started:
            print(self.line(path.parent), flush=True)

    def line(self, folder: Path) -> str:
        """Done/total, the job's name, status and loss, and the time left.

        The time is that of the jobs of this command so far, for those to come.
        """
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
        """Compare the runs, list what failed; exit 1 if a job or the comparison did."""
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
        if failed or not compared:
            sys.exit(1)

    def compare(self, norms: list[str]) -> bool:
        """Print the table and write the page, with layernorm or else the first norm as baseline."""
        if not norms:
            return True
        try:
            from report.compare import compare  # late: pandas and matplotlib take a second

            print(compare(self.folder, "layernorm" if "layernorm" in norms else norms[0]))
        except Exception as error:
            log.exception(f"no comparison: {run_folder.one_line(error)}")
            return False
        return True


def results(folder: Path) -> list[dict[str, Any]]:
    """Every result.json of a sweep; other files of that name are not ours to judge."""
    read = (read_result(path.parent) for path in sorted(folder.glob("*/result.json")))
    return [result for result in read if {"status", "overrides", "error", "norm"} <= result.keys()]


def jobs_in_words(number: int) -> str:
    """1 job, 2 jobs; jobs, if the sweeper chooses them as it goes."""
    return "1 job" if number == 1 else f"{number or ''} jobs".strip()


def duration(seconds: float) -> str:
    """Time left, in the unit that suits it.

    >>> duration(100), duration(1000), duration(10000)
    ('  100 s left', '  17 min left', '  2.8 h left')
    """
    if seconds < 120:
        return f"  {seconds:.0f} s left"
    return f"  {seconds / 60:.0f} min left" if seconds < 7200 else f"  {seconds / 3600:.1f} h left"
