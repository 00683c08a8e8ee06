"""Which options of Lightning's Trainer a configuration may set, and what to use for the others."""

from typing import Any

ALLOWED = (
    *("_target_", "max_steps", "accelerator", "precision"),
    *("accumulate_grad_batches", "gradient_clip_val", "detect_anomaly", "deterministic"),
    "benchmark",
)
# What steps, evaluations and status rely on; the keys stand in configs/trainer/default.yaml.
FIXED = {
    "devices": 1,
    "num_sanity_val_steps": 0,
    "max_epochs": -1,
    "check_val_every_n_epoch": None,
    "enable_checkpointing": False,
    "enable_model_summary": False,
}
INSTEAD = {
    "max_time": "trainer.max_steps",
    "min_steps": "trainer.max_steps",
    "min_epochs": "trainer.max_steps",
    "max_epochs": "trainer.max_steps",
    "fast_dev_run": "trainer.max_steps=1",
    "overfit_batches": "a short text (data.path)",
    "limit_train_batches": "trainer.max_steps",
    "limit_val_batches": "data.eval_batches",
    "limit_test_batches": "data.eval_batches",
    "val_check_interval": "eval_every",
    "check_val_every_n_epoch": "eval_every",
    "log_every_n_steps": "log_every",
    "callbacks": "probes.callbacks",
    "logger": "probes.callbacks",
    "default_root_dir": "hydra.run.dir",
    "enable_progress_bar": "a pipe, as in `| cat`, for a console without a bar",
    "gradient_clip_algorithm": "trainer.gradient_clip_val, which clips the global norm",
}


def check_trainer(trainer: Any) -> None:
    """Refuse an option that would change what a step, an evaluation or `finished` means.

    Raises:
        ValueError: it is not one of those that are allowed, or not at its fixed value.
    """
    for key, value in trainer.items():
        if key in ALLOWED or (key in FIXED and value == FIXED[key]):
            continue
        if key in INSTEAD:
            advice = f"use {INSTEAD[key]}"
        elif key in FIXED:
            advice = "leave it as it is"
        else:
            options = ", ".join(name for name in ALLOWED if name != "_target_")
            advice = f"the options of a run are {options}"
        fixed = f" must stay {FIXED[key]}" if key in FIXED else " cannot be set here"
        raise ValueError(f"trainer.{key}{fixed}, got {value}; {advice}")
    for key in ("detect_anomaly", "deterministic", "benchmark"):
        if key in trainer and not isinstance(trainer[key], bool):
            raise ValueError(f"trainer.{key} must be true or false, got {trainer[key]}")
