"""Whole processes, as a user starts them: a sweep, its TensorBoard, signals, kill -9, `make help`.

Each process costs seconds, so they are shared: one sweep for all norms, one with a failing job.
"""

import csv
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from job.folder import read_result
from tests.conftest import NORMS, ROOT

SMALL = ["model=mini", "data.batch_size=4", "data.block_size=16", "sample.max_new_tokens=5"]
TRAIN = [sys.executable, str(ROOT / "train.py")]


def start(*arguments: str, cwd: Path) -> subprocess.Popen[str]:
    """Start a program; through Popen, since a shell's & starts programs with SIGINT ignored."""
    pipe = subprocess.PIPE
    return subprocess.Popen(arguments, cwd=cwd, stdout=pipe, stderr=pipe, text=True)


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory, tiny_text: Path) -> Iterator[Path]:
    """Every norm with one seed, not from the repository, on a path to stumble over."""
    cwd = tmp_path_factory.mktemp("elsewhere")
    (cwd / "my file, [v2]=b.txt").write_bytes(tiny_text.read_bytes())
    overrides = ["norm=glob(*)", "seed=2", "trainer.max_steps=4", "eval_every=2", "log_every=1"]
    path = "data.path='my file, [v2]=b.txt'"
    process = start(*TRAIN, "-m", *SMALL, *overrides, path, "hydra.job.chdir=true", cwd=cwd)
    out, err = process.communicate()
    assert process.returncode == 0, err
    assert f"{len(NORMS)} jobs: {len(NORMS)} finished" in out
    assert "warn" not in err.lower()
    (folder,) = (cwd / "sweeps").iterdir()
    yield folder


def test_a_sweep_leaves_one_finished_flat_folder_a_job(sweep: Path) -> None:
    folders = sorted(path.parent for path in sweep.glob("*/result.json"))
    assert len(folders) == len(NORMS)
    for folder in folders:
        assert re.fullmatch(r"[A-Za-z0-9_.-]{1,60}", folder.name)
        result = read_result(folder)
        assert result["status"] == "finished"
        assert folder.name.startswith(f"{result['norm']}-s{result['seed']}-")
    assert {p.name for p in sweep.parent.parent.iterdir()} == {"sweeps", "my file, [v2]=b.txt"}


def test_tensorboard_serves_every_run_with_its_curves(sweep: Path) -> None:
    tensorboard = [sys.executable, "-m", "tensorboard.main", "--logdir", str(sweep), "--port", "0"]
    process = start(*tensorboard, "--load_fast", "false", cwd=sweep)
    try:
        assert process.stderr is not None
        for line in process.stderr:
            if found := re.search(r"http://[^/ ]+:\d+/", line):
                break
        assert found is not None

        def ask(path: str) -> dict[str, dict[str, object]]:
            with urllib.request.urlopen(found[0] + path) as answer:
                return json.load(answer)  # type: ignore[no-any-return]

        jobs = {path.parent.name for path in sweep.glob("*/result.json")}
        for _ in range(100):  # it reads the folders in the background
            tags = ask("data/plugin/scalars/tags")
            if tags.keys() == jobs and all("loss/val" in t for t in tags.values()):
                break
            time.sleep(0.2)
        assert tags.keys() == jobs
        assert all({"loss/train", "loss/val", "optim/lr"} <= t.keys() for t in tags.values())
        for job in jobs:
            points = ask(f"data/plugin/scalars/scalars?run={job}&tag=loss%2Fval")
            assert [point[1] for point in points] == [0, 2, 4]
    finally:
        process.terminate()
        process.communicate()


def test_one_failing_job_is_named_and_takes_no_other_with_it(
    tmp_path: Path, tiny_text: Path
) -> None:
    """BatchNorm alone has no variance over one token."""
    one = ["data.batch_size=1", "data.block_size=1", "trainer.max_steps=3", "hydra.sweep.dir=sw"]
    more = [*one, f"data.path={tiny_text}"]
    process = start(*TRAIN, "-m", *SMALL, "norm=layernorm,batchnorm,none", *more, cwd=tmp_path)
    out, _ = process.communicate()
    assert process.returncode == 1
    statuses = {
        p.parent.name: read_result(p.parent)["status"] for p in tmp_path.glob("sw/*/*.json")
    }
    assert statuses.pop("batchnorm-s1-1") == "failed"
    assert set(statuses.values()) == {"finished"}
    assert len(list(tmp_path.glob("sw/*/checkpoints/last.ckpt"))) == 2
    last = out.strip().splitlines()[-1]
    assert last.startswith("failed: ")
    assert " norm=batchnorm " in last
    assert "at least 2 tokens" in last
    assert "at least 2 tokens" in (tmp_path / "sw/batchnorm-s1-1/train.log").read_text()


LONG = ["trainer.max_steps=100", "eval_every=30", "log_every=1", "norm=batchnorm"]
LONG += ["trainer.accumulate_grad_batches=2"]


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory, tiny_text: Path) -> Path:
    """The run that nothing stops."""
    folder = tmp_path_factory.mktemp("straight")
    where = [f"data.path={tiny_text}", "hydra.run.dir=run", "model.dropout=0.2"]
    process = start(*TRAIN, *SMALL, *LONG, *where, cwd=folder)
    _, err = process.communicate()
    assert process.returncode == 0, err
    return folder / "run"


def steps(folder: Path) -> list[list[str]]:
    """The training curve."""
    with (folder / "metrics.csv").open() as file:
        return [row for row in csv.reader(file) if row[1] == "loss/train"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_sweep_that_is_stopped_at_any_moment_stops_and_its_run_goes_on_exactly(
    number: signal.Signals, tmp_path: Path, tiny_text: Path, straight: Path
) -> None:
    where = [f"data.path={tiny_text}", "hydra.sweep.dir=sw", "model.dropout=0.2", "seed=1,2"]
    process = start(*TRAIN, "-m", *SMALL, *LONG, *where, "data.num_workers=1", cwd=tmp_path)
    folder = tmp_path / "sw" / "batchnorm-s1-0"
    while not (folder / "checkpoints" / "last.ckpt").exists():
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(number)
    if number == signal.SIGINT:
        process.send_signal(number)  # users press Ctrl+C twice
    process.communicate()
    assert process.returncode == (-9 if number == signal.SIGKILL else 128 + number)
    assert [path.name for path in (tmp_path / "sw").glob("*/")] == [folder.name]
    saved = torch.load(folder / "checkpoints" / "last.ckpt", weights_only=True)["global_step"]
    if number != signal.SIGKILL:
        assert saved == read_result(folder)["steps"]  # nothing is lost, whatever the moment
    status = read_result(folder).get("status")
    assert status == (None if number == signal.SIGKILL else "interrupted")

    resumed = start(*TRAIN, f"resume={folder}", cwd=tmp_path)
    _, err = resumed.communicate()
    assert resumed.returncode == 0, err
    assert steps(folder) == steps(straight)
    weights = [
        torch.load(run / "checkpoints" / "last.ckpt", weights_only=True)["state_dict"]
        for run in (folder, straight)
    ]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[1])
    assert read_result(folder)["status"] == "finished"


def test_make_help_lists_the_targets() -> None:
    shown = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True)
    for target in ("train", "test", "check", "format", "lock", "clean"):
        assert f"make {target} " in shown.stdout
    assert os.access(ROOT / ".ci" / "run", os.X_OK)
