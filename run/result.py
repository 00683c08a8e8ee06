"""The end of a run: its result.json, its row in TensorBoard, its last lines on the console."""

import json
import logging
import math
import os
import platform
import shlex
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

from run import tensorboard
from run.errors import Refused, one_line
from run.files import replace_file
from run.folder import shown


def write_result(folder: Path, result: dict[str, Any]) -> None:
    """Write result.json in one piece. JSON has no NaN: a number that is not finite becomes null."""
    finite = {
        key: None if isinstance(value, float) and not math.isfinite(value) else value
        for key, value in result.items()
    }
    with replace_file(folder / "result.json", "w") as file:
        json.dump(finite, file, indent=2, ensure_ascii=False)


def read_result(folder: Path) -> dict[str, Any]:
    """The result; empty while the run is unfinished, or if the file is damaged."""
    try:
        found = json.loads((folder / "result.json").read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def identity(config: dict[str, Any], overrides: list[str]) -> dict[str, Any]:
    """What was run: the part of result.json that is known before training."""
    return {
        "norm": config["norm_name"],
        "placement": config["model"]["placement"],
        "seed": config["seed"],
        "overrides": overrides,
        "config": config,
        **environment(),
    }


def environment() -> dict[str, Any]:
    """Versions and commit: what else a number depends on."""
    return {
        "python": platform.python_version(),
        "torch": metadata.version("torch"),
        "lightning": metadata.version("lightning"),
        **commit(Path(__file__).resolve().parent.parent),
    }


def commit(root: Path) -> dict[str, Any]:
    """The commit of the repository whose root this is, whether files differ; else why it is null.

    A copy of normlab inside somebody's repository is not that repository's commit.
    """
    unknown = {"commit": None, "dirty": None}
    top = git(root, "rev-parse", "--show-toplevel")
    if top is None:
        return unknown | {"no_commit": "there is no git, or this copy is in no repository"}
    if Path(top).resolve() != root:
        return unknown | {"no_commit": f"this copy lies inside another repository, {top}"}
    changed = bool(git(root, "status", "--porcelain"))
    return {"commit": git(root, "rev-parse", "HEAD"), "dirty": changed, "no_commit": None}


def git(folder: Path, *arguments: str) -> str | None:
    """What git says in a folder; None without git, or outside a repository."""
    command = ["git", "-C", str(folder), *arguments]
    surroundings = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}  # of a hook
    try:
        done = subprocess.run(command, capture_output=True, text=True, env=surroundings)
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def close(folder: Path, config: dict[str, Any], result: dict[str, Any]) -> None:
    """End a run that has trained: finished, diverged or interrupted."""
    tensorboard.write_row(folder, config, result)
    write_result(folder, result)  # last, since it says that all is there
    logging.getLogger("normlab").info(closing_block(result, folder))


def close_failed(folder: Path, cfg: Any, overrides: list[str], error: Exception) -> None:
    """End a run that raised, perhaps before its configuration made sense.

    The traceback goes to train.log. A result that is there stays, unless it is a failure as well.
    """
    if isinstance(error, Refused):
        return
    logging.getLogger("file").error("failed", exc_info=error)
    if read_result(folder).get("status", "failed") != "failed":
        return
    result = {
        "status": "failed",
        "error": one_line(error),
        "norm": cfg.get("norm_name"),
        "seed": cfg.get("seed"),
        "overrides": overrides,
        **environment(),
    }
    tensorboard.write_row(folder, cfg, result)
    write_result(folder, result)


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
