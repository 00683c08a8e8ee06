"""What no other part would notice in a configuration, or would notice only after training."""

import math
from functools import reduce
from pathlib import Path
from typing import Any

from run.folder import Refused

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
OPTIONAL = {  # or null, or not there at all: another optimizer has other options
    "sample.top_k": 1,
    "trainer.gradient_clip_val": 0,
    "optimizer.lr": 0,
    "optimizer.weight_decay": 0,
}
SITES = ("attention_norm", "mlp_norm", "final_norm", "embedding_norm", "qk_norm")
NORM_NUMBERS = {  # of any norm that has them: least and most
    "eps": (0, math.inf),
    "momentum": (0, 1),
    "warmup": (0, 1),
    "p": (0, 1),
    "alpha": (-math.inf, math.inf),
}
NORM_WHOLE = ("groups", "ghost", "block_size", "total_steps")  # at least 1
NORM_SWITCHES = ("weight", "bias", "affine", "use_mask")
NULLABLE = ("momentum", "groups", "ghost")
OURS = ("callbacks", "logger", "plugins", "val_check_interval", "gradient_clip_algorithm")


def check(cfg: Any, folder: Path) -> None:
    """Refuse a configuration that cannot be, before anything is built.

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
    if taken := [key for key in OURS if key in trainer]:
        raise ValueError(f"trainer.{taken[0]} is set by train.py; leave it out")
    if trainer.devices != 1:
        raise ValueError(f"trainer.devices={trainer.devices}: a run uses 1 device")
    if str(trainer.precision) in ("16", "16-mixed") and cfg.optimizer.get("fused"):
        raise ValueError(  # it would clip gradients that are still scaled
            "trainer.precision=16-mixed needs optimizer.fused=false; or use bf16-mixed"
        )
    if cfg.resume is None and (folder / ".hydra" / "overrides.yaml").exists():
        raise Refused(f"{folder} already holds a run; use resume={folder} or another folder")


def check_norms(cfg: Any) -> None:
    """Refuse what no norm, the common one or that of a site, could be made of.

    Raises:
        ValueError: no such site, a name where a configuration must be, or an option that cannot be.
    """
    sites = [key for key in cfg.model if key.endswith("_norm")]
    if unknown := [key for key in sites if key not in SITES]:
        raise ValueError(f"model.{unknown[0]} is no site of a norm; use {', '.join(SITES)}")
    for site in ("norm", *(f"model.{key}" for key in ("norm", *sites))):
        norm = cfg.norm if site == "norm" else cfg.model[site.partition(".")[2]]
        if isinstance(norm, str):
            key = "norm" if site == "model.norm" else f"+norm@{site}"
            raise ValueError(f"{site}={norm} is a name only; use {key}={norm}")
        for key, value in (norm or {}).items():
            if (wanted := option_wanted(key, value)) is not None:
                raise ValueError(f"{site}.{key} must be {wanted}, got {value}")


def option_wanted(key: str, value: Any) -> str | None:
    """What an option of a norm should be, if it is not."""
    if value is None and key in NULLABLE:
        return None
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if key in NORM_SWITCHES:
        return None if isinstance(value, bool) else "true or false"
    if key in NORM_WHOLE:
        whole = number and isinstance(value, int) and value >= 1
        return None if whole else "a whole number of at least 1"
    least, most = NORM_NUMBERS.get(key, (None, None))
    if least is None or most is None or (number and least <= value <= most):
        return None
    if most < math.inf:
        return f"a number from {least} to {most}"
    return "a number" if least == -math.inf else f"a number of at least {least}"
