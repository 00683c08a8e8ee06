"""Activations: each number that is logged, and that measuring changes nothing.

Reference: the forward pass written out in float64, row by row without padding, position by position
in attention. Legend: B batch, T time, H heads, D head size, C channels, V vocabulary.
"""

import math
from collections import defaultdict
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import nn

from model.gpt import GPT
from model.norms.batchnorm import BatchNorm
from model.norms.derf import Derf
from model.norms.dyt import DyT
from model.norms.layernorm import LayerNorm
from model.norms.none import NoNorm
from model.norms.rmsnorm import RMSNorm
from model.probes import activations
from model.probes.activations import attention_statistics, measure

V, BLOCK, H, C = 11, 8, 2, 12
D = C // H
SITES = {"attention_norm": LayerNorm, "mlp_norm": DyT, "embedding_norm": Derf, "qk_norm": RMSNorm}


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


def two_blocks(**changes: Any) -> GPT:
    """In float64, every parameter random, two of the hidden units dead in the first block."""
    net = GPT(V, BLOCK, 2, H, C, **{"norm": LayerNorm, "dropout": 0.5, **changes}).double()
    for name, parameter in net.named_parameters():
        nn.init.normal_(parameter, mean=0.5 * ("norm" in name), std=0.7)
    with torch.no_grad():
        net.blocks[0].mlp.fc.weight[:2] *= 1e-6
    return net


def batch_of(*lengths: int) -> torch.Tensor:
    """(B, T + 1) ids, each row with so many real targets."""
    batch = torch.randint(V, (len(lengths), max(lengths) + 1))
    past = torch.arange(batch.shape[1]) > torch.tensor(lengths)[:, None]
    return batch.masked_fill(past, -1)


def rms(x: torch.Tensor) -> float:
    return math.sqrt(sum(value**2 for value in x.flatten().tolist()) / x.numel())


def attend(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, seen: dict[str, list[Any]], n: int
) -> torch.Tensor:
    """Causal attention, (T, H, D) -> (T, C), one head and one position at a time."""
    y = torch.zeros_like(v)
    for h in range(H):
        for t in range(1, len(q) + 1):
            logits = torch.stack([q[t - 1, h] @ k[s, h] / math.sqrt(D) for s in range(t)])
            p = logits.exp() / logits.exp().sum()
            seen[f"logits/{n}"] += logits.tolist()
            if t >= 2:
                entropy = -sum(a * math.log(a) for a in p.tolist())
                seen[f"entropy/{n}"].append(entropy / math.log(t))
            y[t - 1, h] = p @ v[:t, h]
    return y.reshape(-1, C)


@torch.no_grad()
def forward_by_hand(net: Any, idx: torch.Tensor, seen: dict[str, list[Any]]) -> None:
    """One row of ids (T,); notes what the probes should see."""

    def norm(name: str, module: nn.Module, x: torch.Tensor) -> torch.Tensor:
        y = module(x[None])[0]
        seen[f"in_{name}"].append(x)
        seen[f"out_{name}"].append(y)
        return y

    x = 5 * (net.token_embedding.weight[idx] + net.position_embedding.weight[: len(idx)])
    x = norm("embedding_norm", net.embedding_norm, x)
    seen["stream/0"].append(x)
    for n, block in enumerate(net.blocks):
        y = norm(f"attention_norm/{n}", block.attention_norm, x)
        wq, wk, wv = block.attention.qkv.weight.chunk(3)
        q, k, v = ((y @ w.T).view(-1, H, D) for w in (wq, wk, wv))
        q = norm(f"attention_q_norm/{n}", block.attention.q_norm, q)
        k = norm(f"attention_k_norm/{n}", block.attention.k_norm, k)
        x = x + attend(q, k, v, seen, n) @ block.attention.proj.weight.T
        z = norm(f"mlp_norm/{n}", block.mlp_norm, x) @ block.mlp.fc.weight.T
        hidden = 0.5 * z * (1 + torch.erf(z / math.sqrt(2)))
        seen[f"hidden/{n}"].append(hidden)
        x = x + hidden @ block.mlp.proj.weight.T
        seen[f"stream/{n + 1}"].append(x)
    seen["out"].append(norm("final_norm", net.final_norm, x) @ net.token_embedding.weight.T)


