"""The grid of nets that at_init.py measures: which there are, and what is refused."""

from collections.abc import Iterable
from typing import Any

from hydra import compose
from omegaconf import DictConfig

from run.overrides import key_of

LISTS = {  # what the grid sets in each net's configuration, and from which list
    "norm": "norms",
    "model.placement": "placements",
    "model.n_layer": "depths",
    "model.init": "inits",
    "seed": "seeds",
}
WANTED = {"depths": "whole numbers of at least 1", "seeds": "whole numbers"}
ANY = "any"  # all placements are one net, as without norms
NO_NORM = "model.norms.none.NoNorm"


def configurations(cfg: DictConfig, overrides: list[str]) -> dict[str, DictConfig]:
    """The configuration of each norm of the grid, by the norm's name.

    Raises:
        ValueError: a list is invalid.
    """
    check_lists(cfg, overrides)
    configs = {norm: cfg.copy() for norm in cfg.norms}
    for norm, config in configs.items():
        config.norm = compose("at_init", [*overrides, f"norm={norm}"]).norm
    return configs


def check_lists(cfg: Any, overrides: Iterable[str]) -> None:
    """Refuse what is not a list of different values, and what would be set twice.

    Raises:
        ValueError: the first rule that is broken.
    """
    typed = {key_of(override) for override in overrides}
    for key, name in LISTS.items():
        if key in typed:
            raise ValueError(f"{key} is set by the grid; give {name}=[...] instead")
        values = cfg[name]
        kind = int if name in WANTED else str
        fine = not isinstance(values, str | int) and values is not None and len(values) > 0
        fine = fine and all(type(value) is kind for value in values)
        fine = fine and len(set(values)) == len(values)
        if not fine or (name == "depths" and min(values) < 1):
            wanted = f"a list of different {WANTED.get(name, 'names')}"
            raise ValueError(f"{name} must be {wanted}, got {values}")


def placements_of(config: Any, placements: list[str]) -> list[str]:
    """The placements that make different nets; most of them are one net without a norm."""
    sites = [key for key in config.model if key.endswith("_norm")]
    norms = [config.norm, *(config.model[site] for site in sites)]
    plain = [placement for placement in placements if placement != "deepnorm"]
    if len(plain) < 2 or any(norm and norm._target_ != NO_NORM for norm in norms):
        return placements
    return [ANY, *(placement for placement in placements if placement == "deepnorm")]
