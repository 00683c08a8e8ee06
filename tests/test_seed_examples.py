"""The examples of the notes this project grew from, and the defects of the code they link to.

Reference: the notes' own formulas, once token by token and once with all tokens together, written
out here; torch's layers; float64. The defects' tests say what ours does instead.
Legend: B batch, T time, C channels (features).
"""

import importlib.util
import math
import sys
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from model.gpt import GPT
from model.lit import LitGPT
from model.norms.batchnorm import BatchNorm
from model.norms.layernorm import LayerNorm
from tests.conftest import ROOT

BOTH = [LayerNorm, BatchNorm]
SOURCES = [
    *ROOT.glob("*.py"),
    *(p for d in ("model", "data", "run") for p in (ROOT / d).rglob("*.py")),
]
CAT, DOG = "The cat meows.", "The barking dog looks at the cat."
PAD = "(nothing)"


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


class Count(TorchDispatchMode):
    """Counts torch's operations."""

    calls = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.calls += 1
        return func(*args, **(kwargs or {}))


def double(*shape: int) -> torch.Tensor:
    return 2 + 3 * torch.randn(shape, dtype=torch.float64)


def equal(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Equal but for float64 rounding."""
    assert a.dtype == b.dtype == torch.float64 and a.shape == b.shape
    return torch.allclose(a, b, rtol=0, atol=1e-12)


def token_by_token(x: torch.Tensor) -> torch.Tensor:
    """(B, T, C): each word's vector takes its own mean and biased variance, eps 1e-5."""
    words = []
    for word in x.reshape(-1, x.shape[-1]).unbind():
        mean = sum(word.tolist()) / len(word)
        variance = sum((value - mean) ** 2 for value in word.tolist()) / len(word)
        words.append((word - mean) / math.sqrt(variance + 1e-5))
    return torch.stack(words).view_as(x)


def all_together(x: torch.Tensor) -> torch.Tensor:
    """The same with one reduction each for all means and variances; the reduced axis stays."""
    variance, mean = torch.var_mean(x, dim=-1, correction=0, keepdim=True)
    return (x - mean) / (variance + 1e-5).sqrt()


def test_token_by_token_and_all_together_agree_with_our_layernorm() -> None:
    x = double(4, 6, 512)
    assert equal(token_by_token(x), all_together(x))
    assert equal(LayerNorm(512).double()(x), all_together(x))


def test_a_batch_of_mean_10_and_std_5_comes_out_with_mean_0_and_std_1_per_token() -> None:
    normal = torch.randn(32, 64, 512)
    assert normal.min() < -3 and normal.max() > 3  # randn does not draw between 0 and 1
    x = normal * 5 + 10
    assert x.mean().item() == pytest.approx(10, abs=0.02)
    assert x.std().item() == pytest.approx(5, abs=0.02)  # so the variance is 25, not 5
    y = LayerNorm(512)(x)
    assert y.shape == x.shape and y.mean(-1).abs().max() < 1e-5
    assert (y.std(-1, correction=0) - 1).abs().max() < 1e-5


def test_images_have_32_statistics_under_layernorm_and_3_under_batchnorm() -> None:
    x = double(32, 3, 64, 64)
    wanted = [F.layer_norm(image, image.shape) for image in x]  # over (C, H, W), one per image
    assert equal(LayerNorm((3, 64, 64)).double()(x), torch.stack(wanted))
    norm = BatchNorm(3).double()
    y = norm(x.movedim(1, -1)).movedim(-1, 1)
    channels = [(c - c.mean()) / (c.var(correction=0) + 1e-5).sqrt() for c in x.unbind(1)]
    assert norm.running_mean.shape == norm.running_var.shape == (3,)
    assert equal(y, torch.stack(channels, dim=1))


def test_text_has_one_statistic_for_each_token_under_layernorm() -> None:
    x = double(2, 3, 8)
    tokens = [F.layer_norm(token, (8,)) for token in x.view(-1, 8)]  # over (C,), one per token
    assert equal(LayerNorm(8).double()(x), torch.stack(tokens).view_as(x))
    assert not torch.allclose(LayerNorm(8).double()(x), LayerNorm((3, 8)).double()(x), atol=0.1)


def words(*sentences: str, padding: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Vectors (B, T, C) of the sentences' words, right-padded, and the mask of the real ones."""
    rows = [sentence.lower().strip(".").split() for sentence in sentences]
    length = max(map(len, rows)) + padding
    padded = [row + [PAD] * (length - len(row)) for row in rows]
    known = sorted({word for row in padded for word in row})
    generators = {w: torch.Generator().manual_seed(int.from_bytes(w.encode()[:7])) for w in known}
    vectors = {w: torch.randn(16, generator=g, dtype=torch.float64) for w, g in generators.items()}
    mask = torch.tensor([[word != PAD for word in row] for row in padded])
    return torch.stack([torch.stack([vectors[word] for word in row]) for row in padded]), mask


def cat(
    norm: type[nn.Module], *sentences: str, masked: bool = False, padding: int = 0
) -> torch.Tensor:
    """The normalized vector of the second word of the first sentence, in training."""
    x, mask = words(*sentences, padding=padding)
    return norm(16).double()(x, mask if masked else None)[0, 1]


@pytest.mark.parametrize("masked", [True, False])
def test_the_word_cat_depends_on_the_other_sentence_under_batchnorm_only(masked: bool) -> None:
    other = DOG.replace("barking", "sleeping")
    assert equal(cat(LayerNorm, CAT, DOG, masked=masked), cat(LayerNorm, CAT, other, masked=masked))
    before, after = (cat(BatchNorm, CAT, text, masked=masked) for text in (DOG, other))
    assert (before - after).abs().max() > 0.05


def test_the_word_cat_depends_on_padding_under_batchnorm_unless_it_is_masked() -> None:
    for masked in (True, False):
        a, b = (cat(LayerNorm, CAT, DOG, masked=masked, padding=n) for n in (0, 5))
        assert equal(a, b)
    a, b = (cat(BatchNorm, CAT, DOG, masked=True, padding=n) for n in (0, 5))
    assert equal(a, b)
    a, b = (cat(BatchNorm, CAT, DOG, padding=n) for n in (0, 5))
    assert (a - b).abs().max() > 0.05


def test_a_batch_of_one_sentence_works_and_batchnorm_needs_a_second_word() -> None:
    for text in (CAT, "Cat"):
        x, _ = words(text)
        assert equal(LayerNorm(16).double()(x), all_together(x))
    assert BatchNorm(16).double()(words(CAT)[0]).isfinite().all()
    with pytest.raises(ValueError, match="at least 2 tokens"):
        BatchNorm(16).double()(words("Cat")[0])


@pytest.mark.parametrize("norm", BOTH)
def test_the_gain_multiplies_and_the_shift_adds(norm: type[nn.Module]) -> None:
    x, ours = double(4, 6, 8), norm(8).double()
    normalized = ours(x)
    gain, shift = torch.linspace(0.5, 2, 8).double(), torch.linspace(-1, 1, 8).double()
    ours.load_state_dict({**ours.state_dict(), "weight": gain, "bias": shift})
    assert equal(ours(x), gain * normalized + shift)


def test_the_gain_that_undoes_batchnorm_is_the_standard_deviation_not_the_variance() -> None:
    x, norm = double(4, 6, 8), BatchNorm(8, eps=0.0).double()
    tokens = x.view(-1, 8)
    start = {"weight": tokens.std(0, correction=0), "bias": tokens.mean(0)}
    norm.load_state_dict({**norm.state_dict(), **start})
    assert equal(norm(x), x)


@pytest.mark.parametrize("shape", [(8,), (5, 8), (2, 3, 8), (2, 3, 4, 8)])
def test_layernorm_takes_any_number_of_leading_axes(shape: tuple[int, ...]) -> None:
    x = double(*shape)  # statistics broadcast back, and nothing is fixed to three axes
    assert equal(LayerNorm(8).double()(x), token_by_token(x))


def test_layernorm_takes_as_many_operations_for_one_token_as_for_many() -> None:
    counts = []
    for shape in ((1, 1, 8), (32, 64, 8)):  # there is no Python loop over B and T
        with Count() as count:
            LayerNorm(8)(torch.empty(shape))
        counts.append(count.calls)
    assert counts[0] == counts[1] > 3


def test_layernorm_takes_the_biased_variance_with_eps_inside_the_root() -> None:
    x = double(4, 6, 32)  # unbiased, the output would be smaller by 0.984
    centred = x - x.mean(-1, keepdim=True)
    ratio = centred / x.std(-1, correction=1, keepdim=True) / LayerNorm(32, eps=0.0).double()(x)
    assert torch.allclose(ratio, torch.full_like(x, math.sqrt(31 / 32)), rtol=1e-9)
    flat = torch.full((8,), 5.0, requires_grad=True)
    LayerNorm(8)(flat).sum().backward()
    assert flat.grad.isfinite().all()  # outside the root: NaN


@pytest.mark.parametrize("norm", BOTH)
def test_gain_and_shift_are_learned_and_can_be_left_out(norm: type[nn.Module]) -> None:
    assert {name: p.shape for name, p in norm(8).named_parameters()} == {
        "weight": (8,),
        "bias": (8,),
    }
    off = {"affine": False} if norm is BatchNorm else {"weight": False, "bias": False}
    assert not list(norm(8, **off).parameters())


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_nothing_runs_on_import(
    path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = importlib.util.spec_from_file_location("fresh", path)  # a copy that nobody has imported
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "fresh", module)
    random_state = torch.get_rng_state()
    with Count() as count:
        spec.loader.exec_module(module)
    assert count.calls == 0 and torch.equal(torch.get_rng_state(), random_state)
    assert capfd.readouterr() == ("", "")
    assert not any(isinstance(v, torch.Tensor | nn.Module) for v in vars(module).values())


@pytest.mark.parametrize("norm", BOTH)
def test_train_and_eval_switch_the_mode_of_a_whole_net(norm: type[nn.Module]) -> None:
    net = nn.Sequential(nn.Linear(8, 8), norm(8))  # the flag must not hide the method
    assert net.eval() is net and not net[1].training
    assert net.train() is net and net[1].training and norm(8).train(False).training is False
    x, ours = double(4, 6, 8), norm(8).double()
    moved = (ours.train()(x) - ours.eval()(x)).abs().max()
    assert moved > 0.1 if norm is BatchNorm else moved == 0


@pytest.mark.parametrize("norm", BOTH)
def test_the_variance_survives_a_mean_of_ten_thousand_in_float32(norm: type[nn.Module]) -> None:
    x = 1e4 + torch.randn(768, 768)
    naive = x.square().mean(-1) - x.mean(-1).square()
    assert naive.min() < 0  # the mean of squares minus the squared mean
    exact = norm(768).double()(x.double())
    assert (norm(768)(x) - exact).abs().max() < 0.01


def test_batchnorm_keeps_no_graph_counts_its_batches_and_stores_the_unbiased_variance() -> None:
    norm, x = BatchNorm(8, momentum=1.0).double(), double(4, 6, 8).requires_grad_()
    for step in range(3):
        norm(x).sum().backward()
        assert norm.num_batches_tracked == step + 1
    assert norm.running_mean.grad_fn is None and norm.running_var.grad_fn is None
    assert equal(norm.running_var, x.detach().view(-1, 8).var(0, correction=1))


def test_a_norms_parameter_of_any_shape_does_not_decay() -> None:
    class Odd(nn.Module):
        def __init__(self, dim: int) -> None:
            super().__init__()
            self.gamma = nn.Parameter(torch.ones(1, dim, 1))  # more than one axis
            self.scale = nn.Parameter(torch.ones(()))

    net = GPT(5, 4, 2, 1, 8, Odd)
    adamw = partial(torch.optim.AdamW, weight_decay=0.1)
    lit = LitGPT(net, adamw, partial(torch.optim.lr_scheduler.ConstantLR), seed=1, log_every=1)
    groups = lit.configure_optimizers()["optimizer"].param_groups
    decaying = {id(p) for g in groups if g["weight_decay"] for p in g["params"]}
    odd = [p for name, p in net.named_parameters() if name.endswith(("gamma", "scale"))]
    assert len(odd) == 10 and len(decaying) == 10 and not decaying & {id(p) for p in odd}


def test_batchnorm_pools_batch_and_time_for_each_feature_of_the_last_axis() -> None:
    x = double(4, 8, 8)  # T = C, so no shape would tell of a mix-up of the axes
    y = BatchNorm(8).double()(x)
    assert y.mean((0, 1)).abs().max() < 1e-12
    assert (y.std((0, 1), correction=0) - 1).abs().max() < 1e-5
    assert y.mean((0, 2)).abs().max() > 0.1  # not for each position's features
    assert y.mean(0).abs().max() > 0.1  # nor for each position over the batch
