"""LitGPT, the LightningModule around the net: loss, parameter groups, schedule, what is logged.

Legend: B batch, T time, V vocabulary. Losses are in nats per character; steps are optimizer updates
done. A batch is (B, T + 1) ids; padding, on the right of shorter rows, has the id -1. A position is
real where its target is not padding.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import lightning.pytorch as pl
import torch
from torch import nn
from torch.nn import functional as F
from torch.optim.lr_scheduler import LambdaLR
from torch.optim.optimizer import Optimizer

from model.gpt import seed_from
from model.steps import completes_step, due

PADDING = -1  # the same as in data/windows.py


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
        self.net = net
        self.optimizer = optimizer
        self.scheduler = scheduler
        self.seed = seed
        self.log_every = log_every
        self.loss_initial = math.nan
        self.loss_train = math.nan
        self.loss_val = math.nan
        self._sum = 0.0
        self._count = 0

    def configure_optimizers(self) -> Any:
        """Let the weights of linear layers and embeddings decay, and nothing else: no norm."""
        decay = [m.weight for m in self.net.modules() if isinstance(m, nn.Linear | nn.Embedding)]
        decaying = set(map(id, decay))
        rest = [p for p in self.net.parameters() if id(p) not in decaying]
        optimizer = self.optimizer([{"params": decay}, {"params": rest, "weight_decay": 0.0}])
        schedule = {"scheduler": self.scheduler(optimizer), "interval": "step"}
        return {"optimizer": optimizer, "lr_scheduler": schedule}

    def on_train_start(self) -> None:
        """Measure the loss at initialization, and set the learning rate of this configuration.

        The checkpoint of a resumed run holds another rate if the schedule's end has been moved.
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
        """Seed the dropout of micro-batch k, so that what is drawn in between changes nothing."""
        k = self.trainer.fit_loop.epoch_loop.batch_progress.total.processed  # type: ignore[attr-defined]
        torch.manual_seed(seed_from(f"dropout {self.seed} {k} {self.global_rank}"))

    def training_step(self, batch: torch.Tensor, batch_idx: int) -> torch.Tensor:
        """Compute the mean cross-entropy of a batch (B, T + 1).

        Raises:
            FloatingPointError: the loss is not finite; the weights are still those before the step.
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
        """Clip the gradients' global norm, and keep its value from before.

        Lightning's own clipping hides that value and refuses fused AdamW.
        """
        limit = gradient_clip_val or math.inf  # null and 0 mean: measure, do not clip
        # kept here because the scheduler moves the rate before the step is logged
        self.lr = optimizer.param_groups[0]["lr"]
        self.grad_norm = nn.utils.clip_grad_norm_(self.net.parameters(), limit)

    def on_train_batch_end(self, outputs: Any, batch: torch.Tensor, batch_idx: int) -> None:
        """Log the step that this micro-batch completes; let the last step evaluate."""
        trainer = self.trainer
        if not completes_step(trainer, batch_idx):
            return
        if trainer.global_step == trainer.max_steps:
            trainer.should_stop = True
        if due(trainer.global_step, self.log_every, trainer.max_steps):
            optim = {"optim/lr": self.lr, "optim/grad_norm": float(self.grad_norm)}
            self.log_now({"loss/train": self.loss_train, **optim})

    def on_validation_epoch_start(self) -> None:
        """Start the running sum."""
        self._sum = 0.0
        self._count = 0

    def validation_step(self, batch: torch.Tensor, batch_idx: int) -> None:
        """Add one batch (B, T + 1) to the running sum; a row counts by its characters."""
        characters = int((batch[:, 1:] != PADDING).sum())
        self._sum += self.cross_entropy(batch).item() * characters
        self._count += characters

    def on_validation_epoch_end(self) -> None:
        """Take and log the mean over the evaluation windows.

        Raises:
            FloatingPointError: it is not finite.
        """
        self.loss_val = self._sum / self._count
        if not math.isfinite(self.loss_val):
            raise FloatingPointError(
                f"validation loss is {self.loss_val} at step {self.global_step}"
            )
        self.log_now({"loss/val": self.loss_val})

    def cross_entropy(self, batch: torch.Tensor) -> torch.Tensor:
        """Compute the mean loss over all real targets of a batch (B, T + 1)."""
        targets = batch[:, 1:]
        logits = logits_of(self.net, batch[:, :-1], targets != PADDING)
        flat = logits.flatten(0, 1).float()
        return F.cross_entropy(flat, targets.flatten(), ignore_index=PADDING)

    @torch.no_grad()
    def evaluate(self, batches: Iterable[torch.Tensor]) -> float:
        """Compute the mean loss over batches in eval mode; nan if there are none."""
        self.on_validation_epoch_start()
        with eval_mode(self.net), self.trainer.precision_plugin.forward_context():
            for i, batch in enumerate(batches):
                self.validation_step(batch.to(self.device), i)
        return self._sum / self._count if self._count else math.nan

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Store the initial loss, which a later leg cannot measure."""
        checkpoint["loss_initial"] = self.loss_initial

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Restore the initial loss."""
        self.loss_initial = checkpoint["loss_initial"]

    def log_now(self, values: dict[str, float]) -> None:
        """Hand values to every logger at once; `self.log` would cost 0.7 ms per step."""
        for logger in self.trainer.loggers:
            logger.log_metrics(values, step=self.trainer.global_step)


def logits_of(
    net: Callable[..., torch.Tensor], idx: torch.Tensor, real: torch.Tensor
) -> torch.Tensor:
    """Logits (B, T, V) of ids (B, T); the net gets the mask `real` only where there is padding."""
    return net(idx) if real.all() else net(idx.clamp(min=0), real)


@contextmanager
def eval_mode(net: nn.Module) -> Iterator[None]:
    """Keep a net in eval mode for a while, then put it back into the mode that it was in."""
    training = net.training
    net.eval()
    try:
        yield
    finally:
        net.train(training)
