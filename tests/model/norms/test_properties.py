"""What the papers prove of each norm: invariances, gradients, causality.

Reference: table 1 of Ba, Kiros, Hinton 2016 (https://arxiv.org/abs/1607.06450), its three rows
extended by the norms that came later, and Euler's theorem for what an invariance to W means for the
gradient. Cells are written down here only for the norms of EXTENDED; every norm is measured, by the
same functions that write the tables of docs/norms.md, and what must hold follows from its cells.
Norms whose gradient is no derivative are named in cases.py, and skipped by name.
"""

import copy
from functools import cache

import pytest
import torch
from torch import nn

from model.probes.causality import is_causal
from tests.conftest import NORMS
from tests.model.norms import properties as p
from tests.model.norms.cases import (
    NOT_THE_DERIVATIVE,
    VOCAB,
    gpt_phases,
    ids,
    row,
    small_gpt,
)

# W matrix scaled, W recentred, one row of W scaled, data scaled, data recentred, one case scaled
TABLE_1 = """
BatchNorm  | Invariant | No        | Invariant | Invariant | Invariant | No
WeightNorm | Invariant | No        | Invariant | No        | No        | No
LayerNorm  | Invariant | Invariant | No        | Invariant | No        | Invariant
"""
# The same columns in training, then: may later tokens, may other rows change an output?
EXTENDED = """
batchnorm           | I - I I I - | leaks    | dependent
batchnorm_position  | I - I I I - | causal   | dependent
batchnorm_causal    | I - I I I - | causal   | dependent
batchnorm_ghost     | I - I I I - | leaks    | dependent
batchnorm_running   | - - - - - - | causal   | independent
PowerNorm-V         | I - I I - - | leaks    | dependent
powernorm           | I - - I - I | leaks    | dependent
InstanceNorm over T | I - I I I - | leaks    | independent
layernorm           | I I - I - I | causal   | independent
groupnorm           | I I - I - I | causal   | independent
detachnorm          | I I - I - I | causal   | independent
rmsnorm             | I - - I - I | causal   | independent
prmsnorm            | I - - I - I | causal   | independent
scalenorm           | I - - I - I | causal   | independent
dyt                 | - - - - - - | causal   | independent
derf                | - - - - - - | causal   | independent
none                | - - - - - - | causal   | independent
"""
# W Norm(x), as in a pre-norm transformer, with a last column: one token's features all shifted
NORM_FIRST = """
batchnorm           | - - - I I - -
batchnorm_position  | - - - I I - -
batchnorm_causal    | - - - I I - -
batchnorm_ghost     | - - - I I - -
batchnorm_running   | - - - - - - -
PowerNorm-V         | - - - I - - -
powernorm           | - - - I - I -
InstanceNorm over T | - - - I I - -
layernorm           | - - - I - I I
groupnorm           | - - - I - I I
detachnorm          | - - - I - I I
rmsnorm             | - - - I - I -
prmsnorm            | - - - I - I -
scalenorm           | - - - I - I -
dyt                 | - - - - - - -
derf                | - - - - - - -
none                | - - - - - - -
"""
ROWS = [*NORMS, *p.OTHERS]
every_row = pytest.mark.parametrize("name", ROWS, indirect=True)
both_phases = pytest.mark.parametrize("phase", ["start", "later"])


def lines(table: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.split("|")] for line in table.strip().splitlines()]


def marks(kept: dict[str, bool]) -> str:
    return " ".join("I" if same else "-" for same in kept.values())


@pytest.mark.parametrize("line", lines(TABLE_1), ids=lambda line: line[0])
def test_table_1_of_the_paper(line: list[str]) -> None:
    name, *cells = line
    maps = {
        "BatchNorm": lambda: p.norm_of_linear(p.started(row("batchnorm"))),
        "WeightNorm": lambda: p.weight_norm,
        "LayerNorm": lambda: p.norm_of_linear(p.started(row("layernorm"))),
    }
    kept = p.invariances(maps[name]())
    assert ["Invariant" if same else "No" for same in kept.values()] == cells


@pytest.mark.parametrize(
    ("name", "cells"), [line[:2] for line in lines(EXTENDED)], indirect=["name"]
)
def test_norm_of_w_x_is_invariant_to_exactly_what_the_extended_table_says(
    name: str, cells: str
) -> None:
    assert marks(p.invariances(p.norm_of_linear(p.started(row(name))))) == cells


@pytest.mark.parametrize(("name", "cells"), lines(NORM_FIRST), indirect=["name"])
def test_a_norm_before_w_loses_every_invariance_to_w(name: str, cells: str) -> None:
    map_of = p.linear_of_norm(p.started(row(name), p.D))
    assert marks(p.invariances(map_of, p.CHANGES | p.TOKEN_SHIFTED)) == cells


