"""The summary names the norm of each site and counts the parameters. Reference: counted by hand."""

from collections.abc import Callable
from pathlib import Path

import pytest

from model.gpt import GPT
from model.norms.layernorm import LayerNorm
from model.norms.rmsnorm import RMSNorm
from model.sites import sites, summary
from tests.conftest import NORMS
from tests.model.norms.properties import make_norm

V, T, C, L = 11, 8, 12, 3
SIZES = {"vocab_size": V, "block_size": T, "n_layer": L, "n_head": 3, "n_embd": C}


def test_a_line_a_kind_of_site_and_the_parameters_by_kind() -> None:
    net = GPT(
        **SIZES, norm=LayerNorm, qk_norm=RMSNorm, placement="sandwich", residual_gate="rezero"
    )
    layer, rms = "LayerNorm(12, eps=1e-05, weight=True, bias=True)", "RMSNorm(4"
    lines = summary(net).splitlines()
    table = [(*line.split(None, 3)[:3], line.split(None, 3)[3]) for line in lines[:-1]]
    assert [(f"{count} {site}", norm[: len(rms)]) for count, _, site, norm in table] == [
        ("3 block.attention_norm", layer[: len(rms)]),
        ("3 block.attention.q_norm", rms),
        ("3 block.attention.k_norm", rms),
        ("3 block.mlp_norm", layer[: len(rms)]),
        ("3 block.attention_out_norm", layer[: len(rms)]),
        ("3 block.mlp_out_norm", layer[: len(rms)]),
        ("1 final_norm", layer[: len(rms)]),
    ]
    in_norms = (4 * L + 1) * 2 * C + 2 * L * 4
    total = V * C + T * C + L * (4 + 8) * C * C + in_norms + L
    assert lines[-1] == (
        f"  {total:,} parameters: embedding {V * C + T * C:,}, norm {in_norms:,}, "
        f"attention {L * 4 * C * C:,}, mlp {L * 8 * C * C:,}, gates {L}"
    )


@pytest.mark.parametrize("norm", NORMS)
def test_every_norm_is_named_once_at_each_site(norm: str) -> None:
    """Also one that is made of others."""
    make = make_norm(norm)
    net = GPT(**SIZES, norm=make)
    names = [f"blocks.{n}.{kind}_norm" for n in range(L) for kind in ("attention", "mlp")]
    assert list(sites(net)) == [*names, "final_norm"]
    lines = summary(net).splitlines()
    assert [line.split()[3].partition("(")[0] for line in lines[:-1]] == [
        type(make(C)).__name__
    ] * 3


def test_the_log_begins_with_it(
    tmp_path: Path, run: Callable[..., Path], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO", "normlab"):
        run(tmp_path / "run", "trainer.max_steps=1", "+norm@model.final_norm=rmsnorm")
    first = caplog.records[0].getMessage().splitlines()
    assert first[0].startswith("norm=layernorm seed=1 on ")
    table = [line.split()[2] for line in first[1:-1]]
    assert table == ["block.attention_norm", "block.mlp_norm", "final_norm"]
    assert "RMSNorm(64" in first[3] and "parameters: embedding" in first[4]
