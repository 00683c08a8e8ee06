"""LayerNorm against `nn.LayerNorm`, values and all gradients, and against the paper's properties.

Reference: torch's layer in the same precision, torch's function in float64 for rounding errors,
and table 1 of Ba, Kiros, Hinton 2016 (https://arxiv.org/abs/1607.06450) with eps = 0 in float64.
Legend: B batch, T time, C channels, D inputs of W.
"""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from model.norms.layernorm import LayerNorm

B, T, C, D = 3, 5, 8, 6
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
    with pytest.raises(ValueError, match=rf"LayerNorm\(\({C},\)\).*last axes"):
        LayerNorm(C)(torch.randn(shape))


def test_training_and_evaluation_are_the_same_to_the_bit() -> None:
    norm, x = LayerNorm(C), torch.randn(B, T, C)
    assert torch.equal(norm.train()(x), norm.eval()(x))


def test_estimator_is_biased_with_eps_inside_the_root() -> None:
    x = torch.tensor([1.0, 0.0, 0.0, 0.0])  # 1.5000 with the unbiased deviation
    assert LayerNorm(4)(x)[0].item() == pytest.approx(1.7320, abs=1e-4)
    tiny = torch.tensor([1e-3, -1e-3], dtype=torch.float64)
    wanted = 1e-3 / (1e-6 + 1e-5) ** 0.5  # outside the root: 0.99
    assert LayerNorm(2)(tiny)[0].item() == pytest.approx(wanted, rel=1e-9)


def plain() -> LayerNorm:
    """The paper's: no eps, no affine part."""
    return LayerNorm(C, eps=0.0, weight=False, bias=False)


def case() -> tuple[torch.Tensor, torch.Tensor]:
    """A weight (C, D) and a batch (B, T, D) in float64."""
    return torch.randn(C, D, dtype=torch.float64), torch.randn(B, T, D, dtype=torch.float64)


def scaled(a: torch.Tensor, *index: int) -> torch.Tensor:
    a = a.clone()
    a[index] *= 3.0
    return a


SHIFT = torch.linspace(-1, 2, D, dtype=torch.float64)
CHANGES = {
    "all of W scaled": lambda w, x: (3 * w, x),
    "W recentred": lambda w, x: (w + SHIFT, x),  # W + 1 g^T: one vector added to every row
    "one row of W scaled": lambda w, x: (scaled(w, 0), x),
    "data scaled": lambda w, x: (w, 3 * x),
    "data recentred": lambda w, x: (w, x + SHIFT),
    "one token scaled": lambda w, x: (w, scaled(x, 0, 0)),
}
INVARIANT = {"all of W scaled", "W recentred", "data scaled", "one token scaled"}


@pytest.mark.parametrize("change", CHANGES)
def test_is_invariant_of_w_x_to_exactly_what_the_paper_says(change: str) -> None:
    w, x = case()
    changed_w, changed_x = CHANGES[change](w, x)
    difference = plain()(changed_x @ changed_w.T) - plain()(x @ w.T)
    if change in INVARIANT:
        assert difference.abs().max() < 1e-12
    else:
        assert difference.abs().max() > 0.1


def test_normalizing_before_w_loses_every_invariance_to_w() -> None:
    w, x = case()
    norm = LayerNorm(D, eps=0.0, weight=False, bias=False)
    for change in ("all of W scaled", "W recentred", "one row of W scaled"):
        changed_w, _ = CHANGES[change](w, x)
        assert (norm(x) @ changed_w.T - norm(x) @ w.T).abs().max() > 0.1


def test_adding_one_number_to_all_features_of_a_token_changes_nothing() -> None:
    x = torch.randn(B, T, C, dtype=torch.float64)
    shifts = torch.randn(B, T, 1, dtype=torch.float64)
    assert torch.allclose(plain()(x + shifts), plain()(x), rtol=0, atol=1e-12)


def gradient_of_w(w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Of a loss of LayerNorm(W x) that has no symmetry of its own."""
    w = w.clone().requires_grad_()
    upstream = torch.linspace(-1, 2, B * T * C, dtype=torch.float64).view(B, T, C)
    (plain()(x @ w.T) * upstream.sin()).sum().backward()
    return w.grad


def test_input_gradient_is_orthogonal_to_the_ones_and_to_the_centred_input() -> None:
    x = torch.randn(B, T, C, dtype=torch.float64)
    gradient = output_and_gradients(plain(), x, torch.randn_like(x))[1]
    centred = x - x.mean(-1, keepdim=True)
    assert gradient.abs().max() > 0.1
    assert gradient.sum(-1).abs().max() < 1e-12
    assert (centred * gradient).sum(-1).abs().max() < 1e-12


def test_weight_gradient_is_orthogonal_to_w_and_its_columns_sum_to_zero() -> None:
    w, x = case()
    gradient = gradient_of_w(w, x)
    assert abs((w * gradient).sum()) < 1e-11
    assert gradient.sum(0).abs().max() < 1e-11
    assert (w * gradient).sum(1).abs().max() > 0.1  # the whole matrix, not each row


@pytest.mark.parametrize("factor", [0.25, 2.0, 10.0])
def test_weight_gradient_shrinks_as_w_grows(factor: float) -> None:
    w, x = case()
    assert torch.allclose(gradient_of_w(factor * w, x), gradient_of_w(w, x) / factor, rtol=1e-9)


def test_a_step_of_sgd_grows_w_by_the_squared_length_of_the_step() -> None:
    w, x = case()
    step = 0.1 * gradient_of_w(w, x)
    grown = (w - step).square().sum() - w.square().sum()
    assert grown.item() == pytest.approx(step.square().sum().item(), rel=1e-9)
