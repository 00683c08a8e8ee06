"""Run folders, read from disk: one row a run, one small table of curves a run.

A run is what `train.py` leaves (run/folder.py): nothing else is read, and nothing is written.
"""

import io
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from report.conditions import Flat, flat_config, from_siblings
from report.failures import failure, spiked
from run.overrides import key_of

NUMBERS = """steps tokens loss_initial val_best val_best_step val_final test_final test_best
    train_final val_reestimated val_batch leak seconds legs tokens_per_second params norm_params
    unigram_entropy""".split()
FACTS = """status error norm placement seed causal_in_training device threads torch commit dirty
    started""".split()
TUNING_SEEDS = 101  # seeds from here on choose a learning rate and are never reported


@dataclass(frozen=True)
class Runs:
    """Every run that has ended.

    Attributes:
        table: one row a run, its index the run's name; the columns NUMBERS, FACTS, `sweep`,
            `failure` (its kind, or ""), `spike`, `max_steps`, `lr`, `step_seconds`, `gap`.
            Losses in nats a character, times in seconds.
        flat: each run's resolved configuration with dotted keys.
        curves: each run's metrics, one column a name, the index the optimizer step.
        typed: the keys that somebody set on a command line, each with the overrides that did, in
            order.
        claims: what the study said before it ran (report/claims.py).
        skipped: one line for each folder that is no run or has not ended.
        place: the folder that the report goes into, `comparison/` inside it.
    """

    table: pd.DataFrame
    flat: dict[str, Flat]
    curves: dict[str, pd.DataFrame]
    typed: dict[str, list[str]]
    claims: list[dict[str, Any]]
    skipped: list[str]
    place: Path


def read_runs(folders: Iterable[str | Path]) -> Runs:
    """Read sweeps and single runs together.

    Raises:
        ValueError: a folder is not there, or no run in any of them has ended.
    """
    given = list(dict.fromkeys(Path(folder).resolve() for folder in folders))
    for folder in given:
        if not folder.is_dir():
            raise ValueError(f"{folder} is no folder; give a sweep's folder or a run's")
    found, skipped = find_runs(given)
    rows, configs, curves = {}, {}, {}
    for name, folder in found.items():
        result, reason = read_outcome(folder)
        if reason:
            skipped.append(f"{name}: {reason}")
            continue
        configs[name] = (result.get("config") or {}, result.get("overrides") or [], folder.parent)
        curves[name] = read_curves(folder / "metrics.csv")
        rows[name] = row_of(result, curves[name], folder)
    if not rows:
        said = f" ({'; '.join(skipped[:3])})" if skipped else ""
        raise ValueError(f"no run in {', '.join(map(str, given))} has ended{said}")
    flat = all_flat(configs)
    table = pd.DataFrame.from_dict(rows, orient="index")
    for column, key in (("max_steps", "trainer.max_steps"), ("lr", "optimizer.lr")):
        known = {run: config.get(key) for run, config in flat.items()}
        table[column] = pd.to_numeric(pd.Series(known, dtype=object), errors="coerce")
    first = given[0]
    place = first.parent if is_run(first) else first
    typed: dict[str, list[str]] = {}
    for override in dict.fromkeys(o for _, overrides, _ in configs.values() for o in overrides):
        typed.setdefault(key_of(override), []).append(override)
    return Runs(table, flat, curves, typed, claims_of(configs), skipped, place)


def is_run(folder: Path) -> bool:
    """A folder that train.py has written into, to whatever end."""
    return (folder / ".hydra/config.yaml").exists() or (folder / "result.json").exists()


def find_runs(given: list[Path]) -> tuple[dict[str, Path], list[str]]:
    """Run folders by a short name (with the sweep's, where there are several), and the foreign."""
    found: list[Path] = []
    foreign: list[str] = []
    for folder in given:
        if is_run(folder):
            found.append(folder)
            continue
        for child in sorted(path for path in folder.iterdir() if path.is_dir()):
            if is_run(child):
                found.append(child)
            elif child.name != "comparison" and not child.name.startswith("."):
                foreign.append(f"{child.name}: no run folder")
    found = list(dict.fromkeys(found))
    several = len({path.name for path in found}) < len(found)
    names = [f"{p.parent.name}/{p.name}" if several else p.name for p in found]
    if len(set(names)) < len(names):
        names = [str(path) for path in found]
    return dict(zip(names, found, strict=True)), foreign


def read_outcome(folder: Path) -> tuple[dict[str, Any], str]:
    """What is in result.json, or why the run takes no part."""
    path = folder / "result.json"
    if not path.exists():
        return {}, "unfinished (running, or killed)"
    try:
        result = json.loads(path.read_text("utf-8"))
        status = result["status"]
    except (ValueError, KeyError, TypeError):
        return {}, "result.json cannot be read"
    if status == "interrupted":
        return {}, "unfinished (interrupted)"
    if status not in ("finished", "diverged", "failed"):
        return {}, f"unknown status {status}"
    config = folder / ".hydra/config.yaml"
    if not result.get("config") and config.exists():  # a failed job writes no configuration
        result["config"] = yaml.safe_load(config.read_text("utf-8"))
    return result, ""


def read_curves(path: Path) -> pd.DataFrame:
    """metrics.csv, one column a name; a row that a kill cut short is left out."""
    text = path.read_text("utf-8") if path.exists() else ""
    text = text[: text.rfind("\n") + 1]
    if text.count("\n") < 2:
        return pd.DataFrame(index=pd.Index([], name="step", dtype=int))
    rows = pd.read_csv(io.StringIO(text), on_bad_lines="skip")
    rows = rows.drop_duplicates(["step", "name"], keep="last")
    return rows.pivot(index="step", columns="name", values="value").astype(float)


def row_of(result: dict[str, Any], curves: pd.DataFrame, folder: Path) -> dict[str, Any]:
    """One row of the table of runs."""
    numbers = {k: float("nan") if result.get(k) is None else float(result[k]) for k in NUMBERS}
    row: dict[str, Any] = {key: result.get(key) for key in FACTS} | numbers
    row["folder"], row["sweep"] = str(folder), folder.parent.name
    row["failure"] = failure(result, curves)
    row["spike"] = not row["failure"] and spiked(curves, numbers["loss_initial"])
    steps = numbers["steps"]
    row["step_seconds"] = numbers["seconds"] / steps if steps > 0 else float("nan")
    row["gap"] = numbers["val_final"] - numbers["train_final"]
    return row


def all_flat(configs: dict[str, tuple[dict[str, Any], list[str], Path]]) -> dict[str, Flat]:
    """Dotted configurations; a run that failed before it stored one borrows from its sweep."""
    flat = {
        name: flat_config(config, overrides)
        for name, (config, overrides, _) in configs.items()
        if config
    }
    for name, (config, overrides, sweep) in configs.items():
        if not config:
            known = [
                (configs[other][1], flat[other])
                for other in flat
                if configs[other][0] and configs[other][2] == sweep
            ]
            flat[name] = from_siblings(overrides, known)
    return {name: flat[name] for name in configs}


def claims_of(configs: dict[str, tuple[dict[str, Any], list[str], Path]]) -> list[dict[str, Any]]:
    """The claims that the runs' studies state, each once."""
    claims: list[dict[str, Any]] = []
    for config, overrides, _ in configs.values():
        if any(key_of(override) == "claims" for override in overrides):
            continue  # fixed before the run, in a file: not on a command line
        claims += [claim for claim in config.get("claims") or [] if claim not in claims]
    return claims
