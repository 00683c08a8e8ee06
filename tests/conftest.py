"""What all tests share: passive threads, composing the configuration, a small text."""

import os

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # before torch: spinning threads are 20x slower

import random
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, open_dict

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))


def names(group: str) -> list[str]:
    """The files of a configuration group: tests find their cases here."""
    return sorted(path.stem for path in (ROOT / "configs" / group).glob("*.yaml"))


NORMS = names("norm")
EXPERIMENTS = names("experiment")


@pytest.fixture
def compose_config() -> Iterator[Callable[..., DictConfig]]:
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
