"""The cells that a reader sees."""

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from report.compare import compare
from report.notes import footnotes
from report.tables import all_tables, comparison, readings, seeds
from tests.report.conftest import judged_of

Write = Callable[..., Path]


def test_the_pairs_are_counted_where_they_are_fewer_than_the_seeds(
    tmp_path: Path, write_sweep: Write, write_run: Write
) -> None:
    write_sweep(tmp_path, {"layernorm": [2.0, 2.1, 2.2]})
    for seed in (2, 3, 4):
        write_run(tmp_path / f"none-s{seed}", "none", seed, 2.5 + 0.1 * seed)
    judged = judged_of(tmp_path)
    assert [row[1] for row in comparison(judged).rows] == ["3", "3 (2 pairs)"]
    (note,) = [note for note in footnotes(judged) if note.conditions == ["none"]]
    assert "over the 2 that both have. With fewer than 3 of them no interval can" in note.text


def test_every_seeds_own_value_is_on_the_page(tmp_path: Path, write_sweep: Write) -> None:
    write_sweep(tmp_path, {"layernorm": [2.0, 2.1], "none": [2.5, 3.9]})
    table = seeds(judged_of(tmp_path))
    assert table.columns == ["condition", "seed 1", "seed 2"]
    assert [row[1:] for row in table.rows] == [
        ["2.000", "2.100"],
        ["2.500", "failed to learn 3.900"],
    ]


def test_batch_statistics_are_read_three_ways_side_by_side_only_where_there_are_any(
    tmp_path: Path, write_run: Write
) -> None:
    """The leak is in the footnote on the training loss too, and all of it is in the CSV files."""
    for seed, leak in ((1, 0.01), (2, 0.03)):
        write_run(tmp_path / f"l{seed}", "layernorm", seed)
        read = {"val_final": 2.5, "val_reestimated": 2.25, "val_batch": 2.125, "leak": leak}
        write_run(tmp_path / f"b{seed}", "batchnorm", seed, result=read)
    (tmp_path / "old").mkdir()
    write_run(tmp_path / "old/b1", "batchnorm", 1)  # made before there were readings
    table = readings(judged_of(tmp_path))
    assert table is not None
    assert table.columns[1:] == ["n", "running", "re-estimated", "batch", "leak"]
    assert [row[1:] for row in table.rows] == [["2", "2.500", "2.250", "2.125", "+0.0200"]]
    assert table.rows[0][0].startswith("batchnorm")
    text = " ".join(compare(tmp_path).split())
    assert "Batch statistics" in text
    assert "(the leak, in nats per character at the end of training) is: batchnorm 0.02" in text
    page = (tmp_path / "comparison/report.html").read_text()
    assert "Batch statistics" in page and "re-estimated" in page
    summary = pd.read_csv(tmp_path / "comparison/summary.csv", index_col="condition")
    assert summary.val_batch.to_dict() == pytest.approx(
        {"batchnorm": 2.125, "layernorm": np.nan}, nan_ok=True
    )
    runs = pd.read_csv(tmp_path / "comparison/runs.csv", index_col="run")
    assert runs.leak[["b1", "b2"]].tolist() == [0.01, 0.03]
    old = judged_of(tmp_path / "old", baseline="batchnorm")
    assert any(note.conditions == ["batchnorm"] for note in footnotes(old))
    assert readings(old) is None


def test_a_run_that_failed_to_learn_is_still_read_three_ways(
    tmp_path: Path, write_run: Write
) -> None:
    """By running statistics it has failed; with others it may not have. It is not averaged."""
    read = {"val_final": 3.5, "val_reestimated": 3.25, "val_batch": 2.0, "leak": 1.0}
    write_run(tmp_path / "b1", "batchnorm", 1, result=read)
    write_run(tmp_path / "b2", "batchnorm", 2, result={"status": "diverged", "val_final": None})
    trained = {"val_reestimated": 2.1, "val_batch": 2.05, "leak": 0.5}
    for seed, batch in ((3, 2.0), (4, 2.1)):
        write_run(tmp_path / f"b{seed}", "batchnorm", seed, result=trained | {"val_batch": batch})
    content = judged_of(tmp_path, baseline="batchnorm")
    assert content.summary.failed["batchnorm"] == 2
    table = readings(content)
    assert table is not None
    assert [row[1:] for row in table.rows] == [
        ["2 of 4", "2.000", "2.100", "2.050", "+0.5000"],
        ["seed 1, failed to learn", "3.500", "3.250", "2.000", "+1.0000"],
    ]


def test_a_table_has_a_name_of_its_own_and_whole_rows(
    claims_sweep: Path,
) -> None:
    tables = all_tables(judged_of(claims_sweep, margin=0.02))
    names = [table.name for table in tables]
    assert names == ["claims", "comparison", "seeds", "rates", "losses", "plan", "settings"]
    for table in tables:
        assert all(len(row) == len(table.columns) for row in table.rows), table.name


def test_speed_is_in_no_table(tmp_path: Path, write_sweep: Write) -> None:
    """The times of jobs show the machine's load; the page says how to measure a norm's."""
    tables = all_tables(judged_of(write_sweep(tmp_path, {"layernorm": [2.0], "none": [2.5]})))
    words = " ".join(word for table in tables for word in [table.title, *table.columns])
    assert not re.search(r"second|/s|cost|speed", words, re.IGNORECASE)


def test_a_tuning_sweep_alone_compares_nothing(tmp_path: Path, write_run: Write) -> None:
    for rate in (1e-3, 2e-3):
        write_run(tmp_path / f"{rate}", "none", 101, 2 + rate, optimizer__lr=rate)
    names = [table.name for table in all_tables(judged_of(tmp_path))]
    assert names == ["rates", "settings"]
