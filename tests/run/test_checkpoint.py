"""When the state is saved, what a checkpoint holds, and when training stops by itself."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from lightning.pytorch.utilities.exceptions import SIGTERMException

from run.checkpoint import AtomicCheckpointIO, Checkpoint
from run.result import read_result
from tests.conftest import rows


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
    assert torch.load(path, weights_only=True) == {"step": 1}
    assert [p.name for p in path.parent.iterdir()] == ["last.ckpt"]
