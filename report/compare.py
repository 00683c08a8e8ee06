"""From run folders to `comparison/`: the one function that a sweep's end and compare.py call."""

import csv
import os
from collections.abc import Iterable
from pathlib import Path

import pandas as pd

from report.console import console_text
from report.content import Content, gather
from report.figures import draw_all
from report.page import page
from run.files import replace_file

FOLDER = "comparison"


def compare(
    folders: Iterable[str | Path] | str | Path,
    baseline: str = "layernorm",
    margin: float | None = None,
) -> str:
    """Write `comparison/` into the first sweep given; returns the console's text.

    Args:
        folders: sweeps and single runs.
        baseline: a norm, or a condition as the table names it.
        margin: nats a character; if given, also how many seeds would decide each contrast.

    Raises:
        ValueError: no run has ended, the baseline is not there, or a claim cannot be judged.
    """
    given = [folders] if isinstance(folders, str | Path) else list(folders)
    content = gather(given, baseline, margin)
    place = content.study.runs.place / FOLDER
    write_files(content, place)
    near = Path(os.path.relpath(place))
    shown = near if near.parts[0] != ".." else place
    return f"{console_text(content)}\n\npage     {shown / 'report.html'}"


def write_files(content: Content, place: Path) -> None:
    """report.html, runs.csv, summary.csv, and each figure; figures of an earlier report go."""
    place.mkdir(exist_ok=True)
    figures = draw_all(content)
    for old in place.glob("*.svg"):
        if old.stem not in figures:
            old.unlink()
    for name, figure in figures.items():
        write(place / f"{name}.svg", figure.svg)
    write(place / "runs.csv", runs_csv(content))
    write(place / "summary.csv", as_csv(content.summary, "condition"))
    write(place / "report.html", page(content, figures))


def runs_csv(content: Content) -> str:
    """Every run that was read, whatever its part in the tables."""
    study = content.study
    values = {
        run: {key: study.runs.flat[run].get(key) for key in study.keys} for run in study.table.index
    }
    swept = pd.DataFrame.from_dict(values, orient="index").drop(columns="norm", errors="ignore")
    return as_csv(pd.concat([study.table, swept], axis=1), "run")


def as_csv(table: pd.DataFrame, index: str) -> str:
    """Full precision, one line end everywhere."""
    return str(table.to_csv(index_label=index, lineterminator="\n", quoting=csv.QUOTE_MINIMAL))


def write(path: Path, text: str) -> None:
    """In one piece: a browser may be showing the old one."""
    with replace_file(path, "w") as file:
        file.write(text)
