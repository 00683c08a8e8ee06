"""GPT's placements of norms and gates: the whole forward pass, and the init of deepnorm.

Reference: the transformer written out from its parameters in float64, with an explicit softmax over
masked scores (Vaswani et al. 2017, Radford et al. 2019) and the residual connections as the papers
print them; standard deviations, numbers of norms and of parameters by hand.
Legend: B batch, T time, C channels (n_embd), H heads, D head size, V vocabulary.
"""

import math
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn

from model.gpt import GPT
from model.norms.batchnorm import BatchNorm
from model.norms.layernorm import LayerNorm
from model.norms.none import NoNorm

V, BLOCK, LAYERS, HEADS, C = 11, 8, 2, 3, 12
SIZES = {"vocab_size": V, "block_size": BLOCK, "n_layer": LAYERS, "n_head": HEADS, "n_embd": C}
NORMS_OF = {"pre": 2 * LAYERS + 1, "post": 2 * LAYERS, "sandwich": 4 * LAYERS + 1}
NORMS_OF |= {"out": 2 * LAYERS + 1, "deepnorm": 2 * LAYERS}
GATES = {"none": 0, "rezero": LAYERS, "skipinit": 2 * LAYERS}
SITES = ("attention_norm", "mlp_norm", "final_norm", "embedding_norm", "qk_norm")
placements = pytest.mark.parametrize("placement", NORMS_OF)
gates = pytest.mark.parametrize("gate", GATES)


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


def gpt(**changes: object) -> GPT:
    return GPT(**{**SIZES, "norm": LayerNorm, **changes})


def lively(**changes: object) -> GPT:
    """In eval mode, in float64, every parameter random: each matters."""
    net = gpt(**changes).double().eval()
    for name, parameter in net.named_parameters():
        small = "embedding" in name or name.endswith("norm.bias")
        nn.init.normal_(parameter, std=0.2 if small else 1.0)
    return net


def ids(*shape: int) -> torch.Tensor:
    return torch.randint(V, shape)


