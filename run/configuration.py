"""A run's configuration: nested mappings, made flat for comparing, completed for storing."""

import os
import re
from pathlib import Path
from typing import Any

import yaml

# What a `_target_` of an earlier version is called now.
MOVED = {"model.lit.warmup_cosine": "model.schedule.warmup_cosine"}


def read_stored(folder: Path, name: str) -> Any:
    """The `config` or `overrides` of a run, with each `_target_` by its name of today.

    Raises:
        ValueError: the file is damaged.
    """
    path = folder / ".hydra" / f"{name}.yaml"
    wanted = dict if name == "config" else list
    try:
        found = yaml.safe_load(renamed(path.read_text("utf-8")))
    except (OSError, UnicodeDecodeError, yaml.YAMLError, RecursionError):
        found = None
    if not isinstance(found, wanted):
        raise ValueError(f"{path} is damaged or missing; start a new run in another folder")
    return found


def renamed(text: str) -> str:
    """A configuration in YAML or JSON, or an override, with each `_target_` by its name of today.

    >>> renamed('"_target_": "model.lit.warmup_cosine"')
    '"_target_": "model.schedule.warmup_cosine"'
    """
    target = re.compile(r'(_target_"?[:=] ?"?)([\w.]+)')
    return target.sub(lambda old: old[1] + MOVED.get(old[2], old[2]), text)


def flat(config: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested mappings as one, with dotted keys.

    >>> flat({"a": {"b": 1, "c": [2]}})
    {'a.b': 1, 'a.c': [2]}
    """
    result: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, dict):
            result |= flat(value, f"{prefix}{key}.")
        else:
            result[f"{prefix}{key}"] = value
    return result


def stored_form(config: Any, corpus_sha256: str) -> dict[str, Any]:
    """The configuration as it is stored: with what text it read, without where it resumed from."""
    return {**config, "resume": None, "corpus_sha256": corpus_sha256}


def make_path_absolute(cfg: Any, root: str) -> None:
    """Take a relative data.path from where the user stood, even if Hydra changes directory."""
    path = cfg.data.get("path")
    if isinstance(path, str):
        cfg.data.path = os.path.normpath(Path(root, path))
    elif path is not None:
        cfg.data.path = [os.path.normpath(Path(root, part)) for part in path]
