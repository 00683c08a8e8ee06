"""Going on with a run: the command line that made it, and what a new one may change."""

import json
import logging
from pathlib import Path
from typing import Any

import yaml

from job.folder import Refused, key_of, quoted, read_result

log = logging.getLogger("normlab")

# What may differ when a run goes on, and any `total_steps` (the schedule's, and of norms with a
# warm-up). The text may lie elsewhere: its SHA-256 is compared instead.
MAY_DIFFER = (
    "trainer.",
    "probes.",
    "compile",
    "log_every",
    "resume",
    "data.path",
)


def resume_arguments(arguments: list[str]) -> list[str]:
    """Turn `resume=FOLDER ...` into the command line that made it, with the new overrides on top.

    FOLDER is a run folder (goes on from last.ckpt) or a checkpoint inside one. Other command lines
    stay.

    Raises:
        ValueError: not a run folder, no checkpoint in it, or a sweep.
    """
    values = [a.partition("=")[2].strip("'\"") for a in arguments if key_of(a) == "resume"]
    if not values or values[-1] in ("", "null"):
        return arguments
    if {"-m", "--multirun"} & set(arguments):
        raise ValueError("resume= goes on with one run; leave -m out")
    given = Path(values[-1]).absolute()
    folder = given.parent.parent if given.suffix == ".ckpt" else given
    checkpoint = given if given.suffix == ".ckpt" else folder / "checkpoints" / "last.ckpt"
    stored = folder / ".hydra" / "overrides.yaml"
    if not stored.exists():
        raise ValueError(
            f"resume={values[-1]} is not a run folder (no .hydra/overrides.yaml); "
            "give one that train.py made"
        )
    if not checkpoint.exists():
        raise ValueError(f"{checkpoint} does not exist: nothing to go on from; start a new run")
    flags = [a for a in arguments if a.startswith("-")]
    new = [a for a in arguments if not a.startswith("-") and key_of(a) != "resume"]
    anew = {key_of(a) for a in new}
    kept = [o for o in yaml.safe_load(stored.read_text("utf-8")) if key_of(o) not in anew]
    place = ["hydra.mode=RUN", f"hydra.run.dir={quoted(str(folder))}"]
    return [*flags, *kept, *new, f"resume={quoted(str(checkpoint))}", *place]


def check_resumable(
    folder: Path, resume: str | None, config: dict[str, Any], vocab_size: int
) -> None:
    """Compare a resumed run's new configuration with the stored one.

    Raises:
        Refused: the vocabulary or a setting differs that must not, or the run has ended.
    """
    if resume is None:
        return
    characters = len(json.loads((folder / "tokenizer.json").read_text("utf-8"))["model"]["vocab"])
    if characters != vocab_size:
        raise Refused(
            f"{folder} was trained on a vocabulary of {characters} characters, "
            f"this text has {vocab_size}; give the same text (data.path), or start a new run"
        )
    old = flat(yaml.safe_load((folder / ".hydra" / "config.yaml").read_text("utf-8")))
    new = flat(config)
    differing = sorted(key for key in old.keys() | new.keys() if old.get(key) != new.get(key))
    refused = [
        key for key in differing if not (key.startswith(MAY_DIFFER) or key.endswith(".total_steps"))
    ]
    if "norm_name" in refused:  # says it all
        refused = [key for key in refused if not key.startswith(("norm.", "model.norm."))]
    if refused:
        changes = ", ".join(f"{key} (was {old.get(key)}, now {new.get(key)})" for key in refused)
        raise Refused(f"resume= cannot change {changes}; leave it as it was, or start a new run")
    result = read_result(folder)
    if result.get("status") == "finished" and result["steps"] >= new["trainer.max_steps"]:
        raise Refused(
            f"{folder} has finished its {result['steps']} steps; "
            "give a larger trainer.max_steps to train on"
        )
    before, after = old["scheduler.total_steps"], new["scheduler.total_steps"]
    if before != after:
        log.warning(f"the end of the learning-rate schedule moves from step {before} to {after}")


def flat(config: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested mappings as one, with dotted keys.

    >>> flat({"a": {"b": 1, "c": [2]}})
    {'a.b': 1, 'a.c': [2]}
    """
    result: dict[str, Any] = {}
    for key, value in config.items():
        result |= (
            flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
        )
    return result
