"""Nets at initialization: the numbers, computed apart; Xiong et al.'s picture; the files; mistakes.

A test composes the experiment and calls what the job would.
"""

import csv
import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hydra.utils import instantiate
from omegaconf import DictConfig
from torch.nn import functional as F

from report.read import read_runs
from tests.conftest import here

Row = dict[str, str]
Measure = Callable[..., list[Row]]
SIZES = ["model.n_embd=32", "model.n_head=2", "data.batch_size=8", "data.block_size=32"]


@pytest.fixture
def measure(tmp_path: Path, tiny_text: Path, compose_config: Callable[..., DictConfig]) -> Measure:
    """Measure a grid of small nets; returns the rows of at_init.csv."""

    def measured(*overrides: str) -> list[Row]:
        given = [*SIZES, f"data.path={tiny_text}", "experiment=at_init", *overrides]
        cfg = compose_config(*given)
        instantiate(cfg.at_init)(cfg, tmp_path, given)
        with (tmp_path / "at_init.csv").open() as file:
            return list(csv.DictReader(file))

    return measured


def values(rows: list[Row], **where: str) -> list[float]:
    """Those of the rows that have these cells, seed by seed or layer by layer."""
    return [float(row["value"]) for row in rows if where.items() <= row.items()]


@pytest.mark.parametrize("data", ["text", "lines"])
def test_the_numbers_are_those_of_the_net_that_the_same_settings_would_train(
    data: str, measure: Measure, compose_config: Callable[..., DictConfig], tiny_text: Path
) -> None:
    """Against a forward pass and gradients written here; lines are padded, so the mask counts."""
    sizes = [f"data={data}", "data.block_size=80" if data == "lines" else "data.block_size=32"]
    grid = dict(norms="[none,batchnorm]", placements="[pre,sandwich]", depths="[1,3]")
    lists = [f"at_init.{k}={v}" for k, v in {**grid, "inits": "[xavier]", "seeds": "[1,5]"}.items()]
    rows = measure(*sizes, *lists)
    cell = ["norm=batchnorm", "model.placement=sandwich", "model.n_layer=3", "model.init=xavier"]
    path = f"data.path={tiny_text}"
    cfg = compose_config("model=mini", *SIZES, *sizes, *cell, path, "seed=5")
    corpus = instantiate(cfg.data, _convert_="all")
    net = instantiate(cfg.model, vocab_size=corpus.vocab_size, _convert_="all")
    batch = corpus.windows()[0]
    real, ids = batch[:, 1:] != -1, batch[:, :-1].clamp(min=0)
    assert real.all() == (data == "text")
    x = net.token_embedding(ids) + net.position_embedding(torch.arange(ids.shape[1]))
    stream = [x]
    for block in net.blocks:
        stream.append(block(stream[-1], real))
    logits = net.final_norm(stream[-1], real) @ net.token_embedding.weight.T
    loss = F.cross_entropy(logits[real], batch[:, 1:][real])
    last = dict(net.blocks[2].named_parameters())
    gradients = dict(zip(last, torch.autograd.grad(loss, list(last.values())), strict=True))
    expected = {
        "loss": [loss.item()],
        "gradient_norm_mlp_proj": [gradients["mlp.proj.weight"].norm().item()],
        "gradient_norm_block": [math.sqrt(sum(float(g.norm()) ** 2 for g in gradients.values()))],
        "residual_rms": [x[real].square().mean().sqrt().item() for x in stream],
    }
    where = dict(norm="batchnorm", placement="sandwich", n_layer="3", init="xavier", seed="5")
    for quantity, wanted in expected.items():
        assert values(rows, quantity=quantity, **where) == pytest.approx(wanted, rel=1e-5)


