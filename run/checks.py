"""Checks of a configuration that no other part makes, or would make only after training."""

import math
from functools import reduce
from pathlib import Path
from typing import Any

from run.errors import Refused
from run.norm_options import check_norms

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
OURS = ("callbacks", "logger", "plugins", "val_check_interval", "gradient_clip_algorithm")


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
