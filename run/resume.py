"""Going on with a run: the command line that made it, and what a new one may change."""

import json
import logging
from pathlib import Path
from typing import Any

import yaml

from run.folder import Refused, key_of, quoted, read_result

log = logging.getLogger("normlab")

# What may differ when a run goes on. With resume= also the trainer, and any `total_steps` (the
# schedule's, and of norms with a warm-up); the text may lie elsewhere, its SHA-256 is compared.
WATCHES = ("probes.", "compile", "log_every", "resume")
MAY_DIFFER = (*WATCHES, "trainer.", "data.path")


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
    differing = differences(folder, config, MAY_DIFFER)
    refused = {key: pair for key, pair in differing.items() if not key.endswith(".total_steps")}
    if refused:
        raise Refused(
            f"{folder} cannot go on with other settings: {listed(refused)}; "
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

    All jobs of a sweep train alike, so more must be the same than for one run with resume=.

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
    old = flat(yaml.safe_load((folder / ".hydra" / "config.yaml").read_text("utf-8")))
    new = flat(config)
    pairs = {key: (old.get(key), new.get(key)) for key in sorted(old.keys() | new.keys())}
    differing = {k: p for k, p in pairs.items() if p[0] != p[1] and not k.startswith(may_differ)}
    if "norm_name" in differing:  # says it all
        return {k: p for k, p in differing.items() if not k.startswith(("norm.", "model.norm."))}
    return differing


def listed(changes: dict[str, tuple[Any, Any]]) -> str:
    """The changes, for a message."""
    return ", ".join(f"{key} (was {old}, now {new})" for key, (old, new) in changes.items())


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
