"""Variables of job managers and of Lightning bend no run; CASES: inside a Slurm allocation."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from run.result import read_result
from tests.conftest import LOSSES

SLURM = {"JOB_ID": 1, "JOB_NAME": "train", "PROCID": 0, "LOCALID": 0, "NODEID": 0, "NTASKS": 4}
VARIABLES = {f"SLURM_{key}": str(value) for key, value in SLURM.items()}
VARIABLES |= {"RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "4", "MASTER_ADDR": "nowhere"}
VARIABLES |= {"PL_TRAINER_MAX_STEPS": "1", "PL_TRAINER_FAST_DEV_RUN": "1"}


def test_a_run_inside_a_cluster_is_the_run_outside_and_reads_and_writes_its_folder_only(
    tmp_path: Path, run: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkpoint of Slurm's in the current folder would be resumed by Lightning alone."""
    monkeypatch.chdir(tmp_path)
    straight = read_result(run(tmp_path / "plain", "trainer.max_steps=4"))
    stray = tmp_path / "hpc_ckpt_1.ckpt"
    stray.write_bytes((tmp_path / "plain" / "checkpoints" / "last.ckpt").read_bytes())
    for name, value in VARIABLES.items():
        monkeypatch.setenv(name, value)
    inside = read_result(run(tmp_path / "slurm", "trainer.max_steps=4"))
    assert {key: inside[key] for key in LOSSES} == {key: straight[key] for key in LOSSES}
    assert inside["legs"] == 1
    assert {path.name for path in tmp_path.iterdir()} == {"plain", "slurm", stray.name}
    assert {name: os.environ[name] for name in VARIABLES} == VARIABLES  # a launcher may need them
