"""What a reader gets: the console, the files and the page."""

import json
import re
import shlex
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

from report.compare import compare
from report.console import console_text
from report.group import build_study
from report.judge import judge
from report.notes import tuning_command
from report.read import read_runs
from report.study import build_study
from report.tables import readings
from tests.report.test_claims import sweep  # noqa: F401  a sweep at tuned rates with claims

Write = Callable[..., Path]
LOSSES = {
    "layernorm": [2.0, 2.1, 2.05], "batchnorm": [2.1, 2.25, 2.2], "none": [2.5, 2.6, 2.45]
}  # fmt: skip
VERDICT_WORDS = r"supported|refuted|undecided|better|worse|wins|best norm|significant"


def notes_of(folder: Path) -> str:
    return "\n".join(f"{note.text} {note.conditions}" for note in gather([folder]).notes)


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


def test_one_rate_for_all_norms_is_the_headline_and_nothing_is_ranked(
    tmp_path: Path, write_sweep: Write
) -> None:
    text = compare(write_sweep(tmp_path, LOSSES))
    assert "ran at one learning rate, 0.003" in text
    command = "python train.py experiment=tune norm=batchnorm,layernorm,none seed=1,2,3"
    assert f"To tune each:\n{command}\n" in text
    page = (tmp_path / "comparison/report.html").read_text()
    words = re.sub(r"<svg.*?</svg>|<style.*?</style>", "", page, flags=re.DOTALL)
    assert not re.search(VERDICT_WORDS, text + words)


def test_verdicts_stand_first_where_rates_were_tuned(sweep: Path) -> None:  # noqa: F811
    text = compare(sweep)
    assert "at its own learning rate" in text
    assert text.index("Claims") < text.index("Comparison")
    page = (sweep / "comparison/report.html").read_text()
    assert page.count("supported") >= 3
    assert "Loss against the learning rate" in page
    assert "arXiv:2003.07845" in page


def test_the_page_is_one_file_that_asks_for_nothing(tmp_path: Path, write_sweep: Write) -> None:
    compare(write_sweep(tmp_path, LOSSES))
    page = (tmp_path / "comparison/report.html").read_text()
    addresses = set(re.findall(r"https?://[^\s\"'<]+", page))
    assert addresses <= {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}
    assert not re.search(r"<(script|link|img|iframe)|@import|url\((?!#)", page)
    assert page.count("<svg") == len(list((tmp_path / "comparison").glob("*.svg")))
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    for used in re.findall(r'(?:url\(#|href="#)([^)"]+)', page):
        assert used in ids
    assert "prefers-color-scheme: dark" in page


def test_what_comes_from_a_run_cannot_break_the_page(tmp_path: Path, write_run: Write) -> None:
    evil = "<script>alert(1)</script> [bold]{{ 7*7 }} $x_1$"
    write_run(tmp_path / "a", evil, 1)
    write_run(tmp_path / "b", "layernorm", 1)
    text = compare(tmp_path)
    assert evil in " ".join(text.split())
    page = (tmp_path / "comparison/report.html").read_text()
    assert "<script" not in page
    assert "{{ 7*7 }}" in page


def test_footnotes_say_what_numbers_are_not(tmp_path: Path, write_run: Write) -> None:
    """A leak, few seeds, unequal steps, other machines, a resumed run, an unfinished one."""
    write_run(tmp_path / "l1", "layernorm", 1, result={"torch": "2.12.0", "dirty": True})
    write_run(tmp_path / "b1", "batchnorm", 1, result={"legs": 3, "threads": 2, "commit": "x"})
    write_run(tmp_path / "n1", "none", 1, trainer__max_steps=100, result={"device": "cuda:0"})
    (write_run(tmp_path / "n2", "none", 2) / "result.json").unlink()
    notes = notes_of(tmp_path)
    for said in (
        "The statistics of batchnorm include later characters while training",
        "Fewer than 3 seeds",
        "Not all trained equally long, in steps: batchnorm 200, layernorm 200, none 100",
        "Mixed devices: cpu, cuda:0",
        "Mixed torch versions",
        "Mixed thread counts: 2, 1",
        "Mixed commits",
        "not in any commit",
        "At least one run was resumed",
        "n2: unfinished",
    ):
        assert said in notes, said
    assert "['batchnorm']" in notes.splitlines()[1]