def test_the_last_gradient_falls_with_depth_in_pre_norm_alone_and_under_xavier_alone(
    measure: Measure,
) -> None:
    """Xiong et al. 2020, theorem 1: 1 / sqrt(L) for pre-norm, no fall for post-norm.

    Pre-norm: the last norm divides by the stream's RMS, and so the gradient. Under xavier each
    block adds about the same variance: sqrt(6) from 2 blocks to 12, a little more because the first
    ones add less (they average tokens that are still unlike). Tokens become alike with depth, and
    their gradients add up: a little less.
    nanoGPT's init scales the branches by 1 / sqrt(2 L): the stream has no L in it.
    """
    rows = measure("at_init.norms=[layernorm]", "at_init.depths=[2,12]")
    fall = {}
    for init in ("xavier", "nanogpt"):
        for placement in ("pre", "post"):
            where = dict(init=init, placement=placement, quantity="gradient_norm_mlp_proj")
            shallow, deep = (values(rows, n_layer=depth, **where) for depth in ("2", "12"))
            assert len(shallow) == len(deep) == 3  # seeds
            fall[init, placement] = sum(shallow) / sum(deep)
    where = dict(init="xavier", placement="pre", quantity="residual_rms")
    rms = [sum(values(rows, n_layer=depth, layer=depth, **where)) for depth in ("2", "12")]
    assert rms[1] / rms[0] == pytest.approx(math.sqrt(6), rel=0.3)
    assert fall["xavier", "pre"] == pytest.approx(math.sqrt(6), rel=0.35)
    assert fall["xavier", "post"] < 1.1
    assert fall["nanogpt", "pre"] == pytest.approx(1, rel=0.15)
    assert fall["nanogpt", "post"] == pytest.approx(1, rel=0.15)


def test_the_program_leaves_a_table_and_figures_and_nothing_that_a_comparison_takes_for_a_run(
    tmp_path: Path, tiny_text: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Gates that start at 0 give gradients of 0, which a logarithm has no place for."""
    arguments = ["experiment=at_init", *SIZES, "at_init.depths=[1,2]", "at_init.seeds=[1,2]"]
    lists = ["at_init.norms=[rmsnorm,none]", "model.residual_gate=rezero", "model.bias=true"]
    assert here(*arguments, *lists, f"data.path={tiny_text}", cwd=tmp_path) == 0
    (folder,) = tmp_path.glob("runs/*")
    files = {path.name for path in folder.iterdir()}
    assert files == {"at_init.csv", "gradient.svg", "activations.svg", "train.log"}
    printed = capfd.readouterr().out
    assert f"runs/{folder.name}: at_init.csv" in printed
    lines = [line.split() for line in printed.splitlines()]
    assert next(line[:4] for line in lines if line[:1] == ["rmsnorm"]) == "rmsnorm pre 0 0".split()
    assert sum(line[:2] == ["none", "any"] for line in lines) == 2  # one row an init
    with pytest.raises(ValueError, match=f"{folder.name}"):
        read_runs([tmp_path / "runs"])


@pytest.mark.parametrize(
    ("override", "wanted"),
    [
        ("at_init.depths=[2,0]", "at_init.depths must be a list of different whole numbers of at "),
        ("at_init.depths=2", "at_init.depths must be a list of different whole numbers of at lea"),
        ("at_init.seeds=[1,1]", r"at_init.seeds must be a list of different whole numbers, got "),
        ("at_init.norms=[]", "at_init.norms must be a list of different names, got"),
        ("at_init.placements=[middle]", r"middle is not known; use pre \| post"),
        ("norm=rmsnorm", r"norm is set by the grid; give at_init.norms=\[...\] instead"),
        ("model.n_layer=3", "model.n_layer is set by the grid; give at_init.depths="),
        ("data.batch_size=0", "data.batch_size must be a whole number of at least 1"),
    ],
)
def test_a_grid_that_cannot_be_is_refused_before_anything_is_measured(
    override: str, wanted: str, measure: Measure, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=wanted):
        measure(override)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("argument", "wanted"),
    [
        ("at_init.norms=[layrnorm]", "error: In 'train': Could not find 'norm/layrnorm' Available"),
        ("-m", "error: experiment=at_init is one job, its grid is in at_init.norms="),
    ],
)
def test_a_mistake_is_one_line_and_no_failed_run(
    argument: str, wanted: str, tmp_path: Path, tiny_text: Path
) -> None:
    message = here("experiment=at_init", f"data.path={tiny_text}", argument, cwd=tmp_path)
    assert str(message).startswith(wanted)
    assert "\n" not in str(message)
    assert not list(tmp_path.rglob("result.json"))
