"""A file is replaced whole or not at all; what a killed process left is removed."""

import errno
import os
from pathlib import Path

import pytest

from run.files import remove_temporary, replace_file


def test_replacing_a_file_that_fails_half_way_leaves_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "last.ckpt"
    path.write_bytes(b"old")
    with pytest.raises(RuntimeError), replace_file(path) as file:
        file.write(b"half")
        raise RuntimeError
    assert path.read_bytes() == b"old"
    with replace_file(path) as file:
        file.write(b"new")
    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]


def test_only_temporary_files_are_removed(tmp_path: Path) -> None:
    (tmp_path / ".hydra").mkdir()
    for name in (".result.json.123", ".hydra/.config.yaml.9", ".lock", "result.json", "a.1"):
        (tmp_path / name).touch()
    remove_temporary(tmp_path)
    left = {str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file()}
    assert left == {".lock", "result.json", "a.1"}


def test_a_file_system_without_fsync_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(handle: int) -> None:
        raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(os, "fsync", refuse)
    with replace_file(tmp_path / "result.json", "w") as file:
        file.write("{}")
    assert (tmp_path / "result.json").read_text() == "{}"
