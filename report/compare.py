"""From run folders to the report: the one function that a sweep's end and compare.py call."""

from collections.abc import Iterable
from pathlib import Path

from report.console import console_text
from report.figures import draw_all
from report.findings import findings, tuning_command
from report.group import build_study
from report.judge import judge
from report.notes import footnotes
from report.numbers import csv_files
from report.page import page
from report.read import REPORT, read_runs
from report.tables import all_tables
from run.files import replace_file
from run.folder import shown


def compare(
    folders: Iterable[str | Path] | str | Path,
    baseline: str = "layernorm",
    margin: float | None = None,
    out: str | Path | None = None,
) -> str:
    """Write the report of some runs: a page, its figures and its numbers as CSV.

    Args:
        folders: sweeps and single runs.
        baseline: a norm, or a condition as the table names it.
        margin: nats per character; if given, also how many seeds tell so much from 0.
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
    files |= csv_files(judged)
    files["report.html"] = page(judged, tables, notes, figures)
    place = Path(out) if out is not None else study.runs.place / REPORT
    place.mkdir(parents=True, exist_ok=True)
    for file_name, content in files.items():  # in one piece: a browser may be showing the old one
        with replace_file(place / file_name, "w") as file:
            file.write(content)
    if out is None:  # the whole folder is the report's: nothing of an earlier one stays
        for old in {*place.glob("*.svg"), *place.glob("*.csv")} - {
            place / file_name for file_name in files
        }:
            old.unlink()
    text = console_text(findings(judged), tuning_command(judged), tables, notes)
    return f"{text}\n\npage     {shown(place / 'report.html')}"
