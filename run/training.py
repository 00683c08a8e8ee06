"""How a run trains and what it came to: its trainer, the final losses, a sample of its text."""

import math
import signal
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from hydra.utils import instantiate
from lightning.fabric.plugins.environments.lightning import LightningEnvironment
from lightning.pytorch.utilities.exceptions import SIGTERMException

from model.probes.batch_statistics import final_readings
from model.probes.causality import is_causal
from run.checkpoint import AtomicCheckpointIO, Checkpoint
from run.clock import Clock
from run.environment import without_managers
from run.loggers import loggers
from run.progress import Progress
from run.signals import StopOnSignal
from run.state import read_state


def build_trainer(
    cfg: Any, folder: Path, probes: dict[str, pl.Callback]
) -> tuple[pl.Trainer, StopOnSignal, Clock, Checkpoint]:
    """The trainer of `cfg.trainer`, and those of its callbacks that know how the run went."""
    stop = StopOnSignal()
    clock = Clock()
    checkpoint = Checkpoint(folder / "checkpoints")
    with without_managers():
        trainer = instantiate(
            cfg.trainer,
            val_check_interval=cfg.eval_every * cfg.trainer.accumulate_grad_batches,
            callbacks=[stop, checkpoint, clock, Progress(clock), *probes.values()],
            logger=loggers(folder, cfg.resume),
            plugins=[AtomicCheckpointIO(), LightningEnvironment()],
            default_root_dir=folder,  # Lightning resumes from what a cluster left there
        )
    return trainer, stop, clock, checkpoint


def fit(
    trainer: pl.Trainer, lit: Any, data: Any, resume: str | None, stop: StopOnSignal
) -> dict[str, Any]:
    """Train; `status` says how that ended, `error` why. Other exceptions pass.

    It is finished only if all steps are done, else diverged, interrupted or stopped_early.
    """
    try:
        with without_managers():
            trainer.fit(lit, datamodule=data, ckpt_path=resume, weights_only=True)
    except FloatingPointError as error:
        return {"status": "diverged", "error": str(error)}
    except SIGTERMException:
        pass  # as noted in `stop`
    if stop.received is not None:
        name = signal.Signals(stop.received).name
        return {"status": "interrupted", "error": f"stopped by {name}"}
    if trainer.global_step < trainer.max_steps:  # by a callback of the user's
        done = f"a callback ended it after {trainer.global_step} of {trainer.max_steps} steps"
        return {"status": "stopped_early", "error": done}
    return {"status": "finished", "error": None}


def final_losses(lit: Any, data: Any, checkpoint: Checkpoint) -> dict[str, Any]:
    """Losses in eval mode at the last step, the whole splits read once; test also at the best step.

    With norms that have batch statistics also the validation loss read otherwise, and the leak.
    Where the validation loss is not finite, the run has diverged. Leaves the lit with the weights
    of the best step, which are those that sample.py uses.
    """
    lit.to(lit.trainer.strategy.root_device)
    losses: dict[str, Any] = {
        "val_final": lit.evaluate(data.whole(data.val)),
        "test_final": lit.evaluate(data.whole(data.test)),
        "train_final": lit.evaluate(data.spaced(data.train)),
        **final_readings(lit, data),
    }
    if not math.isfinite(losses["val_final"]):
        losses |= {"status": "diverged", "error": f"validation loss is {losses['val_final']}"}
    best = checkpoint.folder / "best.ckpt"
    if not best.exists():  # never evaluated
        return losses
    if checkpoint.val_best_step == lit.trainer.global_step:  # these are its weights
        return losses | {"test_best": losses["test_final"]}
    lit.load_state_dict(read_state(best)["state_dict"])
    return losses | {"test_best": lit.evaluate(data.whole(data.test))}


def measured(
    lit: Any, data: Any, checkpoint: Checkpoint, clock: Clock, causal_at_start: bool | None
) -> dict[str, Any]:
    """The part of result.json that training itself fills.

    A norm's warm-up may leak where the rest of training does not, so causality is measured twice.
    """
    causal_at_end = is_causal(lit.net, data.windows()[0].to(lit.device))
    tokens = [getattr(module, "tokens_per_statistic", 0) for module in lit.net.modules()]
    params = {name: p.numel() for name, p in lit.net.named_parameters()}
    in_norms = [name for name in params if any(part.endswith("norm") for part in name.split("."))]
    return {
        "steps": lit.trainer.global_step,
        "loss_initial": lit.loss_initial,
        **dict.fromkeys(("val_final", "test_final", "test_best", "train_final"), math.nan),
        **dict.fromkeys(("val_reestimated", "val_batch", "leak"), math.nan),
        **checkpoint.state_dict(),
        **clock.state_dict(),
        "tokens_per_second": clock.tokens / clock.seconds if clock.seconds else math.nan,
        "params": sum(params.values()),
        "norm_params": sum(params[name] for name in in_norms),
        "tokens_per_statistic": min(filter(None, tokens), default=None),  # of a micro-batch
        "causal_in_training": causal_at_start and causal_at_end is not False,
        "causal_at_end": causal_at_end,
        "unigram_entropy": data.unigram_entropy,
        "corpus_sha256": data.sha256,
        "device": str(lit.trainer.strategy.root_device),
        "threads": torch.get_num_threads(),
        "ended": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def write_sample(lit: Any, data: Any, folder: Path, **how: Any) -> None:
    """Write sample.txt, and show it in TensorBoard; its events end here."""
    text = data.sample(lit.net.eval(), **how)
    (folder / "sample.txt").write_text(text, "utf-8")
    events = lit.trainer.logger
    events.log_text("sample", text, lit.trainer.global_step)
    events.experiment.close()
