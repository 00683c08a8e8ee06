"""What a job of a sweep does with what an earlier start left in its folder."""

import math
from collections.abc import Callable
from pathlib import Path

import torch
from omegaconf import DictConfig

from run.result import read_result, write_result
from sweep.starts import earlier_loss
from tests.conftest import LOSSES, here, steps
from tests.sweep.conftest import SMALL, contents


def test_a_job_that_ended_gives_its_stored_loss_and_any_other_is_to_run(
    tmp_path: Path, compose_config: Callable[..., DictConfig]
) -> None:
    cfg = compose_config()
    for status, loss, expected in [
        ("finished", 1.5, 1.5),
        ("diverged", 2.5, 2.5),
        ("diverged", None, math.inf),  # before the first evaluation
        ("interrupted", 1.5, None),
        ("failed", None, None),
    ]:
        write_result(tmp_path, {"status": status, "val_best": loss})
        assert earlier_loss(cfg, tmp_path) == expected
        assert cfg.resume is None
    assert not (tmp_path / "result.json").exists()  # else a second failure would not be told
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "tokenizer.json").write_text('{"model": {"vocab": {"a": 0}}}')
    state = {"state_dict": {}, "global_step": 1, "loops": {}, "callbacks": {}}
    torch.save(state, tmp_path / "checkpoints" / "last.ckpt")
    assert earlier_loss(cfg, tmp_path) is None
    assert cfg.resume == str(tmp_path / "checkpoints" / "last.ckpt")


def test_a_diverged_job_is_a_result_that_is_not_run_again(tmp_path: Path, tiny_text: Path) -> None:
    command = ["-m", *SMALL, f"data.path={tiny_text}", "hydra.sweep.dir=sw", "norm=none"]
    command += ["optimizer.lr=1e4,1e-3", "scheduler.warmup=0.9", "trainer.max_steps=400"]
    command += ["eval_every=100"]
    assert here(*command, cwd=tmp_path) == 0
    before = contents(tmp_path)
    assert [read_result(tmp_path / "sw" / f"none-s1-{n}")["status"] for n in (0, 1)] == [
        "diverged",
        "finished",
    ]
    assert here(*command, cwd=tmp_path) == 0
    assert contents(tmp_path) == before


def killed_before_the_result(folder: Path) -> None:
    """The last checkpoint is there, a file beside it half written."""
    (folder / "result.json").unlink()
    (folder / ".result.json.123").write_text('{"status": "fini')


def killed_before_a_checkpoint(folder: Path) -> None:
    """Some rows are there, and a best checkpoint that the last one did not follow."""
    (folder / "result.json").unlink()
    (folder / "checkpoints" / "last.ckpt").unlink()
    (folder / "checkpoints" / ".last.ckpt.123").write_bytes(b"half")


def killed_at_the_start(folder: Path) -> None:
    """Half of what a run stores of itself."""
    for path in [*folder.glob("*.*"), *folder.glob("checkpoints/*")]:
        if path.is_file() and path.name != "train.log":
            path.unlink()
    (folder / ".hydra" / "overrides.yaml").unlink()
    (folder / ".hydra" / ".overrides.yaml.123").touch()


def copied_in_part(folder: Path) -> None:
    """A result that is not whole."""
    (folder / "result.json").write_text('{"status": "finished", "val_')


def test_a_job_killed_at_any_point_is_resumed_to_the_same_result(
    tmp_path: Path, tiny_text: Path
) -> None:
    command = ["-m", *SMALL, f"data.path={tiny_text}", "model.dropout=0.2", "hydra.sweep.dir=sw"]
    command += ["norm=batchnorm", "trainer.max_steps=6", "eval_every=2", "log_every=1"]
    assert here(*command, cwd=tmp_path) == 0
    (folder,) = tmp_path.glob("sw/*/")
    straight, curve, files = read_result(folder), steps(folder), set(contents(folder))
    for damage in (
        killed_before_the_result,
        killed_before_a_checkpoint,
        killed_at_the_start,
        copied_in_part,
    ):
        damage(folder)
        assert here(*command, cwd=tmp_path) == 0
        again = read_result(folder)
        assert {key: again[key] for key in LOSSES} == {key: straight[key] for key in LOSSES}
        assert steps(folder) == curve
        events = {path for path in contents(folder) if path.name.startswith("events")}
        assert set(contents(folder)) - events == {p for p in files if "events" not in p.name}
