"""LitGPT: the lit around the net. Loss, parameter groups, schedule, and what is logged.

Legend: B batch, T time, V vocabulary. Losses are in nats per character, steps are optimizer updates
done. A batch is (B, T + 1) ids; padding, on the right of shorter rows, has the id -1. A position is
real where its target is.
"""

import copy
import math
import random
import re
from collections.abc import Callable, Iterable
from typing import Any

import lightning.pytorch as pl
import torch
from torch import nn
from torch.nn import functional as F
from torch.optim.lr_scheduler import LambdaLR
from torch.optim.optimizer import Optimizer

from model.probes.scale_invariance import scale_invariant
from model.sites import summary

PADDING = -1  # as data/lines.py has it


class LitGPT(pl.LightningModule):
    """Trains a net (B, T) ids -> (B, T, V) logits on next-character cross-entropy.

    Where rows are padded the net is also given the mask (B, T) of real positions.

    Args:
        optimizer: called with two parameter groups, the decaying one first.
        scheduler: called with the optimizer; stepped after each optimizer step.
        seed: of the dropout of each micro-batch.
        log_every: optimizer steps between two points of the training curves.
    """

    grad_norm: torch.Tensor

    def __init__(
        self,
        net: nn.Module,
        optimizer: Callable[..., Optimizer],
        scheduler: Callable[[Optimizer], LambdaLR],
        *,
        seed: int,
        log_every: int,
    ) -> None:
        super().__init__()
        self.net, self.optimizer, self.scheduler = net, optimizer, scheduler
        self.seed, self.log_every = seed, log_every
        self.loss_initial = self.loss_train = self.loss_val = math.nan
        self._sum = self._count = 0.0

    def configure_optimizers(self) -> Any:
        """Weights of linear layers and embeddings decay, nothing else: no norm's parameter does."""
        decay = [m.weight for m in self.net.modules() if isinstance(m, nn.Linear | nn.Embedding)]
        decaying = set(map(id, decay))
        rest = [p for p in self.net.parameters() if id(p) not in decaying]
        optimizer = self.optimizer([{"params": decay}, {"params": rest, "weight_decay": 0.0}])
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": self.scheduler(optimizer), "interval": "step"},
        }

    def on_train_start(self) -> None:
        """Measure the loss at initialization; take this configuration's rate, not the checkpoint's.

        Both are the same unless a resumed run moved the schedule's end.
        """
        scheduler = self.lr_schedulers()
        assert isinstance(scheduler, LambdaLR)
        for group, base, factor in zip(
            scheduler.optimizer.param_groups, scheduler.base_lrs, scheduler.lr_lambdas, strict=True
        ):
            group["lr"] = base * factor(scheduler.last_epoch)
        if self.global_step == 0:
            windows = self.trainer.datamodule.val_dataloader()  # type: ignore[attr-defined]
            self.loss_initial = self.loss_val = self.evaluate(windows)
            self.log_now({"loss/val": self.loss_initial})

    def on_train_batch_start(self, batch: torch.Tensor, batch_idx: int) -> None:
        """Seed the dropout of micro-batch k: what happens in between cannot disturb training."""
        k = self.trainer.fit_loop.epoch_loop.batch_progress.total.processed  # type: ignore[attr-defined]
        torch.manual_seed(
            random.Random(f"dropout {self.seed} {k} {self.global_rank}").getrandbits(63)
        )

    def training_step(self, batch: torch.Tensor, batch_idx: int) -> torch.Tensor:
        """Mean cross-entropy of a batch (B, T + 1).

        Raises:
            FloatingPointError: the loss is not finite; the weights are still those before this
                step.
        """
        loss = self.cross_entropy(batch)
        value = loss.item()
        if not math.isfinite(value):
            raise FloatingPointError(f"training loss is {value} at step {self.global_step + 1}")
        accumulate = self.trainer.accumulate_grad_batches
        before = 0.0 if batch_idx % accumulate == 0 else self.loss_train
        self.loss_train = before + value / accumulate
        return loss

    def configure_gradient_clipping(
        self,
        optimizer: Optimizer,
        gradient_clip_val: float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        """Clip the global norm, keep what it was (Lightning hides it and refuses fused AdamW)."""
        limit = gradient_clip_val or math.inf  # null and 0: only measured
        # of this update: the scheduler moves it before the step is logged
        self.lr = optimizer.param_groups[0]["lr"]
        self.grad_norm = nn.utils.clip_grad_norm_(self.net.parameters(), limit)

    def on_train_batch_end(self, outputs: Any, batch: torch.Tensor, batch_idx: int) -> None:
        """Log the step that this micro-batch completed; make the last step evaluate."""
        trainer = self.trainer
        if (batch_idx + 1) % trainer.accumulate_grad_batches:
            return
        step, last = trainer.global_step, trainer.global_step == trainer.max_steps
        if last:
            trainer.should_stop = True
        if step % self.log_every == 0 or step == 1 or last:
            optim = {"optim/lr": self.lr, "optim/grad_norm": float(self.grad_norm)}
            self.log_now({"loss/train": self.loss_train, **optim})

    def on_validation_epoch_start(self) -> None:
        """Start the running sum."""
        self._sum = self._count = 0.0

    def validation_step(self, batch: torch.Tensor, batch_idx: int) -> None:
        """Add one batch (B, T + 1) to the running sum; a row counts by its characters."""
        characters = int((batch[:, 1:] != PADDING).sum())
        self._sum += self.cross_entropy(batch).item() * characters
        self._count += characters

    def on_validation_epoch_end(self) -> None:
        """Mean over the evaluation windows."""
        if not self.trainer.sanity_checking:
            self.loss_val = self._sum / self._count
            if not math.isfinite(self.loss_val):
                raise FloatingPointError(
                    f"validation loss is {self.loss_val} at step {self.global_step}"
                )
            self.log_now({"loss/val": self.loss_val})

    def cross_entropy(self, batch: torch.Tensor) -> torch.Tensor:
        """Mean loss over all real targets of a batch (B, T + 1): all B * T without padding."""
        targets = batch[:, 1:]
        logits = logits_of(self.net, batch[:, :-1], targets != PADDING)
        flat = logits.flatten(0, 1).float()
        return F.cross_entropy(flat, targets.flatten(), ignore_index=PADDING)

    @torch.no_grad()
    def evaluate(self, batches: Iterable[torch.Tensor]) -> float:
        """Mean loss over batches in eval mode, nan over none; the mode is put back."""
        training = self.net.training
        self.net.eval()
        self.on_validation_epoch_start()
        with self.trainer.precision_plugin.forward_context():
            for i, batch in enumerate(batches):
                self.validation_step(batch.to(self.device), i)
        self.net.train(training)
        return self._sum / self._count if self._count else math.nan

    def is_causal(self, batch: torch.Tensor) -> bool | None:
        """Whether later tokens leave earlier logits alone in train mode, on a batch (B, T + 1).

        1e-5 of the logits' RMS is far above float32 rounding, far below a leak. None: the logits
        are not finite, nobody can say.
        """
        score = self.causality(batch, training=True)
        return score <= 1e-5 if math.isfinite(score) else None

    @torch.no_grad()
    def causality(self, batch: torch.Tensor, training: bool) -> float:
        """Largest change of earlier logits when later tokens change, over the logits' RMS.

        Every token of the second half (of the longest row) of a batch (B, T + 1) is replaced,
        padding stays; in a causal net the logits of the first half stay. With `training` in train
        mode. Net and random numbers are left alone.
        """
        net = copy.deepcopy(self.net).train(training)
        for parameter in net.parameters():
            if not parameter.any():  # a gate that starts at 0 hides what leaks behind it
                parameter.fill_(1.0)
        before, real = batch[:, :-1], batch[:, 1:] != PADDING
        half = (int(real.sum(1).max()) + 1) // 2
        second = torch.arange(before.shape[1], device=batch.device) >= half
        after = torch.where(real & second, (before + 1) % (before.max() + 1), before)
        logits = []
        for tokens, fresh in ((before, copy.deepcopy(net)), (after, net)):  # statistics move
            with torch.random.fork_rng():
                torch.manual_seed(0)  # the same dropout both times
                logits.append(logits_of(fresh, tokens, real)[real & ~second])  # (positions, V)
        change, rms = (logits[0] - logits[1]).abs().max(), logits[0].square().mean().sqrt()
        return float(change / rms) if change else 0.0

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Keep what a later leg cannot measure."""
        checkpoint["loss_initial"] = self.loss_initial

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Take it up again."""
        self.loss_initial = checkpoint["loss_initial"]

    def describe(self) -> str:
        """A few lines for the console: which norm stands where, which matrices' length is free."""
        names = dict.fromkeys(re.sub(r"^blocks\.\d+\.", "", n) for n in scale_invariant(self.net))
        return f"{summary(self.net)}\n  scale-invariant matrices: {', '.join(names) or 'none'}"

    def log_now(self, values: dict[str, float]) -> None:
        """Hand values to every logger (`self.log` would cost 0.7 ms a step)."""
        for logger in self.trainer.loggers:
            logger.log_metrics(values, step=self.trainer.global_step)


def logits_of(
    net: Callable[..., torch.Tensor], idx: torch.Tensor, real: torch.Tensor
) -> torch.Tensor:
    """What the net says at each position (B, T); a mask only where there is padding."""
    return net(idx) if real.all() else net(idx.clamp(min=0), real)


def warmup_cosine(
    optimizer: Optimizer, *, warmup: float, total_steps: int, floor: float
) -> LambdaLR:
    """Linear warm-up to the optimizer's rate, then half a cosine down to `floor` times it.

    Update n (the first is 1) uses n / w of the peak during the w = warmup * total_steps updates of
    the warm-up, all of it at n = w, and `floor` of it from n = total_steps on.

    Args:
        optimizer: its rate is the peak.
        warmup: fraction of total_steps.
        total_steps: the horizon, in optimizer steps.
        floor: last rate over peak rate.

    Raises:
        ValueError: a fraction outside 0 to 1, or no steps.
    """
    if not (0 <= warmup < 1 and 0 <= floor <= 1 and total_steps > 0):
        raise ValueError(
            "scheduler needs 0 <= warmup < 1, 0 <= floor <= 1 and total_steps > 0, "
            f"got {warmup=} {floor=} {total_steps=}"
        )
    rising = min(round(warmup * total_steps), total_steps - 1)  # the last update is the floor's

    def factor(done: int) -> float:
        update = done + 1
        if update <= rising:
            return update / rising
        progress = min(1.0, (update - rising) / (total_steps - rising))
        return floor + (1 - floor) * (1 + math.cos(math.pi * progress)) / 2

    # A plain function is not in a checkpoint: the horizon is always the configuration's.
    return LambdaLR(optimizer, factor)
