"""Stopping and going on gives what a straight run gives, bit for bit."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from omegaconf import DictConfig

from job.folder import resume_arguments
from tests.conftest import NORMS
from train import train

SMALL = [
    "model=mini",
    "model.dropout=0.2",
    "data.batch_size=4",
    "data.block_size=16",
    "log_every=1",
]


def small(tiny_text: Path, *more: str) -> list[str]:
    """A run of seconds, with dropout."""
    return [*SMALL, f"data.path={tiny_text}", "eval_every=8", "scheduler.total_steps=40", *more]


def weights(folder: Path, name: str = "last") -> dict[str, torch.Tensor]:
    """What the checkpoint holds."""
    path = folder / "checkpoints" / f"{name}.ckpt"
    return torch.load(path, weights_only=True)["state_dict"]


@pytest.mark.parametrize("accumulate", [1, 3])
@pytest.mark.parametrize("norm", NORMS)
def test_stopping_at_20_and_resuming_to_40_equals_40_straight(
    norm: str,
    accumulate: int,
    tiny_text: Path,
    tmp_path: Path,
    compose_config: Callable[..., DictConfig],
) -> None:
    overrides = small(tiny_text, f"norm={norm}", f"trainer.accumulate_grad_batches={accumulate}")
    straight, stopped = tmp_path / "straight", tmp_path / "stopped"
    train(compose_config(*overrides, "trainer.max_steps=40"), straight, overrides)
    train(compose_config(*overrides, "trainer.max_steps=20"), stopped, overrides)
    new = resume_arguments([f"resume={stopped}", "trainer.max_steps=40"])
    kept = [o for o in new if not o.startswith("hydra.")]
    train(compose_config(*kept), stopped, kept)

    assert (straight / "metrics.csv").read_text().count("loss/train") == 40
    a, b = (
        [
            line
            for line in (f / "metrics.csv").read_text().splitlines()
            if not line.split(",")[1].startswith("speed/")
        ]
        for f in (straight, stopped)
    )
    assert sorted(set(b) - set(a)) == sorted(row for row in b if row.startswith("20,loss/val"))
    assert set(a) <= set(b)
    for name, value in weights(straight).items():
        assert torch.equal(value, weights(stopped)[name]), name
