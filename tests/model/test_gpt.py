"""GPT's sizes, its init and its sampling; its forward pass is in test_gpt_placement.py.

Reference: standard deviations by hand, greedy decoding written as a loop, frequencies.
Legend: B batch, T time, C channels (n_embd), H heads, D head size, V vocabulary.
"""

import math

import pytest
import torch
from torch import nn

from model.gpt import GPT
from model.norms.batchnorm import BatchNorm
from model.norms.layernorm import LayerNorm
from model.norms.none import NoNorm

V, BLOCK, LAYERS, HEADS, C = 11, 8, 2, 3, 12
SIZES = {"vocab_size": V, "block_size": BLOCK, "n_layer": LAYERS, "n_head": HEADS, "n_embd": C}


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


def gpt(**changes: object) -> GPT:
    return GPT(**{**SIZES, "norm": LayerNorm, **changes})


def lively(**changes: object) -> GPT:
    """In eval mode, in float64, every parameter random: each matters, and text is varied."""
    net = gpt(**changes).double().eval()
    draw = torch.Generator().manual_seed(1)
    for name, parameter in net.named_parameters():
        small = "embedding" in name or name.endswith("norm.bias")
        nn.init.normal_(parameter, std=0.2 if small else 1.0, generator=draw)
    return net


def ids(*shape: int) -> torch.Tensor:
    return torch.randint(V, shape)


def test_dropout_acts_in_training_only() -> None:
    net, idx = gpt(dropout=0.5), ids(4, BLOCK)
    assert not torch.equal(net(idx), net(idx))
    assert torch.equal(net.eval()(idx), gpt()(idx))


def test_the_head_is_the_token_embedding() -> None:
    net, idx = lively(), ids(4, BLOCK) % (V - 1)  # the last character is nowhere in the input
    before = net(idx)
    with torch.no_grad():
        net.token_embedding.weight[V - 1] += 1
    after = net(idx)
    assert torch.equal(after[..., : V - 1], before[..., : V - 1])
    assert (after[..., V - 1] != before[..., V - 1]).all()


def test_more_than_block_size_characters_are_refused() -> None:
    with pytest.raises(ValueError, match=f"block_size={BLOCK} .*got {BLOCK + 1}"):
        gpt()(ids(1, BLOCK + 1))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("value", [0, -1])
def test_a_size_below_one_is_refused_and_named(size: str, value: int) -> None:
    with pytest.raises(ValueError, match=f"{size}={value}"):
        gpt(**{size: value})


@pytest.mark.parametrize(
    ("option", "value"),
    [("n_head", 5), ("placement", "middle"), ("residual_gate", "half"), ("init", "zeros")]
    + [("dropout", value) for value in (-0.1, 1.0, math.nan)],
)
def test_an_invalid_option_is_refused_and_named(option: str, value: object) -> None:
    with pytest.raises(ValueError, match=f"{option}={value}"):
        gpt(**{option: value})


def stds(net: GPT) -> dict[str, float]:
    """Measured standard deviation of each matrix, Q, K and V apart."""
    found = {}
    for name, p in net.named_parameters():
        if p.dim() == 2:
            parts = dict(zip("qkv", p.chunk(3), strict=True)) if "qkv" in name else {"": p}
            found |= {
                name.removesuffix(".weight") + part: w.std().item() for part, w in parts.items()
            }
    return found


WIDE = {"vocab_size": 65, "block_size": 64, "n_layer": 3, "n_head": 4, "n_embd": 96}


def test_nanogpt_init_is_0_02_and_smaller_where_a_branch_joins_the_residual_stream() -> None:
    measured = stds(gpt(**WIDE))
    assert len(measured) == 2 + 3 * 6
    for name, std in measured.items():
        wanted = 0.02 / math.sqrt(2 * 3) if name.endswith("proj") else 0.02
        assert std == pytest.approx(wanted, rel=0.04), name


def test_xavier_init_has_variance_two_over_fan_in_plus_fan_out() -> None:
    wide = 96
    fans = {"q": wide, "k": wide, "v": wide, "attention.proj": wide, "fc": 4 * wide}
    for name, std in stds(gpt(**WIDE, init="xavier")).items():
        if "embedding" in name:
            wanted = wide**-0.5
        elif name.endswith("mlp.proj"):
            wanted = math.sqrt(2 / (4 * wide + wide))
        else:
            out = next(fan for end, fan in fans.items() if name.endswith(end))
            wanted = math.sqrt(2 / (wide + out))
        assert std == pytest.approx(wanted, rel=0.04), name


