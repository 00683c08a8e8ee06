"""What a run stored of its configuration, read back: whole, and with the names of today."""

import hashlib
import re
from pathlib import Path
from typing import Any

import yaml

# What a `_target_` of an earlier version is called now.
MOVED = {"model.lit.warmup_cosine": "model.schedule.warmup_cosine"}

CHECKSUM = "# SHA-256 of what follows: "


def read_stored(folder: Path, name: str) -> Any:
    """The `config` or `overrides` of a run, with each `_target_` by its name of today.

    Raises:
        ValueError: the file is damaged.
    """
    path = folder / ".hydra" / f"{name}.yaml"
    wanted = dict if name == "config" else list
    try:
        text = path.read_text("utf-8")
        head, _, rest = text.partition("\n")
        if head.startswith(CHECKSUM) and head != checksum(rest):
            raise OSError
        found = yaml.safe_load(renamed(text))
    except (OSError, UnicodeDecodeError, yaml.YAMLError, RecursionError):
        found = None
    if not isinstance(found, wanted):
        raise ValueError(f"{path} is damaged, edited or missing; start a new run in another folder")
    return found


def checksum(text: str) -> str:
    """The first line of a stored file, a comment: the SHA-256 of what follows it."""
    return CHECKSUM + hashlib.sha256(text.encode()).hexdigest()


def renamed(text: str) -> str:
    """A configuration in YAML or JSON, or an override, with each `_target_` by its name of today.

    >>> renamed('"_target_": "model.lit.warmup_cosine"')
    '"_target_": "model.schedule.warmup_cosine"'
    """
    target = re.compile(r'(_target_"?[:=] ?"?)([\w.]+)')
    return target.sub(lambda old: old[1] + MOVED.get(old[2], old[2]), text)
