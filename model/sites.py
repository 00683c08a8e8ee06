"""Which norm stands where, and where the parameters are."""

import re
from collections import Counter

from torch import nn


def sites(net: nn.Module) -> dict[str, nn.Module]:
    """Each place in the net where a norm stands, by its name: `blocks.0.attention_norm`.

    A norm that is made of others is one site.
    """
    found: dict[str, nn.Module] = {}
    for name, module in net.named_modules():
        *above, last = name.split(".")
        if last.endswith("norm") and not any(part.endswith("norm") for part in above):
            found[name] = module
    return found


def summary(net: nn.Module) -> str:
    """A table with a line for each kind of site, and one of the parameters by kind."""
    rows = Counter(
        (re.sub(r"^blocks\.\d+\.", "block.", name), " ".join(repr(norm).split()))
        for name, norm in sites(net).items()
    )
    lines = [f"  {count:>2} x {site:<24} {norm}" for (site, norm), count in rows.items()]
    kinds: Counter[str] = Counter()
    for name, parameter in net.named_parameters():
        kinds[kind_of(name)] += parameter.numel()
    counted = ", ".join(f"{kind} {number:,}" for kind, number in kinds.items())
    return "\n".join([*lines, f"  {kinds.total():,} parameters: {counted}"])


def kind_of(parameter: str) -> str:
    """The kind of a parameter, by its name: norm, attention, mlp, gates, embedding.

    >>> kind_of("blocks.0.attention.q_norm.weight"), kind_of("blocks.0.attention.qkv.weight")
    ('norm', 'attention')
    >>> kind_of("token_embedding.weight"), kind_of("embed_scale")
    ('embedding', 'embedding')
    """
    parts = parameter.split(".")
    if any(part.endswith("norm") for part in parts):
        return "norm"
    return parts[2] if parts[0] == "blocks" else "embedding"