@pytest.mark.parametrize(
    ("name", "causal", "rows"),
    [(line[0], *line[2:]) for line in lines(EXTENDED)],
    indirect=["name"],
)
def test_what_later_tokens_and_other_rows_change_in_training(
    name: str, causal: str, rows: str
) -> None:
    norm = p.started(row(name))
    assert p.is_causal(norm) == (causal == "causal")
    assert p.is_batch_independent(norm) == (rows == "independent")


def test_instance_norm_does_not_see_the_scale_of_a_whole_row_and_batchnorm_does() -> None:
    changes = {"one row scaled": lambda w, x: [(w, p.changed(x, 1, times=3))]}
    assert all(p.invariances(p.norm_of_linear(p.InstanceNorm(p.C)), changes).values())
    batchnorm = p.started(row("batchnorm"))
    assert not any(p.invariances(p.norm_of_linear(batchnorm), changes).values())


@every_row
def test_every_cell_is_clear_an_effect_is_rounding_or_large(name: str) -> None:
    changes = p.CHANGES | p.TOKEN_SHIFTED
    for dim, map_of in ((p.C, p.norm_of_linear), (p.D, p.linear_of_norm)):
        for phase, norm in p.phases(row(name), dim).items():
            for change, effect in p.effects(map_of(norm), changes).items():
                assert effect < 1e-12 or effect > 1e-2, (phase, change, effect)


def test_in_eval_a_norm_is_invariant_to_something_exactly_where_it_averages_over_its_input(
    name: str,
) -> None:
    """So one that uses running statistics is invariant to nothing."""
    norm = p.phases(row(name))["later"].eval()
    axes = set(p.averages_over(norm)) - {"earlier batches"}
    assert any(p.invariances(p.norm_of_linear(norm)).values()) == bool(axes)


# An invariance says what the gradient is: f(a W) = f(W) for all a > 0 means <W, df/dW> = 0 (Euler)
# and df/dW(a W) = df/dW(W) / a; f(W + 1 g^T) = f(W) for all g means that its columns sum to zero.


def gradient_of_w(norm: nn.Module, w: torch.Tensor) -> torch.Tensor:
    """Of a loss of Norm(W x) that has no symmetry of its own."""
    w = w.detach().clone().requires_grad_()
    y = copy.deepcopy(norm)(p.drawn(p.B, p.T, p.D, seed=4) @ w.T)
    (gradient,) = torch.autograd.grad((y * p.drawn(*y.shape, seed=11).sin()).sum(), w)
    return gradient


def weight() -> torch.Tensor:
    return p.drawn(p.C, p.D, seed=3) - 1


@cache
def differentiates(name: str, phase: str) -> bool:
    """Whether gradcheck passes for the norm of a row."""
    return p.gradient_is_derivative(p.phases(row(name))[phase])


def skip_unless_a_derivative(name: str, phase: str = "start") -> None:
    """Leave out the norms of NOT_THE_DERIVATIVE, and fail for any other that fails gradcheck."""
    if reason := NOT_THE_DERIVATIVE.get((name, phase)):
        pytest.skip(f"the gradient of {name} is not the derivative: {reason}")
    assert differentiates(name, phase), (
        f"the gradient of {name} ({phase}) is not the derivative of its output: mend its backward, "
        "or, if its paper wants it so, name it with the reason in NOT_THE_DERIVATIVE of cases.py"
    )


@both_phases
@every_row
def test_the_gradient_of_w_is_orthogonal_to_what_the_output_does_not_depend_on(
    name: str, phase: str
) -> None:
    skip_unless_a_derivative(name, phase)
    norm, w = p.phases(row(name))[phase], weight()
    kept = p.invariances(p.norm_of_linear(norm))
    gradient = gradient_of_w(norm, w)
    size = gradient.norm() * w.norm()
    along_w, along_rows, columns = (w * gradient).sum(), (w * gradient).sum(1), gradient.sum(0)
    assert (along_w.abs() < 1e-10 * size) == kept["W scaled"]
    assert (along_rows.abs().max() < 1e-10 * size) == kept["one row of W scaled"]
    assert (columns.abs().max() < 1e-10 * size) == kept["W recentred"]


@every_row
def test_the_gradient_of_a_token_is_orthogonal_to_it_or_to_the_ones_where_neither_is_seen(
    name: str,
) -> None:
    skip_unless_a_derivative(name)
    norm, x = p.started(row(name), p.D), p.drawn(p.B, p.T, p.D, seed=4).requires_grad_()
    kept = p.invariances(p.linear_of_norm(norm), p.CHANGES | p.TOKEN_SHIFTED)
    y = copy.deepcopy(norm)(x)
    (gradient,) = torch.autograd.grad((y * p.drawn(*y.shape, seed=11).sin()).sum(), x)
    along_x, along_ones = (x * gradient).sum(-1).abs().max(), gradient.sum(-1).abs().max()
    assert (along_x < 1e-10) == kept["one token scaled"]
    assert (along_ones < 1e-10) == kept["one token shifted"]


