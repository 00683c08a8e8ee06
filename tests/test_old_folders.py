"""Folders that the code of an earlier commit made are sampled, compared and resumed by this one.

`python -m pytest -m slow tests/test_old_folders.py` takes minutes: the earlier code runs in
processes of its own, from a `git worktree`. Reference: its undisturbed runs.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from run.result import read_result
from run.stored import MOVED
from tests.conftest import LOSSES, ROOT, here, rows, steps

COMMIT = "4b1dc0fc8c"  # the last one with job/
SMALL = ["model=mini", "data.batch_size=4", "model.dropout=0.2", "log_every=1", "eval_every=2"]
LINES = ["norm=batchnorm", "data=lines", "scheduler.total_steps=6"]
SWEEP = ["norm=layernorm,batchnorm", "data.block_size=16", "trainer.max_steps=3"]
SWEEP.append("hydra.sweep.dir=sw")

pytestmark = pytest.mark.slow


def train(program: Path, *arguments: str, cwd: Path) -> str:
    """Run a train.py in a process of its own, on one thread; returns what it prints."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}
    command = [sys.executable, str(program), *arguments, *SMALL, "data.path=text.txt"]
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory, tiny_text: Path) -> Iterator[Path]:
    """A folder with runs of the earlier code: `whole`, `stopped` after 4 of 6 steps, sweep `sw`."""
    place = tmp_path_factory.mktemp("old")
    git = ["git", "-C", str(ROOT), "worktree"]
    code = place / "code"
    made = subprocess.run([*git, "add", "--detach", str(code), COMMIT], capture_output=True)
    if made.returncode != 0:
        pytest.skip(f"the commit {COMMIT} is not in this copy of the repository")
    try:
        (place / "text.txt").write_bytes(tiny_text.read_bytes())
        program = code / "train.py"
        train(program, *LINES, "trainer.max_steps=6", "hydra.run.dir=whole", cwd=place)
        train(program, *LINES, "trainer.max_steps=4", "hydra.run.dir=stopped", cwd=place)
        (place / "stopped" / "result.json").unlink()  # as after kill -9
        train(program, "-m", "seed=1,2", *SWEEP, cwd=place)
        yield place
    finally:
        subprocess.run([*git, "remove", "--force", str(code)], check=True)


def test_an_old_run_is_sampled_to_the_text_that_it_wrote(
    old: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert here("whole", cwd=old, program="sample.py") == 0
    assert capfd.readouterr().out == (old / "whole" / "sample.txt").read_text() + "\n"


def test_an_old_run_that_was_stopped_is_resumed_to_the_losses_of_an_undisturbed_old_one(
    old: Path,
) -> None:
    stored = (old / "stopped" / ".hydra" / "config.yaml").read_text()
    assert all(name in stored for name in MOVED)  # what has moved since is mapped
    train(ROOT / "train.py", "resume=stopped", "trainer.max_steps=6", cwd=old)
    whole, stopped = read_result(old / "whole"), read_result(old / "stopped")
    assert {key: stopped[key] for key in LOSSES} == {key: whole[key] for key in LOSSES}
    assert (stopped["status"], stopped["legs"]) == ("finished", 2)
    assert steps(old / "stopped") == steps(old / "whole") and len(steps(old / "whole")) == 6
    states = [
        torch.load(old / name / "checkpoints" / "last.ckpt", weights_only=True)["state_dict"]
        for name in ("whole", "stopped")
    ]
    assert states[0].keys() == states[1].keys()
    assert all(torch.equal(value, states[1][name]) for name, value in states[0].items())


def test_an_old_sweep_is_compared_and_then_resumed_with_more_seeds(
    old: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert here("sw", cwd=old, program="compare.py") == 0
    assert "report.html" in capfd.readouterr().out
    first = {path: path.read_bytes() for path in old.glob("sw/*-s[12]-*/result.json")}
    assert len(first) == 4
    printed = train(ROOT / "train.py", "-m", "seed=1,2,3", *SWEEP, cwd=old)
    assert "6 jobs in sw, 4 of them have ended already" in printed
    assert "6 jobs: 6 finished" in printed
    assert {path: path.read_bytes() for path in first} == first
    added = {path.parent.name for path in old.glob("sw/*/result.json")} - {
        path.parent.name for path in first
    }
    assert added == {"layernorm-s3-4", "batchnorm-s3-5"}


@pytest.mark.parametrize("number", [0, 1])
def test_the_same_command_trains_to_the_same_bits_as_then(number: int, old: Path) -> None:
    norm = ["layernorm", "batchnorm"][number]
    then = old / "sw" / f"{norm}-s1-{number}"
    same = ["data.block_size=16", "trainer.max_steps=3", f"hydra.run.dir=again{number}"]
    train(ROOT / "train.py", f"norm={norm}", "seed=1", *same, cwd=old)
    again = old / f"again{number}"
    assert {key: read_result(again)[key] for key in LOSSES} == {
        key: read_result(then)[key] for key in LOSSES
    }
    timed = "speed/tokens_per_second"
    assert [row for row in rows(again) if row[1] != timed] == [
        row for row in rows(then) if row[1] != timed
    ]
