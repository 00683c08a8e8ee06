"""Running statistics of BatchNorm's kin, and what they do where a statistic has too few tokens.

Reference: `nn.BatchNorm1d` on the tokens that each statistic is over, in float64, buffers included;
PowerNorm's formulas (Shen et al. 2020, algorithms 1 and 2) written out.
Legend: B batch, T time, C channels.
"""

from collections.abc import Callable

import pytest
import torch
from torch import nn

from model.norms.batchnorm_causal import BatchNormCausal
from model.norms.batchnorm_position import BatchNormPosition
from model.norms.batchnorm_running import BatchNormRunning
from model.norms.batchrenorm import BatchRenorm
from model.norms.powernorm import PowerNorm, scaled

B, T, C = 4, 6, 8


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


def batch(*shape: int) -> torch.Tensor:
    """Off centre, every feature with its own scale, in float64."""
    return 2 + torch.randn(shape or (B, T, C), dtype=torch.float64) * torch.arange(1, C + 1)


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    return torch.allclose(a.double(), b.double(), rtol=0, atol=1e-11)


PER_POSITION = pytest.mark.parametrize("norm", [BatchNormPosition, BatchNormCausal])
MOMENTA = pytest.mark.parametrize("momentum", [0.1, 0.7, None])


@MOMENTA
def test_per_position_buffers_are_torchs_over_positions_times_features(
    momentum: float | None,
) -> None:
    ours = BatchNormPosition(C, block_size=T, momentum=momentum).double()
    theirs = nn.BatchNorm1d(T * C, momentum=momentum).double()
    for _ in range(5):
        x = batch()
        assert same(ours(x), theirs(x.flatten(1)).view_as(x))
    assert same(ours.running_mean.flatten(), theirs.running_mean)
    assert same(ours.running_var.flatten(), theirs.running_var)
    assert ours.num_batches_tracked.tolist() == [5] * T
    assert same(ours.eval()(x), theirs.eval()(x.flatten(1)).view_as(x))


@MOMENTA
def test_causal_buffers_are_torchs_over_each_prefix(momentum: float | None) -> None:
    ours = BatchNormCausal(C, block_size=T, momentum=momentum).double()
    prefixes = [nn.BatchNorm1d(C, momentum=momentum).double() for _ in range(T)]
    for _ in range(5):
        x = batch()
        y = ours(x)
        for t, theirs in enumerate(prefixes):
            so_far = theirs(x[:, : t + 1].reshape(-1, C)).view(B, t + 1, C)
            assert same(y[:, t], so_far[:, t])
    for t, theirs in enumerate(prefixes):
        assert same(ours.running_mean[t], theirs.running_mean)
        assert same(ours.running_var[t], theirs.running_var)
        assert same(ours.eval()(x)[:, t], theirs.eval()(x[:, t]))


@MOMENTA
@pytest.mark.parametrize(
    "make",
    [BatchNormRunning, lambda dim, **how: BatchRenorm(dim, total_steps=20, **how)],
    ids=["running", "renorm"],
)
def test_buffers_are_torchs_whatever_the_output_is_made_of(
    make: Callable[..., nn.Module], momentum: float | None
) -> None:
    ours, theirs = make(C, momentum=momentum).double(), nn.BatchNorm1d(C, momentum=momentum)
    theirs.double()
    mask = torch.arange(T) < torch.tensor([6, 4, 3, 1])[:, None]
    for k in range(8):
        x = batch()
        ours(x, mask if k % 2 else None)
        theirs(x[mask] if k % 2 else x.view(-1, C))
    for name, buffer in theirs.named_buffers():
        assert same(ours.get_buffer(name), buffer), name
    assert same(ours.eval()(x), theirs.eval()(x.view(-1, C)).view_as(x))


def test_a_position_of_fewer_than_two_tokens_uses_the_running_statistic_and_moves_nothing() -> None:
    mask = torch.arange(T) < torch.tensor([6, 2, 1, 1])[:, None]  # position 2 on: one row
    x, module = batch(), BatchNormPosition(C, block_size=T).double()
    module(batch())
    before = {name: buffer.clone() for name, buffer in module.named_buffers()}
    y = module(x, mask)
    alone = (x[0, 2:] - before["running_mean"][2:]) / (before["running_var"][2:] + 1e-5).sqrt()
    assert same(y[0, 2:], alone)
    moved = (module.running_mean != before["running_mean"]).any(1)
    assert moved.tolist() == [True, True, False, False, False, False]


def test_a_prefix_has_more_tokens_than_its_position_and_uses_the_running_statistic_below_two() -> (
    None
):
    mask = torch.arange(T) < torch.tensor([6, 2, 1, 1])[:, None]
    module = BatchNormCausal(C, block_size=T).double()
    module(batch())
    before = module.running_mean.clone()
    module(batch(), mask)
    assert (module.running_mean != before).any(1).all()
    one, x = BatchNormCausal(C, block_size=T).double(), batch(1, T, C)
    y = one(x)  # a batch of one: at its first position there is one token
    assert same(y[0, 0], x[0, 0] / (1 + 1e-5) ** 0.5)
    assert one.num_batches_tracked.tolist() == [0, 1, 1, 1, 1, 1]


