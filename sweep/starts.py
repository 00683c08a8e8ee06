"""Other starts of a sweep in its folder: one at the same time is refused, an earlier one resumed.

`python train.py -m ...` again, with the same hydra.sweep.dir, resumes the sweep: a job that has
ended is not run again, any other is resumed, or started anew.
"""

import logging
import math
import shutil
from functools import cache
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from run.files import replace_file
from run.folder import tidy
from run.lock import lock
from run.result import read_result
from run.resume import refuse_changes, vocabulary_size
from run.stored import read_stored

log = logging.getLogger("normlab")
ENDED = ("finished", "diverged")  # results; a job that ended so is not run again


@cache
def hold(folder: Path) -> int:
    """Keep other sweeps out of a folder until this process ends, however it ends.

    Raises:
        Refused: another sweep is running in it.
    """
    return lock(
        folder, f"a sweep is running in {folder}; wait for it, or choose another hydra.sweep.dir"
    )


def earlier_loss(cfg: DictConfig, folder: Path) -> float | None:
    """The best validation loss (nats per character) of a job that has ended; else None.

    Then the job is to be trained: from last.ckpt, which is put into `cfg.resume`, or anew if there
    is none yet.

    Raises:
        Refused: the folder holds a run of another configuration.
    """
    whole = True
    if (folder / ".hydra" / "overrides.yaml").exists():
        whole = same_settings(folder, OmegaConf.to_container(cfg, resolve=True))
    result = read_result(folder) if whole else {}
    loss = result.get("val_best")
    if result.get("status") in ENDED and isinstance(loss, float | int | None):
        return math.inf if loss is None else float(loss)
    checkpoint = resumable(folder) if whole else None
    tidy(folder, anew=checkpoint is None)
    cfg.resume = None if checkpoint is None else str(checkpoint)
    return None


def same_settings(folder: Path, config: Any) -> bool:
    """Whether what a run stored of itself can be read; then its settings are these.

    Raises:
        Refused: they are others.
    """
    try:
        read_stored(folder, "config")
    except ValueError as damage:
        log.warning(f"this job starts anew, since {damage}")
        return False
    refuse_changes(folder, config)
    return True


def resumable(folder: Path) -> Path | None:
    """The checkpoint that an unfinished job continues from; the best one if the last is damaged."""
    from run.state import read_state  # late: torch takes seconds

    last, best = (folder / "checkpoints" / f"{name}.ckpt" for name in ("last", "best"))
    states = {}
    for path in (last, best):
        if path.exists():
            try:
                vocabulary_size(folder / "tokenizer.json")
                states[path] = read_state(path)
            except ValueError as damage:
                log.warning(f"an earlier state of this job is used, since {damage}")
    if best in states and last not in states:
        if last.is_dir():
            shutil.rmtree(last)
        with replace_file(last) as file:
            file.write(best.read_bytes())
    if best in states or (last in states and not evaluated(states[last])):
        return last
    return None


def evaluated(state: dict[str, Any]) -> bool:
    """Whether a best state was stored before this one."""
    return any(math.isfinite(c.get("val_best", math.inf)) for c in state["callbacks"].values())


def results(folder: Path) -> list[dict[str, Any]]:
    """Every result.json of a sweep; files of that name that no run has written are left out."""
    read = [read_result(path.parent) for path in sorted(folder.glob("*/result.json"))]
    return [result for result in read if {"status", "overrides", "error", "norm"} <= result.keys()]
