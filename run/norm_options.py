"""The options of a norm, ours or a user's, compared with its constructor before anything is built.

Which types an option takes is read off the constructor's annotations. Which values make sense is
for the norm to say: it raises ValueError itself.
"""

import inspect
import math
import pkgutil
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from model.gpt import GPT

SITES = [name for name in inspect.signature(GPT).parameters if name.endswith("_norm")]
WORDS = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}
WORDS[NoneType] = "null"


def check_norms(cfg: Any) -> None:
    """Refuse what no norm, the common one or that of a site, could be made of.

    Raises:
        ValueError: an unknown site, a name instead of a configuration, an option that the norm does
            not have, or a value of another type than it takes.
    """
    sites = [key for key in cfg.model if key.endswith("_norm")]
    if unknown := [key for key in sites if key not in SITES]:
        raise ValueError(f"model.{unknown[0]} is no site of a norm; use {', '.join(SITES)}")
    norms = {"norm": cfg.norm, "model.norm": cfg.model.norm}
    norms |= {f"model.{site}": cfg.model[site] for site in sites}
    for key, norm in norms.items():
        if isinstance(norm, str):
            group = "norm" if key == "model.norm" else f"+norm@{key}"
            raise ValueError(f"{key}={norm} is a name only; use {group}={norm}")
        if norm is not None:
            check_options(key, norm)


def check_options(prefix: str, norm: Any) -> None:
    """Compare one norm's configuration with the constructor of its `_target_`.

    Args:
        prefix: what its options begin with on the command line: `norm`, `model.final_norm`.
        norm: its configuration, `_target_` and options.

    Raises:
        ValueError: the first option that is wrong.
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
