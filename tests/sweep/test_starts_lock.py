"""One sweep at a time holds a folder; on a system without file locks the program says so."""

import subprocess
import sys
from pathlib import Path

import pytest

from sweep.starts import hold
from tests.conftest import ROOT, here


def test_a_folder_in_which_a_sweep_is_running_is_refused_until_that_ends(tmp_path: Path) -> None:
    code = (
        f"from sweep.starts import *; hold(Path({str(tmp_path)!r})); print(1, flush=True); input()"
    )
    pipe = subprocess.PIPE
    other = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdin=pipe, stdout=pipe)
    assert other.stdout is not None
    assert other.stdout.readline() == b"1\n"
    with pytest.raises(ValueError, match="a sweep is running in"):
        hold(tmp_path)
    other.kill()
    other.communicate()
    hold(tmp_path)


@pytest.mark.parametrize("program", ["train.py", "at_init.py"])
def test_a_system_without_file_locks_is_refused_in_one_line(
    program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on Windows: there is no fcntl to import."""
    monkeypatch.setitem(sys.modules, "fcntl", None)
    for name in [name for name in sys.modules if name.split(".")[0] in ("sweep", "run")]:
        monkeypatch.delitem(sys.modules, name)
    message = str(here("norm=none", cwd=tmp_path, program=program))
    assert message.startswith("error: normlab runs on Linux and macOS only")
    assert "\n" not in message
    assert not list(tmp_path.iterdir())
