"""Re-estimating running statistics, and sharing batch statistics among processes.

Reference: moments taken by hand over all batches; one process that has the whole batch. Cases are
found by listing configs/norm. Legend: B batch, T time, C channels.
"""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hydra.utils import instantiate
from omegaconf import DictConfig
from torch import distributed, multiprocessing, nn

from model.norms.batchnorm import BatchNorm
from model.running_statistics import reestimate, synchronize, with_statistics
from tests.conftest import NORMS

B, T, C = 4, 6, 8
Compose = Callable[..., DictConfig]


def norms(compose_config: Compose) -> dict[str, nn.Module]:
    """Every norm that keeps statistics, in float64, parameters off their start."""
    torch.manual_seed(0)
    found = {}
    for name in NORMS:
        config = compose_config(f"norm={name}", f"data.block_size={T}", "trainer.max_steps=20")
        norm = instantiate(config.norm)(C).double()
        if with_statistics(norm):
            for parameter in norm.parameters():
                nn.init.normal_(parameter)
            found[name] = norm
    return found


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


def test_every_norm_reestimates_to_what_a_long_look_at_the_same_batch_gives(
    compose_config: Compose,
) -> None:
    for name, norm in norms(compose_config).items():
        x, long = batch(), copy.deepcopy(norm)
        for _ in range(400):  # the start and a warm-up are forgotten
            long(x)
        reestimate(norm.eval(), [x, x, x], norm)
        assert not norm.training
        for key, value in norm.named_buffers():
            if "running" in key:
                assert torch.allclose(value, long.get_buffer(key), rtol=1e-9), (name, key)


def one_step(norm: nn.Module, x: torch.Tensor, mask: Any, upstream: torch.Tensor) -> list[Any]:
    """Output, gradients and buffers of two training steps."""
    for _ in range(2):
        norm.zero_grad()
        x = x.detach().requires_grad_()
        y = norm(x, mask)
        y.backward(upstream)
    return [y.detach(), x.grad, *(p.grad for p in norm.parameters()), *norm.buffers()]


def process(rank: int, folder: Path, cases: dict[str, Any]) -> None:
    """One of two processes, with half of each batch."""
    distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2
    )
    results = {}
    for name, (norm, *inputs) in cases.items():
        norm = copy.deepcopy(norm)  # its memory is shared with the other process
        synchronize(norm)
        halves = (z if z is None else z.chunk(2)[rank] for z in inputs)
        results[name] = one_step(norm, *halves)
    torch.save(results, folder / f"{rank}.pt")
    distributed.destroy_process_group()


def test_two_processes_with_half_a_batch_each_equal_one_with_all_of_it(
    tmp_path: Path, compose_config: Compose
) -> None:
    cases: dict[str, Any] = {}
    for name, norm in norms(compose_config).items():
        x, upstream = batch(), batch()
        cases[name] = (norm, x, None, upstream)
        if not isinstance(getattr(norm, "layer", None), nn.BatchNorm1d):  # gets tokens, no rows
            mask = torch.arange(T) < torch.tensor([6, 2, 4, 3])[:, None]
            cases[f"{name}, padded"] = (norm, x, mask, upstream * mask[..., None])
    wanted = {name: one_step(copy.deepcopy(case[0]), *case[1:]) for name, case in cases.items()}
    multiprocessing.spawn(process, (tmp_path, cases), nprocs=2)
    halves = [torch.load(tmp_path / f"{rank}.pt") for rank in range(2)]
    assert len(cases) > 10
    for name, (norm, *_) in cases.items():
        a, b = (half[name] for half in halves)
        n = len(list(norm.parameters()))
        rows = [torch.cat(pair) for pair in zip(a[:2], b[:2], strict=True)]
        summed = [g + h for g, h in zip(a[2 : 2 + n], b[2 : 2 + n], strict=True)]
        assert all(torch.equal(g, h) for g, h in zip(a[2 + n :], b[2 + n :], strict=True)), name
        found = [*rows, *summed, *a[2 + n :]]
        for z, reference in zip(found, wanted[name], strict=True):
            assert torch.allclose(z.double(), reference.double(), rtol=0, atol=1e-10), name


def test_nothing_is_gathered_in_evaluation() -> None:
    norm, x = BatchNorm(C).double().eval(), batch()
    before = norm(x)
    synchronize(norm)  # there is no process group: gathering would raise
    assert torch.equal(norm(x), before)
    with pytest.raises((RuntimeError, ValueError)):
        norm.train()(x)
