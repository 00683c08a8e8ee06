"""The loss read three ways, and the leak.

Reference: log_softmax at single positions, and a net made by hand whose logits count characters, so
that the future is sure to help. Float64; losses are taken in float32. Legend: B batch, T time, V
vocabulary.
"""

import copy
from collections.abc import Callable

import pytest
import torch
from torch import nn

from model.norms.batchnorm import BatchNorm
from model.norms.layernorm import LayerNorm
from model.probes.batch_statistics import leaks, three_ways
from tests.model.probes.test_batch_statistics import (
    B,
    Causal,
    Position,
    T,
    V,
    caught,
    gpt,
    ids,
    padded,
)


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


def test_the_loss_is_read_with_running_reestimated_and_batch_statistics() -> None:
    net, windows = gpt(BatchNorm, dropout=0.5), [ids(), padded()]
    training = [ids() for _ in range(3)]
    without = gpt(BatchNorm)
    without.load_state_dict(net.state_dict())

    def loss(mode: nn.Module) -> float:
        parts = [mode(b[:, :-1].clamp(min=0), b[:, 1:] != -1).log_softmax(-1) for b in windows]
        picked = [
            p.gather(2, b[:, 1:, None].clamp(min=0))[b[:, 1:] != -1]
            for p, b in zip(parts, windows, strict=True)
        ]
        return -torch.cat(picked).mean().item()

    wanted = {"running": loss(copy.deepcopy(without).eval())}
    wanted["batch"] = loss(copy.deepcopy(without).train())
    seen = [caught(without, batch) for batch in training]
    for name, norm in without.named_modules():
        if isinstance(norm, BatchNorm):
            tokens = [moments[name][0].flatten(0, 1) for moments in seen]
            norm.running_mean = torch.stack([x.mean(0) for x in tokens]).mean(0)
            norm.running_var = torch.stack([x.var(0) for x in tokens]).mean(0)
    wanted["reestimated"] = loss(without.eval())
    found = three_ways(net, windows, training)
    assert found == pytest.approx(wanted, rel=1e-6)  # losses are taken in float32
    assert len({round(value, 4) for value in wanted.values()}) == 3


class Counting(nn.Module):
    """Predicts what is frequent in the batch: logits -norm(one-hot ids), times 3."""

    def __init__(self, norm: nn.Module) -> None:
        super().__init__()
        self.norm = norm.double()

    def forward(self, idx: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        x: torch.Tensor = self.norm(nn.functional.one_hot(idx, V).double(), mask)
        return -3 * x


def leak_of(norm: nn.Module, rows: int) -> float:
    parts = [leaks(Counting(norm), ids(rows), ids(rows)) for _ in range(64 // rows)]
    return torch.cat(parts).mean().item()


def test_the_leak_grows_as_the_batch_shrinks() -> None:
    leak = [leak_of(BatchNorm(V), rows) for rows in (16, 4, 1)]
    assert 0.005 < leak[0] < leak[1] / 2 < leak[2] / 4


def test_a_norm_that_no_later_token_enters_has_no_leak() -> None:
    for norm in (LayerNorm(V), Position(V), Causal(V)):
        assert abs(leak_of(norm, B)) < 1e-7
    for norm in (Position, Causal):
        assert leaks(gpt(norm), ids(), ids()).abs().max() < 1e-6
        assert leaks(gpt(norm), padded(), padded()).abs().max() < 1e-6
    assert leaks(gpt(BatchNorm), ids(), ids()).abs().max() > 0.01


@pytest.mark.parametrize("make", [ids, padded])
def test_the_leak_is_the_loss_at_t_without_the_later_text_minus_that_with_it(
    make: Callable[[], torch.Tensor],
) -> None:
    """T = 16: the cuts are at 1, 3, ..., 15; dropout takes no part."""
    net, batch, other = gpt(BatchNorm, dropout=0.5), make(), ids()
    without = gpt(BatchNorm)
    without.load_state_dict(net.state_dict())
    real, text, wanted = batch[:, 1:] != -1, other.flatten()[: B * T].view(B, T), []
    for t in range(1, T, 2):
        replaced = batch[:, :-1].clone()
        for row in range(B):
            for s in range(t + 1, T):
                if real[row, s]:
                    replaced[row, s] = text[row, s]
        before, after = (
            copy.deepcopy(without)(x.clamp(min=0), real).log_softmax(-1)
            for x in (batch[:, :-1], replaced)
        )
        for row in range(B):
            if real[row, t]:
                target = batch[row, t + 1]
                wanted.append((before - after)[row, t, target].item())
    found = leaks(net, batch, other)
    assert found.tolist() == pytest.approx(wanted, abs=1e-6)
