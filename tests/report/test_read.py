"""Run folders in, one row per run out; what is not a finished run is named and left out."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from report.read import read_runs

Write = Callable[..., Path]


def test_every_run_of_several_sweeps_is_read_once(tmp_path: Path, write_sweep: Write) -> None:
    one = write_sweep(tmp_path / "one", {"layernorm": [2.0, 2.1]})
    two = write_sweep(tmp_path / "two", {"none": [2.3]})
    runs = read_runs([one, two, one, one / "layernorm-s1-0"])
    assert sorted(runs.table.index) == ["layernorm-s1-0", "layernorm-s2-1", "none-s1-0"]
    assert runs.table.test_best["none-s1-0"] == 2.3
    assert runs.place == one


def test_runs_of_one_name_in_two_sweeps_are_kept_apart(tmp_path: Path, write_sweep: Write) -> None:
    folders = [write_sweep(tmp_path / name, {"none": [2.0]}) for name in ("a", "b")]
    assert list(read_runs(folders).table.index) == ["a/none-s1-0", "b/none-s1-0"]


def test_unfinished_and_foreign_folders_are_skipped_with_a_line(
    tmp_path: Path, write_sweep: Write, write_run: Write
) -> None:
    sweep = write_sweep(tmp_path / "s", {"layernorm": [2.0]})
    (write_run(sweep / "killed") / "result.json").unlink()
    (write_run(sweep / "torn") / "result.json").write_text('{"status": "fin')
    write_run(sweep / "stopped", result={"status": "interrupted"})
    for other in ("notes", "comparison", ".hydra_old"):
        (sweep / other).mkdir()
    runs = read_runs([sweep])
    assert len(runs.table) == 1
    assert sorted(runs.skipped) == [
        "killed: unfinished (still running, or killed)",
        "notes: not a run folder",
        "stopped: unfinished (interrupted)",
        "torn: result.json is damaged; run it again",
    ]


def test_a_job_that_stored_no_settings_takes_no_part_and_is_listed_with_its_error(
    tmp_path: Path, write_sweep: Write
) -> None:
    """Nobody knows its text or size: it names no condition and lends nothing."""
    sweep = write_sweep(tmp_path / "s", {"layernorm": [2.0, 2.1]})
    alone = read_runs([sweep])
    overrides = ["norm=none", "seed=1", "data.path=gone.txt", "model=baby"]
    result = {"status": "failed", "error": "no file gone.txt", "norm": "none", "seed": 1}
    (sweep / "none-s1-2").mkdir()
    text = json.dumps(result | {"overrides": overrides})
    (sweep / "none-s1-2/result.json").write_text(text)
    runs = read_runs([sweep])
    assert runs.unstarted == ["norm=none seed=1 data.path=gone.txt model=baby: no file gone.txt"]
    assert runs.flat == alone.flat and runs.typed == alone.typed
    assert list(runs.table.index) == list(alone.table.index)
    with pytest.raises(ValueError, match=r"no run in .* has ended \(.*: no file gone.txt\)"):
        read_runs([sweep / "none-s1-2"])


def test_nothing_to_read_is_a_mistake_on_one_line(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="nowhere is not a folder; give the folder of"):
        read_runs([tmp_path / "nowhere"])
    with pytest.raises(ValueError, match=r"no run in .* has ended"):
        read_runs([tmp_path])


def test_curves_are_read_and_a_row_cut_short_by_a_kill_is_not(
    tmp_path: Path, write_run: Write
) -> None:
    folder = write_run(tmp_path / "s/run")
    text = (
        "step,name,value\n0,loss/val,4.0\n10,loss/train,3.5\n10,loss/train,3.25\n20,loss/train,2."
    )
    (folder / "metrics.csv").write_text(text)
    curves = read_runs([tmp_path / "s"]).curves["run"]
    assert curves["loss/train"].dropna().to_dict() == {10: 3.25}
    (folder / "metrics.csv").unlink()
    assert read_runs([tmp_path / "s"]).curves["run"].empty
