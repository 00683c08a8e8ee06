"""From run folders to the report: the one function that a sweep's end and compare.py call."""

import csv
import os
from collections.abc import Iterable
from pathlib import Path

import pandas as pd

from report.console import console_text
from report.figures import draw_all
from report.findings import findings, tuning_command
from report.group import Study, build_study
from report.judge import judge
from report.notes import footnotes
from report.page import page
from report.read import REPORT, read_runs
from report.tables import all_tables
from run.folder import replace_file


def compare(
    folders: Iterable[str | Path] | str | Path,
    baseline: str = "layernorm",
    margin: float | None = None,
    out: str | Path | None = None,
) -> str:
    """Write the report of some runs: a page, its figures and two CSV files.

    Args:
        folders: sweeps and single runs.
        baseline: a norm, or a condition as the table names it.
        margin: nats per character; if given, also how many seeds would decide each contrast.
        out: the folder to write into; by default `comparison/` in the first sweep.

    Returns:
        The console's text.

    Raises:
        ValueError: no run has ended, or the baseline, a claim, the margin or `out` is invalid.
    """
    if out is not None and Path(out).is_file():
        raise ValueError(f"--out {out} is a file; give a folder, which may be new")
    given = [folders] if isinstance(folders, str | Path) else list(folders)
    study = build_study(read_runs(given), baseline)
    judged = judge(study, margin)
    tables, notes = all_tables(judged), footnotes(judged)
    figures = draw_all(judged)
    files = {f"{name}.svg": figure.svg for name, figure in figures.items()}
    files["runs.csv"] = runs_csv(study)
    files["summary.csv"] = as_csv(judged.summary, "condition")
    files["report.html"] = page(judged, tables, notes, figures)
    place = Path(out) if out is not None else study.runs.place / REPORT
    write_files(files, place)
    if out is None:
        remove_figures(place, keep=files)
    text = console_text(findings(judged), tuning_command(judged), tables, notes)
    return f"{text}\n\npage     {shown(place / 'report.html')}"


def write_files(files: dict[str, str], place: Path) -> None:
    """Write each file in one piece: a browser may be showing the old one."""
    place.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        with replace_file(place / name, "w") as file:
            file.write(text)


def remove_figures(place: Path, keep: Iterable[str]) -> None:
    """Delete the figures of an earlier report: only where the whole folder is the report's."""
    for old in place.glob("*.svg"):
        if old.name not in keep:
            old.unlink()


def shown(path: Path) -> str:
    """A path as it is typed from here, unless it lies elsewhere."""
    near = Path(os.path.relpath(path))
    return str(path if near.parts[0] == ".." else near)


def runs_csv(study: Study) -> str:
    """Every run that was read, whatever its part in the tables."""
    values = {
        run: {key: study.runs.flat[run].get(key) for key in study.keys} for run in study.table.index
    }
    swept = pd.DataFrame.from_dict(values, orient="index").drop(columns="norm", errors="ignore")
    return as_csv(pd.concat([study.table, swept], axis=1), "run")


def as_csv(table: pd.DataFrame, index: str) -> str:
    """Full precision, the same line end on every system."""
    return str(table.to_csv(index_label=index, lineterminator="\n", quoting=csv.QUOTE_MINIMAL))
