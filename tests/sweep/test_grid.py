"""The jobs of a sweep before any of them runs: their folders' names, and what is refused."""

from pathlib import Path

import pytest

from tests.conftest import ROOT, here
from tests.sweep.conftest import SMALL, contents


def test_other_settings_or_another_grid_are_refused_by_name_before_any_job_trains(
    tmp_path: Path, tiny_text: Path
) -> None:
    same = ["-m", *SMALL, f"data.path={tiny_text}", "hydra.sweep.dir=sw", "trainer.max_steps=2"]
    assert here(*same, "norm=layernorm,none", "seed=1,2", cwd=tmp_path) == 0
    (tmp_path / "sw" / "layernorm-s1-0" / ".hydra" / "overrides.yaml").unlink()  # as if not begun
    (tmp_path / "sw" / "layernorm-s1-0" / "result.json").unlink()
    before = contents(tmp_path)
    for changes, wanted in [
        (
            ["norm=layernorm,none", "seed=1,2", "log_every=1", "optimizer.lr=1"],
            "lr (was 0.003, now",
        ),
        (["norm=layernorm,none", "seed=1,2", "trainer.max_steps=4"], "steps (was 2, now 4)"),
        (["norm=layernorm,none", "seed=1,2,3"], "none-s1-2 holds a run with other settings: "),
        (["norm=layernorm,none", "seed=1,2,3"], "norm_name (was none, now layernorm), seed (was 1"),
    ]:
        message = str(here(*same, *changes, cwd=tmp_path))
        assert wanted in message
        assert message.count("\n") == 0
        assert contents(tmp_path) == before
    assert here(*same, "norm=layernorm,none,rmsnorm", "seed=1,2", cwd=tmp_path) == 0  # at the end
    assert len(list(tmp_path.glob("sw/*/result.json"))) == 6


def test_a_swept_placement_is_in_the_names_of_the_folders(tmp_path: Path) -> None:
    """Also where Hydra chooses the sweep's folder: seen to end with "HydraConfig was not set"."""
    missing = "data.path=/does/not/exist"
    assert here("-m", "model.placement=pre,post", "seed=1,2", missing, cwd=tmp_path) == 1
    names = sorted(path.name for path in tmp_path.glob("sweeps/*/*/"))
    post, pre = (f"layernorm-{placement}-s" for placement in ("post", "pre"))
    assert names == [f"{post}1-2", f"{post}2-3", f"{pre}1-0", f"{pre}2-1"]


@pytest.mark.parametrize("key", ["norm.eps=1e-3", "norm.momentum=null,0.1"])
def test_an_option_that_one_of_the_norms_lacks_is_refused_by_that_norms_name(
    key: str, tmp_path: Path
) -> None:
    message = str(here("-m", "norm=batchnorm,layernorm,none", key, cwd=tmp_path))
    lacking = "none" if "eps" in key else "layernorm, none"
    assert f"{key.partition('=')[0]} is not an option of norm={lacking};" in message
    assert "\n" not in message
    assert not list(tmp_path.glob("sweeps/*/*/"))


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (["hydra.sweep.subdir='${norm_name}/s${seed}'"], "a job's folder would be layernorm/s1;"),
        (["hydra.sweep.subdir='only'"], "gives one folder to several jobs"),
        (["hydra.sweep.subdir='${norm_name}'", "seed=1,2"], "gives one folder to several jobs"),
    ],
)
def test_jobs_whose_folders_no_table_would_find_are_refused_before_any_runs(
    arguments: list[str], wanted: str, tmp_path: Path
) -> None:
    message = str(here("-m", "norm=layernorm,none", *arguments, cwd=tmp_path))
    assert wanted in message and message.startswith("error: ") and "\n" not in message
    assert not list(tmp_path.glob("sweeps/*/*/"))


def test_a_norm_in_a_subfolder_is_refused_in_a_sweep_and_runs_alone_elsewhere(
    tmp_path: Path,
) -> None:
    own = tmp_path / "my" / "norm" / "own"
    own.mkdir(parents=True)
    (own / "mine.yaml").write_text((ROOT / "configs/norm/rmsnorm.yaml").read_text())
    given = ["--config-dir", str(tmp_path / "my"), "norm=layernorm,own/mine"]
    message = str(here("-m", *given, cwd=tmp_path))
    assert "a job's folder would be own/mine-s1-1;" in message


def test_experiments_that_are_sweeps_of_their_own_are_refused_as_values_of_a_sweep(
    tmp_path: Path,
) -> None:
    message = str(here("-m", "experiment=norms,tune", cwd=tmp_path))
    assert message.startswith("error: experiment=norms sets what Hydra does with a whole sweep")
    assert not list(tmp_path.glob("sweeps/*/*/"))


def test_a_job_without_a_result_is_named_and_ends_the_sweep_with_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("run.result.write_result", lambda *_: None)  # the disk swallowed it
    assert here("-m", "seed=1,2", "data.path=/no/text", "hydra.sweep.dir=sw", cwd=tmp_path) == 1
    lines = capfd.readouterr().out.splitlines()
    assert "without a result: layernorm-s1-0: seed=1 data.path=/no/text" in lines
    assert "without a result: layernorm-s2-1: seed=2 data.path=/no/text" in lines