def expected(net: Any, seen: dict[str, list[Any]]) -> dict[str, float]:
    values = {}
    for name, parts in seen.items():
        what, _, place = name.partition("/")
        if what in ("logits", "entropy"):
            summary = max(parts) if what == "logits" else sum(parts) / len(parts)
            known = {"logits": "attention_logit_max", "entropy": "attention_entropy"}
            values[f"probe/{known[what]}/{place}"] = summary
            continue
        x = torch.cat(parts)
        if what == "stream":
            values[f"probe/residual_rms/{place}"] = rms(x)
            values[f"probe/residual_peak/{place}"] = max(map(abs, x.flatten().tolist())) / rms(x)
        elif what == "hidden":
            dead = [all(abs(value) < 1e-3 for value in unit) for unit in x.T.tolist()]
            values[f"probe/dead_gelu/{place}"] = sum(dead) / len(dead)
        elif what == "out":
            values["probe/logits_rms"] = rms(x)
            values["probe/log_z"] = x.exp().sum(-1).log().mean().item()
        elif what.startswith("in_"):
            site = name.removeprefix("in_")
            mean = x.mean().item()
            values[f"probe/input_mean_{site}"], std = mean, rms(x - mean)
            values[f"probe/input_std_{site}"] = std
            if "embedding" in site or "mlp" in site:
                squash = (
                    net.embedding_norm if "embedding" in site else net.blocks[int(place)].mlp_norm
                )
                limit, shift = (1.48, squash.shift.item()) if "embedding" in site else (2.0, 0.0)
                alpha = squash.alpha.item()
                flat = x.flatten().tolist()
                over = sum(abs(alpha * value + shift) > limit for value in flat)
                values[f"probe/saturated_{site}"] = over / len(flat)
                values[f"probe/alpha_times_std_{site}"] = alpha * std
        else:
            values[f"probe/output_rms_{name.removeprefix('out_')}"] = rms(x)
    return values


@pytest.mark.parametrize("lengths", [(8, 8, 8), (3, 8, 1, 5), (1, 2)])
def test_each_value_is_that_of_the_forward_pass_by_hand_over_real_positions(
    lengths: tuple[int, ...],
) -> None:
    net, batch = two_blocks(**SITES, embed_scale=5.0), batch_of(*lengths)
    seen: dict[str, list[Any]] = defaultdict(list)
    for row, length in zip(batch, lengths, strict=True):
        forward_by_hand(net, row[:length], seen)
    wanted = expected(net, seen)
    found = measure(net, batch)
    assert found.keys() == wanted.keys()
    assert found == pytest.approx(wanted, rel=1e-9, abs=1e-7)
    assert 0 < found["probe/dead_gelu/0"] < 1
    assert 0 < found["probe/saturated_mlp_norm/1"] < 1
    assert 0 < found["probe/saturated_embedding_norm"] < 1


def test_with_one_position_there_is_no_entropy() -> None:
    found = measure(two_blocks(), batch_of(1, 1))
    assert "probe/attention_entropy/0" not in found
    assert all(math.isfinite(value) for value in found.values())


@pytest.mark.parametrize(("placement", "norms"), [("sandwich", 4), ("out", 2), ("post", 2)])
def test_every_norm_of_a_block_is_a_site(placement: str, norms: int) -> None:
    found = measure(two_blocks(placement=placement, norm=NoNorm), batch_of(8, 8))
    assert len([name for name in found if name.startswith("probe/input_std")]) == 2 * norms + (
        placement != "post"
    )


@pytest.mark.parametrize("training", [True, False])
def test_measuring_leaves_no_hook_and_moves_no_mode_state_gradient_or_generator(
    training: bool,
) -> None:
    net = two_blocks(norm=BatchNorm).train(training)
    state = {name: value.clone() for name, value in net.state_dict().items()}
    batch = batch_of(8, 4)
    draws = torch.get_rng_state()
    with pytest.raises(IndexError):
        measure(net, batch + V)  # ids that the net does not know
    measure(net, batch)
    assert torch.equal(torch.get_rng_state(), draws)
    for module in net.modules():
        assert not (module._forward_hooks or module._forward_pre_hooks)
        assert module.training is training
    assert all(torch.equal(value, state[name]) for name, value in net.state_dict().items())
    assert all(parameter.grad is None for parameter in net.parameters())


def test_a_compiled_net_is_measured_uncompiled(monkeypatch: pytest.MonkeyPatch) -> None:
    net, batch = two_blocks(**SITES), batch_of(8, 3)
    wanted = measure(net, batch)
    monkeypatch.setattr(net, "_compiled_call_impl", lambda *_: pytest.fail("hooks do not fire"))
    assert measure(net, batch) == wanted


def test_attention_is_measured_a_few_rows_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    q, k = torch.randn(2, 5, BLOCK, H, D)
    real = torch.arange(BLOCK) < torch.tensor([8, 1, 3, 2, 1])[:, None]
    whole = attention_statistics(q, k, real)
    for rows in (1, 2, 4):
        monkeypatch.setattr(activations, "LOGITS", rows * H * BLOCK**2)
        parts = attention_statistics(q, k, real)
        assert parts["attention_logit_max"] == whole["attention_logit_max"]
        assert torch.allclose(parts["attention_entropy"], whole["attention_entropy"])


@pytest.mark.parametrize("half", ["autocast", "default dtype"])
def test_statistics_are_in_float32_where_the_net_is_in_half_precision(half: str) -> None:
    q, k = 3 * torch.randn(2, 5, BLOCK, H, D)
    real = torch.ones(5, BLOCK, dtype=torch.bool)
    wanted = attention_statistics(q, k, real)
    autocast = torch.autocast("cpu", dtype=torch.bfloat16)
    try:
        torch.set_default_dtype(torch.float32 if half == "autocast" else torch.bfloat16)
        with autocast if half == "autocast" else nullcontext():
            found = attention_statistics(q, k, real)
    finally:
        torch.set_default_dtype(torch.float32)
    assert found == wanted
