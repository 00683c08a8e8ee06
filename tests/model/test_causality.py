"""The causality score, in train and in eval mode, and when it is logged.

Reference: logits of single tokens changed one at a time, float64. Legend: B batch, T time.
"""

import copy
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from model.gpt import GPT
from model.lit import LitGPT
from model.norms.batchnorm import BatchNorm
from model.norms.batchnorm_position import BatchNormPosition
from model.norms.layernorm import LayerNorm
from model.probes.causality import Causality

V, B, T = 7, 4, 8


def lit(net: nn.Module) -> LitGPT:
    nothing: Any = None
    return LitGPT(net, nothing, nothing, seed=1, log_every=1)


def gpt(norm: Callable[[int], nn.Module], **options: Any) -> GPT:
    return GPT(V, T, 2, 2, 8, norm, embed_scale=50.0, **options).double()


def score(net: nn.Module, batch: torch.Tensor) -> float:
    """Written out, for a batch without padding and a net without dropout."""
    before = batch[:, :-1]
    after = before.clone()
    after[:, T // 2 :] = (after[:, T // 2 :] + 1) % (before.max() + 1)
    a, b = (copy.deepcopy(net)(x)[:, : T // 2] for x in (before, after))
    return ((a - b).abs().max() / a.square().mean().sqrt()).item()


def test_the_score_is_the_largest_change_over_the_logits_rms_in_both_modes() -> None:
    net, batch = gpt(BatchNorm), torch.arange(B * (T + 1)).view(B, T + 1) % V
    net(batch[:, :-1])
    for parameter in net.parameters():
        nn.init.normal_(parameter)  # one that is all zero would be set to 1
    found = lit(net).causality(batch, training=True)
    assert found == pytest.approx(score(net.train(), batch), rel=1e-12)
    assert found > 0.1
    assert lit(net).causality(batch, training=False) == score(net.eval(), batch) < 1e-12


@pytest.mark.parametrize("norm", [LayerNorm, partial(BatchNormPosition, block_size=T)])
def test_a_causal_net_scores_next_to_nothing_in_both_modes(norm: Any) -> None:
    batch = torch.arange(B * (T + 1)).view(B, T + 1) % V
    for training in (True, False):
        assert lit(gpt(norm, dropout=0.3)).causality(batch, training) < 1e-12


def test_a_gate_at_zero_hides_no_leak_in_eval_mode_either() -> None:
    class Later(nn.Module):
        """Adds the mean over time: leaks in both modes."""

        def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
            return x + x.mean(1, keepdim=True)

    net = gpt(lambda dim: Later(), residual_gate="rezero", placement="out", final_norm=LayerNorm)
    batch = torch.arange(B * (T + 1)).view(B, T + 1) % V
    assert min(lit(net).causality(batch, training) for training in (True, False)) > 1e-4
    assert not any(gate.any() for block in net.blocks for gate in block.gates)


def test_scoring_leaves_random_numbers_alone() -> None:
    state = torch.get_rng_state()
    lit(gpt(BatchNorm, dropout=0.5)).causality(torch.ones(B, T + 1, dtype=torch.long), True)
    assert torch.equal(state, torch.get_rng_state())


def test_the_score_is_logged_at_the_start_and_at_the_end_but_not_when_a_run_goes_on() -> None:
    rows = torch.arange(B * (T + 1)).view(B, T + 1) % V
    trainer: Any = SimpleNamespace(global_step=0, max_steps=3, sanity_checking=False)
    trainer.datamodule = SimpleNamespace(windows=lambda: [rows])
    real, steps = lit(gpt(BatchNorm)), []

    def log_now(values: dict[str, float]) -> None:
        assert values["probe/causality_train"] == real.causality(rows, True)
        assert values["probe/causality_eval"] < 1e-12
        steps.append(trainer.global_step)

    stub: Any = SimpleNamespace(device="cpu", causality=real.causality, log_now=log_now)
    probe = Causality()
    probe.on_train_start(trainer, stub)
    for trainer.global_step in (1, 2, 3):
        probe.on_validation_epoch_end(trainer, stub)
    trainer.global_step = 2
    probe.on_train_start(trainer, stub)
    assert steps == [0, 3]
