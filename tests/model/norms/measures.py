"""What only the tests of norms need: building a norm or skipping, gradcheck, a small GPT.

Legend: B batch, T time, C channels.
"""

import copy
from functools import cache

import pytest
import torch
from torch import nn
from torch.func import functional_call

from model import properties as p
from model.gpt import GPT

VOCAB = 20

# The only norms, at their start or after a training, whose gradient may differ from the derivative
# of their output, and why. Tests of what follows from a derivative skip them, and no others.
DETACHED = "the paper's backward pass takes mean and variance for constants"
OWN_BACKWARD = "the paper's backward pass approximates the derivative by running statistics"
NOT_THE_DERIVATIVE = {
    ("detachnorm", "start"): DETACHED,
    ("detachnorm", "later"): DETACHED,
    ("powernorm", "start"): OWN_BACKWARD,
    ("powernorm", "later"): OWN_BACKWARD,
    ("PowerNorm-V", "start"): OWN_BACKWARD,
    ("PowerNorm-V", "later"): OWN_BACKWARD,
    ("batchrenorm", "later"): "the paper's backward pass takes r and d for constants",
}


@cache
def why_not_built(name: str) -> str:
    """What goes wrong when the norm of a table's row is built from its yaml; empty if nothing."""
    try:
        p.row(name)(p.C)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def skip_unless_built(name: str) -> None:
    """Leave a broken yaml to the one test that says what is wrong with it."""
    if why_not_built(name):
        pytest.skip(f"{name} is not built: see test_contract.py, test_its_yaml_builds_it[{name}]")


def row(name: str) -> p.Make:
    """The norm of a table's row; skips the test where it is not built."""
    skip_unless_built(name)
    return p.row(name)


def gradient_is_derivative(norm: nn.Module, rows: int = 3) -> bool:
    """Whether gradcheck passes, in an input of some rows and in every parameter.

    Buffers are frozen: each evaluation has a fresh copy.
    """
    names = [name for name, _ in norm.named_parameters()]

    def called(x: torch.Tensor, *parameters: torch.Tensor) -> torch.Tensor:
        given = dict(zip(names, parameters, strict=True))
        return functional_call(copy.deepcopy(norm), given, (x,))

    leaves = [p.drawn(rows, 4, p.C, seed=9), *(z.detach().clone() for z in norm.parameters())]
    inputs = tuple(leaf.requires_grad_() for leaf in leaves)
    return torch.autograd.gradcheck(
        called, inputs, fast_mode=True, raise_exception=False, check_undefined_grad=False
    )


def nan_stays(norm: nn.Module) -> bool:
    """Whether a nan in the last token of each row is in no earlier output (the NaN probe)."""
    x = p.drawn(p.B, p.T, p.C, seed=7)
    x[:, -1] = torch.nan
    return not p.output(norm, x)[:, :-1].isnan().any()


def works_with_one_token(norm: nn.Module) -> bool:
    """Whether a training batch of one row of one token is taken."""
    try:
        return bool(p.output(norm, p.drawn(1, 1, p.C)).isfinite().all())
    except ValueError:
        return False


def small_gpt(make: p.Make) -> GPT:
    """Two blocks of two heads, in float64 and train mode."""
    return GPT(VOCAB, p.T, n_layer=2, n_head=2, n_embd=p.C, norm=make).double()


def ids(seed: int) -> torch.Tensor:
    """A batch (B, T) of token ids."""
    draw = torch.Generator().manual_seed(seed)
    return torch.randint(VOCAB, (p.B, p.T), generator=draw)


def gpt_phases(make: p.Make) -> dict[str, nn.Module]:
    """GPT at the start and after STEPS training batches."""
    net = small_gpt(make)
    return {"start": net, "later": p.trained(net, map(ids, range(1, p.STEPS + 1)))}
