"""One program at a time writes into a run folder; a file system may have no locks."""

import errno
import fcntl
import logging
import subprocess
import sys
from pathlib import Path

import pytest

from run.errors import Refused
from run.lock import locked
from tests.conftest import ROOT, here
from tests.sweep.conftest import SMALL, contents

HOLD = """
import sys
from run.lock import *
with locked(Path(sys.argv[1])):
    print(1, flush=True)
    input()
"""


def test_a_run_that_another_program_is_training_is_refused_and_stays_as_it_is(
    tmp_path: Path, tiny_text: Path
) -> None:
    """A new run in its folder, resuming it, and a sweep that has it as a job."""
    small = [*SMALL, f"data.path={tiny_text}", "trainer.max_steps=2"]
    assert here("-m", *small, "seed=1,2", "hydra.sweep.dir=sw", cwd=tmp_path) in (0, 1)
    folder = tmp_path / "sw" / "layernorm-s2-1"
    before = contents(tmp_path)
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", HOLD, str(folder)]
    other = subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe)
    assert other.stdout is not None and other.stdout.readline() == b"1\n"
    for arguments in (
        [f"resume={folder}", "trainer.max_steps=4"],
        [*small, f"hydra.run.dir={folder}"],
        ["-m", *small, "seed=1,2", "hydra.sweep.dir=sw"],
    ):
        message = str(here(*arguments, cwd=tmp_path))
        assert message.startswith(f"error: a run is being trained in {folder};")
        assert contents(tmp_path) == before
    other.communicate(b"\n")
    assert here(f"resume={folder}", "trainer.max_steps=4", cwd=tmp_path) == 0


def test_a_lock_is_released_at_the_end_of_its_run(tmp_path: Path) -> None:
    """Else a process that trains a hundred jobs would keep a hundred files open."""
    with locked(tmp_path / "run"):
        pass
    code = "import sys; from run.lock import *\nwith locked(Path(sys.argv[1])): pass"
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "run")], cwd=ROOT, check=True)


def test_a_file_system_without_locks_is_only_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "lockf", refuse)
    with caplog.at_level(logging.WARNING), locked(tmp_path):
        pass
    assert "has no locks; start nothing else in this folder meanwhile" in caplog.text


def test_a_lock_that_another_holds_is_a_refusal_on_every_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """POSIX lets a system say EACCES for it, or EAGAIN."""

    def refuse(*_: object) -> None:
        raise OSError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(fcntl, "lockf", refuse)
    with pytest.raises(Refused, match="is being trained"), locked(tmp_path):
        pass
