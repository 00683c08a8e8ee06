"""Checks of a configuration that no other part makes, or would make only after training."""

import inspect
import math
import pkgutil
import re
from functools import reduce
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from hydra.utils import instantiate

from model.gpt import GPT
from run.errors import Refused
from run.trainer_options import check_trainer

WHOLE = {  # key: the least whole number it may be
    "seed": -math.inf,
    "eval_every": 1,
    "probes.every": 1,
    "log_every": 1,
    "data.block_size": 1,
    "data.batch_size": 1,
    "data.eval_batches": 1,
    "data.num_workers": 0,
    "model.n_layer": 1,
    "model.n_head": 1,
    "model.n_embd": 1,
    "trainer.max_steps": 1,
    "trainer.accumulate_grad_batches": 1,
    "sample.max_new_tokens": 0,
}
NUMBERS = {  # key: the least number it may be
    "model.dropout": 0,
    "model.embed_scale": -math.inf,
    "scheduler.warmup": 0,
    "scheduler.floor": 0,
    "sample.temperature": 0,
}
OPTIONAL = {  # these may also be null, or missing: another optimizer has other options
    "sample.top_k": 1,
    "trainer.gradient_clip_val": 0,
    "optimizer.lr": 0,
    "optimizer.weight_decay": 0,
}
SITES = [name for name in inspect.signature(GPT).parameters if name.endswith("_norm")]
WORDS = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}
WORDS[NoneType] = "null"


def check(cfg: Any, folder: Path) -> None:
    """Refuse an invalid configuration before anything is built.

    Raises:
        ValueError: the first rule that is broken.
        Refused: a new run in a folder that holds one.
    """
    if cfg.norm_name is None:  # Hydra merges `norm=[a,b]` and drops the group on `~norm`, silently
        raise ValueError("norm must be one name; use norm=none for no norm, -m norm=a,b to sweep")
    for key, least in (WHOLE | NUMBERS | OPTIONAL).items():
        value = reduce(lambda node, name: node.get(name), key.split("."), cfg)
        if value is None and key in OPTIONAL:
            continue
        kind = int if key in WHOLE else (int, float)
        if not isinstance(value, kind) or isinstance(value, bool) or not least <= value < math.inf:
            what = "a whole number" if key in WHOLE else "a number"
            limit = "" if least == -math.inf else f" of at least {least}"
            raise ValueError(f"{key} must be {what}{limit}, got {value}")
    for key in ("bias", "learn_embed_scale"):
        if not isinstance(cfg.model[key], bool):
            raise ValueError(f"model.{key} must be true or false, got {cfg.model[key]}")
    check_norms(cfg)
    trainer = cfg.trainer
    check_trainer(trainer)
    if str(trainer.precision) in ("16", "16-mixed") and cfg.optimizer.get("fused"):
        raise ValueError(  # it would clip gradients that are still scaled
            "trainer.precision=16-mixed needs optimizer.fused=false; or use bf16-mixed"
        )
    if cfg.resume is None and (folder / ".hydra" / "overrides.yaml").exists():
        raise Refused(f"{folder} already holds a run; use resume={folder} or another folder")


def check_norms(cfg: Any) -> None:
    """Refuse what no norm, the common one or that of a site, could be made of."""
    sites = {f"model.{key}": norm for key, norm in cfg.model.items() if key.endswith("_norm")}
    if unknown := [key for key in sites if key.removeprefix("model.") not in SITES]:
        raise ValueError(f"{unknown[0]} is no site of a norm; use {', '.join(SITES)}")
    for key, norm in {"norm": cfg.norm, "model.norm": cfg.model.norm, **sites}.items():
        if isinstance(norm, str):
            group = "norm" if key == "model.norm" else f"+norm@{key}"
            raise ValueError(f"{key}={norm} is a name only; use {group}={norm}")
        if norm is not None:
            check_options(key, norm)
            if key in sites:
                check_values(key, norm, cfg.model)


def check_values(site: str, norm: Any, model: Any) -> None:
    """Let a norm check its values; it calls them `norm.eps`, the user `model.final_norm.eps`."""
    make = instantiate(norm, _convert_="all")
    try:
        make(model.n_embd // (model.n_head if site == "model.qk_norm" else 1))
    except ValueError as error:
        raise ValueError(re.sub(r"^norm\b", site, str(error))) from None


def check_options(prefix: str, norm: Any) -> None:
    """Compare the options of a norm, ours or a user's, with its constructor.

    Which types an option takes is read off the constructor's annotations. Which values make sense
    is for the norm to say: it raises ValueError itself. On the command line, the options begin with
    `prefix`: `norm`, `model.final_norm`.
    """
    try:
        make = pkgutil.resolve_name(norm["_target_"])
        parameters = list(inspect.signature(make).parameters.values())
        hints = get_type_hints(make.__init__ if inspect.isclass(make) else make)
    except (ImportError, AttributeError, TypeError, NameError, ValueError):
        return  # building the net tells what is wrong with the target itself
    known = [parameter.name for parameter in parameters[1:]]  # the first is the width: the net's
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
    for key, value in norm.items():
        if key.startswith("_"):  # Hydra's
            continue
        if key not in known and not takes_any:
            name = make.__name__
            options = f"the options of {name} are {', '.join(known)}" if known else "it has none"
            raise ValueError(f"{prefix}.{key} is not an option of {name}; {options}")
        if (wanted := expected(hints.get(key, Any), value)) is not None:
            raise ValueError(f"{prefix}.{key} must be {wanted}, got {value}")


def expected(hint: Any, value: Any) -> str | None:
    """What a value should be according to an annotation; None if it is that, or nobody can tell.

    >>> expected(float, 1), expected(float, True), expected(float, "1e-5")
    (None, 'a number', 'a number')
    >>> expected(int | None, 2.5), expected(bool, 1), expected(float, math.inf)
    ('a whole number or null', 'true or false', 'a finite number')
    """
    kinds = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    if not set(kinds) <= WORDS.keys():
        return None
    if isinstance(value, float) and float in kinds:
        return None if math.isfinite(value) else "a finite number"
    if type(value) in kinds or (type(value) is int and float in kinds):
        return None
    return " or ".join(WORDS[kind] for kind in kinds)
