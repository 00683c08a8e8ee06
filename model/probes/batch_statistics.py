"""Norms with batch statistics: how far the batch's are from the running ones, and what that does.

Three things are measured, for nets with such norms only (model/reestimation.py): the distance
itself at each site (TID), the loss with the statistics taken in three ways, and **the leak**: how
much the text that is to be predicted helps to predict it. All are measured on copies of the net.

Legend: B batch, T time, C channels, V vocabulary. A batch is (B, T + 1) ids. Losses are in nats per
character.
"""

import copy
import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import lightning.pytorch as pl
import torch
from torch import nn
from torch.nn import functional as F

from model.lit import PADDING, LitGPT, logits_of
from model.probes.probe import Probe, fixed_batch, series
from model.reestimation import batch_mode, reestimate, with_statistics
from model.sites import sites
from model.steps import completes_step, due, evaluation_due

Losses = Callable[[nn.Module, torch.Tensor, torch.Tensor], torch.Tensor]
CUTS = 8  # positions at which the leak is measured
BATCHES = 20  # training batches over which statistics are re-estimated while training
FINAL_BATCHES = 50  # the same at the end
FINAL_LEAKS = 16  # training batches whose leak is measured at the end


class BatchStatistics(Probe):
    """Logs TID at due steps, and the loss read three ways and the leak at evaluations.

    Args:
        read_every: the losses and the leak are read at the first evaluation at or after each
            multiple of so many optimizer steps, and at the last one. They take the time of about 10
            steps.

    Raises:
        ValueError: a `read_every` below 1.
    """

    def __init__(self, every: int, read_every: int) -> None:
        if read_every < 1:
            key = "probes.callbacks.batch_statistics.read_every"
            raise ValueError(f"{key}={read_every} must be at least 1 step")
        self.every = every
        self.read_every = read_every
        self.found: dict[str, float] = {}

    def on_train_batch_start(
        self, trainer: pl.Trainer, lit: Any, batch: torch.Tensor, batch_idx: int
    ) -> None:
        """Measure on the micro-batch that completes a due step, before the net sees it."""
        self.found = {}
        upcoming = due(trainer.global_step + 1, self.every, trainer.max_steps)
        if upcoming and completes_step(trainer, batch_idx) and with_statistics(lit.net):
            with copied(lit) as net:
                lit.on_train_batch_start(batch, batch_idx)  # the dropout that training will have
                self.found = discrepancies(net.train(), batch)

    def after_step(self, trainer: pl.Trainer, lit: LitGPT) -> None:
        """Log what was found, at the step that is now done."""
        if self.found:
            lit.log_now(self.found)

    def on_validation_epoch_end(self, trainer: pl.Trainer, lit: Any) -> None:
        """Read the losses and the leak, if they are due."""
        if not with_statistics(lit.net) or not evaluation_due(trainer, 1, self.read_every):
            return
        windows = trainer.datamodule.windows()  # type: ignore[attr-defined]
        training = [windows[k].to(lit.device) for k in range(BATCHES)]
        with copied(lit) as net:
            leak = float(leaks(net, training[0], training[1]).mean())
            ways = three_ways(net, [fixed_batch(trainer)], training)
        values = {f"probe/loss_{way}": loss for way, loss in ways.items()}
        lit.log_now(values | {"probe/leak": leak})


def final_readings(lit: Any, data: Any) -> dict[str, float]:
    """The validation loss with other than running statistics, and the leak; {} without such norms.

    `val_reestimated` is the loss of the whole split in eval mode, with statistics re-estimated over
    the first 50 training batches. `val_batch` is the loss with batch statistics; they depend on the
    batch's size, so the split is read in batches of data.batch_size rows (or one less; a remainder
    below half a batch is left out). `leak` is measured over the first 16 training batches.
    """
    if not with_statistics(lit.net):
        return {}
    windows, rows = data.windows(), data.batch_size
    training = [windows[k].to(lit.device) for k in range(FINAL_BATCHES)]
    whole = [batch.to(lit.device) for batch in data.whole(data.val)]
    with copied(lit) as net:
        batch = mean_loss(net, in_rows(whole, rows), batch_losses)
        pairs = zip(training[:FINAL_LEAKS], training[FINAL_LEAKS:], strict=False)
        leak = torch.cat([leaks(net, *pair) for pair in pairs]).mean()
        reestimate(net.eval(), training, lambda part: mean_loss(net, [part]))
        reestimated = mean_loss(net, whole)
    return {"val_reestimated": reestimated, "val_batch": batch, "leak": float(leak)}


@contextmanager
def copied(lit: Any) -> Iterator[nn.Module]:
    """A copy of the net that may be changed, in the run's precision; random state is put back."""
    precision = lit.trainer.precision_plugin.forward_context()
    with torch.no_grad(), torch.random.fork_rng(), precision:
        yield copy.deepcopy(lit.net)


