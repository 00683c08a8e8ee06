"""Norms for single sites of GPT: which are refused on q and k, what the command line makes of them.

Reference: modules and numbers of parameters counted by hand; attention that cannot see the size of
its queries and keys.
"""

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hydra.utils import instantiate
from omegaconf import DictConfig
from torch import nn

from model.gpt import GPT
from model.norms.batchnorm import BatchNorm
from model.norms.layernorm import LayerNorm
from model.norms.none import NoNorm
from run.checks import check
from run.training import measured
from tests.conftest import NORMS, ROOT

V, BLOCK, LAYERS, HEADS, C = 11, 8, 2, 3, 12
SIZES = {"vocab_size": V, "block_size": BLOCK, "n_layer": LAYERS, "n_head": HEADS, "n_embd": C}
Compose = Callable[..., DictConfig]


def gpt(**changes: object) -> GPT:
    return GPT(**{**SIZES, "norm": LayerNorm, **changes})


class Mixing(nn.Module):
    """No buffers, but in training a token sees others: those of `seen(x)`, x (B, T, H, D)."""

    def __init__(self, seen: Callable[[torch.Tensor], torch.Tensor], dim: int) -> None:
        super().__init__()
        self.seen = seen

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        return x - self.seen(x) if self.training else x


@pytest.mark.parametrize(
    ("norm", "fault"),
    [
        (BatchNorm, "keeps statistics"),
        (partial(Mixing, lambda x: x.mean(0, keepdim=True)), "mixes tokens"),
        (partial(Mixing, lambda x: 1e-6 * x.mean(1, keepdim=True)), "mixes tokens"),
        (partial(Mixing, lambda x: x.cumsum(1) - x), "mixes tokens"),  # the past
        (partial(Mixing, lambda x: x.flip(1).cumsum(1).flip(1) - x), "mixes tokens"),
        (partial(Mixing, lambda x: x.view(-1, 99)), "fails: shape"),
        (partial(LayerNorm, epsilon=1), "fails: .*epsilon"),
        (lambda dim: LayerNorm(dim + 1), "fails: "),
    ],
)
def test_a_qk_norm_that_is_not_token_wise_is_refused_in_one_line(norm: Any, fault: str) -> None:
    with pytest.raises(ValueError, match=rf"^model\.qk_norm .*{fault}.*; use rmsnorm$") as error:
        gpt(qk_norm=norm)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("norm", NORMS)
def test_every_norm_is_taken_or_refused_on_q_and_k_by_whether_it_keeps_statistics(
    norm: str, compose_config: Compose
) -> None:
    cfg = compose_config("model=mini", f"+norm@model.qk_norm={norm}", "data.block_size=8")
    if list(instantiate(cfg.model.qk_norm)(16).buffers()):
        with pytest.raises(Exception, match="keeps statistics"):
            instantiate(cfg.model, vocab_size=V)
    else:
        net = instantiate(cfg.model, vocab_size=V)
        attention = net.blocks[0].attention
        assert attention.q_norm is not attention.k_norm
        assert net(torch.randint(V, (2, 8))).isfinite().all()


def test_attention_with_a_qk_norm_forgets_the_size_of_q_and_k() -> None:
    torch.manual_seed(0)
    net, idx = gpt(qk_norm=partial(LayerNorm, eps=0.0)).double(), torch.randint(V, (4, BLOCK))
    before = net(idx)
    with torch.no_grad():
        for block in net.blocks:
            block.attention.qkv.weight[:C] *= 100
            block.attention.qkv.weight[C : 2 * C] *= 0.01
    assert torch.allclose(net(idx), before, rtol=0, atol=1e-10)


