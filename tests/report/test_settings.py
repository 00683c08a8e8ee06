"""What was fixed for all runs."""

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from report.compare import compare
from report.settings import listed, settings, subtitle
from tests.report.conftest import judged_of, study_of

Write = Callable[..., Path]


def settings_of(*folders: Path) -> dict[str, str]:
    return {name: value for name, value in settings(judged_of(*folders)).rows}


def test_the_page_says_on_what_it_rests(tmp_path: Path, write_sweep: Write) -> None:
    write_sweep(tmp_path, {"layernorm": [2.0, 2.1]})
    told = settings_of(tmp_path)
    assert told["model"] == "placement=pre n_layer=2 block_size=64"
    assert told["batch"] == "batch_size=12 block_size=64"
    assert told["text"] == "corpus_sha256=0"
    assert told["schedule"] == "total_steps=200"
    assert (told["python"], told["torch"], told["lightning"]) == ("3.11", "2.13.0", "2.6.6")
    assert told["parameters"] == "100,000 (640 in norms): layernorm"
    assert (told["threads"], told["commit"], told["date"]) == ("1", "abc", "2026-01-01")
    compare(tmp_path)
    page = (tmp_path / "comparison/report.html").read_text()
    assert "batch_size=12 block_size=64" in page
    assert "2.6.6" in page


def test_a_setting_that_differs_is_told_with_its_values_and_a_condition_is_not_repeated(
    tmp_path: Path, write_run: Write
) -> None:
    """n_layer tells the conditions apart, so it is in their names; the versions do not."""
    write_run(tmp_path / "a", model__n_layer=2, result={"torch": "2.12.0", "dirty": True})
    write_run(tmp_path / "b", model__n_layer=4)
    told = settings_of(tmp_path)
    assert "n_layer" not in told["model"]
    assert told["torch"] == "2.12.0 or 2.13.0"
    assert told["commit"] == "abc with changes that are in no commit"


def test_many_values_are_cut_short() -> None:
    assert listed([1, 2, 2, float("nan")]) == "1 or 2"
    assert listed(range(9)) == "0 or 1 or 2 or 3 or others"


def test_parameters_are_grouped_by_their_number(tmp_path: Path, write_run: Write) -> None:
    write_run(tmp_path / "l", "layernorm")
    write_run(tmp_path / "b", "batchnorm")
    write_run(tmp_path / "n", "none", result={"params": 99_360, "norm_params": 0})
    sizes = "100,000 (640 in norms): layernorm, batchnorm; 99,360 (0 in norms): none"
    assert settings_of(tmp_path)["parameters"] == sizes


@pytest.mark.parametrize(
    ("hydra", "command"),
    [
        (["hydra.mode=MULTIRUN"], "python train.py -m norm=a,b 'data.path=my file'"),
        (["hydra.sweep.dir=x"], "python train.py norm=a,b 'data.path=my file' hydra.sweep.dir=x"),
    ],
)
def test_a_sweeps_own_command_is_told(
    hydra: list[str], command: str, tmp_path: Path, write_sweep: Write
) -> None:
    write_sweep(tmp_path, {"layernorm": [2.0, 2.1]})
    overrides = {"hydra": hydra, "task": ["norm=a,b", "data.path=my file"]}
    (tmp_path / "multirun.yaml").write_text(yaml.safe_dump({"hydra": {"overrides": overrides}}))
    assert settings_of(tmp_path)["command"] == command


def test_single_runs_tell_their_own_commands(tmp_path: Path, write_run: Write) -> None:
    write_run(tmp_path / "a", "layernorm", 1)
    write_run(tmp_path / "b", "none", 1)
    lines = settings_of(tmp_path)["command"].splitlines()
    assert lines == ["python train.py norm=layernorm seed=1", "python train.py norm=none seed=1"]
    for seed in range(2, 6):
        write_run(tmp_path / f"c{seed}", "none", seed)
    lines = settings_of(tmp_path)["command"].splitlines()
    assert len(lines) == 5 and lines[-1] == "and 2 more"


def test_the_subtitle_counts_runs_and_seeds(tmp_path: Path, write_sweep: Write) -> None:
    write_sweep(tmp_path / "x", {"layernorm": [2.0, 2.1], "none": [2.0, 2.1]})
    (tmp_path / "x/none-s2-3/result.json").unlink()
    assert subtitle(study_of(tmp_path / "x")) == "3 of 3 runs reported, 2 seeds, 200 steps; from x."
