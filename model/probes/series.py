"""The names of what probes log for one module of the net."""


def series(what: str, name: str) -> str:
    """The name of a value that is measured at the module `name` of the net.

    >>> series("input_std", "final_norm")
    'probe/input_std_final_norm'
    >>> series("input_std", "blocks.3.attention.q_norm"), series("dead_gelu", "blocks.3")
    ('probe/input_std_attention_q_norm/3', 'probe/dead_gelu/3')
    """
    if not name.startswith("blocks."):
        return f"probe/{what}_{name.replace('.', '_')}"
    _, block, *inside = name.split(".")
    return f"probe/{'_'.join([what, *inside])}/{block}"
