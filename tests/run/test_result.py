"""result.json is strict JSON that no failure replaces; the last lines on the console."""

import json
import math
import subprocess
from pathlib import Path

import pytest

from run import tensorboard
from run.errors import Refused
from run.result import close_failed, closing_block, commit, environment, read_result, write_result
from tests.conftest import ROOT


def test_result_json_is_strict_json_and_comes_back(tmp_path: Path) -> None:
    write_result(tmp_path, {"val_best": math.inf, "test_final": math.nan, "steps": 3, "e": "é"})
    text = (tmp_path / "result.json").read_text("utf-8")
    assert "NaN" not in text
    assert "Infinity" not in text
    assert read_result(tmp_path) == {"val_best": None, "test_final": None, "steps": 3, "e": "é"}
    assert read_result(tmp_path / "unfinished") == {}


def test_environment_names_the_versions_and_the_commit() -> None:
    found = environment()
    assert found["torch"].startswith("2.")
    assert found.keys() == {"python", "torch", "lightning", "commit", "dirty", "no_commit"}
    assert json.dumps(found)


def test_a_failure_is_written_but_never_over_a_result(tmp_path: Path) -> None:
    close_failed(tmp_path, {"norm_name": "none", "seed": 1}, ["seed=1"], ValueError("a\nb"))
    failed = read_result(tmp_path)
    assert (failed["status"], failed["error"], failed["overrides"]) == ("failed", "a b", ["seed=1"])
    write_result(tmp_path, {"status": "finished"})
    close_failed(tmp_path, {}, [], ValueError("again"))
    assert read_result(tmp_path) == {"status": "finished"}


def test_the_closing_block_shows_nats_and_bits_and_leaves_out_what_was_not_measured(
    tmp_path: Path,
) -> None:
    result = {
        "norm": "none",
        "seed": 2,
        "status": "diverged",
        "error": "training loss is nan at step 7",
        "steps": 6,
        "seconds": 1.0,
        "tokens_per_second": 1234.5,
        "val_final": math.nan,
        "test_final": math.nan,
        "train_final": math.nan,
        "val_best": math.log(2) * 3,
        "val_best_step": 5,
    }
    block = closing_block(result, tmp_path)
    assert "norm=none seed=2: diverged after 6 steps" in block
    assert "training loss is nan at step 7" in block
    assert "best evaluation (step 5)        2.0794      3.0000" in block
    assert "nan " not in block.replace("is nan at", "")
    assert "sample.py" not in block  # no checkpoint to sample from


def test_a_refusal_leaves_the_run_in_its_folder_as_it_is(tmp_path: Path) -> None:
    close_failed(tmp_path, {}, [], Refused("it holds another run"))
    assert not list(tmp_path.iterdir())


def test_a_copy_inside_another_repository_has_no_commit_and_says_why(tmp_path: Path) -> None:
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "theirs"], check=True)
    copy = tmp_path / "normlab"
    copy.mkdir()
    (copy / "train.py").touch()
    found = commit(copy)
    assert (found["commit"], found["dirty"]) == (None, None)
    assert found["no_commit"] == f"this copy lies inside another repository, {tmp_path}"
    own = commit(tmp_path)
    assert len(own["commit"]) == 40 and own["no_commit"] is None and own["dirty"] is True


def test_git_is_not_led_elsewhere_by_the_variables_of_a_hook(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "other"))
    assert commit(ROOT)["no_commit"] is None or "no repository" in commit(ROOT)["no_commit"]


def test_the_marker_of_an_ended_run_is_written_after_its_row_in_tensorboard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        tensorboard, "write_row", lambda *_: seen.append((tmp_path / "result.json").exists())
    )
    seen: list[bool] = []
    close_failed(tmp_path, {"norm_name": "none", "seed": 1}, [], ValueError("x"))
    assert seen == [False] and (tmp_path / "result.json").exists()
