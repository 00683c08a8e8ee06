"""BatchNorm against `nn.BatchNorm1d` on the (B*T, C) view: outputs, gradients and buffers.

Reference: torch's layer in float64 (on the real tokens alone where there is a mask), the update
formula of the running statistics. The paper's properties, the leak of later tokens in training
among them, are in test_properties.py. Legend: B batch, T time, C channels.
"""

import pytest
import torch
from torch import nn

from model.norms.batchnorm import BatchNorm

B, T, C = 4, 6, 8
STEPS = 10
BUFFERS = ("running_mean", "running_var", "num_batches_tracked")


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


def batch(*shape: int) -> torch.Tensor:
    """Off centre, every feature with its own scale, in float64."""
    shape = shape or (B, T, C)
    return 2 + torch.randn(shape, dtype=torch.float64) * torch.linspace(0.5, 3, shape[-1]).double()


def pair(momentum: float | None = 0.1, dim: int = C) -> tuple[BatchNorm, nn.BatchNorm1d]:
    """Ours and torch's with the same gain and shift, never the start's."""
    theirs = nn.BatchNorm1d(dim, momentum=momentum).double()
    with torch.no_grad():
        theirs.weight.copy_(torch.linspace(0.5, 2, dim))
        theirs.bias.copy_(torch.linspace(-1, 1, dim))
    ours = BatchNorm(dim, momentum=momentum).double()
    ours.load_state_dict(theirs.state_dict())
    return ours, theirs


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    assert a.dtype == b.dtype
    return torch.allclose(a, b, rtol=0, atol=1e-12)


def same_buffers(a: nn.Module, b: nn.Module) -> bool:
    return all(same(a.get_buffer(name), b.get_buffer(name)) for name in BUFFERS)


def right_padded() -> torch.Tensor:
    """(B, T) mask, True = a real token: rows of 6, 4, 3 and 1 tokens."""
    return torch.arange(T) < torch.tensor([6, 4, 3, 1])[:, None]


@pytest.mark.parametrize("momentum", [0.1, 0.9, None])
@pytest.mark.parametrize("shape", [(B, T, C), (B, C, C), (B, 1, C), (1, T, C), (B, T, 1)])
def test_equals_torch_over_ten_training_steps_and_then_in_eval(
    shape: tuple[int, int, int], momentum: float | None
) -> None:
    dim = shape[-1]
    ours, theirs = pair(momentum, dim)
    for step in range(STEPS + 2):
        if step == STEPS:
            assert theirs.num_batches_tracked == STEPS
            ours.eval(), theirs.eval()
        x, upstream = batch(*shape), batch(*shape)
        a, b = x.clone().requires_grad_(), x.clone().requires_grad_()
        y, wanted = ours(a), theirs(b.view(-1, dim)).view(shape)
        for norm in (ours, theirs):
            norm.zero_grad()
        y.backward(upstream)
        wanted.backward(upstream)
        assert same(y, wanted) and same(a.grad, b.grad)
        assert same(ours.weight.grad, theirs.weight.grad)
        assert same(ours.bias.grad, theirs.bias.grad)
        assert same_buffers(ours, theirs)


def test_state_dicts_load_both_ways() -> None:
    ours, theirs = pair()
    ours(batch())
    theirs.load_state_dict(ours.state_dict())
    assert same_buffers(ours, theirs)
    theirs(batch().view(-1, C))
    again = BatchNorm(C).double()
    again.load_state_dict(theirs.state_dict())
    assert same_buffers(again, theirs) and again.num_batches_tracked == 2
    assert list(again.state_dict()) == list(theirs.state_dict())


def test_masked_equals_torch_on_the_real_tokens_alone() -> None:
    ours, theirs = pair()
    mask = right_padded()
    for _ in range(STEPS):
        a = batch().requires_grad_()
        b = a.detach()[mask].requires_grad_()
        upstream = batch()
        y, wanted = ours(a, mask), theirs(b)
        y[mask].backward(upstream[mask])
        wanted.backward(upstream[mask])
        assert same(y[mask], wanted) and same(a.grad[mask], b.grad)
        assert not a.grad[~mask].any()
    assert same_buffers(ours, theirs)
    x = batch()
    assert same(ours.eval()(x, mask)[mask], theirs.eval()(x[mask]))


@pytest.mark.parametrize("real", [0, 1])
def test_fewer_than_two_real_tokens_are_refused_in_training_and_fine_in_eval(real: int) -> None:
    x, mask = batch(), torch.zeros(B, T, dtype=torch.bool)
    mask[0, :real] = True
    norm, _ = pair()
    with pytest.raises(ValueError, match=f"at least 2 tokens.*got {real}"):
        norm(x, mask)
    with pytest.raises(ValueError, match=f"at least 2 tokens.*got {real}"):
        norm(x[:real, :1])
    assert norm.num_batches_tracked == 0
    assert norm.eval()(x, mask).isfinite().all() and norm(x[:1, :1]).isfinite().all()


