"""Which runs belong together: the keys of their configurations that were swept.

A configuration is used flat here: `model.n_layer` is one key.
"""

import re
from collections.abc import Iterable
from typing import Any

from run.configuration import flat
from run.overrides import key_of

Flat = dict[str, Any]

RATE, LENGTH = "optimizer.lr", "trainer.max_steps"
CHOSEN = (RATE, LENGTH, "scheduler.total_steps")
NAME = "condition"  # the user's own name for a condition

# Keys that say where, how fast or how often something is looked at, not what is trained.
IGNORED = {
    *("resume", "log_every", "eval_every", "norm_name", "question", "title", "source", "claims"),
    *("data.path", "data.num_workers", "data.eval_batches", "trainer.accelerator"),
    *("trainer.devices", "trainer.enable_progress_bar", "compile"),
}
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d{1,2})?", re.IGNORECASE)
IGNORED_GROUPS = {"sample", "probes", "hydra", "tune"}


def flat_config(config: dict[str, Any], overrides: Iterable[str] = ()) -> Flat:
    """Dotted keys of a resolved configuration; `norm` is the norm's name.

    The names of groups on the command line (`model=mini`) come along as `model`: where every run
    has one, it says more than the numbers that it stands for.

    >>> flat_config({"norm_name": "none", "norm": {"eps": 1}, "seed": 3, "data": {"seed": 3}})
    {'norm': 'none', 'norm.eps': 1}
    """
    typed = {key_of(override): override.partition("=")[2] for override in overrides}
    groups = {k: v for k, v in typed.items() if "@" in k or isinstance(config.get(k), dict)}
    keys = groups | {"norm": config.get("norm_name")} | flat(config)
    return {
        key: value if key == "corpus_sha256" else plain(value)
        for key, value in keys.items()
        if not ignored(key)
    }


def plain(value: Any) -> Any:
    """A value in the one form that equal values share, so that its text can be compared.

    >>> plain(1e-3), plain("1e-3"), plain(2.0), plain("true"), plain([0.0, 1]), plain("gelu")
    (0.001, 0.001, 2, True, '[0, 1]', 'gelu')
    """
    if isinstance(value, list):
        return repr([plain(item) for item in value])
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    if isinstance(value, str) and NUMBER.fullmatch(value):
        value = float(value)
    return int(value) if isinstance(value, float) and value.is_integer() else value


def plain_label(label: str) -> str:
    """A condition's name with its values in their one form.

    >>> plain_label("none dropout=0.0 lr=1e-3")
    'none dropout=0 lr=0.001'
    """
    pairs = [word.partition("=") for word in label.split(" ")]
    return " ".join(f"{key}{sign}{plain(value) if sign else ''}" for key, sign, value in pairs)


def ignored(key: str) -> bool:
    """Does this key not change what is compared? A seed does not: it makes repeats."""
    return key in IGNORED or key.split(".")[0] in IGNORED_GROUPS or key.split(".")[-1] == "seed"


def without_chosen(flat: dict[str, Flat], nuisance: Iterable[str] = ()) -> dict[str, Flat]:
    """Configurations without rate, length and nuisance, and the keys that only repeat these.

    They are chosen for a condition, so they do not make another one.
    """
    keys = {key for config in flat.values() for key in config}
    copies = {
        key
        for key in keys
        for chosen in (*CHOSEN, *nuisance)
        if len({str(config.get(chosen)) for config in flat.values()}) > 1
        and all(c[key] == c.get(chosen) for c in flat.values() if key in c)
    }
    drop = copies | {*CHOSEN, *nuisance, NAME}
    return {run: {k: v for k, v in c.items() if k not in drop} for run, c in flat.items()}


def swept_keys(flat: dict[str, Flat], overridden: Iterable[str] = ()) -> list[str]:
    """The keys that tell the runs apart, the norm first, without keys that others imply.

    A key counts if it splits runs that the keys before it leave together: so `model.norm.eps`
    beside `norm.eps`, or a norm's own options beside its name, are not named twice.
    `overridden` are the keys that somebody typed; they go before those that follow from them.
    """
    every = list(dict.fromkeys(key for config in flat.values() for key in config))
    whole = [k for k in every if "." in k or k == "norm" or all(k in c for c in flat.values())]
    typed = set(overridden)
    order = sorted(whole, key=lambda key: (key != "norm", key not in typed, every.index(key)))
    keys: list[str] = []
    groups = 1
    for key in order:
        if len({str(config.get(key)) for config in flat.values()}) == 1:
            continue
        ways = {tuple(str(c.get(k)) for k in [*keys, key]) for c in flat.values()}
        if len(ways) > groups:
            keys.append(key)
            groups = len(ways)
    return keys


def label(config: Flat, keys: list[str]) -> str:
    """A condition's name: the norm by its name, every other key with its value.

    A key is told by its last part where that is unique.

    >>> label({"norm": "none", "model.placement": "post"}, ["norm", "model.placement"])
    'none placement=post'
    """
    last = [key.split(".")[-1] for key in keys]
    names = {k: s if last.count(s) == 1 else k for k, s in zip(keys, last, strict=True)}
    values = {k: str(config[k]) for k in keys if k in config}  # none has no momentum
    if "corpus_sha256" in values:
        values["corpus_sha256"] = values["corpus_sha256"][:8]
    parts = [values[k] if k == "norm" else f"{names[k]}={values[k]}" for k in values]
    return " ".join(parts) or str(config.get("norm"))
