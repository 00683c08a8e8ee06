"""Hydra's overrides as text: what one sets, and how a value is written in their grammar."""

import re
from typing import Any


def key_of(override: str) -> str:
    """What an override sets: `norm` of `norm=none`, `norm.eps` of `+norm.eps=1`."""
    return override.lstrip("+~").partition("=")[0]


def literal(value: Any) -> str:
    """A value of a configuration in Hydra's grammar, so that it comes back with its type.

    >>> literal({"a": [1, 2.5, None, True], "b": "3"})
    "{'a':[1,2.5,null,true],'b':'3'}"
    """
    if isinstance(value, dict):
        return "{" + ",".join(f"{quoted(str(k))}:{literal(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(literal, value)) + "]"
    if isinstance(value, str):
        return quoted(value)
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    return repr(value)


def quoted(value: Any) -> str:
    r"""A text or a list of texts in Hydra's grammar, whatever characters it has.

    >>> quoted("my file, v2=b.txt")
    "'my file, v2=b.txt'"
    >>> quoted(["a b", "it's"])
    "['a b','it\\'s']"
    """
    if isinstance(value, str):
        # a backslash is special before a quote only, and the closing quote is one
        escaped = re.sub(r"(\\*)('|$)", lambda m: m[1] * 2 + m[2].replace("'", "\\'"), value)
        return f"'{escaped}'"
    return "[" + ",".join(map(quoted, value)) + "]"
