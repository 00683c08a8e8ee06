"""Train one character transformer: `python train.py norm=layernorm`.

A sweep: `python train.py -m norm=layernorm,batchnorm,none seed=1,2,3`.
"""

import logging
import math
import os
import sys
from concurrent.futures import BrokenExecutor
from pathlib import Path

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.types import RunMode
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from run import folder as run_folder
from run.checks import check
from run.resume import check_resumable, resume_arguments
from sweep.callback import take_up

MISTAKES = (HydraException, OmegaConfBaseException, ValueError, TypeError, OSError)  # the user's
PARTS = ("data", "optimizer", "scheduler", "probes")
log = logging.getLogger("normlab")


def train(cfg: DictConfig, folder: Path, overrides: list[str]) -> float:
    """Train in `folder`, write result.json; returns the best validation loss, nats a character.

    Raises:
        ValueError: the configuration cannot be; nothing has been trained or overwritten.
        SystemExit: 128 + n after signal n, with the state saved.
    """
    from model import causality, sites
    from model.lit import LitGPT
    from run import loggers, outcome  # torch, here: --help and a mistyped key answer in a second
    from run.callbacks import AtomicCheckpointIO, Checkpoint, Clock, Progress, StopOnSignal

    check(cfg, folder)
    data, optimizer, scheduler, probes = (instantiate(cfg[p], _convert_="all") for p in PARTS)
    net = instantiate(cfg.model, vocab_size=data.vocab_size, _convert_="all")
    lit = LitGPT(net, optimizer, scheduler, seed=cfg.seed, log_every=cfg.log_every)
    lit.configure_optimizers()  # a value that cannot be shows now, not when files are written
    causal = causality.is_causal(net, data.windows()[0])
    config = run_folder.record(OmegaConf.to_container(cfg, resolve=True), data.sha256)
    check_resumable(folder, cfg.resume, config, data.vocab_size)
    stop, clock, checkpoint = StopOnSignal(), Clock(), Checkpoint(folder / "checkpoints")
    trainer = instantiate(
        cfg.trainer,
        val_check_interval=cfg.eval_every * cfg.trainer.accumulate_grad_batches,
        callbacks=[stop, checkpoint, clock, Progress(clock), *probes["callbacks"].values()],
        logger=loggers.loggers(folder, cfg.resume),
        plugins=[AtomicCheckpointIO()],
    )
    run_folder.write_start(folder, config, overrides, data.tokenizer.to_str(pretty=True))
    log.info(f"norm={cfg.norm_name} seed={cfg.seed} {data.describe()}\n{sites.summary(net)}")
    if cfg.compile:
        net.compile()
    result = outcome.fit(trainer, lit, data, cfg.resume, stop)
    result |= run_folder.identity(config, overrides)
    result |= outcome.measured(lit, data, checkpoint, clock, causal)
    if result["status"] == "finished":
        result |= outcome.final_losses(lit, data, checkpoint)
        outcome.write_sample(lit, data, folder, seed=cfg.seed, **cfg.sample)
    run_folder.write_result(folder, result)
    log.info(run_folder.closing_block(result, folder))
    stop.leave_if_received()
    return checkpoint.val_best


@hydra.main(version_base="1.3", config_path="configs", config_name="train")
def job(cfg: DictConfig) -> float:
    """One job of Hydra's. A failure is noted on disk and a sweep goes on; a refusal ends it."""
    hydra_cfg = HydraConfig.get()
    folder = Path(hydra_cfg.runtime.output_dir)
    overrides = [o for o in hydra_cfg.overrides.task if run_folder.key_of(o) != "resume"]
    try:
        run_folder.make_path_absolute(cfg, hydra_cfg.runtime.cwd)
        loss = take_up(cfg, folder) if hydra_cfg.mode == RunMode.MULTIRUN else None
        work = instantiate(cfg.get("at_init")) or train  # measures nets that are not trained
        return work(cfg, folder, overrides) if loss is None else loss
    except Exception as error:
        run_folder.write_failure(folder, cfg, overrides, error)
        if hydra_cfg.mode == RunMode.MULTIRUN and not isinstance(error, run_folder.Refused):
            return math.nan
        if isinstance(error, MISTAKES):  # as an exit, or Hydra adds a line of its own
            sys.exit(f"error: {run_folder.one_line(error)}")
        raise


if __name__ == "__main__":
    os.environ.setdefault("HYDRA_FULL_ERROR", "1")  # else Hydra prints a traceback itself
    try:
        sys.argv[1:] = resume_arguments(sys.argv[1:])
        job()
    except (*MISTAKES, BrokenExecutor) as error:  # joblib's, when a worker was killed
        sys.exit(f"error: {run_folder.one_line(error)}")
