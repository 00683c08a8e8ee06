"""Histograms of norms' inputs and outputs, and samples: right values, and training unchanged.

Reference: GPT's first lines and LayerNorm written out in float64, numpy's histogram.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from model.gpt import GPT
from model.norms.batchnorm import BatchNorm
from model.norms.layernorm import LayerNorm
from model.probes.histograms import histogram, values
from run.result import read_result
from tests.conftest import LOSSES

SIZES = {"vocab_size": 7, "block_size": 5, "n_layer": 2, "n_head": 2, "n_embd": 6}


def test_the_first_site_sees_the_embeddings_without_padding_and_its_norm_acts_on_them() -> None:
    net = GPT(**SIZES, norm=LayerNorm, embed_scale=3.0).double()
    batch = torch.tensor([[1, 2, 3, 4, 5, 6], [6, 5, 4, -1, -1, -1]])
    seen = values(net, batch)
    real = [batch[0, :5], batch[1, :2]]  # what has a target
    x = torch.cat(
        [
            3 * (net.token_embedding.weight[z] + net.position_embedding.weight[: len(z)])
            for z in real
        ]
    )
    centred = x - x.mean(-1, keepdim=True)
    y = centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt()
    torch.testing.assert_close(seen["blocks.0.attention_norm/1_input"], x)
    torch.testing.assert_close(seen["blocks.0.attention_norm/2_output"], y)
    sites = [
        *(f"blocks.{n}.{kind}_norm" for n in (0, 1) for kind in ("attention", "mlp")),
        "final_norm",
    ]
    whats = ("1_input", "2_output", "weight", "bias")
    assert seen.keys() == {f"{site}/{what}" for site in sites for what in whats}


def test_they_are_measured_in_eval_mode_and_leave_no_trace() -> None:
    net = GPT(**SIZES, norm=BatchNorm, dropout=0.5).train()
    before = {name: x.clone() for name, x in net.state_dict().items()}
    batch, state = torch.randint(7, (3, 6)), torch.get_rng_state()
    first, second = values(net, batch), values(net, batch)
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(x, before[name]) for name, x in net.state_dict().items())
    assert all(module.training and not module._forward_hooks for module in net.modules())


def test_a_compiled_net_is_measured_too_and_compiles_nothing_more() -> None:
    graphs = []
    net = GPT(**SIZES, norm=LayerNorm)
    batch = torch.randint(7, (3, 6))
    expected = values(net, batch)
    net.compile(backend=lambda graph, inputs: graphs.append(graph) or graph.forward)
    found = values(net, batch)
    assert found.keys() == expected.keys() and not graphs
    assert all(torch.equal(found[name], expected[name]) for name in found)


@pytest.mark.parametrize(("number", "bins"), [(100, 10), (10_000, 64)])
def test_a_histogram_is_that_of_numpy(number: int, bins: int) -> None:
    x = torch.randn(number, generator=torch.Generator().manual_seed(1))
    counts, edges = np.histogram(x.double().numpy(), bins)
    found = histogram(torch.cat([x, torch.tensor([torch.nan, torch.inf])]))
    assert found is not None
    assert found["bucket_limits"] == pytest.approx(edges[1:], abs=1e-5)
    # float32 edges: a value may fall on the other side of one
    assert np.abs(np.cumsum(found["bucket_counts"]) - np.cumsum(counts)).max() <= 1
    assert (found["num"], found["min"], found["max"]) == (number, x.min(), x.max())
    assert found["sum_squares"] == pytest.approx(x.double().square().sum().item())


def test_a_constant_is_a_narrow_peak_and_nothing_finite_no_histogram() -> None:
    for constant in (0.0, 1.0, -1e6):
        found = histogram(torch.full((50,), constant))
        assert found is not None and sum(found["bucket_counts"]) == 50
        assert found["min"] < constant < found["max"]
        assert found["max"] - found["min"] == pytest.approx(0.02 * max(1, abs(constant)))
    assert histogram(torch.tensor([torch.nan])) is histogram(torch.empty(0)) is None


def test_histograms_and_samples_leave_training_alone(
    tmp_path: Path, run: Callable[..., Path]
) -> None:
    """With all that could be disturbed: dropout, running statistics, padding."""
    overrides = ["data=lines", "data.block_size=64", "norm=batchnorm", "eval_every=2"]
    overrides += ["sample.max_new_tokens=5", "trainer.max_steps=6"]
    folders = run(tmp_path / "a", *overrides, "probes=default"), run(tmp_path / "b", *overrides)
    sizes = [sum(path.stat().st_size for path in folder.glob("events*")) for folder in folders]
    assert sizes[0] > 2 * sizes[1]
    losses = [{key: read_result(folder)[key] for key in LOSSES} for folder in folders]
    assert losses[0] == losses[1]
    states = [
        torch.load(folder / "checkpoints/last.ckpt", weights_only=True)["state_dict"]
        for folder in folders
    ]
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[1])
