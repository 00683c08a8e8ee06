"""Run folders, read from disk: one row per run, and one small table of curves per run.

A run is what `train.py` leaves (run/folder.py): nothing else is read, and nothing is written.
"""

import io
import json
import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from report.conditions import LENGTH, RATE, Flat, flat_config
from report.failures import failure, spiked
from run.overrides import key_of
from run.stored import read_stored, renamed

NUMBERS = [
    *("steps", "tokens", "loss_initial", "val_best", "val_best_step", "val_final"),
    *("test_final", "test_best", "train_final", "val_reestimated", "val_batch", "leak"),
    *("seconds", "legs", "tokens_per_second", "params", "norm_params", "unigram_entropy"),
]
FACTS = [
    *("status", "error", "norm", "placement", "seed", "causal_in_training", "device", "threads"),
    *("python", "torch", "lightning", "commit", "dirty", "started", "ended"),
]
REPORT = "comparison"  # the folder of a sweep that its report is written into


@dataclass(frozen=True)
class Runs:
    """Every run that has ended.

    Attributes:
        table: one row per run, the index is the run's name; the columns are NUMBERS, FACTS,
            `folder`, `sweep`, `failure` (its kind, or ""), `spike`, `max_steps`, `lr`,
            `step_seconds` and `gap`. Losses are in nats per character, times in seconds.
        flat: each run's resolved configuration with dotted keys.
        curves: each run's metrics, one column per name; the index is the optimizer step.
        typed: the keys that somebody set on a command line, each with the overrides that set it,
            in order.
        commands: the command lines that started the runs, each once.
        claims: what the study claimed before it ran (report/claims.py).
        nuisance: the settings, besides the rate, that a tuning sweep chose for each condition.
        skipped: one line for each folder that is not a run or has not ended.
        unstarted: one line for each job that failed before it stored its configuration: nobody
            knows its condition, so it takes no part in anything else.
        place: the folder of the first sweep; the report is written into `comparison/` there.
    """

    table: pd.DataFrame
    flat: dict[str, Flat]
    curves: dict[str, pd.DataFrame]
    typed: dict[str, list[str]]
    commands: list[str]
    claims: list[dict[str, Any]]
    nuisance: list[str]
    skipped: list[str]
    unstarted: list[str]
    place: Path


def read_runs(folders: Iterable[str | Path]) -> Runs:
    """Read sweeps and single runs together.

    Raises:
        ValueError: a folder does not exist, or no run in any of them has ended.
    """
    given = list(dict.fromkeys(Path(folder).resolve() for folder in folders))
    for folder in given:
        if not folder.is_dir():
            raise ValueError(f"{folder} is not a folder; give the folder of a sweep or of a run")
    found, skipped = find_runs(given)
    rows, stored, curves, unstarted = {}, {}, {}, []
    for name, folder in found.items():
        result, reason = read_outcome(folder)
        if reason:
            skipped.append(f"{name}: {reason}")
            continue
        result["overrides"] = overrides = result.get("overrides") or []
        if not result.get("config"):
            unstarted.append(f"{' '.join(overrides)}: {result.get('error')}")
            continue
        stored[name] = result | {"sweep": folder.parent}
        curves[name] = read_curves(folder / "metrics.csv")
        rows[name] = row_of(result, curves[name], folder)
    if not rows:
        said = "; ".join([*unstarted, *skipped][:3]) or "there is none"
        raise ValueError(f"no run in {', '.join(map(str, given))} has ended ({said})")
    flat = {name: flat_config(run["config"], run["overrides"]) for name, run in stored.items()}
    return Runs(
        table=table_of(rows, flat),
        flat=flat,
        curves=curves,
        typed=typed_keys(stored),
        commands=command_lines(stored),
        claims=claims_of(stored),
        nuisance=nuisance_of(dict.fromkeys(run["sweep"] for run in stored.values())),
        skipped=skipped,
        unstarted=unstarted,
        place=given[0].parent if is_run(given[0]) else given[0],
    )


def is_run(folder: Path) -> bool:
    """Has train.py written into this folder, with whatever outcome?"""
    return (folder / ".hydra/config.yaml").exists() or (folder / "result.json").exists()


def find_runs(given: list[Path]) -> tuple[dict[str, Path], list[str]]:
    """Run folders by a short name, and a line for each folder that is not a run.

    The name has the sweep's before it where two runs would share one.
    """
    found: list[Path] = []
    foreign: list[str] = []
    for folder in given:
        if is_run(folder):
            found.append(folder)
            continue
        for child in sorted(path for path in folder.iterdir() if path.is_dir()):
            if is_run(child):
                found.append(child)
            elif child.name != REPORT and not child.name.startswith("."):
                foreign.append(f"{child.name}: not a run folder")
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
        return {}, "unfinished (still running, or killed)"
    try:
        result = json.loads(renamed(path.read_text("utf-8")))
        status = result["status"]
        numbers = [result.get(key) for key in NUMBERS]
        fine = all(isinstance(n, int | float | None) for n in numbers)
        fine = fine and isinstance(result["overrides"], list)
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        fine = False
    if not fine:
        return {}, "result.json is damaged; run it again"
    if status in ("interrupted", "stopped_early"):
        return {}, f"unfinished ({status.replace('_', ' ')})"
    if status not in ("finished", "diverged", "failed"):
        return {}, f"unknown status {status}"
    if not result.get("config") and (folder / ".hydra/config.yaml").exists():
        try:
            result["config"] = read_stored(folder, "config")
        except ValueError as damage:
            return {}, str(damage)
    return result, ""


