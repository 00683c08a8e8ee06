"""The run folder: what is stored at a start, and what a new start removes."""

from pathlib import Path

import yaml

from run.folder import tidy, write_start

CONFIG = {"data": {"path": "/home/me/my, file.txt"}, "seed": 1}


def contents(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_a_start_stores_the_run_with_an_absolute_path_and_makes_it_unfinished(
    tmp_path: Path,
) -> None:
    (tmp_path / "result.json").touch()
    write_start(tmp_path, CONFIG, ["seed=1", "data.path='my, file.txt'"], "{}")
    assert contents(tmp_path) == {"tokenizer.json", ".hydra/config.yaml", ".hydra/overrides.yaml"}
    assert yaml.safe_load((tmp_path / ".hydra/config.yaml").read_text()) == CONFIG
    stored = yaml.safe_load((tmp_path / ".hydra/overrides.yaml").read_text())
    assert stored == ["seed=1", "data.path='/home/me/my, file.txt'"]


def test_a_new_leg_keeps_the_curves_and_a_new_run_keeps_only_the_log(tmp_path: Path) -> None:
    write_start(tmp_path, CONFIG, ["seed=1"], "{}")
    (tmp_path / "checkpoints").mkdir()
    rest = {"checkpoints/last.ckpt", "metrics.csv", "events.out.1", "train.log"}
    for name in (*rest, "result.json", ".result.json.12"):
        (tmp_path / name).touch()
    tidy(tmp_path, anew=False)
    start = {"tokenizer.json", ".hydra/config.yaml", ".hydra/overrides.yaml"}
    assert contents(tmp_path) == rest | start
    tidy(tmp_path, anew=True)
    assert contents(tmp_path) == {"train.log"}