def test_detachnorms_gradient_is_not_orthogonal_though_its_output_is_layernorms() -> None:
    norm, w = p.started(row("detachnorm")), weight()
    gradient = gradient_of_w(norm, w)
    assert (w * gradient).sum().abs() > 1e-3 * gradient.norm() * w.norm()
    assert torch.allclose(gradient_of_w(norm, 3 * w), gradient / 3, rtol=1e-9)


@pytest.mark.parametrize("factor", [0.25, 2.0, 10.0])
@every_row
def test_the_gradient_shrinks_as_w_grows_exactly_where_the_scale_of_w_is_not_seen(
    name: str, factor: float
) -> None:
    skip_unless_a_derivative(name)
    norm, w = p.started(row(name)), weight()
    kept = p.invariances(p.norm_of_linear(norm))
    scaled, wanted = gradient_of_w(norm, factor * w), gradient_of_w(norm, w) / factor
    same = torch.allclose(scaled, wanted, rtol=1e-9, atol=1e-9 * wanted.abs().max().item())
    assert same == kept["W scaled"]


@every_row
def test_sgd_grows_w_by_the_squared_length_of_the_step_where_its_scale_is_not_seen(
    name: str,
) -> None:
    skip_unless_a_derivative(name)
    norm, w = p.started(row(name)), weight()
    kept = p.invariances(p.norm_of_linear(norm))
    for _ in range(3):
        step = 0.01 * gradient_of_w(norm, w)
        growth, wanted = (w - step).square().sum() - w.square().sum(), step.square().sum()
        same = abs(growth - wanted) < 1e-9 * wanted + 1e-12
        assert same == kept["W scaled"]
        w = w - step


@both_phases
def test_alone_a_nan_and_a_number_spread_alike_and_in_eval_not_at_all(
    name: str, phase: str
) -> None:
    norm = p.phases(p.make_norm(name))[phase]
    assert p.nan_stays(norm) == p.is_causal(norm)
    norm.eval()
    assert p.is_causal(norm), "evaluation must not look at later tokens"
    assert p.nan_stays(norm), "evaluation must not carry a nan to earlier tokens"
    assert p.is_batch_independent(norm), "evaluation must not look at other rows"


def other_ids() -> tuple[torch.Tensor, torch.Tensor]:
    """Two batches (B, T) of ids that differ everywhere."""
    return ids(0), (ids(0) + 1) % VOCAB


@both_phases
def test_gpt_is_as_causal_and_as_independent_of_other_rows_as_its_norm(
    name: str, phase: str
) -> None:
    net, norm = gpt_phases(p.make_norm(name))[phase], p.phases(p.make_norm(name))[phase]
    assert p.is_causal(net, *other_ids()) == p.is_causal(norm)
    assert p.is_batch_independent(net, *other_ids()) == p.is_batch_independent(norm)
    net.eval()
    assert p.is_causal(net, *other_ids()) and p.is_batch_independent(net, *other_ids())


@both_phases
def test_what_a_run_says_of_causality_is_what_is_measured_here(name: str, phase: str) -> None:
    net = gpt_phases(p.make_norm(name))[phase]
    batch = torch.cat([ids(0), ids(1)[:, :1]], 1)
    assert is_causal(net, batch) == p.is_causal(net, *other_ids())


def test_training_and_evaluation_are_the_same_to_the_bit_unless_there_is_state(name: str) -> None:
    norm = p.started(p.make_norm(name))
    assert p.train_equals_eval(norm) or list(norm.buffers())


def test_what_a_norm_averages_over_says_whether_it_is_causal_and_independent(name: str) -> None:
    norm = p.started(p.make_norm(name))
    axes = p.averages_over(norm)
    assert p.is_causal(norm) == ("tokens" not in axes)
    assert p.is_batch_independent(norm) == (not {"rows", "some rows"} & set(axes))


def test_one_token_is_refused_only_by_a_norm_that_averages_over_more_than_features(
    name: str,
) -> None:
    norm = p.started(p.make_norm(name))
    more = set(p.averages_over(norm)) - {"features", "some features"}
    assert p.works_with_one_token(norm) or more


def test_the_measures_see_a_planted_leak() -> None:
    class Future(nn.Module):
        def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
            return x + 1e-6 * x.flip(1).roll(1, 0)

    assert not p.is_causal(Future()) and not p.is_batch_independent(Future())
    assert not p.nan_stays(Future()) and p.averages_over(Future()) == ["tokens", "some rows"]
    net = small_gpt(lambda dim: Future())
    assert not p.is_causal(net, *other_ids()) and not p.is_batch_independent(net, *other_ids())
