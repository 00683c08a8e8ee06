"""Nets at initialization: the numbers, computed apart; Xiong et al.'s picture; the files; mistakes.

A test composes the configuration and calls what the program would.
"""

import csv
import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hydra.utils import instantiate
from torch.nn import functional as F

from at_init import measure as measure_grid
from report.read import read_runs
from tests.conftest import composing, here

Row = dict[str, str]
Measure = Callable[..., list[Row]]
SIZES = ["model.n_embd=32", "model.n_head=2", "data.batch_size=8", "data.block_size=32"]


@pytest.fixture
def measure(tmp_path: Path, tiny_text: Path) -> Measure:
    """Measure a grid of small nets; returns the rows of at_init.csv."""

    def measured(*overrides: str) -> list[Row]:
        given = [*SIZES, f"data.path={tiny_text}", *overrides]
        with composing("at_init") as composed:
            measure_grid(composed(*given), tmp_path, given)
        with (tmp_path / "at_init.csv").open() as file:
            return list(csv.DictReader(file))

    return measured


def values(rows: list[Row], **where: str) -> list[float]:
    """Those of the rows that have these cells, seed by seed or layer by layer."""
    return [float(row["value"]) for row in rows if where.items() <= row.items()]


@pytest.mark.parametrize("data", ["text", "lines"])
def test_the_numbers_are_those_of_the_net_that_the_same_settings_would_train(
    data: str, measure: Measure, tiny_text: Path
) -> None:
    """Against a forward pass and gradients written here; lines are padded, so the mask counts."""
    sizes = [f"data={data}", "data.block_size=80" if data == "lines" else "data.block_size=32"]
    grid = dict(norms="[none,batchnorm]", placements="[pre,sandwich]", depths="[1,3]")
    grid |= dict(inits="[xavier]", seeds="[1,5]")
    rows = measure(*sizes, *(f"{name}={values}" for name, values in grid.items()))
    cell = ["norm=batchnorm", "model.placement=sandwich", "model.n_layer=3", "model.init=xavier"]
    path = f"data.path={tiny_text}"
    with composing() as composed:
        cfg = composed("model=mini", *SIZES, *sizes, *cell, path, "seed=5")
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
    rows = measure("norms=[layernorm]", "depths=[2,12]")
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
    lists = ["norms=[rmsnorm,none]", "depths=[1,2]", "seeds=[1,2]"]
    others = ["model.residual_gate=rezero", "model.bias=true", f"data.path={tiny_text}"]
    assert here(*SIZES, *lists, *others, cwd=tmp_path, program="at_init.py") == 0
    (folder,) = tmp_path.glob("runs/*")
    files = {path.name for path in folder.iterdir()}
    assert files == {"at_init.csv", "gradient.svg", "activations.svg", "at_init.log"}
    printed = capfd.readouterr().out
    assert f"runs/{folder.name}: at_init.csv" in printed
    lines = [line.split() for line in printed.splitlines()]
    assert next(line[:4] for line in lines if line[:1] == ["rmsnorm"]) == "rmsnorm pre 0 0".split()
    inits = [line for line in lines if line[:2] == ["none", "any"] and len(line) > 3]
    assert len(inits) == 2  # one row per init
    with pytest.raises(ValueError, match=f"{folder.name}"):
        read_runs([tmp_path / "runs"])


@pytest.mark.parametrize(
    ("override", "wanted"),
    [
        ("depths=[2,0]", "depths must be a list of different whole numbers of at "),
        ("depths=2", "depths must be a list of different whole numbers of at lea"),
        ("seeds=[1,1]", r"seeds must be a list of different whole numbers, got "),
        ("norms=[]", "norms must be a list of different names, got"),
        ("placements=[middle]", r"middle is not known; use pre \| post"),
        ("norm=rmsnorm", r"norm is set by the grid; give norms=\[...\] instead"),
        ("model.n_layer=3", "model.n_layer is set by the grid; give depths="),
        ("data.batch_size=0", "data.batch_size must be a whole number of at least 1"),
    ],
)
def test_an_invalid_grid_is_refused_before_anything_is_measured(
    override: str, wanted: str, measure: Measure, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=wanted):
        measure(override)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("argument", "wanted"),
    [
        ("norms=[layrnorm]", "error: In 'train': Could not find 'norm/layrnorm' Available"),
        ("deths=[2]", "error: Could not override 'deths'"),
        ("-m", "error: at_init.py measures a grid in one job, norms=[a,b]; leave -m out"),
    ],
)
def test_a_mistake_is_one_line_and_no_failed_run(
    argument: str, wanted: str, tmp_path: Path, tiny_text: Path
) -> None:
    message = here(f"data.path={tiny_text}", argument, cwd=tmp_path, program="at_init.py")
    assert str(message).startswith(wanted)
    assert "\n" not in str(message)
    assert not list(tmp_path.rglob("result.json"))


def test_the_scale_invariant_matrices_are_listed_for_each_norm_and_placement(
    tmp_path: Path, tiny_text: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """With "out" a norm follows the last matrices of each branch; without norms all matter."""
    lists = ["norms=[rmsnorm,none]", "placements=[pre,out]", "depths=[1,2]", "seeds=[1]"]
    sizes = [*SIZES, "inits=[xavier]", f"data.path={tiny_text}"]
    assert here(*sizes, *lists, cwd=tmp_path, program="at_init.py") == 0
    _, _, listed = capfd.readouterr().out.partition("\nscale-invariant matrices\n")
    assert [" ".join(line.split()) for line in listed.splitlines()] == [
        "rmsnorm pre none",
        "rmsnorm out attention.v, attention.proj, mlp.proj",
        "none any none",
    ]


def test_train_names_the_program_that_took_the_place_of_the_experiment(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert here("experiment=at_init", cwd=tmp_path) == 2
    told = capfd.readouterr().err
    assert told.count("\n") == 1
    assert "python at_init.py" in told
    assert not list(tmp_path.iterdir())
