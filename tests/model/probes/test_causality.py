"""The causality score in train and in eval mode, what counts as causal, and when it is logged.

Reference: logits before and after a change of the later tokens, float64. Legend: B batch, T time.
"""

import copy
import math
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from model.gpt import GPT
from model.norms.batchnorm import BatchNorm
from model.norms.batchnorm_position import BatchNormPosition
from model.norms.layernorm import LayerNorm
from model.norms.none import NoNorm
from model.probes.causality import Causality, causality, is_causal

V, B, T = 7, 4, 8
BATCH = torch.arange(B * (T + 1)).view(B, T + 1) % V


def gpt(norm: Callable[[int], nn.Module], **options: Any) -> GPT:
    return GPT(V, T, 2, 2, 8, norm, embed_scale=50.0, **options).double()


def padded(*lengths: int) -> torch.Tensor:
    """Random rows with so many real targets, and padding after them."""
    draw = torch.Generator().manual_seed(0)
    batch = torch.randint(11, (len(lengths), max(lengths) + 1), generator=draw)
    past = torch.arange(batch.shape[1]) > torch.tensor(lengths)[:, None]
    return batch.masked_fill(past, -1)


def score(net: nn.Module, batch: torch.Tensor) -> float:
    """Written out, for a batch without padding and a net without dropout."""
    before = batch[:, :-1]
    after = before.clone()
    after[:, T // 2 :] = (after[:, T // 2 :] + 1) % (before.max() + 1)
    a, b = (copy.deepcopy(net)(x)[:, : T // 2] for x in (before, after))
    return ((a - b).abs().max() / a.square().mean().sqrt()).item()


def test_the_score_is_the_largest_change_over_the_logits_rms_in_both_modes() -> None:
    net = gpt(BatchNorm)
    net(BATCH[:, :-1])
    for parameter in net.parameters():
        nn.init.normal_(parameter)  # one that is all zero would be set to 1
    found = causality(net, BATCH, training=True)
    assert found == pytest.approx(score(net.train(), BATCH), rel=1e-12)
    assert found > 0.1
    assert causality(net, BATCH, training=False) == score(net.eval(), BATCH) < 1e-12


def test_of_a_large_batch_only_the_first_four_rows_are_read() -> None:
    net = gpt(BatchNorm)
    more = torch.cat([BATCH, BATCH.flip(1)])
    assert causality(net, more, training=True) == causality(net, BATCH, training=True)


@pytest.mark.parametrize("norm", [LayerNorm, partial(BatchNormPosition, block_size=T)])
def test_a_causal_net_scores_next_to_nothing_in_both_modes(norm: Any) -> None:
    for training in (True, False):
        assert causality(gpt(norm, dropout=0.3), BATCH, training=training) < 1e-12


def test_a_gate_at_zero_hides_no_leak_in_eval_mode_either() -> None:
    class Later(nn.Module):
        """Adds the mean over time: leaks in both modes."""

        def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
            return x + x.mean(1, keepdim=True)

    net = gpt(lambda dim: Later(), residual_gate="rezero", placement="out", final_norm=LayerNorm)
    assert min(causality(net, BATCH, training=training) for training in (True, False)) > 1e-4
    assert not any(gate.any() for block in net.blocks for gate in block.gates)


def test_scoring_leaves_random_numbers_alone() -> None:
    state = torch.get_rng_state()
    causality(gpt(BatchNorm, dropout=0.5), BATCH, training=True)
    assert torch.equal(state, torch.get_rng_state())


@pytest.mark.parametrize("lengths", [(16,), (64,) * 4, (8, 3, 1, 5, 12), (1, 9, 1, 1, 64)])
@pytest.mark.parametrize("dropout", [0.0, 0.5])
@pytest.mark.parametrize("placement", ["pre", "post"])
@pytest.mark.parametrize(
    ("norm", "causal"), [(LayerNorm, True), (NoNorm, True), (BatchNorm, False)]
)
def test_causality_in_training_is_found_out(
    norm: type[nn.Module], causal: bool, placement: str, dropout: float, lengths: tuple[int, ...]
) -> None:
    """Four rows are read; the longest row may not be among them."""
    net = GPT(11, 64, 2, 2, 32, norm, placement=placement, dropout=dropout)
    assert is_causal(net, padded(*lengths)) is causal


@pytest.mark.parametrize("training", [True, False])
def test_measuring_causality_leaves_net_buffers_mode_and_batch_alone(training: bool) -> None:
    net = gpt(BatchNorm).train(training)
    state = {name: value.clone() for name, value in net.state_dict().items()}
    batch, kept = BATCH.clone(), BATCH.clone()
    is_causal(net, batch)
    assert all(torch.equal(value, state[name]) for name, value in net.state_dict().items())
    assert torch.equal(batch, kept) and net.training is training
    assert all(p.grad is None for p in net.parameters())


def test_a_net_whose_logits_are_not_finite_is_neither_causal_nor_not() -> None:
    net = gpt(LayerNorm)
    nn.init.constant_(net.token_embedding.weight, math.nan)
    assert is_causal(net, BATCH) is None


def test_the_score_is_logged_at_the_start_and_at_the_end_but_not_when_a_run_is_resumed() -> None:
    trainer: Any = SimpleNamespace(global_step=0, max_steps=3)
    trainer.datamodule = SimpleNamespace(windows=lambda: [BATCH])
    net = gpt(BatchNorm)
    logged: list[tuple[int, dict[str, float]]] = []
    lit: Any = SimpleNamespace(device="cpu", net=net)
    lit.log_now = lambda values: logged.append((trainer.global_step, values))
    probe = Causality()
    probe.on_train_start(trainer, lit)
    for trainer.global_step in (1, 2, 3):
        probe.on_validation_epoch_end(trainer, lit)
    trainer.global_step = 2
    probe.on_train_start(trainer, lit)
    scores = {
        "probe/causality_train": causality(net, BATCH, training=True),
        "probe/causality_eval": causality(net, BATCH, training=False),
    }
    assert scores["probe/causality_eval"] < 1e-12 < scores["probe/causality_train"]
    assert logged == [(0, scores), (3, scores)]
