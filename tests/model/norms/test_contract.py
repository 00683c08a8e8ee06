"""What every norm keeps, one case for each file of configs/norm; nothing is declared for any norm.

Each message says what the author of a norm should do. Reference: the contract of a norm
(`Norm(dim, *, ...)`, `forward(x, mask=None)`), the same norm in float64, and the same batch with
one thing changed. What holds in a net is in test_in_gpt.py. Legend: B batch, T time, C channels.
"""

import inspect
import io
import re
from collections.abc import Callable
from contextlib import nullcontext

import pytest
import torch
from hydra.utils import get_object
from omegaconf import OmegaConf
from torch import nn

from tests.conftest import NORMS, ROOT
from tests.model.norms import properties as p
from tests.model.norms.cases import why_not_built

B, T, C = p.B, p.T, p.C
ONE = torch.tensor([1])
INPUTS: dict[str, Callable[..., torch.Tensor]] = {
    "random": torch.randn,
    "constant": lambda *shape: torch.full(shape, 3.7),
    "constant rows": lambda *shape: torch.randn(*shape[:-1], 1).expand(shape).contiguous(),
    "zero": torch.zeros,
    "one token, the rest zero": lambda *shape: torch.zeros(shape).index_fill(1, ONE, 2.5),
    "tiny": lambda *shape: 1e-20 * torch.randn(shape),
    "1e4": lambda *shape: 1e4 * torch.randn(shape),
    "1e10": lambda *shape: 1e10 * torch.randn(shape),
    "1e15": lambda *shape: 1e15 * torch.randn(shape),
    "mean 1e3": lambda *shape: 1e3 + torch.randn(shape),
    "mean 1e4": lambda *shape: 1e4 + torch.randn(shape),
}
DTYPES = [torch.float32, torch.float64, torch.bfloat16]
OUT_OF_RANGE = {  # what a norm with an option of this name refuses
    "eps": (-1.0,),
    "momentum": (-0.1, 1.5),
    "warmup": (-0.1, 1.5),
    "p": (0.0, -0.5, 1.5),
    "ghost": (0, -1),
    "groups": (0, -1),
    "block_size": (0, -1),
    "total_steps": (0, -1),
}
IN_RANGE = {  # and what it takes
    "eps": (1e-12, 1e-3),
    "momentum": (0.0, 1.0),
    "warmup": (0.0, 1.0),
    "p": (0.01, 1.0),
    "ghost": (1, 3, None),
    "groups": (1, 2),
    "block_size": (1, 3),
    "total_steps": (1, 10),
}
RANGES = [  # every option of a yaml that has a range
    (name, option)
    for name in NORMS
    for option in OmegaConf.load(ROOT / f"configs/norm/{name}.yaml")
    if option in OUT_OF_RANGE
]
# What to do, where a test fails.
CAST = (
    "compute in float32 and cast back: "
    "y = x.to(torch.promote_types(x.dtype, torch.float32)), return y.to(x.dtype)"
)
FINITE = "add eps inside the root, and take variances in two passes: mean((x - mean)^2)"
MASK = "take statistics over the tokens where mask is True only; None means all"
STATE = "keep whatever the output depends on in parameters and buffers (register_buffer)"
EVAL = "use running statistics, and write buffers, in training only (`if self.training`)"


def right_padded() -> torch.Tensor:
    """(B, T) mask, True = a real token; the last positions have one real token only."""
    return torch.arange(T) < torch.tensor([8, 5, 2, 1, 8, 3])[:, None]


def backward(norm: nn.Module, x: torch.Tensor) -> list[torch.Tensor]:
    """Output and the gradients of input and parameters."""
    x = x.clone().requires_grad_()
    y = norm(x)
    y.backward(torch.randn_like(y))
    for parameter, value in norm.named_parameters():
        assert value.grad is not None, f"{parameter} gets no gradient: use it in forward"
    return [y, x.grad, *(parameter.grad for parameter in norm.parameters())]


def finite(values: list[torch.Tensor]) -> bool:
    return all(bool(value.isfinite().all()) for value in values)


@pytest.mark.parametrize("stem", NORMS)
def test_its_yaml_builds_it(stem: str) -> None:
    """The one test that fails where a yaml is wrong; the others skip that norm."""
    error = why_not_built(stem)
    assert error == "", (
        f"configs/norm/{stem}.yaml builds no norm: {error}. A norm must be callable as "
        "norm(n_embd), and each key of its yaml must be an option of its constructor"
    )


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("dtype", DTYPES)
def test_keeps_shape_and_dtype(make_norm: p.Make, dtype: torch.dtype, training: bool) -> None:
    norm = make_norm(C).train(training)  # a bf16 input meets parameters in float32, as in training
    y = (norm.double() if dtype == torch.float64 else norm)(torch.randn(B, T, C).to(dtype))
    assert y.shape == (B, T, C), f"return the input's shape {(B, T, C)}, got {tuple(y.shape)}"
    assert y.dtype == dtype, f"{dtype} came back as {y.dtype}; {CAST}"


