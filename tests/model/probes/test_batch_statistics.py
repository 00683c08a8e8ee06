"""TID, the loss read three ways and the leak.

Reference: torch.mean and torch.var of inputs that hooks caught, in float64. The losses themselves
are tested in test_leak.py.
Legend: B batch, T time, C channels, V vocabulary.
"""

import copy
import csv
import math
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from model.gpt import GPT
from model.norms.batchnorm import BatchNorm
from model.norms.batchnorm_causal import BatchNormCausal
from model.norms.batchnorm_position import BatchNormPosition
from model.norms.layernorm import LayerNorm
from model.norms.powernorm import PowerNorm
from model.norms.torch_batchnorm import TorchBatchNorm
from model.probes import batch_statistics
from model.probes.batch_statistics import (
    BatchStatistics,
    discrepancies,
    final_readings,
    leaks,
    three_ways,
)
from run.result import read_result

V, B, T, C = 7, 4, 16, 8
Position, Causal = (partial(norm, block_size=T) for norm in (BatchNormPosition, BatchNormCausal))


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


def ids(rows: int = B) -> torch.Tensor:
    return torch.randint(V, (rows, T + 1))


def padded() -> torch.Tensor:
    """Rows with 16, 3, 9 and 1 real targets."""
    return ids().masked_fill(torch.arange(T + 1) > torch.tensor([[16], [3], [9], [1]]), -1)


def gpt(norm: Callable[[int], nn.Module], dropout: float = 0.0) -> GPT:
    """Two blocks that have seen a few batches."""
    net = GPT(V, T, 2, 2, C, norm, dropout=dropout, embed_scale=50.0).double()
    for _ in range(3):
        net(ids()[:, :-1])
    return net


