"""What is kept, when training stops by itself, and what the files hold then."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from lightning.pytorch.utilities.exceptions import SIGTERMException

from run.callbacks import AtomicCheckpointIO, Checkpoint, StopOnSignal
from run.folder import read_result
from run.loggers import MetricsCSV


def rows(folder: Path) -> list[list[str]]:
    """metrics.csv without its head."""
    lines = (folder / "metrics.csv").read_text().splitlines()
    assert lines[0] == "step,name,value"
    return [line.split(",") for line in lines[1:]]


def test_a_loss_that_is_not_finite_ends_the_run_as_diverged_with_the_last_finite_checkpoint(
    tmp_path: Path, run: Callable[..., Path]
) -> None:
    rate = ["norm=none", "optimizer.lr=1e4", "scheduler.warmup=0.9", "trainer.max_steps=400"]
    folder = run(tmp_path / "run", *rate, "eval_every=1")
    result = read_result(folder)
    assert result["status"] == "diverged"
    assert f"at step {result['steps'] + 1}" in result["error"] or "validation" in result["error"]
    assert 1 <= result["steps"] < 400
    assert result["val_final"] is result["test_final"] is None
    for name in ("last", "best"):
        state = torch.load(folder / "checkpoints" / f"{name}.ckpt", weights_only=True)
        assert all(value.isfinite().all() for value in state["state_dict"].values())
    assert not (folder / "sample.txt").exists()
    assert result["causal_in_training"] is True  # what logits that are not finite cannot tell
    losses = [row for row in rows(folder) if row[1] == "loss/train"]
    assert losses[-1][0] == str(result["steps"])  # every step up to the end is on disk


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


def test_checkpoints_hold_tensors_and_plain_types_under_plain_names(
    tmp_path: Path, run: Callable[..., Path]
) -> None:
    folder = run(tmp_path / "run", "trainer.max_steps=9")
    found = sorted(str(p.relative_to(folder)) for p in folder.rglob("*.ckpt"))
    assert found == ["checkpoints/best.ckpt", "checkpoints/last.ckpt"]
    state = torch.load(folder / "checkpoints" / "last.ckpt", weights_only=True)
    assert state["global_step"] == 9
    assert str(tmp_path) not in str({k: v for k, v in state.items() if k != "state_dict"})
    best = torch.load(folder / "checkpoints" / "best.ckpt", weights_only=True)
    result = read_result(folder)
    assert best["global_step"] == result["val_best_step"]
    assert best["callbacks"]["Checkpoint"]["val_best"] == result["val_best"]


def fake_trainer(saved: list[str], processed: int, accumulate: int = 3) -> SimpleNamespace:
    """As much of a trainer as Checkpoint looks at."""
    progress = SimpleNamespace(current=SimpleNamespace(processed=processed))
    return SimpleNamespace(
        fit_loop=SimpleNamespace(epoch_loop=SimpleNamespace(batch_progress=progress)),
        accumulate_grad_batches=accumulate,
        lightning_module=torch.nn.Linear(1, 1),
        save_checkpoint=lambda path: saved.append(path.name),
    )


@pytest.mark.parametrize(
    ("error", "processed", "expected"),
    [
        (SIGTERMException(), 6, ["last.ckpt"]),
        (SIGTERMException(), 7, []),  # inside an accumulation
        (RuntimeError(), 6, []),
        (FloatingPointError(), 6, []),
    ],
)
def test_only_a_signal_between_two_steps_saves_outside_an_evaluation(
    error: BaseException, processed: int, expected: list[str]
) -> None:
    saved: list[str] = []
    trainer = fake_trainer(saved, processed)
    Checkpoint(Path()).on_exception(trainer, trainer.lightning_module, error)
    assert saved == expected


def test_weights_that_are_not_finite_are_never_saved() -> None:
    saved: list[str] = []
    trainer = fake_trainer(saved, 6)
    torch.nn.init.constant_(trainer.lightning_module.weight, torch.nan)
    Checkpoint(Path()).on_exception(trainer, trainer.lightning_module, SIGTERMException())
    assert saved == []


def test_a_checkpoint_that_fails_to_write_leaves_the_earlier_one(tmp_path: Path) -> None:
    path = tmp_path / "checkpoints" / "last.ckpt"
    AtomicCheckpointIO().save_checkpoint({"step": 1}, path)
    with pytest.raises(AttributeError, match="pickle"):
        AtomicCheckpointIO().save_checkpoint({"step": lambda: 2}, path)
    assert AtomicCheckpointIO().load_checkpoint(path) == {"step": 1}
    assert [p.name for p in path.parent.iterdir()] == ["last.ckpt"]


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


def test_a_signal_is_only_noted_while_training_and_exits_before_and_after() -> None:
    stop = StopOnSignal()
    with pytest.raises(SystemExit) as left:
        stop.handle(2, None)
    assert left.value.code == 130
    stop.on_train_start(SimpleNamespace(), SimpleNamespace())
    stop.handle(15, None)
    assert stop.received == 15
    stop.on_train_end(SimpleNamespace(), SimpleNamespace())
    stop.handle(2, None)  # a second one does not disturb the saving
    assert stop.received == 15
    untouched = StopOnSignal()
    untouched.on_train_start(SimpleNamespace(), SimpleNamespace())
    untouched.on_train_end(SimpleNamespace(), SimpleNamespace())
    with pytest.raises(SystemExit) as left:
        untouched.handle(15, None)
    assert left.value.code == 143