def test_autocast_to_bf16_changes_nothing(make_norm: p.Make) -> None:
    for dtype in (torch.float32, torch.bfloat16):
        x = torch.randn(B, T, C).to(dtype)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = make_norm(C)(x)
        assert y.dtype == dtype, f"{dtype} came back as {y.dtype} under autocast; {CAST}"
        assert torch.equal(y, make_norm(C)(x)), (
            "autocast changes the values: avoid matrix products in forward, or give them `out=`"
        )


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("mean", [0, 1, 10, 100])
def test_a_bf16_input_gives_the_float64_result_of_that_input_rounded(
    make_norm: p.Make, mean: float, training: bool
) -> None:
    x = (mean + torch.randn(B, T, C)).bfloat16()  # statistics in bf16 would be off by a tenth
    y = make_norm(C).train(training)(x)
    exact = make_norm(C).double().train(training)(x.double())
    assert torch.allclose(y.double(), exact, rtol=2**-8, atol=1e-4), f"bf16 is inexact; {CAST}"


@pytest.mark.parametrize("mean", [0, 10, 1e3, 1e4])
def test_float32_is_off_by_no_more_than_the_rounding_of_its_input(
    make_norm: p.Make, mean: float
) -> None:
    x = mean + torch.randn(B, T, C)
    y, exact = make_norm(C)(x), make_norm(C).double()(x.double())
    # an input has steps of mean * 2**-23; after the norm they are as large in its unit
    tolerance = 8 * 2**-23 * (1 + mean) * (1 + exact.abs().max().item())
    assert (y - exact).abs().max() < tolerance, (
        "float32 loses digits: take the variance in two passes, mean((x - mean)^2), "
        "since mean(x^2) - mean^2 cancels"
    )


@pytest.mark.parametrize("kind", INPUTS)
def test_outputs_and_gradients_are_finite(make_norm: p.Make, kind: str) -> None:
    for dtype in (torch.float32, torch.bfloat16):
        for training in (True, False):
            norm = make_norm(C).train(training)
            for _ in range(2):  # the second batch meets what the first left in the buffers
                values = backward(norm, INPUTS[kind](B, T, C).to(dtype))
                assert finite(values), f"nan or inf in {dtype}, training={training}; {FINITE}"
            assert finite(list(norm.buffers())), f"nan or inf in a buffer; {FINITE}"


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_the_smallest_widths_work(make_norm: p.Make, dim: int) -> None:
    for training in (True, False):
        y, *gradients = backward(make_norm(dim).train(training), torch.randn(B, T, dim))
        assert y.shape == (B, T, dim), f"return the input's shape, got {tuple(y.shape)}"
        assert finite([y, *gradients]), f"nan or inf at a width of {dim}; {FINITE}"


@pytest.mark.parametrize("rows", [1, B])
def test_every_length_up_to_the_block_works(make_norm: p.Make, rows: int) -> None:
    for time in range(1, T + 1):
        norm, x = make_norm(C), torch.randn(rows, time, C)
        if rows * time > 1:  # one token alone has a test of its own
            assert finite(backward(norm, x)), f"nan or inf at {rows} x {time} tokens; {FINITE}"
        y, *gradients = backward(norm.eval(), x)
        assert y.shape == x.shape, f"return the input's shape, got {tuple(y.shape)}"
        assert finite([y, *gradients]), f"nan or inf at {rows} x {time} tokens; {FINITE}"


def test_one_token_in_training_is_taken_or_refused_with_what_to_do(make_norm: p.Make) -> None:
    refused = pytest.raises(ValueError, match=r"at least 2 tokens.*got 1.*raise data\.batch_size")
    with nullcontext() if p.works_with_one_token(p.started(make_norm)) else refused:
        assert finite(backward(make_norm(C), torch.randn(1, 1, C))), FINITE


def test_longer_than_the_block_is_taken_or_refused_in_one_line(make_norm: p.Make) -> None:
    norm, x = make_norm(C), torch.randn(B, T + 3, C)
    norm(x[:, :T])
    for training in (True, False):
        try:
            y = norm.train(training)(x)
        except ValueError as error:
            assert "\n" not in str(error), "say what was wanted, what came, what to do in one line"
        else:
            assert y.shape == x.shape, f"return the input's shape, got {tuple(y.shape)}"
            assert finite([y]), f"nan or inf past the block; {FINITE}"


def test_an_all_true_mask_is_as_no_mask_by_position_or_by_name(make_norm: p.Make) -> None:
    x, real = torch.randn(B, T, C), torch.ones(B, T, dtype=torch.bool)
    for training in (True, False):
        plain = make_norm(C).train(training)(x)
        by_position = make_norm(C).train(training)(x, real)
        by_name = make_norm(C).train(training)(x, mask=real)
        for y in (by_position, by_name):
            assert torch.allclose(y, plain, rtol=0, atol=1e-6), f"a full mask matters; {MASK}"


