"""What no other part would notice in a configuration, or would notice only after training."""

from pathlib import Path
from typing import Any

from job.folder import Refused


def check(cfg: Any, folder: Path) -> None:
    """Refuse a configuration that cannot be, before anything is built.

    Raises:
        ValueError: the first rule that is broken.
        Refused: a new run in a folder that holds one.
    """
    trainer, sample = cfg.trainer, cfg.sample
    half = str(trainer.precision) in ("16", "16-mixed")
    top_k = 1 if sample.top_k is None else sample.top_k
    rules = {  # Hydra merges `norm=[a,b]` and drops the group on `~norm`, both silently
        "norm must be one name; use norm=none for no norm, -m norm=a,b to sweep": cfg.norm_name,
        f"trainer.devices={trainer.devices}: a run uses 1 device": trainer.devices == 1,
        f"trainer.max_steps must be at least 1, got {trainer.max_steps}": trainer.max_steps >= 1,
        f"eval_every must be at least 1 step, got {cfg.eval_every}": cfg.eval_every >= 1,
        f"log_every must be at least 1 step, got {cfg.log_every}": cfg.log_every >= 1,
        f"trainer.accumulate_grad_batches must be at least 1, got {trainer.accumulate_grad_batches}"
        "": trainer.accumulate_grad_batches >= 1,
        # it would clip gradients that are still scaled
        "trainer.precision=16-mixed needs optimizer.fused=false; or use bf16-mixed": not (
            half and cfg.optimizer.get("fused")
        ),
        f"sample needs max_new_tokens >= 0, temperature >= 0 and top_k >= 1, got {dict(sample)}": (
            sample.max_new_tokens >= 0 and sample.temperature >= 0 and top_k >= 1
        ),
    }
    for message, holds in rules.items():
        if not holds:
            raise ValueError(message)
    if cfg.resume is None and (folder / ".hydra" / "overrides.yaml").exists():
        raise Refused(f"{folder} already holds a run; use resume={folder} or another folder")
