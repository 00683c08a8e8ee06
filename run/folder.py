"""The run folder: the unit of reloading, comparing and resuming. No torch: quick to import.

.hydra/config.yaml      the resolved configuration, with the text's SHA-256; written once, after all
checks .hydra/overrides.yaml   the command line that made it checkpoints/            last.ckpt,
best.ckpt result.json             written at the end; a folder without it is unfinished metrics.csv,
tokenizer.json, sample.txt, train.log, TensorBoard events
"""

import json
import logging
import math
import os
import platform
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import IO, Any

import yaml

from run import tensorboard


class Refused(ValueError):
    """The folder holds a run that this command must not touch."""


@contextmanager
def replace_file(path: Path, mode: str = "wb") -> Iterator[IO[Any]]:
    """Open a temporary file in the same folder that takes `path`'s place, whole, at the end."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with temporary.open(mode, encoding=None if "b" in mode else "utf-8") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def quoted(value: Any) -> str:
    r"""A value in Hydra's grammar, whatever characters a path has.

    >>> quoted("my file, v2=b.txt")
    "'my file, v2=b.txt'"
    >>> quoted(["a b", "it's"])
    "['a b','it\\'s']"
    """
    if isinstance(value, str):
        # a backslash is special before a quote only, and the closing quote is one
        return "'" + re.sub(r"(\\*)('|$)", _escaped, value) + "'"
    return "[" + ",".join(map(quoted, value)) + "]"


def _escaped(match: re.Match[str]) -> str:
    return match[1] * 2 + ("\\'" if match[2] else "")


def key_of(override: str) -> str:
    """What an override sets: `norm` of `norm=none`, `norm.eps` of `+norm.eps=1`."""
    return override.lstrip("+~").partition("=")[0]


def make_path_absolute(cfg: Any, root: str) -> None:
    """Let data.path be seen from where the user stood, even if Hydra changes directory."""
    path = cfg.data.get("path")
    if path is not None:
        one = isinstance(path, str)
        found = [os.path.normpath(Path(root, p)) for p in ([path] if one else path)]
        cfg.data.path = found[0] if one else found


def record(config: Any, corpus_sha256: str) -> dict[str, Any]:
    """The configuration as it is stored: without where it resumed from, with what text it read."""
    return {**config, "resume": None, "corpus_sha256": corpus_sha256}


def write_start(folder: Path, config: dict[str, Any], overrides: list[str], tokenizer: str) -> None:
    """Store what the run is; from here until the end it counts as unfinished.

    A relative data.path is stored as the absolute one, so that resuming works from anywhere.
    """
    path = config["data"]["path"]
    overrides = [
        f"data.path={quoted(path)}" if key_of(o) == "data.path" and path else o for o in overrides
    ]
    (folder / ".hydra").mkdir(parents=True, exist_ok=True)
    with replace_file(folder / "tokenizer.json", "w") as file:
        file.write(tokenizer)
    for name, content in [("config", config), ("overrides", overrides)]:
        with replace_file(folder / ".hydra" / f"{name}.yaml", "w") as file:
            yaml.safe_dump(content, file, sort_keys=False, allow_unicode=True)
    (folder / "result.json").unlink(missing_ok=True)


def tidy(folder: Path, *, anew: bool) -> None:
    """Remove what a killed or failed start left; with `anew` all that it made but train.log."""
    for path in [*folder.glob(".*.*"), *folder.glob("*/.*.*")]:
        if re.fullmatch(r"\..+\.\d+", path.name):  # as in replace_file
            path.unlink(missing_ok=True)
    made = ["result.json"]
    if anew:
        made += ["metrics.csv", "sample.txt", "tokenizer.json", "events.out.*"]
        for part in (".hydra", "checkpoints"):
            shutil.rmtree(folder / part, ignore_errors=True)
    for name in made:
        for path in folder.glob(name):
            path.unlink()


def write_failure(folder: Path, cfg: Any, overrides: list[str], error: Exception) -> None:
    """Traceback and result.json of a run that raised; a result that is there already stays."""
    logging.getLogger("file").error("failed", exc_info=error)
    if isinstance(error, Refused) or "at_init" in cfg or (folder / "result.json").exists():
        return  # what only measures is no run
    who = {"norm": cfg.get("norm_name"), "seed": cfg.get("seed"), "overrides": overrides}
    result = {"status": "failed", "error": one_line(error), **who, **environment()}
    write_result(folder, result)
    tensorboard.write_row(folder, cfg, result)


def one_line(error: BaseException) -> str:
    r"""What went wrong, on one line. Hydra wraps the user's mistake: then the cause says it.

    >>> one_line(ValueError("two\nlines"))
    'two lines'
    """
    chain = [error]
    while chain[-1].__cause__ is not None:
        chain.append(chain[-1].__cause__)
    wrapped = isinstance(chain[-1], ValueError) or "Error in call to target" in str(error)
    parts: list[Any] = chain[-1:] if wrapped else list(dict.fromkeys([chain[0], chain[-1]]))
    if str(error).startswith("Config group override must be"):  # Hydra on norm=null
        parts = [f"{error}; give one of the group's names, for instance norm=none"]
    line = " ".join(" ".join(map(str, parts)).split()) or type(error).__name__
    return line.replace(", set env var HYDRA_FULL_ERROR=1 to see chained exception", "")


def write_result(folder: Path, result: dict[str, Any]) -> None:
    """Write result.json in one piece; of a run that trained, also TensorBoard's row of HPARAMS.

    A loss that is not finite becomes null (JSON has no NaN).
    """
    finite = {
        k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in result.items()
    }
    with replace_file(folder / "result.json", "w") as file:
        json.dump(finite, file, indent=2, ensure_ascii=False)
    if "config" in result:
        tensorboard.write_row(folder, result["config"], finite)


def read_result(folder: Path) -> dict[str, Any]:
    """The result, or nothing while the run is unfinished (or the file, copied, is not whole)."""
    path = folder / "result.json"
    try:
        return json.loads(path.read_text("utf-8")) if path.exists() else {}
    except json.JSONDecodeError:
        return {}


def identity(config: dict[str, Any], overrides: list[str]) -> dict[str, Any]:
    """What was run: the part of result.json that is known before training."""
    who = {
        "norm": config["norm_name"],
        "placement": config["model"]["placement"],
        "seed": config["seed"],
    }
    return {**who, "overrides": overrides, "config": config, **environment()}


def environment() -> dict[str, Any]:
    """Versions and commit: what else a figure depends on."""
    root = Path(__file__).parent.parent

    def git(*arguments: str) -> str | None:
        command = ["git", "-C", str(root), *arguments]
        try:
            done = subprocess.run(command, capture_output=True, text=True)
        except OSError:
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    status = git("status", "--porcelain")
    return {
        "python": platform.python_version(),
        "torch": metadata.version("torch"),
        "lightning": metadata.version("lightning"),
        "commit": git("rev-parse", "HEAD"),
        "dirty": None if status is None else bool(status),
    }


def closing_block(result: dict[str, Any], folder: Path) -> str:
    """The last lines on the console: what the run was worth and what to do with it."""
    near = Path(os.path.relpath(folder))
    shown = near if near.parts and near.parts[0] != ".." else folder  # short, if that is clear
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
    known = {name: loss for name, loss in rows.items() if math.isfinite(loss)}
    if known:
        lines.append(f"  {'loss':<28} nats/char   bits/char")
    lines += [f"  {name:<28} {x:9.4f}   {x / math.log(2):9.4f}" for name, x in known.items()]
    lines += [
        f"  folder   {shown}",
        f"  curves   tensorboard --logdir {shlex.quote(str(shown.parent))}",
    ]
    if (folder / "checkpoints" / "best.ckpt").exists():
        lines.append(f"  text     python sample.py {shlex.quote(str(shown))}")
    return "\n".join(lines)