@pytest.mark.parametrize("training", [True, False])
def test_padding_changes_nothing_of_the_real_tokens(make_norm: p.Make, training: bool) -> None:
    mask, x, upstream = right_padded(), p.drawn(B, T, C), p.drawn(B, T, C, seed=1)
    upstream[~mask] = 0  # the loss does not see the padding
    results = []
    for padding in (0.0, -1e3):
        norm = p.started(make_norm).train(training)
        for _ in range(3):
            padded = torch.where(mask[..., None], x, padding).requires_grad_()
            y = norm(padded, mask)
            y.backward(upstream)
        parameters = [parameter.grad for parameter in norm.parameters()]
        assert y.shape == x.shape, f"return the input's shape, got {tuple(y.shape)}"
        assert finite([y]), f"nan or inf at the padding; {FINITE}"
        results.append([y[mask], padded.grad[mask], *parameters, *norm.buffers()])
    for a, b in zip(*results, strict=True):
        assert torch.allclose(a, b, rtol=1e-12, atol=1e-12), f"padding is seen; {MASK}"


def test_a_saved_state_restores_the_norm(make_norm: p.Make) -> None:
    norm, file = p.phases(make_norm)["later"].float().eval(), io.BytesIO()
    torch.save(norm.state_dict(), file)
    file.seek(0)
    restored = make_norm(C).eval()
    restored.load_state_dict(torch.load(file, weights_only=True))
    x = torch.randn(B, T, C)
    assert torch.equal(restored(x), norm(x)), f"a reloaded norm gives another output; {STATE}"
    assert restored.state_dict().keys() == norm.state_dict().keys()
    assert all(torch.equal(v, norm.state_dict()[k]) for k, v in restored.state_dict().items())
    for module in (norm, restored):  # and goes on from there in training
        module.train()
        [backward(module, x + k) for k in range(2)]
    assert torch.equal(restored(x), norm(x)), f"a reloaded norm trains on differently; {STATE}"


def test_eval_is_deterministic_and_moves_no_state(make_norm: p.Make) -> None:
    norm, x = p.phases(make_norm)["later"].eval(), p.drawn(B, T, C)
    before = {name: value.clone() for name, value in norm.state_dict().items()}
    assert torch.equal(norm(x), norm(x)), f"two evaluations of one input differ; {EVAL}"
    for name, value in norm.state_dict().items():
        assert torch.equal(value, before[name]), f"evaluation moves {name}; {EVAL}"


def test_an_unknown_option_is_refused(make_norm: p.Make) -> None:
    with pytest.raises(TypeError, match="no_such_option"):
        make_norm(C, no_such_option=1)  # a failure here: take no **kwargs


def test_options_are_given_by_name_only(make_norm: p.Make) -> None:
    with pytest.raises(TypeError, match="positional"):
        make_norm(C, 1e-5)  # a failure here: put a `*` after the width, def __init__(self, dim, *


def test_options_are_shown(name: str, make_norm: p.Make) -> None:
    shown = repr(make_norm(C))
    assert shown.startswith(type(make_norm(C)).__name__)
    for option, value in p.configs()[name].items():
        assert str(option).startswith("_") or f"{option}={value}" in shown, (
            f"show the options in extra_repr: {option}={value} is not in {shown}"
        )


def test_options_have_annotations(name: str, make_norm: p.Make) -> None:
    parameters = inspect.signature(type(make_norm(C)).__init__).parameters
    for option in p.configs()[name]:
        assert (
            str(option).startswith("_") or parameters[option].annotation != inspect.Parameter.empty
        ), (
            f"annotate {option} in __init__ (float, int, bool, `float | None`): "
            "a value of another type is refused by it"
        )


@pytest.mark.parametrize(("name", "option"), RANGES, indirect=["name"])
def test_an_option_out_of_its_range_is_refused(make_norm: p.Make, option: str) -> None:
    for value in OUT_OF_RANGE[option]:
        wanted = rf"norm\.{option} must be .*, got {re.escape(str(value))}"
        with pytest.raises(ValueError, match=wanted):  # a failure here: check it in __init__
            make_norm(C, **{option: value})


@pytest.mark.parametrize(("name", "option"), RANGES, indirect=["name"])
def test_an_option_in_its_range_is_taken(make_norm: p.Make, option: str) -> None:
    for value in IN_RANGE[option]:
        y = make_norm(C, **{option: value})(torch.randn(B, T, C))
        assert finite([y]), f"nan or inf with {option}={value}; {FINITE}"


def test_is_a_plain_module(make_norm: p.Make) -> None:
    bases = type(make_norm(C)).__bases__
    assert bases == (nn.Module,), "derive from nn.Module alone: a norm's file is read alone"


def test_every_norm_file_has_a_yaml_and_every_yaml_a_class() -> None:
    files = {path.stem for path in (ROOT / "model/norms").glob("*.py")} - {"__init__"}
    targets = {n: OmegaConf.load(ROOT / f"configs/norm/{n}.yaml")._target_ for n in NORMS}
    classes = {n: get_object(target) for n, target in targets.items() if not why_not_built(n)}
    assert {n for n, found in classes.items() if not issubclass(found, nn.Module)} == set()
    named = {target.split(".")[-2] for target in targets.values()}
    assert files - named == set(), "add a yaml to configs/norm for each of these files"
    assert named - files == set(), "these files, named as _target_, are not in model/norms"
