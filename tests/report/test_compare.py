"""From folders to files and the console: what compare() leaves."""

import json
import re
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import pandas as pd
import pytest

from report.compare import compare
from tests.report.conftest import judged_of

Write = Callable[..., Path]
LOSSES = {"layernorm": [2.0, 2.1, 2.05], "batchnorm": [2.1, 2.25, 2.2], "none": [2.5, 2.6, 2.45]}


def test_everything_is_written_and_the_console_names_the_page(
    tmp_path: Path, write_sweep: Write
) -> None:
    text = compare(write_sweep(tmp_path / "s", LOSSES))
    place = tmp_path / "s/comparison"
    figures = {path.stem for path in place.glob("*.svg")}
    assert {"differences", "loss_val_steps", "loss_train_steps"} <= figures
    assert text.endswith("comparison/report.html")
    assert "+0.133 [+0.062, +0.205]" in text
    assert not [path for path in place.iterdir() if path.name.startswith(".")]


def test_the_csv_files_hold_the_numbers_in_full(tmp_path: Path, write_sweep: Write) -> None:
    compare(write_sweep(tmp_path, LOSSES))
    summary = pd.read_csv(tmp_path / "comparison/summary.csv", index_col="condition")
    assert summary.difference["batchnorm"] == pytest.approx(0.4 / 3, abs=1e-12)
    runs = pd.read_csv(tmp_path / "comparison/runs.csv", index_col="run")
    assert len(runs) == 9
    assert set(runs.role) == {"reported"}
    assert runs.test_best["none-s2-7"] == 2.6


def test_a_second_report_replaces_the_first(tmp_path: Path, write_sweep: Write) -> None:
    write_sweep(tmp_path, LOSSES)
    compare(tmp_path)
    (tmp_path / "comparison/probe_gone.svg").write_text("old")
    first = (tmp_path / "comparison/report.html").read_text()
    compare(tmp_path)
    assert (tmp_path / "comparison/report.html").read_text() == first  # the same, to the byte
    assert not (tmp_path / "comparison/probe_gone.svg").exists()


def test_a_comparison_of_two_sweeps_can_leave_the_first_ones_page_alone(
    tmp_path: Path, write_sweep: Write
) -> None:
    """With `out` nothing else in that folder is touched either, not even another figure."""
    first = write_sweep(tmp_path / "a", {"layernorm": LOSSES["layernorm"]})
    second = write_sweep(tmp_path / "b", {"none": LOSSES["none"]})
    compare(first)
    before = {path.name: path.read_bytes() for path in (first / "comparison").iterdir()}
    out = tmp_path / "new/both"
    out.mkdir(parents=True)
    (out / "mine.svg").write_text("mine")
    text = compare([first, second], out=out)
    assert {path.name: path.read_bytes() for path in (first / "comparison").iterdir()} == before
    assert text.endswith(f"{out}/report.html")
    assert {"report.html", "runs.csv", "summary.csv", "mine.svg"} <= {p.name for p in out.iterdir()}
    assert list(pd.read_csv(out / "summary.csv").condition) == ["layernorm", "none"]


def test_one_rate_for_all_norms_is_the_first_finding_and_nothing_is_ranked(
    tmp_path: Path, write_sweep: Write
) -> None:
    text = compare(write_sweep(tmp_path, LOSSES))
    assert "ran at one learning rate, 0.003" in text
    command = "python train.py experiment=tune norm=batchnorm,layernorm,none seed=1,2,3"
    assert f"To tune the learning rate of each norm:\n{command}\n" in text
    words_of_a_verdict = r"supported|refuted|undecided|better|worse|wins|best norm|significant"
    page = (tmp_path / "comparison/report.html").read_text()
    words = re.sub(r"<svg.*?</svg>|<style.*?</style>", "", page, flags=re.DOTALL)
    assert not re.search(words_of_a_verdict, text + words)


def test_verdicts_come_first_where_rates_were_tuned(claims_sweep: Path) -> None:
    text = compare(claims_sweep)
    assert "at its own learning rate" in " ".join(text.split())
    assert text.index("Claims") < text.index("Comparison")
    page = (claims_sweep / "comparison/report.html").read_text()
    assert page.count("supported") >= 3
    assert "Loss against the learning rate" in page
    assert "arXiv:2003.07845" in page


def test_failed_runs_are_counted_by_kind_and_drawn(tmp_path: Path, write_sweep: Write) -> None:
    write_sweep(tmp_path, LOSSES)
    path = tmp_path / "none-s2-7/result.json"
    lost = {"status": "diverged", "val_final": None, "test_best": None, "steps": 90}
    path.write_text(json.dumps(json.loads(path.read_text()) | lost))
    text = compare(tmp_path)
    assert re.search(r"none \[\d\].*1 of 3 failed +1 non-finite", text)
    assert "Fisher's exact test" in text
    figure = (tmp_path / "comparison/differences.svg").read_text()
    assert "1 of 3 failed" in figure
    curves = (tmp_path / "comparison/loss_train_steps.svg").read_text()
    assert ">none<" in curves and ">(1 of 3 failed)<" in curves


@pytest.mark.slow
def test_three_hundred_runs_take_seconds_and_megabytes(tmp_path: Path, write_run: Write) -> None:
    """2000 logged rows each: asked for are 20 s and 1 GB."""
    rng = np.random.default_rng(1)
    for i in range(300):
        norm, seed = f"norm{i // 30:02}", i % 30
        train = zip(range(1, 2001), 2 + rng.random(2000), strict=True)
        rows: list[Any] = [(step, "loss/train", x) for step, x in train]
        write_run(tmp_path / f"{norm}-{seed}", norm, seed, 2 + rng.random() / 10, curves=rows)
    start = perf_counter()
    compare(tmp_path, baseline="norm00")
    assert perf_counter() - start < 20
    tracemalloc.start()
    judged_of(tmp_path, baseline="norm00")
    assert tracemalloc.get_traced_memory()[1] < 0.5e9
    tracemalloc.stop()