def caught(net: nn.Module, batch: torch.Tensor) -> dict[str, tuple[torch.Tensor, dict[str, Any]]]:
    """Each norm's real tokens (n, C), or rows (B, T, C), and its buffers before they see them."""
    found: dict[str, Any] = {}
    net, real = copy.deepcopy(net).train(), batch[:, 1:] != -1

    def catch(name: str, norm: nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
        found[name] = inputs[0].detach(), {k: b.clone() for k, b in norm.named_buffers()}

    for name, module in net.named_modules():
        if name.endswith("norm"):
            module.register_forward_pre_hook(partial(catch, name))
    net(batch[:, :-1].clamp(min=0), real)
    return found


@pytest.mark.parametrize("norm", [BatchNorm, TorchBatchNorm])
@pytest.mark.parametrize("make", [ids, padded])
def test_tid_is_the_distance_of_the_batchs_moments_from_the_running_ones(
    norm: Callable[[int], nn.Module], make: Callable[[], torch.Tensor]
) -> None:
    net, batch = gpt(norm), make()
    found, wanted = discrepancies(copy.deepcopy(net), batch), {}
    for name, (x, buffers) in caught(net, batch).items():
        tokens = x[batch[:, 1:] != -1]
        run = {key.removeprefix("layer."): value for key, value in buffers.items()}
        std = (tokens.var(0) + 1e-5).sqrt()  # torch's: unbiased
        std_run = (run["running_var"] + 1e-5).sqrt()
        site = "/".join([name.split(".")[-1], *name.split(".")[1:2]])
        wanted[f"probe/tid_mean_{site}"] = ((tokens.mean(0) - run["running_mean"]) / std).abs()
        wanted[f"probe/tid_std_{site}"] = (std_run / std - 1).abs()
    sites = {"attention_norm/0", "attention_norm/1", "mlp_norm/0", "mlp_norm/1", "final_norm"}
    assert (
        found.keys()
        == wanted.keys()
        == {f"probe/tid_{m}_{s}" for m in ("mean", "std") for s in sites}
    )
    for name, value in wanted.items():
        assert found[name] == pytest.approx(value.mean().item(), rel=1e-9), name


def test_tid_of_other_buffers_is_that_of_what_they_hold() -> None:
    """Of each position, of all positions so far, of the last sub-batch, of the mean square."""
    batch = ids()
    for norm in (Position, Causal):
        net = gpt(norm)
        x, run = caught(net, batch)["blocks.1.mlp_norm"]
        parts = [x[:, t] if norm is Position else x[:, : t + 1].flatten(0, 1) for t in range(T)]
        mean, std = (
            torch.stack(z) for z in ([p.mean(0) for p in parts], [p.std(0) for p in parts])
        )
        found = discrepancies(net, batch)
        apart = ((mean - run["running_mean"]) / std).abs().mean().item()
        assert found["probe/tid_mean_mlp_norm/1"] == pytest.approx(apart, rel=1e-3)  # eps
        ratio = (run["running_var"].sqrt() / std - 1).abs().mean().item()
        assert found["probe/tid_std_mlp_norm/1"] == pytest.approx(ratio, rel=1e-3)
    net = gpt(partial(BatchNorm, ghost=2))
    x, run = caught(net, batch)["blocks.0.attention_norm"]
    apart = (x[2:].flatten(0, 1).mean(0) - run["running_mean"]) / x[2:].flatten(0, 1).std(0)
    found = discrepancies(net, batch)["probe/tid_mean_attention_norm/0"]
    assert found == pytest.approx(apart.abs().mean().item(), rel=1e-3)
    net = gpt(partial(PowerNorm, total_steps=9, groups=None))
    x, run = caught(net, batch)["final_norm"]
    ratio = (run["running_square"] / x.square().mean((0, 1))).sqrt() - 1
    found = discrepancies(net, batch)
    assert found["probe/tid_std_final_norm"] == pytest.approx(ratio.abs().mean().item(), rel=1e-3)
    assert not [name for name in found if "tid_mean" in name]  # it has no mean


def test_positions_without_statistics_have_no_tid() -> None:
    short = padded()[1:]  # no row has more than 9 targets: the running variance of 10 to 16 stays
    net = gpt(Position)
    for norm in (m for m in net.modules() if isinstance(m, BatchNormPosition)):
        norm.running_mean[9:] = 1e9
    assert max(discrepancies(net, short[:, :-4]).values()) < 100
    assert discrepancies(gpt(Position), ids(1)) == {}  # one row: no variance at all


class Data(SimpleNamespace):
    """Twelve training batches over and over; a validation split of 9 windows and a short one."""

    batch_size = B

    def __init__(self) -> None:
        drawn = [ids() for _ in range(12)]
        self.drawn = {k: drawn[k % 12] for k in range(100)}
        self.val = [ids(9), ids(1)[:, :5]]

    def windows(self) -> dict[int, torch.Tensor]:
        return self.drawn

    def whole(self, part: list[torch.Tensor]) -> list[torch.Tensor]:
        return part

    def val_dataloader(self) -> list[torch.Tensor]:
        return self.val


def setting(net: nn.Module) -> tuple[Any, Any, dict[str, float]]:
    """A trainer and a lit around a net, and what is logged."""
    trainer = SimpleNamespace(
        global_step=0,
        max_steps=9,
        accumulate_grad_batches=2,
        val_check_interval=8,
        datamodule=Data(),
        precision_plugin=SimpleNamespace(forward_context=nullcontext),
    )
    logged: dict[str, float] = {}
    lit = SimpleNamespace(net=net, device="cpu", trainer=trainer, log_now=logged.update)
    lit.on_train_batch_start = lambda batch, k: torch.manual_seed(k)
    trainer.lightning_module = lit
    return trainer, lit, logged


@pytest.mark.parametrize("norm", [BatchNorm, Causal, partial(PowerNorm, total_steps=9)])
def test_probing_leaves_net_gradients_modes_and_random_numbers_alone(
    norm: Callable[[int], nn.Module],
) -> None:
    net = gpt(norm, dropout=0.5)
    trainer, lit, logged = setting(net)
    batch = ids(2)
    net(ids()[:, :-1]).square().mean().backward()
    net.blocks[1].mlp.eval()
    before = copy.deepcopy(
        [net.state_dict(), [p.grad for p in net.parameters()], torch.get_rng_state()]
    )
    modes = [m.training for m in net.modules()]
    attributes = [m.tokens_per_statistic for m in net.modules() if hasattr(m, "momentum")]
    probe = BatchStatistics(every=1, read_every=1)
    probe.on_train_batch_start(trainer, lit, batch, 1)
    trainer.global_step = 9
    probe.on_train_batch_end(trainer, lit, None, None, 1)
    probe.on_validation_epoch_end(trainer, lit)
    assert {"probe/tid_std_final_norm", "probe/leak", "probe/loss_batch"} <= logged.keys()
    assert math.isfinite(final_readings(lit, trainer.datamodule)["leak"])
    after = [net.state_dict(), [p.grad for p in net.parameters()], torch.get_rng_state()]
    for x, y in zip(before[0].values(), after[0].values(), strict=True):
        assert torch.equal(x, y)
    assert all(torch.equal(x, y) for x, y in zip(before[1], after[1], strict=True))
    assert torch.equal(before[2], after[2])
    assert modes == [m.training for m in net.modules()]
    assert attributes == [m.tokens_per_statistic for m in net.modules() if hasattr(m, "momentum")]


def test_tid_sees_the_dropout_that_training_will_have() -> None:
    net, batch = gpt(BatchNorm, dropout=0.5), ids()
    trainer, lit, logged = setting(net)
    probe = BatchStatistics(every=1, read_every=1)
    probe.on_train_batch_start(trainer, lit, batch, 3)
    probe.on_train_batch_end(trainer, lit, None, batch, 3)
    torch.manual_seed(3)
    tokens, run = caught(net, batch)["blocks.1.mlp_norm"]
    std = (tokens.var((0, 1)) + 1e-5).sqrt()
    wanted = ((run["running_var"] + 1e-5).sqrt() / std - 1).abs().mean().item()
    assert logged["probe/tid_std_mlp_norm/1"] == pytest.approx(wanted, rel=1e-9)


def test_tid_is_logged_at_due_steps_and_losses_at_evaluations_after_each_multiple() -> None:
    trainer, lit, logged = setting(gpt(BatchNorm))
    probe, looked, read = BatchStatistics(every=4, read_every=5), [], []
    for step in range(1, 10):  # two micro-batches each, an evaluation each 4 steps and at the end
        for k in (2 * step - 2, 2 * step - 1):
            logged.clear()
            trainer.global_step = step - 1
            probe.on_train_batch_start(trainer, lit, ids(), k)
            probe.on_train_batch_end(trainer, lit, None, ids(), k)
            looked += [(step, k % 2)] if logged else []
        logged.clear()
        trainer.global_step = step
        if step in (4, 8, 9):
            probe.on_validation_epoch_end(trainer, lit)
            read += [step] if logged else []
    assert looked == [(1, 1), (4, 1), (8, 1), (9, 1)]
    assert read == [8, 9]
    with pytest.raises(ValueError, match="read_every=0"):
        BatchStatistics(every=1, read_every=0)


def test_nothing_is_measured_without_running_statistics() -> None:
    trainer, lit, logged = setting(gpt(LayerNorm))
    probe = BatchStatistics(every=1, read_every=1)
    probe.on_train_batch_start(trainer, lit, ids(), 1)
    trainer.global_step = 9
    probe.on_train_batch_end(trainer, lit, None, None, 1)
    probe.on_validation_epoch_end(trainer, lit)
    assert not logged and final_readings(lit, trainer.datamodule) == {}


def test_the_final_reading_is_over_the_split_in_batches_of_the_training_size(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nine windows in three batches of three; one short window is too few, but for running ones."""
    monkeypatch.setattr(batch_statistics, "FINAL_BATCHES", 50)
    monkeypatch.setattr(batch_statistics, "FINAL_LEAKS", 16)
    net = gpt(BatchNorm)
    trainer, lit, _ = setting(net)
    data = trainer.datamodule
    found = final_readings(lit, data)
    thirds, training = list(data.val[0].split(3)), [data.drawn[k] for k in range(50)]
    wanted = three_ways(copy.deepcopy(net), thirds, training)
    assert found["val_batch"] == pytest.approx(wanted["batch"], rel=1e-9)
    wanted = three_ways(copy.deepcopy(net), data.val, training)
    assert found["val_reestimated"] == pytest.approx(wanted["reestimated"], rel=1e-6)
    pairs = zip(training[:16], training[16:32], strict=True)
    helped = torch.cat([leaks(net, *pair) for pair in pairs])
    assert found["leak"] == pytest.approx(helped.mean().item(), rel=1e-5)


def test_a_resumed_run_logs_what_an_uninterrupted_one_does(
    tmp_path: Path, run: Callable[..., Path], resume: Callable[..., Path]
) -> None:
    often = ["norm=batchnorm", "probes.every=2", "probes.callbacks.batch_statistics.read_every=4"]
    often += ["probes=default", "eval_every=4", "scheduler.total_steps=9"]
    whole = run(tmp_path / "whole", *often, "trainer.max_steps=9")
    parts = run(tmp_path / "parts", *often, "trainer.max_steps=4")
    resume(parts, "trainer.max_steps=9")
    rows = []
    for folder in (whole, parts):
        with (folder / "metrics.csv").open() as file:
            names = ("probe/tid", "probe/loss", "probe/leak")
            rows.append([row for row in csv.reader(file) if row[1].startswith(names)])
    assert rows[0] == rows[1]
    assert {int(row[0]) for row in rows[0] if "tid" in row[1]} == {1, 2, 4, 6, 8, 9}
    assert [int(row[0]) for row in rows[0] if row[1] == "probe/leak"] == [4, 8, 9]
    results = [read_result(folder) for folder in (whole, parts)]
    for key in ("val_reestimated", "val_batch", "leak"):
        assert results[0][key] == results[1][key] and math.isfinite(results[0][key])
