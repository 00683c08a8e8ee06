"""Train one character transformer: `python train.py norm=layernorm`.

A sweep: `python train.py -m norm=layernorm,batchnorm,none seed=1,2,3`.
"""

import logging
import math
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))  # before any other package `data`

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from run.configuration import make_path_absolute, stored_form
from run.errors import MISTAKES, Refused, one_line
from run.folder import write_start
from run.lock import locked
from run.program import start
from run.result import close, close_failed, identity
from run.resume import check_resumable, resume_arguments, without_resume
from sweep.starts import earlier_loss

CONFIGS = str(Path(__file__).resolve().parent / "configs")
PARTS = ("data", "optimizer", "scheduler", "probes")
log = logging.getLogger("normlab")


def train(cfg: DictConfig, folder: Path, overrides: list[str]) -> float:
    """Train in `folder`, write result.json; returns the best validation loss, nats per character.

    Raises:
        ValueError: the configuration is invalid; nothing has been trained or overwritten.
        SystemExit: 128 + n after signal n, with the state saved.
    """
    from model.lit import LitGPT  # torch comes late: --help answers in a second
    from model.probes.causality import is_causal
    from model.sites import summary
    from run import training
    from run.checks import check

    # 1. Build all parts from the configuration: mistakes show before anything is written.
    check(cfg, folder)
    data, optimizer, scheduler, probes = (instantiate(cfg[p], _convert_="all") for p in PARTS)
    net = instantiate(cfg.model, vocab_size=data.vocab_size, _convert_="all")
    lit = LitGPT(net, optimizer, scheduler, seed=cfg.seed, log_every=cfg.log_every)
    lit.configure_optimizers()
    causal = is_causal(net, data.windows()[0])
    config = stored_form(OmegaConf.to_container(cfg, resolve=True), data.sha256)
    check_resumable(folder, cfg.resume, config, data.vocab_size, net)
    trainer, stop, clock, checkpoint = training.build_trainer(cfg, folder, probes["callbacks"])

    # 2. Store what the run is, and train.
    write_start(folder, config, overrides, data.tokenizer.to_str(pretty=True))
    log.info(f"norm={cfg.norm_name} seed={cfg.seed} {data.describe()}\n{summary(net)}")
    if cfg.compile:
        net.compile()
    result = training.fit(trainer, lit, data, cfg.resume, stop)

    # 3. Measure what the run came to, and store that.
    result |= identity(config, overrides)
    result |= training.measured(lit, data, checkpoint, clock, causal)
    if result["status"] == "finished":
        result |= training.final_losses(lit, data, checkpoint)
        training.write_sample(lit, data, folder, seed=cfg.seed, **cfg.sample)
    close(folder, config, result)
    stop.leave_if_received()
    return checkpoint.val_best


@hydra.main(version_base="1.3", config_path=CONFIGS, config_name="train")
def job(cfg: DictConfig) -> float:
    """Run one job of Hydra's. After a failure a sweep continues, after a refusal it ends."""
    at = HydraConfig.get()
    folder, overrides = Path(at.runtime.output_dir), without_resume(at.overrides.task)
    try:
        with locked(folder):
            make_path_absolute(cfg, at.runtime.cwd)
            loss = earlier_loss(cfg, folder) if at.mode == RunMode.MULTIRUN else None
            return train(cfg, folder, overrides) if loss is None else loss
    except Exception as error:
        close_failed(folder, cfg, overrides, error)
        if at.mode == RunMode.MULTIRUN and not isinstance(error, Refused):
            return math.nan
        if isinstance(error, MISTAKES):  # as an exit, or Hydra adds a line of its own
            sys.exit(f"error: {one_line(error)}")
        raise


if __name__ == "__main__":
    if "experiment=at_init" in sys.argv:
        print("error: experiment=at_init is a program now: python at_init.py", file=sys.stderr)
        sys.exit(2)
    start(job, resume_arguments)
