"""The places in a net that probes look at, and the names of what they log there."""

from torch import nn


def norm_sites(net: nn.Module) -> dict[str, nn.Module]:
    """The norms of a net, whichever they are, by name: every name that ends in `norm`."""
    named = net.named_modules()
    return {name: module for name, module in named if name.endswith("norm") and "norm." not in name}


def series(what: str, name: str) -> str:
    """What a value measured at the place `name` in the net is logged as.

    >>> series("input_std", "final_norm")
    'probe/input_std_final_norm'
    >>> series("input_std", "blocks.3.attention.q_norm"), series("dead_gelu", "blocks.3")
    ('probe/input_std_attention_q_norm/3', 'probe/dead_gelu/3')
    """
    if not name.startswith("blocks."):
        return f"probe/{what}_{name.replace('.', '_')}"
    _, block, *place = name.split(".")
    return f"probe/{'_'.join([what, *place])}/{block}"
