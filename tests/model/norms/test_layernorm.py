"""LayerNorm against `nn.LayerNorm`, values and all gradients, and in numbers worked by hand.

Reference: torch's layer in the same precision, torch's function in float64 for rounding errors.
The paper's properties are in test_properties.py. Legend: B batch, T time, C channels.
"""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from model.norms.layernorm import LayerNorm

B, T, C = 3, 5, 8
Tensors = list[torch.Tensor]


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


def pair(shape: int | tuple[int, ...], dtype: torch.dtype) -> tuple[LayerNorm, nn.LayerNorm]:
    """Ours and torch's with the same random gain and shift, taken over by `load_state_dict`."""
    theirs = nn.LayerNorm(shape).to(dtype)
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.normal_(1.0, 0.5)
    ours = LayerNorm(shape).to(dtype)
    ours.load_state_dict(theirs.state_dict())
    return ours, theirs


def output_and_gradients(norm: nn.Module, x: torch.Tensor, upstream: torch.Tensor) -> Tensors:
    """Output, then the gradients of input, weight and bias."""
    x = x.clone().requires_grad_()
    y = norm(x)
    y.backward(upstream)
    return [y.detach(), x.grad, *(p.grad for p in norm.parameters())]


@pytest.mark.parametrize("shape", [1, 2, 3, 65, (C,), (3, 4, 5)])
def test_equals_torch_in_float64_values_and_all_gradients(shape: int | tuple[int, ...]) -> None:
    ours, theirs = pair(shape, torch.float64)
    x = 2 + torch.randn(B, T, *ours.normalized_shape, dtype=torch.float64)
    upstream = torch.randn_like(x)
    results = (output_and_gradients(norm, x, upstream) for norm in (ours, theirs))
    for a, b in zip(*results, strict=True):
        assert torch.allclose(a, b, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("mean", "tolerance"), [(0, 1e-5), (10, 1e-5), (1000, 1e-3)])
@pytest.mark.parametrize("dim", [16, 64, 384])
def test_is_near_torch_in_float32_however_far_off_centre(
    dim: int, mean: float, tolerance: float
) -> None:
    ours, theirs = pair(dim, torch.float32)
    x = mean + torch.randn(64, dim)
    upstream = torch.randn_like(x)
    results = (output_and_gradients(norm, x, upstream) for norm in (ours, theirs))
    (y, *gradients), (wanted_y, *wanted) = results
    assert torch.allclose(y, wanted_y, rtol=0, atol=tolerance)
    for a, b in zip(gradients, wanted, strict=True):
        assert (a - b).abs().max() <= tolerance * b.abs().max()


@pytest.mark.parametrize("mean", [0, 10, 1000])
@pytest.mark.parametrize("dim", [8, 16, 64, 128, 384, 768])
def test_float32_error_is_at_most_twice_torchs_own(dim: int, mean: float) -> None:
    x = mean + torch.randn(1024, dim)  # rounded to float32: the input both layers really get
    exact = F.layer_norm(x.double(), (dim,))
    errors = [(norm(dim)(x).double() - exact).square().mean() for norm in (LayerNorm, nn.LayerNorm)]
    assert errors[0].sqrt() <= 2 * errors[1].sqrt()


def test_a_second_derivative_is_refused() -> None:
    x = torch.randn(B, C, requires_grad=True)
    (gradient,) = torch.autograd.grad(LayerNorm(C)(x).sin().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.sum().backward()


@pytest.mark.parametrize("parameters", [torch.float32, torch.bfloat16])
def test_bf16_in_gives_the_float64_result_rounded_to_bf16(parameters: torch.dtype) -> None:
    ours, _ = pair(C, parameters)
    x = (10 + torch.randn(B, T, C)).bfloat16()
    y = ours(x)
    exact = ours.double()(x.double())
    assert y.dtype == torch.bfloat16
    assert torch.allclose(y.double(), exact, rtol=2**-8, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("value", [0.0, 3.7, -100.3, 1e4])
@pytest.mark.parametrize("dim", [1, C, 100])
def test_constant_rows_give_the_bias_up_to_the_rounding_of_their_mean(
    dim: int, value: float, dtype: torch.dtype
) -> None:
    ours, _ = pair(dim, dtype)
    x = torch.full((B, dim), value, dtype=dtype)
    y, *gradients = output_and_gradients(ours, x, torch.randn_like(x))
    rounding = 2 * torch.finfo(dtype).eps * abs(value) / ours.eps**0.5
    assert ((y - ours.bias).abs() <= rounding * ours.weight.abs()).all()
    assert all(gradient.isfinite().all() for gradient in gradients)


@pytest.mark.parametrize("weight", [True, False])
@pytest.mark.parametrize("bias", [True, False])
def test_gain_and_shift_can_each_be_left_out(weight: bool, bias: bool) -> None:
    norm = LayerNorm(C, weight=weight, bias=bias)
    for parameter in norm.parameters():
        nn.init.normal_(parameter)
    assert [name for name, _ in norm.named_parameters()] == ["weight"] * weight + ["bias"] * bias
    x = torch.randn(B, T, C)
    wanted = F.layer_norm(x, (C,), norm.weight, norm.bias)
    assert torch.allclose(norm(x), wanted, rtol=0, atol=1e-6)


def test_gain_starts_at_one_and_shift_at_zero() -> None:
    assert torch.equal(LayerNorm(C).weight, torch.ones(C))
    assert torch.equal(LayerNorm(C).bias, torch.zeros(C))


@pytest.mark.parametrize("shape", [(B, T, C + 1), (B, T, 1), (B, C, T), ()])
def test_another_last_axis_is_refused_even_one_that_would_broadcast(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=rf"expected \({C},\) as the last axes, got \("):
        LayerNorm(C)(torch.randn(shape))


def test_estimator_is_biased_with_eps_inside_the_root() -> None:
    x = torch.tensor([1.0, 0.0, 0.0, 0.0])  # 1.5000 with the unbiased deviation
    assert LayerNorm(4)(x)[0].item() == pytest.approx(1.7320, abs=1e-4)
    tiny = torch.tensor([1e-3, -1e-3], dtype=torch.float64)
    wanted = 1e-3 / (1e-6 + 1e-5) ** 0.5  # outside the root: 0.99
    assert LayerNorm(2)(tiny)[0].item() == pytest.approx(wanted, rel=1e-9)