def written_out(net: GPT, idx: torch.Tensor, placement: str, scale: float) -> torch.Tensor:
    """Logits from the parameters alone; a gate, an embedding norm, a QK norm if they are there."""
    p = dict(net.named_parameters())
    future = torch.ones(idx.shape[1], idx.shape[1], dtype=torch.bool).triu(1)

    def linear(x: torch.Tensor, name: str) -> torch.Tensor:
        return x @ p[f"{name}.weight"].T + p[f"{name}.bias"]

    def norm(x: torch.Tensor, name: str) -> torch.Tensor:
        deviation = (x.var(-1, correction=0, keepdim=True) + 1e-5).sqrt()
        x = (x - x.mean(-1, keepdim=True)) / deviation
        return x * p[f"{name}.weight"] + p[f"{name}.bias"]

    def attention(x: torch.Tensor, name: str) -> torch.Tensor:
        parts = linear(x, f"{name}.qkv").chunk(3, dim=-1)
        q, k, v = (part.unflatten(-1, (HEADS, C // HEADS)) for part in parts)  # (B, T, H, D)
        if f"{name}.q_norm.weight" in p:
            q, k = norm(q, f"{name}.q_norm"), norm(k, f"{name}.k_norm")
        scores = torch.einsum("bthd,bshd->bhts", q, k) / math.sqrt(C // HEADS)
        p_attend = scores.masked_fill(future, -math.inf).softmax(-1)
        return linear(torch.einsum("bhts,bshd->bthd", p_attend, v).flatten(2), f"{name}.proj")

    def mlp(x: torch.Tensor, name: str) -> torch.Tensor:
        h = linear(x, f"{name}.fc")
        return linear(h * (1 + torch.erf(h / math.sqrt(2))) / 2, f"{name}.proj")

    x = p["token_embedding.weight"][idx] + p["position_embedding.weight"][: idx.shape[1]]
    x = p.get("embed_scale", scale) * x
    x = norm(x, "embedding_norm") if "embedding_norm.weight" in p else x
    for i in range(LAYERS):
        for j, (branch, name) in enumerate(((attention, "attention"), (mlp, "mlp"))):
            here, shared = f"blocks.{i}.{name}", p.get(f"blocks.{i}.gates.0", 1.0)
            a = p.get(f"blocks.{i}.gates.{j}", shared)
            n, n2 = partial(norm, name=f"{here}_norm"), partial(norm, name=f"{here}_out_norm")
            f = partial(branch, name=here)
            if placement == "pre":
                x = x + a * f(n(x))
            elif placement == "post":
                x = n(x + a * f(x))
            elif placement == "sandwich":
                x = x + a * n2(f(n(x)))
            elif placement == "out":
                x = x + a * n(f(x))
            else:
                x = n((2 * LAYERS) ** (1 / 4) * x + a * f(x))
    x = norm(x, "final_norm") if placement in ("pre", "sandwich", "out") else x
    return x @ p["token_embedding.weight"].T


def assert_written_out(length: int = BLOCK, scale: float = 1.0, **changes: Any) -> None:
    net, idx = lively(bias=True, embed_scale=scale, **changes), ids(4, length)
    wanted = written_out(net, idx, changes.get("placement", "pre"), scale)
    assert torch.allclose(net(idx), wanted, rtol=0, atol=1e-10)


@pytest.mark.parametrize("scale", [1.0, 8.0])
@pytest.mark.parametrize("length", [1, 5, BLOCK])
@placements
def test_forward_equals_the_transformer_written_out(
    placement: str, length: int, scale: float
) -> None:
    assert_written_out(length, scale, placement=placement)


@gates
@placements
def test_gates_qk_norm_embedding_norm_and_learned_scale_equal_the_formulas(
    placement: str, gate: str
) -> None:
    options = {"embedding_norm": LayerNorm, "qk_norm": LayerNorm, "learn_embed_scale": True}
    assert_written_out(placement=placement, residual_gate=gate, **options)


@placements
@pytest.mark.parametrize("norm", [NoNorm, LayerNorm])
@pytest.mark.parametrize("bias", [True, False])
@gates
def test_parameter_counts(placement: str, norm: type[nn.Module], bias: bool, gate: str) -> None:
    in_norms = NORMS_OF[placement] * 2 * C if norm is LayerNorm else 0
    in_blocks = LAYERS * (12 * C * C + bias * 9 * C)  # qkv 3, proj 1, fc 4, proj 4
    options = {"residual_gate": gate, "learn_embed_scale": True, "bias": bias}
    net = gpt(placement=placement, norm=norm, **options)
    total = sum(p.numel() for p in net.parameters())
    assert total == (V + BLOCK) * C + in_blocks + in_norms + GATES[gate] + 1


class Recorder(nn.Module):
    """The identity, which notes who was called with which mask."""

    def __init__(self, calls: list[tuple[nn.Module, torch.Tensor | None]], dim: int) -> None:
        super().__init__()
        self.calls, self.dim = calls, dim

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        assert x.shape[-1] == self.dim
        self.calls.append((self, mask))
        return x


@placements
def test_every_site_has_its_own_norm_and_gets_the_mask(placement: str) -> None:
    mask = torch.ones(4, BLOCK, dtype=torch.bool)
    calls: list[tuple[nn.Module, torch.Tensor | None]] = []
    norm = partial(Recorder, calls)
    net = gpt(norm=norm, placement=placement, embedding_norm=norm, qk_norm=norm)
    calls.clear()  # of the QK norm's trial
    net(ids(4, BLOCK), mask)
    sites = NORMS_OF[placement] + 1 + 2 * LAYERS
    assert len({id(module) for module, _ in calls}) == len(calls) == sites
    assert all(given is mask for _, given in calls)


@placements
@gates
def test_in_eval_mode_no_logit_depends_on_a_later_token(placement: str, gate: str) -> None:
    net, idx = lively(placement=placement, norm=BatchNorm, residual_gate=gate), ids(2, BLOCK)
    other = idx.clone()
    other[:, 5:] = (idx[:, 5:] + 1) % V
    assert torch.allclose(net(idx)[:, :5], net(other)[:, :5], rtol=0, atol=1e-12)
    assert not torch.allclose(net(idx)[:, 5:], net(other)[:, 5:])


def shared(net: GPT) -> dict[str, torch.Tensor]:
    return {name: p.detach() for name, p in net.named_parameters() if p.dim() == 2}


@placements
@gates
@pytest.mark.parametrize("sites", [(), SITES], ids=["common", "all sites"])
def test_shared_weights_are_the_same_bits_up_to_deepnorms_factors(
    placement: str, gate: str, sites: tuple[str, ...]
) -> None:
    xavier = {"init": "xavier"} if placement == "deepnorm" else {}
    wanted = shared(gpt(**xavier))
    options = {"learn_embed_scale": True, **dict.fromkeys(sites, LayerNorm)}
    found = shared(gpt(placement=placement, residual_gate=gate, **options))
    assert found.keys() == wanted.keys()
    beta = (8 * LAYERS) ** (-1 / 4)
    for name, weight in found.items():
        if placement == "deepnorm" and "embedding" not in name:
            factor = torch.full((len(weight), 1), beta)
            factor[: 2 * C if "qkv" in name else 0] = 1  # Q and K
            assert torch.equal(weight, factor * wanted[name]), name
        else:
            assert torch.equal(weight, wanted[name]), name


@pytest.mark.parametrize("init", ["nanogpt", "xavier"])
def test_deepnorm_starts_xavier_normal_with_gain_beta_on_all_but_q_and_k(init: str) -> None:
    wide, layers = 96, 3
    sizes = {"vocab_size": 65, "block_size": 64, "n_layer": layers, "n_head": 4, "n_embd": wide}
    net = gpt(**sizes, placement="deepnorm", init=init)
    beta = (8 * layers) ** (-1 / 4)
    square, oblong = math.sqrt(2 / (wide + wide)), math.sqrt(2 / (wide + 4 * wide))
    for block in net.blocks:
        assert block.alpha == pytest.approx((2 * layers) ** (1 / 4))
        q, k, v = block.attention.qkv.weight.chunk(3)
        for weight, std in [
            (q, square),
            (k, square),
            (v, beta * square),
            (block.attention.proj.weight, beta * square),
            (block.mlp.fc.weight, beta * oblong),
            (block.mlp.proj.weight, beta * oblong),
        ]:
            assert weight.std().item() == pytest.approx(std, rel=0.04)
    assert net.token_embedding.weight.std().item() == pytest.approx(wide**-0.5, rel=0.04)


@placements
def test_gates_start_at_zero_one_a_block_or_at_one_over_the_root_of_the_branches(
    placement: str,
) -> None:
    for gate, start in (("rezero", 0.0), ("skipinit", 1 / math.sqrt(2 * LAYERS))):
        net = gpt(placement=placement, residual_gate=gate)
        scalars = [p for p in net.parameters() if p.dim() == 0]
        assert len(scalars) == GATES[gate]
        assert all(p.item() == pytest.approx(start) for p in scalars)
        assert all(p.dtype == torch.float32 for p in scalars)
        net(ids(4, BLOCK)).logsumexp(-1).sum().backward()
        assert all(p.grad is not None and p.grad != 0 for p in scalars)


@pytest.mark.parametrize("placement", ["pre", "sandwich", "out"])
def test_rezero_starts_as_the_identity_on_the_residual_stream(placement: str) -> None:
    net = gpt(placement=placement, residual_gate="rezero")
    x = torch.randn(4, BLOCK, C)
    for block in net.blocks:
        assert torch.equal(block(x), x)
        with torch.no_grad():
            block.gates[0].fill_(1)
        assert not torch.allclose(block(x), x)
