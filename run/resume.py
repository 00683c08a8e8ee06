"""Resuming a run: the command line that made it, and what a new one may change."""

import json
import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from run.configuration import MOVED, flat, read_configuration
from run.errors import Refused
from run.overrides import key_of, quoted
from run.result import read_result

log = logging.getLogger("normlab")

# What may differ when a run is resumed. With resume= also the trainer, and any `total_steps`, which
# norms with a warm-up have too. The text may have moved, since its SHA-256 is compared.
WATCHES = ("probes.", "compile", "log_every", "resume")
MAY_DIFFER = (*WATCHES, "trainer.", "data.path")


def resume_arguments(arguments: list[str]) -> list[str]:
    """Turn `resume=FOLDER ...` into the command line that made it, with the new overrides on top.

    FOLDER is a run folder (resumed from last.ckpt) or a checkpoint inside one. A command line
    without resume= is returned as it is.

    Raises:
        ValueError: it is not a run folder, has no checkpoint, or the command is a sweep.
    """
    values = [a.partition("=")[2].strip("'\"") for a in arguments if key_of(a) == "resume"]
    if not values or values[-1] in ("", "null"):
        return arguments
    if {"-m", "--multirun"} & set(arguments):
        raise ValueError("resume= resumes one run; leave -m out")
    given = Path(values[-1]).absolute()
    if given.suffix == ".ckpt":
        folder, checkpoint = given.parent.parent, given
    else:
        folder, checkpoint = given, given / "checkpoints" / "last.ckpt"
    if not (folder / ".hydra" / "overrides.yaml").exists():
        raise ValueError(
            f"resume={values[-1]} is not a run folder (no .hydra/overrides.yaml); "
            "give one that train.py made"
        )
    if not checkpoint.exists():
        raise ValueError(f"{checkpoint} does not exist, so there is no state; start a new run")
    flags = [a for a in arguments if a.startswith("-")]
    new = without_resume(a for a in arguments if not a.startswith("-"))
    anew = {key_of(a) for a in new}
    kept = [o for o in stored_overrides(folder) if key_of(o) not in anew]
    where = ["hydra.mode=RUN", f"hydra.run.dir={quoted(str(folder))}"]
    return [*flags, *kept, *new, f"resume={quoted(str(checkpoint))}", *where]


def without_resume(overrides: Iterable[str]) -> list[str]:
    """The overrides that say what a run is, not where this leg of it begins."""
    return [override for override in overrides if key_of(override) != "resume"]


def stored_overrides(folder: Path) -> list[str]:
    """The command line that made a run, with each `_target_` by its name of today."""
    stored = yaml.safe_load((folder / ".hydra" / "overrides.yaml").read_text("utf-8"))
    pairs = [override.partition("=") for override in stored]
    return [f"{key}{sign}{MOVED.get(value, value)}" for key, sign, value in pairs]


def check_resumable(
    folder: Path, resume: str | None, config: dict[str, Any], vocab_size: int
) -> None:
    """Compare a resumed run's new configuration with the stored one.

    Raises:
        Refused: the vocabulary differs, or a setting that must not, or the run has ended.
    """
    if resume is None:
        return
    characters = len(json.loads((folder / "tokenizer.json").read_text("utf-8"))["model"]["vocab"])
    if characters != vocab_size:
        raise Refused(
            f"{folder} was trained on a vocabulary of {characters} characters, "
            f"this text has {vocab_size}; give the same text (data.path), or start a new run"
        )
    differing = differences(folder, config, MAY_DIFFER)
    refused = {key: pair for key, pair in differing.items() if not key.endswith(".total_steps")}
    if refused:
        raise Refused(
            f"{folder} must be resumed with the same settings, but {listed(refused)}; "
            "leave them as they were, or start a new run"
        )
    result = read_result(folder)
    if result.get("status") == "finished" and result["steps"] >= config["trainer"]["max_steps"]:
        raise Refused(
            f"{folder} has finished its {result['steps']} steps; "
            "give a larger trainer.max_steps to train on"
        )
    if moved := differing.get("scheduler.total_steps"):
        log.warning("the end of the learning-rate schedule moves from step %s to %s", *moved)


def refuse_changes(folder: Path, config: Any) -> None:
    """Compare a sweep's job with the run in its folder; the text's SHA-256 is not known yet.

    All jobs of a sweep are trained alike, so more must be the same than for one run with resume=.

    Raises:
        Refused: a setting differs.
    """
    changes = differences(folder, {**config, "resume": None}, (*WATCHES, "corpus_sha256"))
    if changes:
        raise Refused(
            f"{folder} holds a run with other settings: {listed(changes)}; "
            "leave them as they were, or choose another hydra.sweep.dir"
        )


def differences(
    folder: Path, config: dict[str, Any], may_differ: tuple[str, ...]
) -> dict[str, tuple[Any, Any]]:
    """Each key whose value is not the stored one: (stored, new)."""
    old = flat(read_configuration(folder))
    new = flat(config)
    differing = {
        key: (old.get(key), new.get(key))
        for key in sorted(old.keys() | new.keys())
        if old.get(key) != new.get(key) and not key.startswith(may_differ)
    }
    if "norm_name" in differing:  # its options differ because it does
        options = ("norm.", "model.norm.")
        return {key: pair for key, pair in differing.items() if not key.startswith(options)}
    return differing


def listed(changes: dict[str, tuple[Any, Any]]) -> str:
    """The changes, for a message."""
    return ", ".join(f"{key} (was {old}, now {new})" for key, (old, new) in changes.items())
