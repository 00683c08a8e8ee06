"""What only the tests of norms need: which norms a test leaves out and why, and a small GPT.

Legend: B batch, T time.
"""

from functools import cache

import pytest
import torch
from torch import nn

from model.gpt import GPT
from tests.model.norms import properties as p

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
