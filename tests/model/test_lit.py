"""The LightningModule around the net: horizon, loss, clipping, evaluation, padding.

Reference: -log softmax written out, the mean over all characters at once. The net is mostly a
bigram table (an embedding V -> V): ids (B, T) -> logits (B, T, V).
Legend: B batch, T time, V vocabulary.
"""

import math
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path

import lightning.pytorch as pl
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader

from model.gpt import GPT
from model.lit import LitGPT
from model.norms.batchnorm import BatchNorm
from model.norms.layernorm import LayerNorm
from model.norms.none import NoNorm
from model.schedule import warmup_cosine
from tests.model.test_schedule import factors

V, B, T = 11, 4, 8
PEAK = 0.5


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


def ids(*shape: int) -> torch.Tensor:
    return torch.randint(V, shape)


def padded(*lengths: int) -> torch.Tensor:
    """Rows with so many real targets, and padding after them."""
    batch = ids(len(lengths), max(lengths) + 1)
    past = torch.arange(batch.shape[1]) > torch.tensor(lengths)[:, None]
    return batch.masked_fill(past, -1)


def lit(net: nn.Module, **schedule: float) -> LitGPT:
    schedule = {"warmup": 0.25, "total_steps": 8, "floor": 0.1, **schedule}
    optimizer, scheduler = partial(torch.optim.SGD, lr=PEAK), partial(warmup_cosine, **schedule)
    return LitGPT(net, optimizer, scheduler, seed=1, log_every=1)


def trainer(*callbacks: pl.Callback, **options: object) -> pl.Trainer:
    """On the CPU, quiet, evaluating at no fixed step."""
    quiet = dict.fromkeys(
        ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False
    )
    options = {"max_epochs": -1, "num_sanity_val_steps": 0, "limit_val_batches": 0, **options}
    return pl.Trainer(accelerator="cpu", devices=1, callbacks=list(callbacks), **quiet, **options)


class Batches(pl.LightningDataModule):
    """Twenty batches to train on and none to evaluate on."""

    def train_dataloader(self) -> DataLoader[torch.Tensor]:
        return DataLoader([ids(B, T + 1) for _ in range(20)], batch_size=None)

    def val_dataloader(self) -> list[torch.Tensor]:
        return []


class Rates(pl.Callback):
    """Notes each update's learning rate as a fraction of the peak."""

    def __init__(self) -> None:
        self.factors: list[float] = []

    def on_train_batch_end(self, trainer: pl.Trainer, lit: LitGPT, *_: object) -> None:
        self.factors.append(lit.lr / PEAK)


@pytest.mark.filterwarnings("ignore:.*LeafSpec", "ignore:.*not resumable")
def test_a_resumed_run_follows_its_new_horizon_from_its_first_update_on(tmp_path: Path) -> None:
    first, second = Rates(), Rates()
    started = trainer(first, max_steps=8)
    started.fit(lit(nn.Embedding(V, V)), datamodule=Batches())
    started.save_checkpoint(tmp_path / "last.ckpt")
    longer = lit(nn.Embedding(V, V), total_steps=16)
    trainer(second, max_steps=12).fit(
        longer, datamodule=Batches(), ckpt_path=tmp_path / "last.ckpt", weights_only=True
    )
    assert first.factors == pytest.approx(factors(8, warmup=0.25, total_steps=8, floor=0.1))
    wanted = factors(12, warmup=0.25, total_steps=16, floor=0.1)[8:]
    assert second.factors == pytest.approx(wanted)


def test_cross_entropy_is_the_mean_of_minus_log_softmax_of_the_next_character() -> None:
    net, batch = nn.Embedding(V, V), ids(B, T + 1)
    losses = [
        net.weight[here].double().logsumexp(0) - net.weight[here, following].double()
        for row in batch
        for here, following in pairwise(row)
    ]
    loss = lit(net).cross_entropy(batch)
    assert loss.item() == pytest.approx(torch.stack(losses).mean().item(), rel=1e-6)
    logits = net(batch[:, :-1]).transpose(1, 2)
    assert torch.allclose(loss, F.cross_entropy(logits, batch[:, 1:]))


def test_cross_entropy_of_bf16_logits_is_taken_in_float32() -> None:
    net, batch = nn.Embedding(V, V).bfloat16(), ids(B, T + 1)
    loss = lit(net).cross_entropy(batch)
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(lit(net.float()).cross_entropy(batch).item(), rel=1e-6)


def test_a_loss_that_is_not_finite_stops_training() -> None:
    net = nn.Embedding(V, V)
    nn.init.constant_(net.weight, math.nan)
    broken = lit(net)
    broken.trainer = trainer(max_steps=1)
    with pytest.raises(FloatingPointError, match="nan at step 1"):
        broken.training_step(ids(B, T + 1), 0)