@pytest.mark.parametrize("placement", ["pre", "sandwich"])
def test_a_norm_for_one_kind_of_site_is_at_that_site_in_every_block(placement: str) -> None:
    norms = {
        site: partial(LayerNorm, eps=eps) for site, eps in (("attention_norm", 1), ("mlp_norm", 2))
    }
    net = gpt(placement=placement, final_norm=NoNorm, **norms)
    found = {name: m.eps for name, m in net.named_modules() if isinstance(m, LayerNorm)}
    inside = 2 if placement == "sandwich" else 1
    assert len(found) == 2 * LAYERS * inside
    assert all(eps == (1 if ".attention" in name else 2) for name, eps in found.items())
    assert isinstance(net.final_norm, NoNorm)


@pytest.mark.parametrize("placement", ["post", "deepnorm"])
def test_a_final_norm_can_be_asked_for_where_the_placement_has_none(placement: str) -> None:
    assert gpt(placement=placement).final_norm is None
    assert isinstance(gpt(placement=placement, final_norm=LayerNorm).final_norm, LayerNorm)


def test_site_norms_from_the_command_line_have_their_own_options(compose_config: Compose) -> None:
    sites = ("attention_norm", "mlp_norm", "embedding_norm", "qk_norm")
    cfg = compose_config(
        "norm=batchnorm",
        *(f"+norm@model.{site}=layernorm" for site in sites),
        "model.attention_norm.eps=1e-3",
        "+norm@model.final_norm=none",
        "model.embed_scale=3",
        "model.learn_embed_scale=true",
    )
    check(cfg, ROOT / "nowhere")
    net = instantiate(cfg.model, vocab_size=V, _convert_="all")
    block = net.blocks[-1]
    assert (block.attention_norm.eps, block.mlp_norm.eps) == (1e-3, 1e-5)
    assert isinstance(net.final_norm, NoNorm) and isinstance(net.embedding_norm, LayerNorm)
    assert block.attention.q_norm.normalized_shape == (32,)
    assert not any(isinstance(m, BatchNorm) for m in net.modules())
    assert isinstance(net.embed_scale, nn.Parameter) and net.embed_scale.item() == 3


def test_a_bare_name_is_no_norm(compose_config: Compose) -> None:
    wanted = r"^model\.mlp_norm=none is a name only; use \+norm@model\.mlp_norm=none$"
    with pytest.raises(ValueError, match=wanted):
        check(compose_config("+model.mlp_norm=none"), ROOT / "nowhere")


def test_the_learned_scale_starts_as_the_fixed_one_and_learns() -> None:
    idx = torch.randint(V, (4, BLOCK))
    fixed, learned = (gpt(embed_scale=5.0, learn_embed_scale=learn) for learn in (False, True))
    assert torch.equal(fixed(idx), learned(idx))
    assert isinstance(fixed.embed_scale, float)
    learned(idx).logsumexp(-1).sum().backward()
    assert learned.embed_scale.grad != 0


@pytest.mark.parametrize("gate", ["none", "rezero", "skipinit"])
def test_norm_params_counts_the_norms_and_neither_gates_nor_the_embeddings_scale(gate: str) -> None:
    options = {"embedding_norm": LayerNorm, "qk_norm": LayerNorm, "placement": "sandwich"}
    net = gpt(residual_gate=gate, learn_embed_scale=True, bias=True, **options)
    trainer = SimpleNamespace(global_step=0, strategy=SimpleNamespace(root_device="cpu"))
    lit = SimpleNamespace(net=net, trainer=trainer, loss_initial=0.0, device="cpu")
    batch = torch.zeros(4, BLOCK + 1, dtype=torch.long)
    data = SimpleNamespace(unigram_entropy=0.0, sha256="", windows=lambda: [batch])
    no_state = SimpleNamespace(state_dict=dict, tokens=0, seconds=0)
    result = measured(lit, data, no_state, no_state, True)
    assert result["norm_params"] == 2 * C * (4 * LAYERS + 2) + 2 * (C // HEADS) * 2 * LAYERS
    assert result["params"] == sum(p.numel() for p in net.parameters())
