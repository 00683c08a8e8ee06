"""What a sweep does around its jobs, and its lines on the console. All in this process."""

import os
import time
from pathlib import Path

import pytest

from run.result import read_result, write_result
from sweep.callback import Sweep
from tests.conftest import here
from tests.sweep.conftest import SMALL, contents


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
    assert len(lines) == 6  # one line per job, the counts, and the failure
    assert lines[-1].startswith("failed: ")
    assert " data.path=b.txt: " in lines[-1]

    before = [contents(folder) for folder in done]
    (tmp_path / "b.txt").write_bytes(tiny_text.read_bytes())
    assert here(*command, cwd=tmp_path) == 0
    assert [contents(folder) for folder in done] == before
    assert read_result(failed)["val_final"] == read_result(done[0])["val_final"]
    lines = capfd.readouterr().out.splitlines()
    assert lines[0] == "3 jobs in sw, 2 of them have ended already"
    assert lines[1].startswith("3/3  layernorm-s1-1 ")
    assert len(lines) == 3
