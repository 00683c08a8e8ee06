"""What every norm keeps inside GPT, one case for each file of configs/norm.

Reference: the same net with one thing changed, and the entropy of the characters of a batch, which
is what a net learns that does not look at its input. Legend: B batch, T time, C channels.
"""

import math
from collections.abc import Callable

import pytest
import torch
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate
from omegaconf import DictConfig
from torch import nn
from torch.nn import functional as F

from model.gpt import GPT
from model.lit import LitGPT
from tests.model.norms import properties as p
from tests.model.norms.cases import VOCAB, ids

B, T, C = p.B, p.T, p.C
LEARNING_STEPS, ROWS, EMBED_SCALES = 100, 16, (1.0, 8.0)
Make = Callable[..., nn.Module]


@pytest.fixture
def make_norm(name: str) -> Make:
    total = {"total_steps": LEARNING_STEPS} if "total_steps" in p.configs()[name] else {}
    return p.make_norm(name, **total)


def gpt(make_norm: Make, **changes: object) -> GPT:
    sizes = {"vocab_size": VOCAB, "block_size": T, "n_layer": 2, "n_head": 2, "n_embd": C}
    return GPT(**{**sizes, **changes}, norm=make_norm)


def loss_of(net: nn.Module, batch: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(net(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())


@pytest.mark.parametrize("training", [True, False])
def test_padding_changes_no_logit_loss_gradient_or_state(make_norm: Make, training: bool) -> None:
    mask = torch.arange(T) < torch.tensor([8, 5, 2, 1, 8, 3])[:, None]
    inputs, targets = ids(0), ids(1).masked_fill(~mask, -100)
    results = []
    for padding in (0, VOCAB - 1):
        net = gpt(make_norm, embed_scale=8.0).double().train(training)
        for _ in range(3):  # what one batch leaves in the buffers, the next meets
            logits = net(inputs.masked_fill(~mask, padding), mask)
            loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
            loss.backward()
        gradients = [parameter.grad for parameter in net.parameters()]
        results.append([logits[mask], loss, *gradients, *net.buffers()])
        assert all(value.isfinite().all() for value in results[-1])
    for a, b in zip(*results, strict=True):
        assert torch.allclose(a, b, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_the_smallest_widths_work(make_norm: Make, dim: int) -> None:
    net = gpt(make_norm, n_embd=dim, n_head=1)
    loss_of(net, torch.randint(VOCAB, (B, T + 1))).backward()
    assert all(parameter.grad.isfinite().all() for parameter in net.parameters())


def test_under_autocast_to_bf16_loss_and_gradients_are_finite(make_norm: Make) -> None:
    net, batch = gpt(make_norm), torch.randint(VOCAB, (B, T + 1))
    for training in (True, False):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = loss_of(net.train(training), batch)
        loss.backward()
        assert loss.isfinite()
        assert all(parameter.grad.isfinite().all() for parameter in net.parameters())


def test_every_parameter_gets_a_gradient(make_norm: Make) -> None:
    net = gpt(make_norm, bias=True)
    loss_of(net, torch.randint(VOCAB, (B, T + 1))).backward()
    for name, parameter in net.named_parameters():
        assert parameter.grad is not None and parameter.grad.any(), (
            f"{name} gets no gradient: let forward use it, and not behind detach()"
        )


def test_no_two_sites_share_a_module_or_a_parameter(make_norm: Make) -> None:
    net = gpt(make_norm)
    assert len([m for m in net.modules() if type(m) is type(make_norm(C))]) == 5
    pairs = list(net.named_parameters(remove_duplicate=False))
    assert len({id(parameter) for _, parameter in pairs}) == len(pairs)


def test_eval_is_deterministic_and_moves_no_state(make_norm: Make) -> None:
    net = p.trained(gpt(make_norm, dropout=0.5), [ids(0)]).eval()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    assert torch.equal(net(ids(1)), net(ids(1)))
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())


def test_linear_and_embedding_weights_decay_and_nothing_else(
    make_norm: Make, config: DictConfig
) -> None:
    net = gpt(make_norm, bias=True)
    optimizer = instantiate(config.optimizer, _convert_="all")
    lit = LitGPT(net, optimizer, instantiate(config.scheduler), seed=1, log_every=1)
    decaying, rest = lit.configure_optimizers()["optimizer"].param_groups
    assert decaying["weight_decay"] == config.optimizer.weight_decay > 0 == rest["weight_decay"]
    wanted = {id(m.weight) for m in net.modules() if isinstance(m, nn.Linear | nn.Embedding)}
    grouped = [id(parameter) for group in (decaying, rest) for parameter in group["params"]]
    assert {id(parameter) for parameter in decaying["params"]} == wanted
    assert sorted(grouped) == sorted(id(parameter) for parameter in net.parameters())


@pytest.fixture(scope="module")
def config() -> DictConfig:
    with initialize_config_dir(str(p.CONFIGS), version_base="1.3"):
        return compose("train")


def shared_weights(make_norm: Make, seed: int) -> dict[str, torch.Tensor]:
    modules = gpt(make_norm, seed=seed).named_modules()
    return {n: m.weight for n, m in modules if isinstance(m, nn.Linear | nn.Embedding)}


def test_shared_weights_start_bit_identical_for_one_seed_and_differ_for_another(
    make_norm: Make,
) -> None:
    first, other_seed = (shared_weights(Dead, seed) for seed in (1, 2))
    assert len(first) == 10  # two embeddings, two blocks of four matrices
    assert not any(torch.equal(first[name], other_seed[name]) for name in first)
    torch.manual_seed(5)  # the global generator has no say
    again = shared_weights(make_norm, 1)
    assert again.keys() == first.keys()
    assert all(torch.equal(again[name], first[name]) for name in first)


@pytest.fixture(scope="module")
def verse() -> torch.Tensor:
    """One batch of made-up verse, (ROWS, T + 1) ids: some characters are frequent."""
    words = ["thee", "love", "king", "o", "night", "and", "of", "sword", "the", "art"]
    draw = torch.Generator().manual_seed(0)
    picks = torch.randint(len(words), (80,), generator=draw)
    text = " ".join(words[i] for i in picks)[: ROWS * (T + 1)]
    letters = sorted(set(text))
    assert len(letters) <= VOCAB
    return torch.tensor([letters.index(c) for c in text]).view(ROWS, T + 1)


def unigram_entropy(batch: torch.Tensor) -> float:
    share = torch.bincount(batch[:, 1:].flatten()) / batch[:, 1:].numel()
    return -torch.special.xlogy(share, share).sum().item()


def learned(make_norm: Make, batch: torch.Tensor, embed_scale: float) -> float:
    """Loss in train mode after the last step on the batch."""
    net = gpt(make_norm, n_embd=32, embed_scale=embed_scale)
    optimizer = torch.optim.AdamW(net.parameters(), lr=3e-3)
    for _ in range(LEARNING_STEPS + 1):
        loss = loss_of(net, batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def test_a_hundred_steps_on_one_batch_learn_more_than_how_often_each_character_comes(
    make_norm: Make, verse: torch.Tensor
) -> None:
    bound = unigram_entropy(verse) - 0.1
    # a norm rescales its input, or needs one of size 1: the first scale will do, or the second
    losses = (learned(make_norm, verse, scale) for scale in EMBED_SCALES)
    assert any(loss < bound for loss in losses), (
        f"the loss stays above {bound:.3f}, what a net reaches that does not look at its input: "
        "let the input through to the output, and its gradient back"
    )


class Dead(nn.Module):
    """Keeps nothing of its input."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(dim))

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        return 0.0 * x + self.bias


def test_a_dead_norm_learns_how_often_each_character_comes_and_no_more(
    verse: torch.Tensor,
) -> None:
    entropy = unigram_entropy(verse)
    assert entropy < math.log(VOCAB) - 0.3  # guessing is worse by more than the margin
    assert all(learned(Dead, verse, scale) > entropy - 0.1 for scale in EMBED_SCALES)
