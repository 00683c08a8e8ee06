"""What every norm keeps, one case for each file of configs/norm; nothing is declared for any norm.

Reference: the contract of a norm (`Norm(dim, *, ...)`, `forward(x, mask=None)`), the same norm in
float64, and the same batch with one thing changed. What holds in a net is in test_in_gpt.py.
Legend: B batch, T time, C channels.
"""

import io
from collections.abc import Callable

import pytest
import torch
from hydra.utils import get_object
from omegaconf import OmegaConf
from torch import nn

from model import properties as p
from tests.conftest import NORMS, ROOT

B, T, C = p.B, p.T, p.C
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
ONE = torch.tensor([1])
DTYPES = [torch.float32, torch.float64, torch.bfloat16]
Make = Callable[..., nn.Module]


@pytest.fixture(params=NORMS)
def name(request: pytest.FixtureRequest) -> str:
    torch.manual_seed(0)
    return request.param


@pytest.fixture
def make_norm(name: str) -> Make:
    return p.make_norm(name)


def right_padded() -> torch.Tensor:
    """(B, T) mask, True = a real token; the last positions have one real token only."""
    return torch.arange(T) < torch.tensor([8, 5, 2, 1, 8, 3])[:, None]


def backward(norm: nn.Module, x: torch.Tensor) -> list[torch.Tensor]:
    """Output and the gradients of input and parameters."""
    x = x.clone().requires_grad_()
    y = norm(x)
    y.backward(torch.randn_like(y))
    return [y, x.grad, *(parameter.grad for parameter in norm.parameters())]


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("dtype", DTYPES)
def test_keeps_shape_and_dtype(make_norm: Make, dtype: torch.dtype, training: bool) -> None:
    norm = make_norm(C).train(training)  # a bf16 input meets parameters in float32, as in training
    y = (norm.double() if dtype == torch.float64 else norm)(torch.randn(B, T, C).to(dtype))
    assert y.shape == (B, T, C) and y.dtype == dtype


def test_autocast_to_bf16_changes_nothing(make_norm: Make) -> None:
    for dtype in (torch.float32, torch.bfloat16):
        x = torch.randn(B, T, C).to(dtype)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = make_norm(C)(x)
        assert y.dtype == dtype and torch.equal(y, make_norm(C)(x))


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("mean", [0, 1, 10, 100])
def test_a_bf16_input_gives_the_float64_result_of_that_input_rounded(
    make_norm: Make, mean: float, training: bool
) -> None:
    x = (mean + torch.randn(B, T, C)).bfloat16()  # statistics in bf16 would be off by a tenth
    y = make_norm(C).train(training)(x)
    exact = make_norm(C).double().train(training)(x.double())
    assert torch.allclose(y.double(), exact, rtol=2**-8, atol=1e-4)


@pytest.mark.parametrize("mean", [0, 10, 1e3, 1e4])
def test_float32_is_off_by_no_more_than_the_rounding_of_its_input(
    make_norm: Make, mean: float
) -> None:
    x = mean + torch.randn(B, T, C)
    y, exact = make_norm(C)(x), make_norm(C).double()(x.double())
    # an input has steps of mean * 2**-23; after the norm they are as large in its unit
    tolerance = 8 * 2**-23 * (1 + mean) * (1 + exact.abs().max().item())
    assert (y - exact).abs().max() < tolerance


@pytest.mark.parametrize("kind", INPUTS)
def test_outputs_and_gradients_are_finite(make_norm: Make, kind: str) -> None:
    for dtype in (torch.float32, torch.bfloat16):
        for training in (True, False):
            norm = make_norm(C).train(training)
            for _ in range(2):  # the second batch meets what the first left in the buffers
                for value in backward(norm, INPUTS[kind](B, T, C).to(dtype)):
                    assert value.isfinite().all(), (dtype, training)
            assert all(buffer.isfinite().all() for buffer in norm.buffers())


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_the_smallest_widths_work(make_norm: Make, dim: int) -> None:
    for training in (True, False):
        y, *gradients = backward(make_norm(dim).train(training), torch.randn(B, T, dim))
        assert y.shape == (B, T, dim)
        assert all(value.isfinite().all() for value in (y, *gradients))