def test_both_inits_scale_the_same_draw_and_biases_start_at_zero() -> None:
    a, b = gpt(bias=True), gpt(bias=True, init="xavier")
    pairs = list(zip(a.named_parameters(), b.named_parameters(), strict=True))
    matrices = [(p, q) for (_, p), (_, q) in pairs if p.dim() == 2]
    biases = [z for pair in pairs for name, z in pair if name.endswith("bias")]
    assert len(matrices) == 2 + 4 * LAYERS and len(biases) == 2 * (1 + 6 * LAYERS)
    assert all(torch.allclose(p / p.std(), q / q.std(), rtol=1e-4) for p, q in matrices)
    assert not any(bias.any() for bias in biases)


def matrices(net: GPT) -> dict[str, torch.Tensor]:
    return {name: p.detach() for name, p in net.named_parameters() if p.dim() == 2}


def test_init_depends_on_seed_and_name_not_on_norm_bias_or_the_global_generator() -> None:
    wanted = matrices(gpt())
    for changes in ({"norm": BatchNorm}, {"norm": NoNorm}, {"bias": True}, {"dropout": 0.1}):
        found = matrices(gpt(**changes))  # the global generator has moved on
        assert found.keys() == wanted.keys()
        assert all(torch.equal(found[name], wanted[name]) for name in wanted), changes
    other = matrices(gpt(seed=2))
    assert not any(torch.equal(other[name], wanted[name]) for name in wanted)
    first, second = (wanted[f"blocks.{i}.mlp.fc.weight"] for i in range(2))
    assert abs(torch.corrcoef(torch.stack([first.flatten(), second.flatten()]))[0, 1]) < 0.1


def test_a_linear_layer_inside_a_norm_keeps_the_start_that_the_norm_gave_it() -> None:
    class Mixed(nn.Module):
        def __init__(self, dim: int) -> None:
            super().__init__()
            self.proj = nn.Linear(dim, dim)
            nn.init.eye_(self.proj.weight)

    net = gpt(norm=Mixed)
    assert torch.equal(net.blocks[0].mlp_norm.proj.weight, torch.eye(C))


@pytest.mark.parametrize("prompt", [1, BLOCK, 3 * BLOCK])
@pytest.mark.parametrize("how", [{"temperature": 0}, {"top_k": 1}], ids=str)
def test_greedy_text_is_the_argmax_of_each_step_and_keeps_the_whole_prompt(
    how: dict[str, float], prompt: int
) -> None:
    net, start = lively(), ids(4, prompt)
    wanted = start
    for _ in range(2 * BLOCK):
        wanted = torch.cat([wanted, net(wanted[:, -BLOCK:])[:, -1:].argmax(-1)], dim=1)
    assert len(wanted[:, prompt:].unique()) > 3  # or a wrong crop would pass unseen
    assert torch.equal(net.generate(start, 2 * BLOCK, **how), wanted)


@pytest.mark.parametrize("count", [0, 1, 20])
def test_generates_exactly_max_new_tokens_of_the_vocabulary(count: int) -> None:
    text = lively().generate(ids(2, 3), count)
    assert text.shape == (2, 3 + count) and text.min() >= 0 and text.max() < V


def test_one_seed_gives_one_text_and_leaves_the_global_generator_alone() -> None:
    net, start = lively(), ids(1, 3)
    before = torch.get_rng_state()
    texts = [
        net.generate(start, 40, generator=torch.Generator().manual_seed(number))
        for number in (1, 1, 2)
    ]
    assert torch.equal(texts[0], texts[1]) and not torch.equal(texts[0], texts[2])
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("temperature", [0.5, 2.0])
@pytest.mark.parametrize("top_k", [None, 3, V + 5])
def test_draws_follow_the_softmax_at_that_temperature_over_the_k_likeliest(
    top_k: int | None, temperature: float
) -> None:
    net, draws = lively(), 20_000
    start = ids(1, 4)
    logits = net(start)[0, -1]
    if top_k == 3:
        logits[logits.argsort(descending=True)[3:]] = -math.inf
    wanted = (logits / temperature).softmax(-1)
    drawn = net.generate(start.expand(draws, -1), 1, temperature=temperature, top_k=top_k)[:, -1]
    frequencies = torch.bincount(drawn, minlength=V) / draws
    assert (frequencies - wanted).abs().max() < 0.015  # four standard errors
    assert not frequencies[wanted == 0].any()


@pytest.mark.parametrize(
    "how", [{"top_k": 0}, {"temperature": -1.0}, {"temperature": math.nan}], ids=str
)
def test_invalid_sampling_is_refused(how: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(how))):
        gpt().generate(ids(1, 3), 2, **how)


def test_generation_leaves_the_mode_and_the_weights_alone() -> None:
    net = gpt()
    for training in (True, False):
        before = {name: p.clone() for name, p in net.train(training).named_parameters()}
        text = net.generate(ids(1, 3), 2)
        assert net.training is training and not text.requires_grad
        assert all(torch.equal(p, before[name]) for name, p in net.named_parameters())