@torch.no_grad()
def discrepancies(net: nn.Module, batch: torch.Tensor) -> dict[str, float]:
    """The TID of each site: how far running statistics are from those of a batch (B, T + 1).

    It is |mean_batch - mean_run| / std_batch and |std_run / std_batch - 1|, each averaged over the
    channels (and positions, if each has statistics), with std = sqrt(var + eps) and unbiased
    variances (Wang et al. 2022, https://arxiv.org/abs/2210.05153). The net runs on the batch with
    momentum 1, so that its buffers become the batch's statistics, whatever these are; the norms
    leave padding out. Buffers that did not move do not count. The net is changed.
    """
    # a thin wrapping keeps its statistics one level below the site
    norms: list[tuple[str, Any]] = [
        (site, norm) for site, at in sites(net).items() for norm in with_statistics(at)
    ]
    before = []
    for _, norm in norms:
        before.append({name: x.clone() for name, x in norm.named_buffers(recurse=False)})
        norm.momentum = 1.0
    mean_loss(net, [batch])
    values = {}
    for (site, norm), run in zip(norms, before, strict=True):
        now = dict(norm.named_buffers(recurse=False))
        moved = now["num_batches_tracked"] > run["num_batches_tracked"]  # one, or one a position
        square = "running_var" if "running_var" in now else "running_square"
        if not moved.any() or square not in now:
            continue
        std, std_run = ((x[square][moved] + norm.eps).sqrt() for x in (now, run))  # (..., C)
        values[series("tid_std", site)] = float((std_run / std - 1).abs().mean())
        if "running_mean" in now:
            apart = (now["running_mean"] - run["running_mean"])[moved]
            values[series("tid_mean", site)] = float((apart / std).abs().mean())
    return values


@torch.no_grad()
def three_ways(
    net: nn.Module, windows: list[torch.Tensor], training: list[torch.Tensor]
) -> dict[str, float]:
    """The mean loss over windows, batches (B, T + 1), with three kinds of statistics; no dropout.

    `running` are the statistics as they are, `reestimated` their averages over the training
    batches, `batch` those of each batch of windows itself. Afterwards the net is in eval mode and
    its statistics are the re-estimated ones.
    """
    batch = mean_loss(net, windows, batch_losses)
    running = mean_loss(net.eval(), windows)
    reestimate(net, training, lambda part: mean_loss(net, [part]))
    reestimated = mean_loss(net, windows)
    return {"running": running, "reestimated": reestimated, "batch": batch}


@torch.no_grad()
def leaks(net: nn.Module, batch: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """How much later text helped with each of some predictions, in nats: (n,).

    At 8 positions t, the middles of 8 equal parts of T, every row's tokens after t are replaced by
    other text (from the batch `other`) in the input; targets and padding stay. So the net sees what
    it may know at t. Only the loss at t counts: its target, the token t + 1, is no longer in the
    input, while earlier targets are, so that a part of the leak would still act there. The result
    is this loss minus that with the rows' own text, both with batch statistics, from the same
    buffers and without dropout: positive = the future helped. A net without a leak gives 0 up to
    rounding.
    """
    inputs, targets = batch[:, :-1], batch[:, 1:]
    real, T = targets != PADDING, inputs.shape[1]
    text = other[other != PADDING]
    text = text[torch.arange(inputs.numel(), device=text.device) % len(text)].view_as(inputs)
    helped = batch_losses(net, inputs, targets)
    found = []
    for t in sorted({(2 * i + 1) * T // (2 * CUTS) for i in range(CUTS)}):
        later = real & (torch.arange(T, device=batch.device) > t)
        replaced = torch.where(later, text, inputs)
        alone = batch_losses(net, replaced, targets)
        found.append((alone - helped)[:, t][real[:, t]])
    return torch.cat(found)


def position_losses(net: nn.Module, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """The loss at each position (B, T), 0 at padding, in the current mode."""
    logits = logits_of(net, inputs, targets != PADDING)
    return F.cross_entropy(logits.mT.float(), targets, ignore_index=PADDING, reduction="none")


def batch_losses(net: nn.Module, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """The same with the batch's own statistics and without dropout; buffers are put back."""
    before = [buffer.clone() for buffer in net.buffers()]
    batch_mode(net)
    found = position_losses(net, inputs, targets)
    for buffer, value in zip(net.buffers(), before, strict=True):
        buffer.copy_(value)
    return found


def mean_loss(
    net: nn.Module, batches: Iterable[torch.Tensor], how: Losses = position_losses
) -> float:
    """The mean over all real targets of batches (B, T + 1); nan if there are none."""
    parts = [how(net, batch[:, :-1], batch[:, 1:])[batch[:, 1:] != PADDING] for batch in batches]
    characters = sum(map(len, parts))
    return sum(float(part.sum()) for part in parts) / characters if characters else math.nan


def in_rows(batches: list[torch.Tensor], rows: int) -> list[torch.Tensor]:
    """The batches cut into equal parts of at most `rows` rows, without parts below half of that.

    >>> batches = [torch.zeros(8, 5), torch.zeros(1, 3)]
    >>> [tuple(part.shape) for part in in_rows(batches, 3)]
    [(3, 5), (3, 5), (2, 5)]
    """
    parts = [part for batch in batches for part in batch.tensor_split(-(-len(batch) // rows))]
    enough = [part for part in parts if 2 * len(part) >= rows]
    return [part for part in enough if int((part[:, 1:] != PADDING).sum()) > 1]
