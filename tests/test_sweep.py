"""Whole programs, as a user starts them: sweeps, signals, kill -9, `make help`.

A new process costs seconds: only what is printed, and joblib's, is one (`start`). What a signal
hits is a fork of this one (`forked`). What can, runs `train.py` here (`here`).
"""

import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from run.result import read_result
from tests.conftest import LOSSES, ROOT, forked, here, steps

SMALL = ["model=mini", "data.batch_size=4", "data.block_size=16", "sample.max_new_tokens=5"]
NORMS = ["layernorm", "batchnorm", "powernorm", "none"]
TRAIN = [sys.executable, str(ROOT / "train.py")]


def start(*arguments: str, cwd: Path) -> subprocess.Popen[str]:
    """Start a program; through Popen, since a shell's & starts programs with SIGINT ignored."""
    pipe = subprocess.PIPE
    return subprocess.Popen(arguments, cwd=cwd, stdout=pipe, stderr=pipe, text=True)


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory, tiny_text: Path) -> Iterator[Path]:
    """Some norms (docs/sweeps.md has all), not from the repository, on a path to stumble over."""
    cwd = tmp_path_factory.mktemp("elsewhere")
    (cwd / "my file, [v2]=b.txt").write_bytes(tiny_text.read_bytes())
    overrides = [
        f"norm={','.join(NORMS)}",
        "seed=2",
        "trainer.max_steps=4",
        "eval_every=2",
        "log_every=1",
    ]
    path = "data.path='my file, [v2]=b.txt'"
    process = start(*TRAIN, "-m", *SMALL, *overrides, path, "hydra.job.chdir=true", cwd=cwd)
    out, err = process.communicate()
    assert process.returncode == 0, err
    assert f"{len(NORMS)} jobs: {len(NORMS)} finished" in out
    assert "(to resume it: the same command with hydra.sweep.dir=sweeps/" in out
    assert len(re.findall(r"^ *\d+/\d+  ", out, re.MULTILINE)) == len(NORMS)
    assert "report.html" in out
    assert "warn" not in err.lower()
    (folder,) = (cwd / "sweeps").iterdir()
    yield folder


def test_a_sweep_leaves_one_finished_flat_folder_per_job(sweep: Path) -> None:
    folders = sorted(path.parent for path in sweep.glob("*/result.json"))
    assert len(folders) == len(NORMS)
    for folder in folders:
        assert re.fullmatch(r"[A-Za-z0-9_.-]{1,60}", folder.name)
        result = read_result(folder)
        assert result["status"] == "finished"
        assert folder.name.startswith(f"{result['norm']}-s{result['seed']}-")
    assert {p.name for p in sweep.parent.parent.iterdir()} == {"sweeps", "my file, [v2]=b.txt"}


LONG = ["trainer.max_steps=60", "eval_every=15", "log_every=1", "norm=batchnorm"]
LONG += ["trainer.accumulate_grad_batches=2", "model.dropout=0.2"]


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory, tiny_text: Path) -> Path:
    """The run that nothing stops."""
    folder = tmp_path_factory.mktemp("straight")
    where = [f"data.path={tiny_text}", "hydra.run.dir=run"]
    assert here(*SMALL, *LONG, *where, cwd=folder) == 0
    return folder / "run"


def assert_equal(folder: Path, straight: Path) -> None:
    """Curve, weights and losses are the same to the bit."""
    assert steps(folder) == steps(straight)
    weights = [
        torch.load(run / "checkpoints" / "last.ckpt", weights_only=True)["state_dict"]
        for run in (folder, straight)
    ]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[1])
    results = read_result(folder), read_result(straight)
    assert {k: results[0][k] for k in LOSSES} == {k: results[1][k] for k in LOSSES}
    assert results[0]["status"] == "finished"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_sweep_that_is_stopped_at_any_moment_is_resumed_exactly(
    number: signal.Signals, tmp_path: Path, tiny_text: Path, straight: Path
) -> None:
    where = [f"data.path={tiny_text}", "hydra.sweep.dir=sw", "seed=1,2", "data.num_workers=1"]
    command = ["-m", *SMALL, *LONG, *where]
    process = forked(*command, cwd=tmp_path)
    assert process.pid is not None
    folder = tmp_path / "sw" / "batchnorm-s1-0"
    while not (folder / "checkpoints" / "last.ckpt").exists():
        assert process.is_alive()
        time.sleep(0.01)
    os.kill(process.pid, number)
    if number == signal.SIGINT:
        os.kill(process.pid, number)  # users press Ctrl+C twice
    process.join()  # its data.num_workers notice a kill later, and do not stand in the way
    assert process.exitcode == (-9 if number == signal.SIGKILL else 128 + number)
    assert [path.name for path in (tmp_path / "sw").glob("*/")] == [folder.name]
    saved = torch.load(folder / "checkpoints" / "last.ckpt", weights_only=True)["global_step"]
    noted = {key: read_result(folder).get(key) for key in ("status", "steps")}
    killed = number == signal.SIGKILL
    stopped = {"status": "interrupted", "steps": saved}  # nothing is lost, whatever the moment
    assert noted == ({"status": None, "steps": None} if killed else stopped)
    one_run = number == signal.SIGTERM  # then only one run of the sweep is resumed
    assert here(*([f"resume={folder}"] if one_run else command), cwd=tmp_path) == 0
    other = read_result(tmp_path / "sw" / "batchnorm-s2-1").get("status")
    assert other == (None if one_run else "finished")
    assert_equal(folder, straight)


