"""Every norm against the formula written out in its own file, values and all gradients.

Reference: `reference(x, ...)` of the norm's module, the paper's formula in plain operations. Its
arguments are attributes of the norm by name; its autograd gives the gradient that the paper asks
for, which need not be the formula's derivative. A norm is found by listing configs/norm; one
without a reference is skipped, and told to write it.
"""

import copy
import inspect
from collections.abc import Callable

import pytest
import torch
from hydra.utils import get_object
from torch import nn

from tests.model.norms import properties as p
from tests.model.norms.cases import NOT_THE_DERIVATIVE, row

SHAPES = [(p.B, p.T), (1, p.T), (p.B, 3), (2, 1)]
TRAINING_STEPS, EVAL_STEPS = 5, 2
Formula = Callable[..., torch.Tensor]


def formula(name: str) -> Formula | None:
    """The reference in the norm's file, or None."""
    module = get_object(p.configs()[name]._target_.rsplit(".", 1)[0])
    return getattr(module, "reference", None)


def by_name(function: Formula, norm: nn.Module) -> dict[str, object]:
    """The attributes of the norm that the function asks for beside x."""
    wanted = [name for name in inspect.signature(function).parameters if name != "x"]
    return {name: getattr(norm, name) for name in wanted}


class Reference(nn.Module):
    """The formula as a module, with the parameters and buffers of a copy of a norm."""

    def __init__(self, norm: nn.Module, function: Formula) -> None:
        super().__init__()
        self.norm, self.function = copy.deepcopy(norm), function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x, **by_name(self.function, self.norm))


@pytest.fixture
def function(name: str) -> Formula:
    found = formula(name)
    if found is None:
        pytest.skip(f"{name}: write its definition, `reference(x, ...)`, into the norm's file")
    return found


def results(
    module: nn.Module, x: torch.Tensor, upstream: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, list[torch.Tensor]]:
    """Output, and the gradients of input and parameters, of a module without gradients yet."""
    module.zero_grad()
    x = x.clone().requires_grad_()
    y = module(x)
    y.backward(upstream)
    return y.detach(), x.grad, [parameter.grad for parameter in module.parameters()]


def near(a: torch.Tensor, b: torch.Tensor) -> bool:
    assert a.dtype == b.dtype == torch.float64 and a.shape == b.shape
    return torch.allclose(a, b, rtol=1e-10, atol=1e-10 * (1 + b.abs().max().item()))


@pytest.mark.parametrize("shape", SHAPES)
def test_value_and_gradients_are_those_of_the_formula_in_training_and_then_in_eval(
    name: str, function: Formula, shape: tuple[int, int]
) -> None:
    torch.manual_seed(0)
    norm = p.started(p.make_norm(name))
    for step in range(TRAINING_STEPS + EVAL_STEPS):
        norm.train(step < TRAINING_STEPS)
        x, upstream = (p.drawn(*shape, p.C, seed=2 * step + i) for i in (0, 1))
        before = Reference(norm, function)  # what the norm is before it moves its buffers
        y, dx, gradients = results(norm, x, upstream)
        wanted_y, wanted_dx, wanted = results(before, x, upstream)
        assert near(y, wanted_y), f"output, step {step}"
        assert near(dx, wanted_dx), f"gradient of the input, step {step}"
        for (parameter, _), a, b in zip(norm.named_parameters(), gradients, wanted, strict=True):
            assert near(a, b), f"gradient of {parameter}, step {step}"


@pytest.mark.parametrize("phase", ["start", "later"])
@pytest.mark.parametrize("training", [True, False])
def test_gradcheck_passes_exactly_where_the_formulas_gradient_is_its_derivative(
    name: str, function: Formula, phase: str, training: bool
) -> None:
    norm = p.phases(p.make_norm(name))[phase].train(training)
    for rows in (3, 1):
        wanted = p.gradient_is_derivative(Reference(norm, function), rows)
        assert p.gradient_is_derivative(norm, rows) == wanted, rows


@pytest.mark.parametrize(("name", "phase"), list(NOT_THE_DERIVATIVE))
def test_gradcheck_fails_where_the_paper_changes_the_gradient(name: str, phase: str) -> None:
    assert not p.gradient_is_derivative(p.phases(row(name))[phase]), (
        f"the gradient of {name} ({phase}) is the derivative: take it out of NOT_THE_DERIVATIVE"
    )
