"""Probes beside training: they change nothing, resume exactly, and log what docs/probes.md says.

Reference: the same run without probes, the same run without a stop. Cases are all norms.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate

from model.gpt import GPT
from model.lit import LitGPT
from run import loggers
from tests.conftest import NORMS, ROOT
from tests.model.norms import properties as p

Run = Callable[..., Path]
SMALL = ("probes.every=2", "data.batch_size=4", f"data.block_size={p.T}", "trainer.max_steps=4")


def logged(folder: Path) -> list[tuple[int, str, str]]:
    """The rows of metrics.csv."""
    rows = [line.split(",") for line in (folder / "metrics.csv").read_text().splitlines()[1:]]
    return [(int(step), name, value) for step, name, value in rows]


@pytest.fixture(scope="module")
def train(tiny_text: Path) -> Callable:
    """A few steps with all of the default probes or with none; returns losses and final state."""
    p.configs()
    with initialize_config_dir(str(p.CONFIGS), version_base="1.3"):
        cfg = compose("train", [*SMALL, f"data.path={tiny_text}"])
    data = instantiate(cfg.data, _convert_="all")
    optimizer, scheduler = instantiate(cfg.optimizer), instantiate(cfg.scheduler)

    def trained(norm: str, folder: Path, probes: bool) -> tuple[list[Any], dict[str, Any]]:
        net = GPT(data.vocab_size, p.T, 2, 2, 16, p.make_norm(norm), dropout=0.3)
        lit = LitGPT(net, optimizer, scheduler, seed=1, log_every=1)
        both = loggers.loggers(folder, None)
        (folder / ".hydra").mkdir(parents=True)
        (folder / ".hydra" / "config.yaml").touch()
        trainer = instantiate(
            cfg.trainer,
            val_check_interval=2,
            accelerator="cpu",
            callbacks=list(instantiate(cfg.probes, _convert_="all")["callbacks"].values())
            if probes
            else [],
            logger=both,
            enable_progress_bar=False,
        )
        trainer.fit(lit, datamodule=data)
        trainer.logger.experiment.close()
        losses = [row for row in logged(folder) if row[1].startswith("loss/")]
        assert probes is any(name.startswith("probe/") for _, name, _ in logged(folder))
        return losses, net.state_dict()

    return trained


@pytest.mark.parametrize("norm", NORMS)
def test_losses_and_weights_are_the_same_bit_for_bit_without_probes(
    norm: str, train: Callable, tmp_path: Path
) -> None:
    losses, state = train(norm, tmp_path / "with", True)
    losses_without, state_without = train(norm, tmp_path / "without", False)
    assert losses == losses_without and len(losses) == 4 + 3  # and validation at 0, 2 and 4
    assert state.keys() == state_without.keys()
    assert all(torch.equal(value, state_without[name]) for name, value in state.items())


def test_a_resumed_run_logs_the_values_of_one_that_was_never_stopped(
    tmp_path: Path, run: Run, resume: Run
) -> None:
    how = [
        "norm=batchnorm",
        "probes=default",
        "probes.every=3",
        "scheduler.total_steps=8",
    ]
    how += ["trainer.accumulate_grad_batches=2", "trainer.gradient_clip_val=1.9"]
    whole = logged(run(tmp_path / "whole", *how, "trainer.max_steps=8"))
    folder = run(tmp_path / "stopped", *how, "trainer.max_steps=5")
    resumed = logged(resume(folder, "trainer.max_steps=8"))
    wanted, found = (
        [row for row in rows if row[1].startswith("probe/") and row[0] > 5]
        for rows in (whole, resumed)
    )
    assert found == wanted
    assert {step for step, _, _ in wanted} == {6, 8}
    clipped = [row for row in wanted if row[1] == "probe/clipped_share"]
    assert any(0 < float(value) < 1 for _, _, value in clipped)


def documented() -> list[re.Pattern[str]]:
    """The names in the tables of docs/probes.md."""
    names = re.findall(r"^\| `(probe/[^`]+)` \|", (ROOT / "docs" / "probes.md").read_text(), re.M)
    places = {"/<block>": r"(/\d+)?", "<n>": r"\d+"}
    patterns = []
    for name in names:
        for place, pattern in places.items():
            name = name.replace(place, pattern)
        patterns.append(re.compile(re.sub(r"<\w+>", "[a-z][a-z_]*", name)))
    return patterns


def test_every_name_is_documented_and_every_documented_name_is_logged(
    tmp_path: Path, run: Run
) -> None:
    rich = ["norm=dyt", "model.placement=sandwich", "model.residual_gate=rezero", "model.bias=true"]
    rich += ["+norm@model.embedding_norm=derf", "+norm@model.qk_norm=rmsnorm"]
    names = {
        name
        for i, norm in enumerate((rich, ["norm=batchnorm"]))
        for _, name, _ in logged(
            run(tmp_path / str(i), *norm, "probes=default", "trainer.max_steps=1")
        )
        if name.startswith("probe/")
    }
    unknown = [name for name in names if not any(p.fullmatch(name) for p in documented())]
    unseen = [p.pattern for p in documented() if not any(p.fullmatch(name) for name in names)]
    assert (unknown, unseen) == ([], [])
