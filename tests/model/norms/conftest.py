"""The cases of this folder: one for each file of configs/norm."""

import pytest
import torch

from tests.conftest import NORMS
from tests.model.norms import properties as p
from tests.model.norms.cases import skip_unless_built


@pytest.fixture(params=NORMS)
def name(request: pytest.FixtureRequest) -> str:
    """The name of a norm; the test is skipped where its yaml does not build it."""
    torch.manual_seed(0)
    skip_unless_built(request.param)
    return request.param


@pytest.fixture
def make_norm(name: str) -> p.Make:
    """The norm as GPT gets it: called with a width."""
    return p.make_norm(name)
