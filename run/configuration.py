"""A run's configuration: nested mappings, made flat for comparing, completed for storing."""

import os
from pathlib import Path
from typing import Any


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
