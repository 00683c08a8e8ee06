"""What a sweep does with what is in its folder; its lines on the console. All in this process."""

import math
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from omegaconf import DictConfig

from run.result import read_result, write_result
from sweep.callback import Sweep
from tests.conftest import LOSSES, ROOT, here, steps

SMALL = ["model=mini", "data.batch_size=4", "data.block_size=16", "sample.max_new_tokens=5"]
SMALL.append("probes=none")


@pytest.fixture(autouse=True)
def no_report(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a sweep's end writes is tests/report's and tests/test_sweep.py's business."""
    monkeypatch.setattr(Sweep, "compare", lambda self, norms: True)


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
        assert take_up(cfg, tmp_path) == expected
        assert cfg.resume is None
    assert not (tmp_path / "result.json").exists()  # else a second failure would not be told
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "last.ckpt").touch()
    assert take_up(cfg, tmp_path) is None
    assert cfg.resume == str(tmp_path / "checkpoints" / "last.ckpt")


def test_a_jobs_line_counts_what_had_ended_and_tells_the_time_from_what_this_command_did(
    tmp_path: Path,
) -> None:
    callback = Sweep()
    callback.folder, callback.total, callback.before = tmp_path, 12, 4
    callback.started = time.time() - 60
    for number in range(8):
        folder = tmp_path / f"none-s1-{number}"
        folder.mkdir()
        status = "failed" if number == 3 else "finished"
        write_result(folder, {"status": status, "val_final": 1.23456, "error": "no file x"})
        if number < 5:  # of an earlier command; one of them is to be retried yet
            os.utime(folder / "result.json", (0, callback.started - 1))
    line = callback.line(tmp_path / "none-s1-7")
    assert line.split() == " 7/12 none-s1-7 finished validation 1.2346 nats/char 100 s left".split()
    callback.side_by_side = 4  # three of four have ended: the others are as far
    assert callback.line(tmp_path / "none-s1-7").endswith("  75 s left")
    callback.total = 7
    assert callback.line(tmp_path / "none-s1-3").endswith("failed    no file x")


def test_a_folder_in_which_a_sweep_is_running_is_refused_until_that_ends(tmp_path: Path) -> None:
    code = f"from sweep.callback import *; hold(Path({str(tmp_path)!r})); print(1, flush=True); input()"
    pipe = subprocess.PIPE
    other = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdin=pipe, stdout=pipe)
    assert other.stdout is not None
    assert other.stdout.readline() == b"1\n"
    with pytest.raises(Refused, match="a sweep is running in"):
        hold(tmp_path)
    other.kill()
    other.communicate()
    hold(tmp_path)


def contents(folder: Path) -> dict[Path, bytes]:
    """Every file in it, but what Hydra and the log add to at each start."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {p: p.read_bytes() for p in files if p.name not in ("multirun.yaml", "train.log")}


def test_one_failing_job_is_named_takes_no_other_with_it_and_is_retried(
    tmp_path: Path, tiny_text: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    command = ["-m", *SMALL, "trainer.max_steps=3", "data.path=a.txt,b.txt,c.txt"]
    command.append("hydra.sweep.dir=sw")
    for name in ("a.txt", "c.txt"):
        (tmp_path / name).write_bytes(tiny_text.read_bytes())
    assert here(*command, cwd=tmp_path) == 1
    done = [tmp_path / "sw" / f"layernorm-s1-{n}" for n in (0, 2)]
    failed = tmp_path / "sw" / "layernorm-s1-1"
    assert [read_result(folder)["status"] for folder in done] == ["finished", "finished"]
    assert read_result(failed)["status"] == "failed"
    assert "Traceback" in (failed / "train.log").read_text()
    lines = capfd.readouterr().out.splitlines()
    starts = [
        "3 jobs in sw",
        "1/3  layernorm-s1-0 ",
        "2/3  layernorm-s1-1 ",
        "3/3  layernorm-s1-2 ",
    ]
    assert [line[: len(start)] for line, start in zip(lines, starts, strict=False)] == starts
    assert len(lines) == 6  # a line a job, counts, and the failure
    assert lines[-1].startswith("failed: ")
    assert " data.path=b.txt: " in lines[-1]

    before = [contents(folder) for folder in done]
    (tmp_path / "b.txt").write_bytes(tiny_text.read_bytes())
    assert here(*command, cwd=tmp_path) == 0
    assert [contents(folder) for folder in done] == before
    assert read_result(failed)["val_final"] == read_result(done[0])["val_final"]
    lines = capfd.readouterr().out.splitlines()
    assert lines[0] == "3 jobs in sw, 2 of them ended already"
    assert lines[1].startswith("3/3  layernorm-s1-1 ")
    assert len(lines) == 3


def test_other_settings_or_another_grid_are_refused_by_name_before_any_job_trains(
    tmp_path: Path, tiny_text: Path
) -> None:
    same = ["-m", *SMALL, f"data.path={tiny_text}", "hydra.sweep.dir=sw", "trainer.max_steps=2"]
    assert here(*same, "norm=layernorm,none", "seed=1,2", cwd=tmp_path) == 0
    (tmp_path / "sw" / "layernorm-s1-0" / ".hydra" / "overrides.yaml").unlink()  # as if not begun
    (tmp_path / "sw" / "layernorm-s1-0" / "result.json").unlink()
    before = contents(tmp_path)
    for changes, wanted in [
        (
            ["norm=layernorm,none", "seed=1,2", "log_every=1", "optimizer.lr=1"],
            "lr (was 0.003, now",
        ),
        (["norm=layernorm,none", "seed=1,2", "trainer.max_steps=4"], "steps (was 2, now 4)"),
        (["norm=layernorm,none", "seed=1,2,3"], "none-s1-2 holds a run with other settings: "),
        (["norm=layernorm,none", "seed=1,2,3"], "norm_name (was none, now layernorm), seed (was 1"),
    ]:
        message = str(here(*same, *changes, cwd=tmp_path))
        assert wanted in message
        assert message.count("\n") == 0
        assert contents(tmp_path) == before
    assert here(*same, "norm=layernorm,none,rmsnorm", "seed=1,2", cwd=tmp_path) == 0  # at the end
    assert len(list(tmp_path.glob("sw/*/result.json"))) == 6


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


def test_a_job_killed_at_any_point_goes_on_to_the_same_result(
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


def test_a_swept_placement_is_in_the_names_of_the_folders(tmp_path: Path) -> None:
    missing = ["data.path=/does/not/exist", "hydra.sweep.dir=sw"]
    assert here("-m", "model.placement=pre,post", "seed=1,2", *missing, cwd=tmp_path) == 1
    names = sorted(path.name for path in tmp_path.glob("sw/*/"))
    post, pre = (f"layernorm-{placement}-s" for placement in ("post", "pre"))
    assert names == [f"{post}1-2", f"{post}2-3", f"{pre}1-0", f"{pre}2-1"]


@pytest.mark.parametrize("key", ["norm.eps=1e-3", "norm.momentum=null,0.1"])
def test_an_option_that_one_of_the_norms_lacks_is_refused_by_that_norms_name(
    key: str, tmp_path: Path
) -> None:
    message = str(here("-m", "norm=batchnorm,layernorm,none", key, cwd=tmp_path))
    lacking = "none" if "eps" in key else "layernorm, none"
    assert f"{key.partition('=')[0]} is no option of norm={lacking};" in message
    assert "\n" not in message
    assert not list(tmp_path.glob("sweeps/*/*/"))