@PER_POSITION
def test_tokens_that_are_all_the_same_have_no_variance_and_move_nothing(
    norm: type[BatchNormPosition] | type[BatchNormCausal],
) -> None:
    """Every line begins alike: a variance that decays to 0 would blow evaluation up."""
    module = norm(C, block_size=T)
    for step in range(50):
        x = batch().float()
        x[:, 0] = step / 3  # one token for all rows, another at each step
        y = module(x)
        assert torch.allclose(y[:, 0], x[:, 0] / (1 + 1e-5) ** 0.5)
    assert module.num_batches_tracked.tolist() == [0] + [50] * (T - 1)
    assert torch.equal(module.running_var[0], torch.ones(C))
    assert torch.equal(module.eval()(x)[:, 0], y[:, 0])


@PER_POSITION
def test_fewer_than_two_tokens_in_all_are_refused(
    norm: type[BatchNormPosition] | type[BatchNormCausal],
) -> None:
    with pytest.raises(ValueError, match=r"at least 2 tokens.*got 1"):
        norm(C, block_size=T)(torch.randn(1, 1, C))


@PER_POSITION
def test_positions_past_the_last_trained_one_use_its_statistics(
    norm: type[BatchNormPosition] | type[BatchNormCausal],
) -> None:
    module = norm(C, block_size=T).double()
    for _ in range(3):
        module(batch(B, 4, C))  # positions 4 and 5 are never trained
    x = batch(2, 9, C)
    y = module.eval()(x)
    mean, var = module.running_mean[3], module.running_var[3]
    assert same(y[:, 4:], (x[:, 4:] - mean) / (var + 1e-5).sqrt())


def test_in_training_a_position_past_the_block_is_centred_over_the_batch() -> None:
    y = BatchNormPosition(C, block_size=T).double()(batch(B, 9, C))
    assert same(y.mean(0)[8:], torch.zeros(1, C))


def test_causal_sums_do_not_cancel_far_from_zero() -> None:
    x = 1e3 + torch.randn(12, 64, C)
    exact = BatchNormCausal(C, block_size=64).double()(x.double())
    found = BatchNormCausal(C, block_size=64)(x)  # the first batch: no running mean to shift by
    assert (found - exact)[:, 1:].abs().max() < 2e-3  # plain sums: off by a quarter
    deviation = (found - exact).square().mean().sqrt() / exact.square().mean().sqrt()
    assert deviation < 1e-4


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("groups", [None, 2])
def test_powernorms_running_moments_and_gradient_are_the_papers(
    groups: int | None, masked: bool
) -> None:
    norm = PowerNorm(C, total_steps=20, warmup=0.1, groups=groups).double()
    nn.init.normal_(norm.weight)
    psi2, nu = torch.ones(C).double(), torch.zeros(C).double()
    mask = torch.arange(T) < torch.tensor([6, 2, 1, 3])[:, None] if masked else None
    real = torch.ones(B, T, dtype=torch.bool) if mask is None else mask
    for step in range(6):
        x, dy = batch().requires_grad_(), batch() * real[..., None]
        y = norm(x, mask)
        y.backward(dy)
        z = scaled(x.detach(), groups, 1e-5)
        square = z[real].square().mean(0)
        used = square if step < 2 else psi2  # the warm-up: two steps
        xhat = z / (used + 1e-5).sqrt()
        assert same(y[real], (xhat * norm.weight + norm.bias)[real])
        g = dy * norm.weight
        dz = (g - nu * xhat) / (used + 1e-5).sqrt() * real[..., None]
        leaf = x.detach().requires_grad_()
        (dx,) = torch.autograd.grad(scaled(leaf, groups, 1e-5), leaf, dz)
        assert same(x.grad, dx)
        psi2 = 0.9 * psi2 + 0.1 * square
        lam, gamma = (g * xhat)[real].mean(0), xhat[real].square().mean(0)
        nu = nu * (1 - 0.1 * gamma) + 0.1 * lam
        assert same(norm.running_square, psi2) and same(norm.nu, nu)
    assert same(norm.eval()(x), z / (psi2 + 1e-5).sqrt() * norm.weight + norm.bias)


@pytest.mark.parametrize("norm", [PowerNorm, BatchRenorm])
def test_a_warm_up_is_part_of_the_state_and_can_be_none(
    norm: type[PowerNorm] | type[BatchRenorm],
) -> None:
    trained = norm(C, total_steps=20)
    for _ in range(6):
        trained(batch().float())
    longer = norm(C, total_steps=2000)  # resumed with another horizon
    longer.load_state_dict(trained.state_dict())
    x = batch().float()
    assert torch.equal(longer(x), trained(x))


def test_powernorm_without_a_warm_up_trains_as_it_evaluates() -> None:
    norm, x = PowerNorm(C, total_steps=20, warmup=0.0).double(), batch()
    wanted = norm.eval()(x)
    assert same(norm.train()(x), wanted)
