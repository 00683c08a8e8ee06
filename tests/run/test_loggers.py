"""The curves in metrics.csv: which points there are, and what resuming removes."""

from collections.abc import Callable
from pathlib import Path

import pytest

from run.loggers import MetricsCSV
from run.result import read_result
from tests.conftest import rows


def test_a_run_of_five_steps_has_every_curve(tmp_path: Path, run: Callable[..., Path]) -> None:
    folder = run(tmp_path / "run", "trainer.max_steps=5", "log_every=10")
    names = {row[1] for row in rows(folder) if row[0] == "5" and "probe/" not in row[1]}
    speed = "speed/tokens_per_second"
    assert names == {"loss/train", "loss/val", "optim/lr", "optim/grad_norm", "tokens", speed}
    assert ["0", "loss/val"] in [row[:2] for row in rows(folder)]  # at initialization
    assert [row[2] for row in rows(folder) if row[1] == "tokens"] == [str(5.0 * 4 * 16)]


def test_evaluations_come_every_eval_every_optimizer_steps_and_after_the_last(
    tmp_path: Path, run: Callable[..., Path]
) -> None:
    accumulate = "trainer.accumulate_grad_batches=3"
    folder = run(tmp_path / "run", accumulate, "trainer.max_steps=10", "eval_every=4")
    assert [row[0] for row in rows(folder) if row[1] == "loss/val"] == ["0", "4", "8", "10"]
    result = read_result(folder)
    assert result["tokens"] == 10 * 3 * 4 * 16


def test_the_rate_warms_up_and_reaches_its_floor_in_optimizer_steps(
    tmp_path: Path, run: Callable[..., Path]
) -> None:
    accumulate = "trainer.accumulate_grad_batches=4"
    folder = run(tmp_path / "run", accumulate, "trainer.max_steps=20", "scheduler.warmup=0.1")
    rates = [float(row[2]) for row in rows(folder) if row[1] == "optim/lr"]
    assert rates[:2] == pytest.approx([0.0015, 0.003])
    assert rates[-1] == pytest.approx(0.0003)
    assert rates[1:] == sorted(rates[1:], reverse=True)


def test_metrics_csv_cuts_what_came_after_the_checkpoint_and_appends(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    path.write_text("step,name,value\n1,loss/train,3.0\n2,loss/train,2.0\n3,loss/train,1.")
    logger = MetricsCSV(path, start=2)
    assert path.read_text().endswith("1.")  # nothing is cut before there is something to write
    logger.log_metrics({"loss/train": 1.5, "optim/lr": 0.1}, step=3)
    assert rows(tmp_path) == [
        ["1", "loss/train", "3.0"],
        ["2", "loss/train", "2.0"],
        ["3", "loss/train", "1.5"],
        ["3", "optim/lr", "0.1"],
    ]