def read_curves(path: Path) -> pd.DataFrame:
    """metrics.csv with one column per name; rows that are cut short or damaged are left out."""
    text = path.read_text("utf-8", "replace") if path.is_file() else ""
    text = text[: text.rfind("\n") + 1]
    if text.count("\n") < 2:
        return pd.DataFrame(index=pd.Index([], name="step", dtype=int))
    rows = pd.read_csv(io.StringIO(text), on_bad_lines="skip", names=["step", "name", "value"])
    for column in ("step", "value"):  # whatever is no number is no row: the header, damage
        rows[column] = pd.to_numeric(rows[column], errors="coerce")
    rows = rows[rows.step.notna()].astype({"step": int})
    rows = rows.drop_duplicates(["step", "name"], keep="last")
    return rows.pivot(index="step", columns="name", values="value").astype(float)


def row_of(result: dict[str, Any], curves: pd.DataFrame, folder: Path) -> dict[str, Any]:
    """One row of the table of runs."""
    numbers = {k: float("nan") if result.get(k) is None else float(result[k]) for k in NUMBERS}
    row: dict[str, Any] = {key: result.get(key) for key in FACTS} | numbers
    row["folder"] = str(folder)
    row["sweep"] = folder.parent.name
    row["failure"] = failure(result, curves)
    row["spike"] = not row["failure"] and spiked(curves, numbers["loss_initial"])
    steps = numbers["steps"]
    row["step_seconds"] = numbers["seconds"] / steps if steps > 0 else float("nan")
    row["gap"] = numbers["val_final"] - numbers["train_final"]
    return row


def table_of(rows: dict[str, dict[str, Any]], flat: dict[str, Flat]) -> pd.DataFrame:
    """The table of runs, with the length and the peak learning rate of each."""
    table = pd.DataFrame.from_dict(rows, orient="index")
    for column, key in (("max_steps", LENGTH), ("lr", RATE)):
        known = {run: config.get(key) for run, config in flat.items()}
        table[column] = pd.to_numeric(pd.Series(known, dtype=object), errors="coerce")
    return table


def typed_keys(stored: dict[str, Any]) -> dict[str, list[str]]:
    """The keys of all command lines, each with its different overrides."""
    typed: dict[str, list[str]] = {}
    for override in dict.fromkeys(o for run in stored.values() for o in run["overrides"]):
        typed.setdefault(key_of(override), []).append(override)
    return typed


def command_lines(stored: dict[str, Any]) -> list[str]:
    """The commands that made the runs: a sweep's own, or that of each single run."""
    lines: list[list[str]] = []
    for sweep in dict.fromkeys(run["sweep"] for run in stored.values()):
        of_runs = [run["overrides"] for run in stored.values() if run["sweep"] == sweep]
        typed = typed_for(sweep)
        lines += [typed] if typed else of_runs
    return list(dict.fromkeys(shlex.join(["python", "train.py", *words]) for words in lines))


def typed_for(sweep: Path) -> list[str]:
    """What was typed after train.py for a whole sweep; nothing if Hydra did not store it."""
    given = of_hydra(sweep).get("overrides", {})
    own = given.get("hydra", [])
    flag = ["-m"] if "hydra.mode=MULTIRUN" in own else []
    others = [word for word in own if word != "hydra.mode=MULTIRUN"]
    return [*flag, *given.get("task", []), *others]


def of_hydra(sweep: Path) -> dict[str, Any]:
    """Hydra's own configuration of a sweep; empty if Hydra did not store it, or it is damaged."""
    try:
        found = yaml.safe_load((sweep / "multirun.yaml").read_text("utf-8"))["hydra"]
    except (OSError, ValueError, LookupError, TypeError, yaml.YAMLError):
        return {}
    return found if isinstance(found, dict) else {}


def nuisance_of(sweeps: Iterable[Path]) -> list[str]:
    """The nuisance settings of tuning sweeps, each once."""
    given = (of_hydra(sweep).get("sweeper") or {} for sweep in sweeps)
    return list(dict.fromkeys(key for one in given for key in one.get("nuisance") or []))


def claims_of(stored: dict[str, Any]) -> list[dict[str, Any]]:
    """The claims that the runs' studies state, each once."""
    claims: list[dict[str, Any]] = []
    for run in stored.values():
        if any(key_of(override) == "claims" for override in run["overrides"]):
            continue  # claims are fixed before the run, in a file: not on a command line
        claims += [claim for claim in run["config"].get("claims") or [] if claim not in claims]
    return claims