@pytest.mark.parametrize(("limit", "left"), [(1.0, 1.0), (None, 5.0), (9.0, 5.0)])
def test_clipping_keeps_the_norm_from_before_and_measures_without_a_limit(
    limit: float | None, left: float
) -> None:
    net = nn.Linear(2, 1, bias=False)
    net.weight.grad = torch.tensor([[3.0, 4.0]])
    clipped = lit(net)
    clipped.configure_gradient_clipping(torch.optim.SGD(net.parameters(), lr=PEAK), limit)
    assert float(clipped.grad_norm) == pytest.approx(5.0)
    assert net.weight.grad.norm().item() == pytest.approx(left, rel=1e-4)


def gpt(norm: Callable[[int], nn.Module], placement: str = "pre", dropout: float = 0.0) -> GPT:
    return GPT(V, 64, 2, 2, 32, norm, placement=placement, dropout=dropout)


@pytest.mark.parametrize("training", [True, False])
def test_evaluation_weighs_windows_by_characters_and_puts_the_mode_back(training: bool) -> None:
    net, batches = gpt(BatchNorm, dropout=0.5), [ids(2, 9), ids(1, 3)]
    net(ids(B, T))  # moves the running statistics, which evaluation uses and leaves
    state = {name: value.clone() for name, value in net.state_dict().items()}
    evaluated = lit(net.train(training))
    evaluated.trainer = trainer(max_steps=1)
    loss = evaluated.evaluate(batches)
    assert net.training is training and net.blocks[0].mlp_norm.training is training
    assert all(torch.equal(value, state[name]) for name, value in net.state_dict().items())
    net.eval()
    characters = [
        F.cross_entropy(net(b[:, :-1]).transpose(1, 2), b[:, 1:], reduction="none").flatten()
        for b in batches
    ]
    assert [len(losses) for losses in characters] == [16, 2]
    assert loss == pytest.approx(torch.cat(characters).mean().item(), rel=1e-6)


@pytest.mark.parametrize("norm", [LayerNorm, NoNorm])
def test_the_loss_and_gradients_of_a_padded_batch_are_those_of_its_rows_without_padding(
    norm: type[nn.Module],
) -> None:
    net, lengths = gpt(norm).double(), (8, 3, 1, 5)
    batch = padded(*lengths)
    rows = [row[None, : n + 1] for row, n in zip(batch, lengths, strict=True)]
    losses = [
        F.cross_entropy(net(row[:, :-1])[0], row[0, 1:], reduction="sum").double() for row in rows
    ]
    wanted = torch.stack(losses).sum() / sum(lengths)
    found = lit(net).cross_entropy(batch)
    assert found.item() == pytest.approx(wanted.item(), rel=1e-6)  # it is taken in float32
    parameters = list(net.parameters())
    for a, b in zip(*(torch.autograd.grad(x, parameters) for x in (found, wanted)), strict=True):
        assert torch.allclose(a, b, rtol=1e-5, atol=1e-8)


class Noted(nn.Embedding):
    """A bigram table that notes what else than ids it is given."""

    def forward(self, idx: torch.Tensor, *mask: torch.Tensor) -> torch.Tensor:
        self.given = (idx, *mask)
        return super().forward(idx)


def test_the_net_is_given_a_mask_of_the_real_targets_only_where_there_is_padding() -> None:
    net, plain, batch = Noted(V, V), ids(B, T + 1), padded(4, 1)
    lit(net).cross_entropy(plain)
    assert len(net.given) == 1 and torch.equal(net.given[0], plain[:, :-1])
    lit(net).cross_entropy(batch)
    assert net.given[0].min() >= 0 and net.given[1].tolist() == [[True] * 4, [True] + [False] * 3]


def test_evaluation_of_padded_batches_counts_each_real_target_once() -> None:
    evaluated, batches = lit(gpt(LayerNorm)), [padded(7, 2, 4), padded(1, 1)]
    evaluated.trainer = trainer(max_steps=1)
    found = evaluated.evaluate(batches)
    sums = [evaluated.cross_entropy(b).item() * n for b, n in zip(batches, (13, 2), strict=True)]
    assert found == pytest.approx(sum(sums) / 15, rel=1e-6)


def test_evaluation_over_no_batches_is_nan() -> None:
    evaluated = lit(nn.Embedding(V, V))
    evaluated.trainer = trainer(max_steps=1)
    evaluated.evaluate([ids(B, T + 1)])
    assert math.isnan(evaluated.evaluate([]))
