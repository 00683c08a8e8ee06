"""What all tests share: passive threads, composing the configuration, a small text."""

import os

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # before torch: spinning threads are 20x slower

import csv
import logging
import random
import runpy
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, open_dict

from model.probes import batch_statistics
from run.folder import key_of
from run.resume import resume_arguments
from train import train

# A run's end reads fewer batches than a user's: hundreds of runs are made here.
batch_statistics.FINAL_BATCHES, batch_statistics.FINAL_LEAKS = 4, 2

ROOT = Path(__file__).parent.parent


def names(group: str) -> list[str]:
    """The files of a configuration group: tests find their cases here."""
    return sorted(path.stem for path in (ROOT / "configs" / group).glob("*.yaml"))


NORMS = names("norm")
EXPERIMENTS = [name for name in names("experiment") if name != "at_init"]  # that trains nothing
LOSSES = ["loss_initial", "val_best", "val_best_step", "val_final", "test_final", "test_best"]
LOSSES += ["train_final", "leak", "steps", "tokens"]  # what stopping and going on must not change


@contextmanager
def composing() -> Iterator[Callable[..., DictConfig]]:
    """Compose the full configuration as a job would see it, `${hydra:...}` included."""

    def composed(*overrides: str) -> DictConfig:
        cfg = compose("train", list(overrides), return_hydra_config=True)
        HydraConfig.instance().set_config(cfg)
        with open_dict(cfg):
            del cfg["hydra"]
        return cfg

    with initialize_config_dir(str(ROOT / "configs"), version_base="1.3"):
        yield composed
    HydraConfig.instance().cfg = None


@pytest.fixture
def compose_config() -> Iterator[Callable[..., DictConfig]]:
    """The same, while a test runs."""
    with composing() as composed:
        yield composed


@pytest.fixture(autouse=True)
def signal_handlers() -> Iterator[None]:
    """Put pytest's handlers back after a run in this process."""
    before = {n: signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture(scope="session")
def tiny_text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """20 kB of made-up verse: enough for training, validation and test."""
    draw = random.Random(1)
    words = ["thee", "love", "king", "o", "night", "and", "of", "sword", "the", "art"]
    lines = (" ".join(draw.choices(words, k=6)).capitalize() + ",\n" for _ in range(700))
    path = tmp_path_factory.mktemp("text") / "tiny.txt"
    path.write_text("".join(lines))
    return path


@pytest.fixture
def run(tiny_text: Path, compose_config: Callable[..., DictConfig]) -> Callable[..., Path]:
    """Train a small run with dropout in a folder, in this process."""

    def trained(folder: Path, *overrides: str) -> Path:
        small = [
            "model=mini",
            "model.dropout=0.2",
            "data.batch_size=4",
            "data.block_size=16",
            "log_every=1",
            "eval_every=8",
            "sample.max_new_tokens=1",
            "probes=none",  # tests of theirs ask for them
            f"data.path={tiny_text}",
        ]
        given = {key_of(o) for o in overrides}
        all_of_them = [o for o in small if key_of(o) not in given] + list(overrides)
        train(compose_config(*all_of_them), folder, all_of_them)
        return folder

    return trained


@pytest.fixture
def resume(compose_config: Callable[..., DictConfig]) -> Callable[..., Path]:
    """Go on with a run as `python train.py resume=FOLDER ...` would, in this process."""

    def resumed(given: Path, *overrides: str) -> Path:
        arguments = resume_arguments([f"resume={given}", *overrides])
        folder = given.parent.parent if given.suffix == ".ckpt" else given
        composed = [a for a in arguments if not a.startswith("hydra.")]
        train(compose_config(*composed), folder, [o for o in composed if key_of(o) != "resume"])
        return folder

    return resumed


def here(*arguments: str, cwd: Path) -> int | str:
    """Run train.py in this process; returns what it exits with."""
    handlers = list(logging.getLogger().handlers)
    signals = {n: signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", [str(ROOT / "train.py"), *arguments])
        patch.chdir(cwd)
        try:
            runpy.run_path(str(ROOT / "train.py"), run_name="__main__")
        except SystemExit as left:
            return left.code or 0
        finally:
            GlobalHydra.instance().clear()
            root, file = logging.getLogger(), logging.getLogger("file")
            for handler in {*root.handlers, *file.handlers} - set(handlers):
                handler.close()
            root.handlers, file.handlers = handlers, []
            for number, handler in signals.items():
                signal.signal(number, handler)
    return 0


def steps(folder: Path) -> list[list[str]]:
    """The training curve."""
    with (folder / "metrics.csv").open() as file:
        return [row for row in csv.reader(file) if row[1] == "loss/train"]
