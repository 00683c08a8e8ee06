"""The names of what probes log at a place in the net."""


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