def test_jobs_side_by_side_stop_together_leave_no_orphan_and_are_resumed_exactly(
    tmp_path: Path, tiny_text: Path, straight: Path
) -> None:
    """Workers hold the pipes of their parent, so `communicate` waits for the last of them."""
    command = ["-m", *SMALL, *LONG, f"data.path={tiny_text}", "hydra.sweep.dir=sw", "seed=2,1"]
    command.append("data.num_workers=1")  # loky's own way to start processes cannot start these
    launcher = ["hydra/launcher=joblib", "hydra.launcher.n_jobs=2"]
    process = start(*TRAIN, *command, *launcher, cwd=tmp_path)
    folder = tmp_path / "sw" / "batchnorm-s1-1"
    while not (folder / "checkpoints" / "last.ckpt").exists():
        assert process.poll() is None
        time.sleep(0.01)
    process.terminate()
    process.communicate(timeout=20)
    assert process.returncode == 143
    assert not (folder / "result.json").exists()
    assert here(*command, cwd=tmp_path) == 0
    assert_equal(folder, straight)


@pytest.mark.slow
def test_a_sweep_killed_ten_times_ends_as_an_undisturbed_one(
    tmp_path: Path, tiny_text: Path
) -> None:
    """`pytest -m slow -s` shows when it was killed, and what was there."""
    command = [*TRAIN, "-m", *SMALL, f"data.path={tiny_text}", "model.dropout=0.2", "log_every=1"]
    command += ["norm=layernorm,batchnorm,none", "seed=1,2,3,4", "trainer.max_steps=300"]
    command += ["eval_every=25"]
    begun = time.monotonic()
    process = start(*command, "hydra.sweep.dir=whole", cwd=tmp_path)
    while not list(tmp_path.glob("whole/*/metrics.csv")):
        time.sleep(0.01)
    to_start = time.monotonic() - begun
    _, err = process.communicate()
    assert process.returncode == 0, err
    work = time.monotonic() - begun - to_start
    print(f"\nundisturbed: {to_start:.1f} s to the first step, {work:.1f} s of work")

    draw = random.Random(1)
    for kill in range(10):
        process = start(*command, "hydra.sweep.dir=killed", cwd=tmp_path)
        moment = draw.uniform(0.5 * to_start, to_start + 0.15 * work)
        with pytest.raises(subprocess.TimeoutExpired):  # it has not ended before
            process.communicate(timeout=moment)
        process.kill()
        process.communicate()
        ended = len(list(tmp_path.glob("killed/*/result.json")))
        print(f"kill {kill + 1} after {moment:.2f} s: {ended} of 12 jobs have ended")
    out, err = start(*command, "hydra.sweep.dir=killed", cwd=tmp_path).communicate()
    print(out)
    assert "12 jobs: 12 finished" in out, err
    for folder in sorted(path.parent for path in tmp_path.glob("whole/*/result.json")):
        assert_equal(tmp_path / "killed" / folder.name, folder)
        print(folder.name, {key: read_result(folder)[key] for key in LOSSES[3:7]}, "equal")
    assert not [path for path in tmp_path.rglob(".*.*") if path.is_file()]


@pytest.mark.slow
def test_every_way_to_start_python_starts_the_programs(tmp_path: Path, tiny_text: Path) -> None:
    """Without docstrings, by a link, beside packages named as our folders are, in ASCII."""
    for name in ("data", "model", "report", "run", "sweep"):
        (tmp_path / "other" / name).mkdir(parents=True)
        (tmp_path / "other" / name / "__init__.py").touch()
    for name in ("train.py", "sample.py", "compare.py", "at_init.py"):
        (tmp_path / name).symlink_to(ROOT / name)
    where = {"PYTHONPATH": str(tmp_path / "other"), "PYTHONIOENCODING": "ascii"}
    small = [*SMALL, f"data.path={tiny_text}", "trainer.max_steps=2"]
    for program, *arguments in (
        ["train.py", "-m", *small, "seed=1,2,3", "norm=layernorm,none", "hydra.sweep.dir=sw"],
        ["sample.py", "sw/none-s1-1", "--max-new-tokens", "5"],
        ["compare.py", "sw"],
        ["at_init.py", "norms=[none]", "depths=[2]", "model=mini", f"data.path={tiny_text}"],
    ):
        command = [sys.executable, "-OO", "-P", program, *arguments]
        done = subprocess.run(command, cwd=tmp_path, env=os.environ | where, capture_output=True)
        assert done.returncode == 0, done.stderr
        assert done.stdout.isascii()


def test_make_help_lists_the_targets() -> None:
    shown = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True)
    for target in ("train", "test", "check", "format", "lock", "clean"):
        assert f"make {target} " in shown.stdout
    assert os.access(ROOT / ".ci" / "run", os.X_OK)
