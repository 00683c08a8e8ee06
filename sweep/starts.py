"""Other starts of a sweep in its folder: one at the same time is refused, an earlier one resumed.

`python train.py -m ...` again, with the same hydra.sweep.dir, resumes the sweep: a job that has
ended is not run again, any other is resumed, or started anew.
"""

import math
from functools import cache
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from run.folder import tidy
from run.lock import lock
from run.result import read_result
from run.resume import refuse_changes

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
    if (folder / ".hydra" / "overrides.yaml").exists():
        refuse_changes(folder, OmegaConf.to_container(cfg, resolve=True))
    result = read_result(folder)
    if result.get("status") in ENDED:
        loss = result["val_best"]
        return math.inf if loss is None else float(loss)
    checkpoint = folder / "checkpoints" / "last.ckpt"
    tidy(folder, anew=not checkpoint.exists())
    cfg.resume = str(checkpoint) if checkpoint.exists() else None
    return None


def results(folder: Path) -> list[dict[str, Any]]:
    """Every result.json of a sweep; files of that name that no run has written are left out."""
    read = [read_result(path.parent) for path in sorted(folder.glob("*/result.json"))]
    return [result for result in read if {"status", "overrides", "error", "norm"} <= result.keys()]
