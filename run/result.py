"""result.json: what a run was and what it came to, written once, at its end."""

import json
import math
import platform
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

from run.errors import one_line
from run.files import replace_file


def write_result(folder: Path, result: dict[str, Any]) -> None:
    """Write result.json in one piece. JSON has no NaN: a number that is not finite becomes null."""
    finite = {
        key: None if isinstance(value, float) and not math.isfinite(value) else value
        for key, value in result.items()
    }
    with replace_file(folder / "result.json", "w") as file:
        json.dump(finite, file, indent=2, ensure_ascii=False)


def read_result(folder: Path) -> dict[str, Any]:
    """The result; empty while the run is unfinished, or if the file was copied in part."""
    path = folder / "result.json"
    try:
        return json.loads(path.read_text("utf-8")) if path.exists() else {}
    except json.JSONDecodeError:
        return {}


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


def failed(cfg: Any, overrides: list[str], error: Exception) -> dict[str, Any]:
    """The whole result of a run that raised, perhaps before its configuration made sense."""
    return {
        "status": "failed",
        "error": one_line(error),
        "norm": cfg.get("norm_name"),
        "seed": cfg.get("seed"),
        "overrides": overrides,
        **environment(),
    }


def environment() -> dict[str, Any]:
    """Versions and commit: what else a number depends on."""
    status = git("status", "--porcelain")
    return {
        "python": platform.python_version(),
        "torch": metadata.version("torch"),
        "lightning": metadata.version("lightning"),
        "commit": git("rev-parse", "HEAD"),
        "dirty": None if status is None else bool(status),
    }


def git(*arguments: str) -> str | None:
    """What git says of this repository; None without git, or outside a repository."""
    command = ["git", "-C", str(Path(__file__).parent.parent), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None
