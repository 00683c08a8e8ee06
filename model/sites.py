"""The parts of a net by name: the sites where its norms are, and its parameters by kind."""

import re
from collections import Counter

import torch
from torch import nn


def sites(net: nn.Module) -> dict[str, nn.Module]:
    """The norm at each site, by the site's name: `blocks.0.attention_norm`.

    A norm that is made of others is one site.
    """
    found: dict[str, nn.Module] = {}
    for name, module in net.named_modules():
        *above, last = name.split(".")
        if last.endswith("norm") and not any(part.endswith("norm") for part in above):
            found[name] = module
    return found


def summary(net: nn.Module) -> str:
    """A table with a line for each kind of site, and a line with the parameters by kind."""
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


def parameters_of(net: nn.Module) -> dict[str, torch.Tensor]:
    """All parameters of a net by name, those of q, k and v apart; views, not copies."""
    found: dict[str, torch.Tensor] = {}
    for name, parameter in net.named_parameters():
        owner, _, last = name.rpartition(".")
        if owner.endswith(".qkv"):
            names = [f"{owner.removesuffix('qkv')}{letter}.{last}" for letter in "qkv"]
            found |= dict(zip(names, parameter.detach().chunk(3), strict=True))
        else:
            found[name] = parameter.detach()
    return found


def matrices_of(net: nn.Module) -> dict[str, torch.Tensor]:
    """The weights of linear layers and embeddings by the layer's name: `blocks.0.attention.q`."""
    return {
        name.removesuffix(".weight"): value
        for name, value in parameters_of(net).items()
        if value.dim() == 2 and kind_of(name) != "norm"
    }
