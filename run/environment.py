"""Environment variables that must not bend a run: those of clusters and of Lightning itself."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from lightning.pytorch.utilities import rank_zero_only

MANAGERS = ("PL_", "SLURM_", "JSM_", "LSB_", "TORCHELASTIC_")  # how their variables begin
RANKS = ("RANK", "LOCAL_RANK", "NODE_RANK", "GROUP_RANK", "WORLD_SIZE", "MASTER_ADDR")


@contextmanager
def without_managers() -> Iterator[None]:
    """Hide the variables by which Lightning takes a run for one process of many, or sets options.

    With them it refuses one device, writes nothing (RANK=1), or takes trainer options from
    PL_TRAINER_... that no configuration shows.
    """
    names = [name for name in os.environ if name.startswith(MANAGERS) or name in RANKS]
    hidden = {name: os.environ.pop(name) for name in names}
    # Lightning read the variables when it was imported
    rank_zero_only.rank = 0  # type: ignore[attr-defined]
    try:
        yield
    finally:
        os.environ.update(hidden)