def test_a_clean_sweep_has_no_footnote_but_that_on_time(tmp_path: Path, write_run: Write) -> None:
    for norm in ("layernorm", "rmsnorm"):
        for seed in (1, 2, 3):
            write_run(tmp_path / f"{norm}{seed}", norm, seed, 2 + 0.1 * seed)
    assert len(gather([tmp_path]).notes) == 1


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


def test_a_failed_jobs_error_is_told(tmp_path: Path, write_sweep: Write) -> None:
    write_sweep(tmp_path, LOSSES)
    (tmp_path / "bad").mkdir()
    overrides = ["norm=batchnorm", "seed=4"]
    fields = {"status": "failed", "error": "more than 1 value per channel wanted", "seed": 4}
    result = fields | {"norm": "batchnorm", "overrides": overrides}
    (tmp_path / "bad/result.json").write_text(json.dumps(result))
    assert "more than 1 value per channel wanted" in notes_of(tmp_path)


def test_probes_are_drawn_by_name_by_layer_or_over_steps(tmp_path: Path, write_run: Write) -> None:
    """Those that say most; where there is none of these, whatever else was logged."""
    rows = [(s, f"probe/residual_rms/{i}", s + i) for s in (10, 20) for i in range(3)]
    other = [(s, f"probe/{n}", 1 / s) for s in (10, 20, 30) for n in ("leak", "batchnorm_gap")]
    for seed in (1, 2):
        write_run(tmp_path / f"a/{seed}", seed=seed, curves=rows + other)
        write_run(tmp_path / f"b/{seed}", seed=seed, curves=[r for r in other if "gap" in r[1]])
    for folder, names in (("a", ["leak", "residual_rms"]), ("b", ["batchnorm_gap"])):
        compare(tmp_path / folder)
        place = tmp_path / folder / "comparison"
        assert sorted(p.stem for p in place.glob("probe*.svg")) == [f"probe_{n}" for n in names]
    figure = (tmp_path / "a/comparison/probe_residual_rms.svg").read_text()
    assert "layer" in figure and "RMS of the residual stream" in figure


def test_batch_statistics_are_read_three_ways_side_by_side_only_where_there_are_any(
    tmp_path: Path, write_run: Write
) -> None:
    """The leak stands in the footnote on the training loss too, and all of it in the CSVs."""
    for seed, leak in ((1, 0.01), (2, 0.03)):
        write_run(tmp_path / f"l{seed}", "layernorm", seed)
        read = {"val_final": 2.5, "val_reestimated": 2.25, "val_batch": 2.125, "leak": leak}
        write_run(tmp_path / f"b{seed}", "batchnorm", seed, result=read)
    (tmp_path / "old").mkdir()
    write_run(tmp_path / "old/b1", "batchnorm", 1)  # made before there were readings
    content = gather([tmp_path])
    table = readings(content)
    assert table is not None
    assert table.columns[1:] == ["n", "running", "re-estimated", "batch", "leak"]
    assert [row[1:] for row in table.rows] == [["2", "2.500", "2.250", "2.125", "+0.0200"]]
    assert table.rows[0][0].startswith("batchnorm")
    text = " ".join(compare(tmp_path).split())
    assert "Batch statistics" in text
    assert "(the leak, nats per character at the end of training): batchnorm 0.02" in text
    page = (tmp_path / "comparison/report.html").read_text()
    assert "<h2>Batch statistics</h2>" in page and "re-estimated" in page
    summary = pd.read_csv(tmp_path / "comparison/summary.csv", index_col="condition")
    assert summary.val_batch.to_dict() == pytest.approx(
        {"batchnorm": 2.125, "layernorm": np.nan}, nan_ok=True
    )
    runs = pd.read_csv(tmp_path / "comparison/runs.csv", index_col="run")
    assert runs.leak[["b1", "b2"]].tolist() == [0.01, 0.03]
    assert "batchnorm" in notes_of(tmp_path / "old")
    assert readings(gather([tmp_path / "old"], baseline="batchnorm")) is None


