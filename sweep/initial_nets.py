"""The grid of nets that at_init.py measures: which there are, and what is refused."""

from typing import Any

from hydra import compose
from omegaconf import DictConfig, ListConfig

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
        ValueError: a list is not one of different values, or something would be set twice.
    """
    typed = {key_of(override) for override in overrides}
    for key, name in LISTS.items():
        if key in typed:
            raise ValueError(f"{key} is set by the grid; give {name}=[...] instead")
        values = cfg[name]
        kind = int if name in WANTED else str
        fine = isinstance(values, ListConfig) and all(type(value) is kind for value in values)
        fine = fine and 0 < len(set(values)) == len(values)
        if not fine or (name == "depths" and min(values) < 1):
            wanted = f"a list of different {WANTED.get(name, 'names')}"
            raise ValueError(f"{name} must be {wanted}, got {values}")
    configs = {norm: cfg.copy() for norm in cfg.norms}
    for norm, config in configs.items():
        config.norm = compose("at_init", [*overrides, f"norm={norm}"]).norm
    return configs


def placements_of(config: Any, placements: list[str]) -> list[str]:
    """The placements that make different nets; most of them are one net without a norm."""
    norms = [config.norm, *(norm for key, norm in config.model.items() if key.endswith("_norm"))]
    plain = [placement for placement in placements if placement != "deepnorm"]
    if len(plain) < 2 or any(norm and norm._target_ != NO_NORM for norm in norms):
        return placements
    return [ANY, *(placement for placement in placements if placement == "deepnorm")]
