"""Which matrices can be scaled without a change of the logits.

Reference: the layers that stand between a matrix and the norm after it, and logits in float64.
"""

from functools import partial
from typing import Any

import pytest
import torch
from torch import nn

from model.gpt import GPT
from model.norms.batchnorm import BatchNorm
from model.norms.dyt import DyT
from model.norms.layernorm import LayerNorm
from model.norms.none import NoNorm
from model.norms.rmsnorm import RMSNorm
from model.scale_invariance import scale_invariant

V, BLOCK, C = 11, 8, 12
QK = ["attention.q", "attention.k"]
BRANCHES = ["attention.v", "attention.proj", "mlp.proj"]  # v: attention is linear in it
Exact = partial(LayerNorm, eps=1e-30)


def gpt(**changes: Any) -> GPT:
    return GPT(V, BLOCK, 2, 2, C, **{"norm": LayerNorm, **changes})


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({}, []),
        ({"placement": "post"}, []),
        ({"placement": "deepnorm"}, []),
        ({"placement": "out"}, BRANCHES),
        ({"placement": "sandwich"}, BRANCHES),
        ({"placement": "out", "norm": BatchNorm}, BRANCHES),
        ({"placement": "out", "norm": DyT}, []),
        ({"placement": "out", "norm": NoNorm}, []),
        ({"placement": "out", "bias": True}, []),
        ({"placement": "out", "mlp_norm": NoNorm}, BRANCHES[:2]),
        ({"placement": "out", "residual_gate": "rezero", "dropout": 0.5}, BRANCHES),
        ({"residual_gate": "rezero"}, []),
        ({"norm": DyT}, []),
        ({"qk_norm": RMSNorm}, QK),
        ({"qk_norm": DyT}, []),
        ({"qk_norm": RMSNorm, "bias": True}, []),
        ({"qk_norm": RMSNorm, "placement": "sandwich"}, QK + BRANCHES),
    ],
    ids=str,
)
def test_they_are_those_with_nothing_but_linear_maps_before_the_next_norm(
    changes: dict[str, Any], wanted: list[str]
) -> None:
    found = scale_invariant(gpt(**changes))
    assert sorted(found) == sorted(f"blocks.{n}.{name}" for n in range(2) for name in wanted)


@pytest.mark.parametrize("placement", ["pre", "out", "sandwich"])
def test_scaling_them_leaves_eval_logits_alone_and_scaling_another_does_not(placement: str) -> None:
    net = gpt(placement=placement, norm=Exact, qk_norm=partial(RMSNorm, eps=0.0)).double().eval()
    for parameter in net.parameters():
        nn.init.normal_(parameter, generator=torch.Generator().manual_seed(len(parameter)))
    idx = torch.randint(V, (3, BLOCK), generator=torch.Generator().manual_seed(0))
    invariant, before, C3 = scale_invariant(net), net(idx), 3 * C
    linear = {
        n: m.weight for n, m in net.named_modules() if isinstance(m, nn.Linear | nn.Embedding)
    }
    assert len(linear) == 2 + 2 * 4
    for name, weight in linear.items():
        rows = {"q": slice(0, C), "k": slice(C, 2 * C), "v": slice(2 * C, C3)}
        parts = rows if name.endswith("qkv") else {"": slice(None)}
        for part, which in parts.items():
            with torch.no_grad():
                weight[which] *= 3
                change = (net(idx) - before).abs().max()
                weight[which] /= 3
            same = f"{name.removesuffix('qkv')}{part}" in invariant
            assert (change < 1e-9) == same and (change > 1e-3) != same, (name, part)


def test_measuring_leaves_the_net_and_the_global_generator_alone() -> None:
    net = gpt(norm=BatchNorm, dropout=0.5)
    state = {name: value.clone() for name, value in net.state_dict().items()}
    draws = torch.get_rng_state()
    scale_invariant(net)
    assert torch.equal(torch.get_rng_state(), draws)
    assert net.training and net.blocks[0].mlp_norm.eps > 0
    assert all(torch.equal(value, state[name]) for name, value in net.state_dict().items())
