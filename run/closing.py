"""The end of a run: its result.json, its row in TensorBoard, its last lines on the console."""

import logging
import math
import shlex
from pathlib import Path
from typing import Any

from run import tensorboard
from run.errors import Refused
from run.folder import shown
from run.result import failed, write_result


def close(folder: Path, config: dict[str, Any], result: dict[str, Any]) -> None:
    """End a run that has trained: finished, diverged or interrupted."""
    write_result(folder, result)
    tensorboard.write_row(folder, config, result)
    logging.getLogger("normlab").info(closing_block(result, folder))


def close_failed(folder: Path, cfg: Any, overrides: list[str], error: Exception) -> None:
    """End a run that raised: the traceback goes to train.log. A result that is there stays."""
    logging.getLogger("file").error("failed", exc_info=error)
    if isinstance(error, Refused) or (folder / "result.json").exists():
        return
    result = failed(cfg, overrides, error)
    write_result(folder, result)
    tensorboard.write_row(folder, cfg, result)


def closing_block(result: dict[str, Any], folder: Path) -> str:
    """The outcome, a table of the losses that were measured, and what to type next."""
    how_long = f"{result['seconds']:.0f} s of training, {result['tokens_per_second']:,.0f} tokens/s"
    lines = [
        f"norm={result['norm']} seed={result['seed']}: {result['status']} "
        f"after {result['steps']} steps, {how_long}"
    ]
    if result["error"]:
        lines.append(f"  {result['error']}")
    rows = {
        "validation, whole split": result["val_final"],
        "test, whole split": result["test_final"],
        "training, in eval mode": result["train_final"],
        f"best evaluation (step {result['val_best_step']})": result["val_best"],
    }
    measured = {name: loss for name, loss in rows.items() if math.isfinite(loss)}
    if measured:
        lines.append(f"  {'loss':<28} nats/char   bits/char")
    for name, loss in measured.items():
        lines.append(f"  {name:<28} {loss:9.4f}   {loss / math.log(2):9.4f}")
    near = shown(folder)
    lines.append(f"  folder   {near}")
    lines.append(f"  curves   tensorboard --logdir {shlex.quote(str(near.parent))}")
    if (folder / "checkpoints" / "best.ckpt").exists():
        lines.append(f"  text     python sample.py {shlex.quote(str(near))}")
    return "\n".join(lines)