def test_a_run_that_failed_to_learn_is_still_read_three_ways(
    tmp_path: Path, write_run: Write
) -> None:
    """By running statistics it has failed; with others it may not have. No reading, no part."""
    read = {"val_final": 3.5, "val_reestimated": 3.25, "val_batch": 2.0, "leak": 1.0}
    write_run(tmp_path / "b1", "batchnorm", 1, result=read)
    write_run(tmp_path / "b2", "batchnorm", 2, result={"status": "diverged", "val_final": None})
    content = gather([tmp_path], baseline="batchnorm")
    assert content.summary.failed["batchnorm"] == 2
    table = readings(content)
    assert table is not None
    assert table.rows[0][1:] == ["1 of 2", "3.500", "3.250", "2.000", "+1.0000"]


@pytest.mark.parametrize("norms", [1, 12])
def test_figures_name_their_units_and_tell_conditions_apart(
    norms: int, tmp_path: Path, write_sweep: Write
) -> None:
    names = [f"norm{i:02}" for i in range(norms)]
    compare(write_sweep(tmp_path, {name: [2.0, 2.1, 2.2] for name in names}), baseline="norm00")
    figure = (tmp_path / "comparison/loss_val_steps.svg").read_text()
    assert "validation loss (nats per character)" in figure
    assert "optimizer steps" in figure
    assert all(f">{name}<" in figure for name in names)


def test_looks_differ_between_conditions_and_not_between_figures() -> None:
    from report.style import looks

    conditions = [f"a{i}" for i in range(28)]
    assert len(set(looks(conditions).values())) == 28


def test_the_console_fits_a_narrow_terminal(
    tmp_path: Path, write_sweep: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = console_text(gather([write_sweep(tmp_path, LOSSES)])).splitlines()
    assert max(map(len, lines)) <= 80
    assert not [line for line in lines if "…" in line]
    (row,) = [line for line in lines if line.startswith("batchnorm")]
    assert row.split()[-1] == "0.003"


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
    gather([tmp_path], baseline="norm00")
    assert tracemalloc.get_traced_memory()[1] < 0.5e9
    tracemalloc.stop()


def test_the_tuning_command_is_the_sweeps_own_with_the_rates_left_to_it(
    tmp_path: Path, write_run: Write
) -> None:
    """Every other setting is in it, quoted for a shell, on lines that a terminal shows whole."""
    for number, placement in enumerate(("pre", "post")):
        config = {"model__placement": placement, "trainer__max_steps": 100}
        folder = write_run(tmp_path / f"a{number}", seed=3, optimizer__lr=1e-3, **config)
        overrides = yaml.safe_load((folder / ".hydra/overrides.yaml").read_text())
        overrides += ["data.path='my file.txt'", "~probes.callbacks.updates", "experiment=x"]
        result = json.loads((folder / "result.json").read_text()) | {"overrides": overrides}
        (folder / "result.json").write_text(json.dumps(result))
    command = tuning_command(build_study(read_runs([tmp_path]), "layernorm"))
    assert max(map(len, command.splitlines())) <= 80
    assert shlex.split(command.replace("\\\n", "")) == [
        *("python", "train.py", "experiment=tune", "norm=layernorm", "seed=3"),
        *("model.placement=pre,post", "trainer.max_steps=100"),
        *("data.path='my file.txt'", "~probes.callbacks.updates"),
    ]