@pytest.mark.parametrize("rows", [1, B])
def test_every_length_up_to_the_block_works(make_norm: Make, rows: int) -> None:
    for time in range(1, T + 1):
        norm, x = make_norm(C), torch.randn(rows, time, C)
        if rows * time > 1 or p.works_with_one_token(p.started(make_norm)):
            assert all(value.isfinite().all() for value in backward(norm, x))
        else:
            with pytest.raises(ValueError, match=r"at least 2 tokens.*got 1"):
                norm(x)
        y, *gradients = backward(norm.eval(), x)
        assert y.shape == x.shape
        assert all(value.isfinite().all() for value in (y, *gradients))


def test_longer_than_the_block_is_taken_or_refused_in_one_line(make_norm: Make) -> None:
    norm, x = make_norm(C), torch.randn(B, T + 3, C)
    norm(x[:, :T])
    for training in (True, False):
        try:
            y = norm.train(training)(x)
        except ValueError as error:
            assert "\n" not in str(error)
        else:
            assert y.shape == x.shape and y.isfinite().all()


def test_an_all_true_mask_is_as_no_mask_by_position_or_by_name(make_norm: Make) -> None:
    x, real = torch.randn(B, T, C), torch.ones(B, T, dtype=torch.bool)
    for training in (True, False):
        plain = make_norm(C).train(training)(x)
        assert torch.allclose(make_norm(C).train(training)(x, real), plain, rtol=0, atol=1e-6)
        assert torch.allclose(make_norm(C).train(training)(x, mask=real), plain, rtol=0, atol=1e-6)


@pytest.mark.parametrize("training", [True, False])
def test_what_stands_in_the_padding_changes_nothing_of_the_real_tokens(
    make_norm: Make, training: bool
) -> None:
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
        assert y.shape == x.shape and y.isfinite().all()
        results.append([y[mask], padded.grad[mask], *parameters, *norm.buffers()])
    for a, b in zip(*results, strict=True):
        assert torch.allclose(a, b, rtol=1e-12, atol=1e-12)


def test_a_saved_state_restores_the_norm(make_norm: Make) -> None:
    norm, file = p.phases(make_norm)["later"].float().eval(), io.BytesIO()
    torch.save(norm.state_dict(), file)
    file.seek(0)
    restored = make_norm(C).eval()
    restored.load_state_dict(torch.load(file, weights_only=True))
    x = torch.randn(B, T, C)
    assert torch.equal(restored(x), norm(x))
    assert restored.state_dict().keys() == norm.state_dict().keys()
    assert all(torch.equal(v, norm.state_dict()[k]) for k, v in restored.state_dict().items())
    for module in (norm, restored):  # and goes on from there in training
        module.train()
        [backward(module, x + k) for k in range(2)]
    assert torch.equal(restored(x), norm(x))


def test_eval_is_deterministic_and_moves_no_state(make_norm: Make) -> None:
    norm, x = p.phases(make_norm)["later"].eval(), p.drawn(B, T, C)
    before = {name: value.clone() for name, value in norm.state_dict().items()}
    assert torch.equal(norm(x), norm(x))
    assert all(torch.equal(value, before[name]) for name, value in norm.state_dict().items())


def test_options_are_named_known_and_shown(name: str, make_norm: Make) -> None:
    with pytest.raises(TypeError):
        make_norm(C, no_such_option=1)
    with pytest.raises(TypeError):
        make_norm(C, 1e-5)  # one positional argument, the rest by name
    shown = repr(make_norm(C))
    assert shown.startswith(type(make_norm(C)).__name__)
    for option, value in p.configs()[name].items():
        assert str(option).startswith("_") or f"{option}={value}" in shown


def test_is_a_plain_module(make_norm: Make) -> None:
    assert type(make_norm(C)).__bases__ == (nn.Module,)


def test_every_norm_file_has_a_yaml_and_every_yaml_a_class() -> None:
    files = {path.stem for path in (ROOT / "model/norms").glob("*.py")} - {"__init__"}
    targets = [OmegaConf.load(ROOT / f"configs/norm/{name}.yaml")._target_ for name in NORMS]
    assert all(issubclass(get_object(target), nn.Module) for target in targets)
    assert {target.split(".")[-2] for target in targets} == files
