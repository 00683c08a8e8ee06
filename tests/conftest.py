"""What all tests share: passive threads, composing the configuration, a small text."""

import os

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # before torch: spinning threads are 20x slower
os.environ.setdefault("OMP_NUM_THREADS", "1")  # two processes test side by side; one forks (below)

import csv
import logging
import multiprocessing
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
from run.overrides import key_of
from run.resume import resume_arguments, without_resume
from run.stopping import STOPPING
from train import train

# A run's end reads fewer batches than a user's: hundreds of runs are made here.
batch_statistics.FINAL_BATCHES, batch_statistics.FINAL_LEAKS = 4, 2

ROOT = Path(__file__).parent.parent


def names(group: str) -> list[str]:
    """The files of a configuration group: tests find their cases here."""
    return sorted(path.stem for path in (ROOT / "configs" / group).glob("*.yaml"))


NORMS = names("norm")
EXPERIMENTS = names("experiment")
LOSSES = ["loss_initial", "val_best", "val_best_step", "val_final", "test_final", "test_best"]
LOSSES += ["train_final", "leak", "steps", "tokens"]  # what stopping and resuming must not change


@contextmanager
def composing(root: str = "train") -> Iterator[Callable[..., DictConfig]]:
    """Compose the full configuration as a job would see it, `${hydra:...}` included."""

    def composed(*overrides: str) -> DictConfig:
        cfg = compose(root, list(overrides), return_hydra_config=True)
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


@contextmanager
def handlers_kept() -> Iterator[None]:
    """Put the handlers of signals back, which a run in this process sets."""
    before = {n: signal.getsignal(n) for n in STOPPING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@pytest.fixture(autouse=True)
def signal_handlers() -> Iterator[None]:
    """The same, around each test."""
    with handlers_kept():
        yield


@pytest.fixture(scope="session")
def tiny_text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """20 kB of made-up verse: enough for training, validation and test."""
    draw = random.Random(1)
    words = ["thee", "love", "king", "o", "night", "and", "of", "sword", "the", "art"]
    lines = (" ".join(draw.choices(words, k=6)).capitalize() + ",\n" for _ in range(700))
    path = tmp_path_factory.mktemp("text") / "tiny.txt"
    path.write_text("".join(lines))
    return path


def train_here(folder: Path, *overrides: str) -> Path:
    """Train in a folder as `python train.py ...` would, in this process and without its console."""
    with composing() as composed, handlers_kept():
        train(composed(*overrides), folder, list(overrides))
    return folder


@pytest.fixture
def run(tiny_text: Path) -> Callable[..., Path]:
    """Train a small run with dropout in a folder, in this process."""
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

    def trained(folder: Path, *overrides: str) -> Path:
        given = {key_of(override) for override in overrides}
        return train_here(folder, *(o for o in small if key_of(o) not in given), *overrides)

    return trained


@pytest.fixture
def resume() -> Callable[..., Path]:
    """Resume a run as `python train.py resume=FOLDER ...` would, in this process."""

    def resumed(given: Path, *overrides: str) -> Path:
        arguments = resume_arguments([f"resume={given}", *overrides])
        folder = given.parent.parent if given.suffix == ".ckpt" else given
        composed = [argument for argument in arguments if not argument.startswith("hydra.")]
        with composing() as compose_one, handlers_kept():
            train(compose_one(*composed), folder, without_resume(composed))
        return folder

    return resumed


def here(*arguments: str, cwd: Path, program: str = "train.py", root: Path = ROOT) -> int | str:
    """Run a program in this process, as `python train.py ...` does in one of its own.

    Every test that needs a whole program uses this one; it takes a second less, and its coverage
    counts. What the program leaves in the process (log and signal handlers, Hydra's state) is
    put back.

    Args:
        arguments: the command line.
        cwd: the folder in which the user stands.
        program: the file at the root of the repository, or of a copy.
        root: the repository, or a copy.

    Returns:
        What it exits with: 0, a code, or the line that it prints on stderr (then the code is 1).
    """
    handlers = list(logging.getLogger().handlers)
    with pytest.MonkeyPatch.context() as patch, handlers_kept():
        patch.setattr(sys, "argv", [str(root / program), *arguments])
        patch.chdir(cwd)
        try:
            runpy.run_path(str(root / program), run_name="__main__")
        except SystemExit as left:
            return left.code or 0
        finally:
            GlobalHydra.instance().clear()
            console, file = logging.getLogger(), logging.getLogger("file")
            for handler in {*console.handlers, *file.handlers} - set(handlers):
                handler.close()
            console.handlers, file.handlers = handlers, []
    return 0


def forked(*arguments: str, cwd: Path) -> multiprocessing.Process:
    """Start `python train.py ...` as a process of its own, in a second: torch is imported already.

    Signals do in it what they do in a new program. Its console goes to `cwd / "console.txt"`.
    """

    def program() -> None:
        for number in STOPPING:
            signal.signal(number, signal.SIG_DFL)
        handle = os.open(cwd / "console.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        for stream in (1, 2):
            os.dup2(handle, stream)
        sys.exit(here(*arguments, cwd=cwd))

    process = multiprocessing.get_context("fork").Process(target=program)
    process.start()
    return process


def rows(folder: Path) -> list[list[str]]:
    """The rows `step, name, value` of metrics.csv, as texts."""
    with (folder / "metrics.csv").open() as file:
        head, *rest = csv.reader(file)
    assert head == ["step", "name", "value"]
    return rest


def steps(folder: Path) -> list[list[str]]:
    """The training curve."""
    return [row for row in rows(folder) if row[1] == "loss/train"]
