"""Resuming a run: the command line that made it, and what a new one may change."""

import json
import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from hydra._internal.utils import get_args_parser

from run.configuration import flat
from run.errors import Refused
from run.overrides import key_of, literal, quoted
from run.result import read_result
from run.stored import read_stored
from run.trust import (
    known_targets,
    refuse_foreign_choice,
    refuse_foreign_config,
    refuse_foreign_overrides,
)

log = logging.getLogger("normlab")

# What may differ when a run is resumed. With resume= also the trainer, and any `total_steps`, which
# norms with a warm-up have too. The text may have moved, since its SHA-256 is compared.
WATCHES = ("probes.", "compile", "log_every", "resume")
MAY_DIFFER = (*WATCHES, "trainer.", "data.path")
MISSING = object()  # where null is a value


def resume_arguments(arguments: list[str]) -> list[str]:
    """Turn `resume=FOLDER ...` into the command line that made it, with the new overrides on top.

    FOLDER is a run folder (resumed from last.ckpt) or a checkpoint inside one. A command line
    without resume= is returned as it is.

    Raises:
        ValueError: it is not a run folder, has no checkpoint, or the command is a sweep.
    """
    given_last = [a for a in arguments if key_of(a) == "resume"]
    values = [a.partition("=")[2].strip("'\"") for a in given_last]
    if not values or values[-1] in ("", "null"):
        return arguments
    flags, typed = without_flags(arguments)
    if {"-m", "--multirun"} & set(flags):
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
    new = without_resume(typed)
    kept = stored_overrides(folder, {key_of(a) for a in new}, known(flags, new))
    where = ["hydra.mode=RUN", f"hydra.run.dir={quoted(str(folder))}"]
    return [*flags, *kept, *new, f"resume={quoted(str(checkpoint))}", *where]


def without_flags(arguments: list[str]) -> tuple[list[str], list[str]]:
    """Hydra's own options, each with its value, and the overrides, wherever they stand."""
    overrides = get_args_parser().parse_intermixed_args(arguments).overrides
    left = list(overrides)
    flags = []
    for argument in arguments:
        if argument in left:
            left.remove(argument)
        else:
            flags.append(argument)
    return flags, overrides


def known(flags: list[str], overrides: list[str]) -> set[str]:
    """What this command line lets a stored configuration call."""
    options = get_args_parser().parse_intermixed_args(flags)
    folders = [options.config_dir] if options.config_dir else []
    return known_targets(folders, overrides)


def stored_overrides(folder: Path, anew: set[str], known: set[str]) -> list[str]:
    """The command line that made a run, less what is given anew, with values as they were stored.

    A text may mean something else today: an interpolation, a variable that is gone.

    Raises:
        ValueError: a file of the folder is damaged, or would run something foreign.
    """
    overrides, config = read_stored(folder, "overrides"), read_stored(folder, "config")
    refuse_foreign_overrides(folder, overrides, known)
    refuse_foreign_config(folder, config, known)
    kept = []
    for override in without_resume(o for o in overrides if key_of(o) not in anew):
        key, _, text = override.partition("=")
        value = value_at(config, key_of(override))
        if value is MISSING or (isinstance(value, dict) and not text.startswith("{")):
            refuse_foreign_choice(folder, override)
            kept.append(override)
        else:
            kept.append(f"{key}={literal(value)}")
    return kept


def value_at(config: Any, key: str) -> Any:
    """The value of a dotted key, or MISSING."""
    for part in key.split("."):
        if not isinstance(config, dict) or part not in config:
            return MISSING
        config = config[part]
    return config


def without_resume(overrides: Iterable[str]) -> list[str]:
    """The overrides that say what a run is, not where this leg of it begins."""
    return [override for override in overrides if key_of(override) != "resume"]


def check_resumable(
    folder: Path, resume: str | None, config: dict[str, Any], vocab_size: int, net: Any
) -> None:
    """Compare a resumed run's new configuration with the stored one.

    Raises:
        Refused: the vocabulary differs, or a setting that must not, or the run has ended.
        ValueError: the checkpoint is damaged, or of another net.
    """
    if resume is None:
        return
    characters = vocabulary_size(folder / "tokenizer.json")
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
    from run.state import refuse_other_net  # late: torch takes seconds

    for path in (Path(resume), folder / "checkpoints" / "best.ckpt"):
        if path.exists():
            refuse_other_net(path, net)
    if moved := differing.get("scheduler.total_steps"):
        log.warning("the end of the learning-rate schedule moves from step %s to %s", *moved)


def vocabulary_size(path: Path) -> int:
    """The characters of a stored vocabulary.

    Raises:
        ValueError: the file is damaged.
    """
    try:
        return len(json.loads(path.read_text("utf-8"))["model"]["vocab"])
    except (OSError, ValueError, LookupError, TypeError):
        raise ValueError(f"{path} is damaged or missing; start a new run") from None


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
    old = flat(read_stored(folder, "config"))
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
