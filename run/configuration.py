"""A run's configuration: nested mappings, made flat for comparing, completed for storing."""

import os
from pathlib import Path
from typing import Any

import yaml

# What a `_target_` of an earlier version is called now. A run stores one of these only where its
# user added it, for instance as one more of `probes.callbacks`.
MOVED = {
    "job.callbacks.Checkpoint": "run.checkpoint.Checkpoint",
    "job.callbacks.Clock": "run.clock.Clock",
    "job.callbacks.Progress": "run.progress.Progress",
    "job.callbacks.StopOnSignal": "run.signals.StopOnSignal",
    "job.sweep.Sweep": "sweep.callback.Sweep",
}


def read_configuration(folder: Path) -> Any:
    """The stored configuration of a run, with each `_target_` by its name of today."""
    return by_todays_names(yaml.safe_load((folder / ".hydra" / "config.yaml").read_text("utf-8")))


def by_todays_names(node: Any) -> Any:
    """A configuration, or a part of one, with the names of `MOVED` replaced.

    >>> by_todays_names({"clock": {"_target_": "job.callbacks.Clock"}})
    {'clock': {'_target_': 'run.clock.Clock'}}
    """
    if isinstance(node, dict):
        return {key: by_todays_names(value) for key, value in node.items()}
    if isinstance(node, list):
        return [by_todays_names(value) for value in node]
    return MOVED.get(node, node) if isinstance(node, str) else node


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
    if path is None:
        return
    if isinstance(path, str):
        cfg.data.path = os.path.normpath(Path(root, path))
    else:
        cfg.data.path = [os.path.normpath(Path(root, part)) for part in path]
