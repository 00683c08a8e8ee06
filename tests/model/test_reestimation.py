"""Re-estimating running statistics.

Reference: moments taken by hand over all batches, and a long training on one batch. Cases are found
by listing configs/norm. Legend: B batch, T time, C channels.
"""

import copy
from typing import Any

import pytest
import torch
from torch import nn

from model.norms.batchnorm import BatchNorm
from model.reestimation import reestimate, with_statistics
from tests.conftest import NORMS
from tests.model.norms.cases import row

B, T, C = 4, 6, 8


def batch(*shape: int) -> torch.Tensor:
    return 2 + torch.randn(shape or (B, T, C), dtype=torch.float64) * torch.arange(1, C + 1)


def test_reestimated_statistics_are_the_average_over_the_batches_and_no_weight_moves() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Dropout(0.5), BatchNorm(C), nn.Linear(C, C), nn.BatchNorm1d(T)).double()
    batches = [batch() for _ in range(5)]
    net(batch())  # the start is not a clean one
    weights = [p.clone() for p in net.parameters()]
    reestimate(net, batches, net)
    first: Any = net[1]
    tokens = torch.stack([x.view(-1, C) for x in batches])
    assert torch.allclose(first.running_mean, tokens.mean((0, 1)), rtol=1e-12)  # no dropout
    assert torch.allclose(first.running_var, tokens.var(1, correction=1).mean(0), rtol=1e-12)
    assert not torch.allclose(net[3].running_var, torch.ones(T).double())  # torch's own as well
    assert net.training and all(m.momentum == 0.1 for m in (net[1], net[3]))
    assert all(torch.equal(p, before) for p, before in zip(net.parameters(), weights, strict=True))
    assert all(p.grad is None for p in net.parameters())


def test_a_failing_batch_leaves_modes_and_momenta_as_they_were() -> None:
    net = nn.Sequential(BatchNorm(C), nn.Dropout(0.5), BatchNorm(C)).double()
    net(batch())
    net[2].eval()

    def forward(x: torch.Tensor) -> None:
        net(x)
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        reestimate(net, [batch()], forward)
    assert [m.training for m in net] == [True, True, False]
    assert all(net[i].momentum == 0.1 for i in (0, 2)) and net[0].num_batches_tracked == 1


@pytest.mark.parametrize("name", NORMS)
def test_every_norm_reestimates_to_what_a_long_look_at_the_same_batch_gives(name: str) -> None:
    torch.manual_seed(0)
    norm = row(name)(C).double()
    for parameter in norm.parameters():
        nn.init.normal_(parameter)
    x, long = batch(), copy.deepcopy(norm)
    for _ in range(400):  # the start and a warm-up are forgotten
        long(x)
    reestimate(norm.eval(), [x, x, x], norm)
    assert not norm.training
    running = {key: value for key, value in norm.named_buffers() if "running" in key}
    assert bool(running) == bool(with_statistics(norm))
    for key, value in running.items():
        assert torch.allclose(value, long.get_buffer(key), rtol=1e-9), key
