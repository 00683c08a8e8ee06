"""The configuration, flat and as it is stored."""

import pkgutil
from pathlib import Path

import yaml
from omegaconf import OmegaConf

from run.configuration import flat, make_path_absolute
from run.stored import MOVED, read_stored


def test_flat_keeps_every_leaf_once() -> None:
    nested = {"a": {"b": {"c": 1}, "d": [1, 2]}, "e": None}
    assert flat(nested) == {"a.b.c": 1, "a.d": [1, 2], "e": None}


def test_a_target_that_has_moved_is_read_by_its_name_of_today(tmp_path: Path) -> None:
    """Wherever it is: as one of the probes, in a list; every name of today exists."""
    (tmp_path / ".hydra").mkdir()
    for old, new in MOVED.items():
        stored = {"probes": {"callbacks": {"mine": {"_target_": old}}}, "list": [{"_target_": old}]}
        (tmp_path / ".hydra" / "config.yaml").write_text(yaml.safe_dump(stored))
        found = read_stored(tmp_path, "config")
        assert found["probes"]["callbacks"]["mine"] == found["list"][0] == {"_target_": new}
        (tmp_path / ".hydra" / "overrides.yaml").write_text(f"- +probes.callbacks.x._target_={old}")
        assert read_stored(tmp_path, "overrides") == [f"+probes.callbacks.x._target_={new}"]
        assert pkgutil.resolve_name(new).__name__ == old.rpartition(".")[2]


def test_a_relative_path_is_taken_from_where_the_user_stood() -> None:
    cfg = OmegaConf.create({"data": {"path": ["a.txt", "/b.txt"]}})
    make_path_absolute(cfg, "/home/me")
    assert cfg.data.path == ["/home/me/a.txt", "/b.txt"]
    cfg = OmegaConf.create({"data": {"path": "../a.txt"}})
    make_path_absolute(cfg, "/home/me")
    assert cfg.data.path == "/home/a.txt"
