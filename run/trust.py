"""A run folder is data, perhaps a colleague's: nothing that it names is called unless it is known.

A `_target_` in a configuration is called by Hydra, which walks attributes on its way, so that even
a name that begins with one of our folders can lead anywhere. Hence whole texts are compared: with
those in configs/, and those that the user gives on this command line.
"""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import yaml
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException

CONFIGS = Path(__file__).resolve().parent.parent / "configs"
PLAIN_CHOICE = re.compile(r"[\w./+-]*")  # the name of a file in a group


def known_targets(folders: Iterable[str] = (), overrides: Iterable[str] = ()) -> set[str]:
    """The `_target_` texts of configs/, of further folders of configurations, and of overrides."""
    files = [path for root in (str(CONFIGS), *folders) for path in Path(root).glob("**/*.yaml")]
    found = {text for path in files for text in targets(yaml.safe_load(path.read_text("utf-8")))}
    return found | {text for override in overrides for text in targets_of(override)}


def targets(node: Any) -> Iterator[Any]:
    """Every value of a `_target_` key, at any depth."""
    if isinstance(node, dict):
        for key, value in node.items():
            if key == "_target_":
                yield value
            yield from targets(value)
    elif isinstance(node, list):
        for value in node:
            yield from targets(value)


def targets_of(override: str) -> Iterator[Any]:
    """What an override would call; one that Hydra cannot parse is left to Hydra."""
    try:
        parsed = OverridesParser.create().parse_override(override)
    except HydraException:
        return
    value = parsed.value()
    if parsed.key_or_group.rpartition(".")[2] == "_target_":
        yield value if isinstance(value, str) else str(value)
    yield from targets(value)


def refuse_foreign_config(folder: Path, config: Any, known: set[str]) -> None:
    """Check a stored configuration before anything is made of it.

    Raises:
        ValueError: it would call something unknown, or has interpolations: what a run stores is
            resolved.
    """
    path = folder / ".hydra" / "config.yaml"
    for target in targets(config):
        if target not in known:
            raise ValueError(f"{path} would run {target!r}, {ADVICE}")
    if "${" in yaml.safe_dump(config):
        raise ValueError(f"{path} has an interpolation (${{...}}), which no run stores; {DAMAGED}")


def refuse_foreign_overrides(folder: Path, overrides: Any, known: set[str]) -> None:
    """Check stored overrides before Hydra reads them.

    Raises:
        ValueError: one is not of the kind that a run stores, or would call something unknown.
    """
    path = folder / ".hydra" / "overrides.yaml"
    if not isinstance(overrides, list) or not all(isinstance(text, str) for text in overrides):
        raise ValueError(f"{path} is not a list of overrides; {DAMAGED}")
    for text in overrides:
        try:
            parsed = OverridesParser.create().parse_override(text)
        except HydraException:
            raise ValueError(f"{path} has {text!r}, which is no override; {DAMAGED}") from None
        key = f"{parsed.key_or_group}@{parsed.package}"
        if text.startswith("-") or "hydra" in re.split(r"[.@/:]", key):
            raise ValueError(f"{path} has {text!r}, which is for Hydra itself; {DAMAGED}")
        for target in targets_of(text):
            if target not in known:
                raise ValueError(f"{path} would run {target!r}, {ADVICE}")


def refuse_foreign_choice(folder: Path, override: str) -> None:
    """Check a stored choice of a configuration file: it must be the name of one.

    Raises:
        ValueError: it leads elsewhere.
    """
    value = override.partition("=")[2]
    if not PLAIN_CHOICE.fullmatch(value) or ".." in value or value.startswith("/"):
        path = folder / ".hydra" / "overrides.yaml"
        raise ValueError(f"{path} has {override!r}, which names no file of configs/; {DAMAGED}")


ADVICE = (
    "which stands in no file of configs/; if you trust it, give it on this command line "
    "(an override of that _target_, or --config-dir)"
)
DAMAGED = "the folder is damaged or forged, so start a new run"