def test_another_last_axis_is_refused() -> None:
    for shape in ((B, T, C + 1), (B, T, 1), (B, C, T)):
        with pytest.raises(ValueError, match=rf"expected {C} features in the last axis, got \("):
            BatchNorm(C)(torch.randn(shape))


def test_running_statistics_move_in_training_only() -> None:
    norm, _ = pair()
    before = [buffer.clone() for buffer in norm.buffers()]
    norm.eval()(batch())
    assert all(torch.equal(a, b) for a, b in zip(norm.buffers(), before, strict=True))
    norm.train()(batch())
    assert not any(torch.equal(a, b) for a, b in zip(norm.buffers(), before, strict=True))


def test_momentum_none_averages_over_all_batches() -> None:
    norm, _ = pair(momentum=None)
    batches = [batch().view(-1, C) for _ in range(STEPS)]
    for x in batches:
        norm(x)
    assert same(norm.running_mean, torch.stack([x.mean(0) for x in batches]).mean(0))
    unbiased = torch.stack([x.var(0, correction=1) for x in batches]).mean(0)
    assert same(norm.running_var, unbiased)


@pytest.mark.parametrize(
    ("momentum", "steps", "most"),
    [(0.1, 10, 0.35), (0.1, 44, 0.01), (0.5, 3, 0.125)],  # of momentum 0.1: the docstring's numbers
)
def test_the_start_value_weighs_one_minus_momentum_to_the_nth(
    momentum: float, steps: int, most: float
) -> None:
    norm, _ = pair(momentum)
    x = batch()
    for _ in range(steps):
        norm(x)
    left = (1 - momentum) ** steps
    tokens = x.view(-1, C)
    assert same(norm.running_mean, (1 - left) * tokens.mean(0))
    assert same(norm.running_var, left + (1 - left) * tokens.var(0, correction=1))
    assert left <= most


def test_the_graph_does_not_grow_from_step_to_step() -> None:
    norm, _ = pair()
    for _ in range(3):
        norm(batch()).square().sum().backward()
        for name in BUFFERS:
            buffer = norm.get_buffer(name)
            assert not buffer.requires_grad and buffer.grad_fn is None


def test_training_does_not_care_for_the_order_of_the_tokens() -> None:
    x, order = batch().view(-1, C), torch.randperm(B * T)
    assert same(pair()[0](x[order]), pair()[0](x)[order])


@pytest.mark.parametrize("masked", [False, True])
def test_ghost_equals_torch_on_each_sub_batch_one_after_another(masked: bool) -> None:
    _, theirs = pair()
    ours = BatchNorm(C, ghost=3).double()
    ours.load_state_dict(theirs.state_dict())
    a, b, upstream = batch().requires_grad_(), batch().requires_grad_(), batch()
    b.data.copy_(a.data)
    mask = right_padded() if masked else torch.ones(B, T, dtype=torch.bool)
    mask[3, :2] = True  # the last sub-batch is one row of two tokens, or of all
    upstream[~mask] = 0
    y = ours(a, mask if masked else None)
    wanted = torch.zeros_like(y)
    for rows in (slice(0, 3), slice(3, 4)):
        wanted[rows] = torch.zeros_like(y[rows]).masked_scatter(
            mask[rows, :, None], theirs(b[rows][mask[rows]])
        )
    y.backward(upstream), wanted.backward(upstream)
    assert same(y[mask], wanted[mask]) and same(a.grad, b.grad)
    assert same(ours.weight.grad, theirs.weight.grad) and same(ours.bias.grad, theirs.bias.grad)
    assert same_buffers(ours, theirs)


def test_without_use_mask_padding_is_averaged_over_like_any_token() -> None:
    x, mask = batch(), right_padded()
    assert same(BatchNorm(C, use_mask=False).double()(x, mask), BatchNorm(C).double()(x))


def test_gain_and_shift_can_be_left_out() -> None:
    theirs = nn.BatchNorm1d(C, affine=False).double()
    ours, a, upstream = BatchNorm(C, affine=False).double(), batch().requires_grad_(), batch()
    b = a.detach().requires_grad_()
    y, wanted = ours(a), theirs(b.view(-1, C)).view_as(b)
    y.backward(upstream), wanted.backward(upstream)
    assert same(y, wanted) and same(a.grad, b.grad) and same_buffers(ours, theirs)
    assert not ours.state_dict().keys() & {"weight", "bias"}
    assert same(ours.eval()(a), theirs.eval()(b.view(-1, C)).view_as(b))


def test_a_sub_batch_of_no_sequence_is_refused() -> None:
    with pytest.raises(ValueError, match=r"norm\.ghost must be a whole number of at least 1"):
        BatchNorm(C, ghost=0)
