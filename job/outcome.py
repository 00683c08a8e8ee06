"""What a run came to: how training ended, the final losses, a sample of its text."""

import math
import signal
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.utilities.exceptions import SIGTERMException

from job.callbacks import Checkpoint, Clock, StopOnSignal


def fit(
    trainer: pl.Trainer, task: Any, data: Any, resume: str | None, stop: StopOnSignal
) -> tuple[str, str | None]:
    """Train; returns `finished | diverged | interrupted` and why. Other exceptions go on up."""
    try:
        trainer.fit(task, datamodule=data, ckpt_path=resume)
    except FloatingPointError as error:
        return "diverged", str(error)
    except SIGTERMException:
        pass
    if stop.received is None:
        return "finished", None
    return "interrupted", f"stopped by {signal.Signals(stop.received).name}"


def final_losses(task: Any, data: Any, best: Path) -> dict[str, float]:
    """Losses in eval mode at the last step, the whole splits read once; test also at the best step.

    Leaves the task with the weights of the best step, which are those that sample.py uses.
    """
    task.to(task.trainer.strategy.root_device)
    losses = {
        "val_final": task.evaluate(data.whole(data.val)),
        "test_final": task.evaluate(data.whole(data.test)),
        "train_final": task.evaluate(data.spaced(data.train)),
    }
    task.load_state_dict(torch.load(best, weights_only=True)["state_dict"])
    return losses | {"test_best": task.evaluate(data.whole(data.test))}


def measured(task: Any, data: Any, checkpoint: Checkpoint, clock: Clock) -> dict[str, Any]:
    """The part of result.json that training itself fills, the names those of DESIGN."""
    parameters = sum(p.numel() for p in task.net.parameters())
    weights = (torch.nn.Linear, torch.nn.Embedding)
    others = (m for m in task.net.modules() if isinstance(m, weights))
    inside = sum(p.numel() for m in others for p in m.parameters(recurse=False))
    return {
        "steps": task.trainer.global_step,
        "loss_initial": task.loss_initial,
        **dict.fromkeys(("val_final", "test_final", "test_best", "train_final"), math.nan),
        **checkpoint.state_dict(),
        **clock.state_dict(),
        "tokens_per_second": clock.tokens / clock.seconds if clock.seconds else math.nan,
        "params": parameters,
        "norm_params": parameters - inside,
        "unigram_entropy": data.unigram_entropy,
        "corpus_sha256": data.sha256,
        "device": str(task.trainer.strategy.root_device),
        "threads": torch.get_num_threads(),
        "ended": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def write_sample(
    task: Any, data: Any, folder: Path, *, seed: int, max_new_tokens: int, **how: Any
) -> None:
    """Write sample.txt, and show it in TensorBoard verbatim (indented: code in Markdown)."""
    task.net.eval()
    start = data.start("").to(task.device)
    generator = torch.Generator().manual_seed(seed)
    ids = task.net.generate(start, max_new_tokens, generator=generator, **how)
    text = data.tokenizer.decode(ids[0, 1:].tolist())
    (folder / "sample.txt").write_text(text, "utf-8")
    indented = "".join(f"    {line}\n" for line in text.split("\n"))
    task.trainer.logger.experiment.add_text("sample", indented, task.trainer.global_step)
