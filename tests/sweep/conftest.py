"""Small sweeps in this process, without the comparison at their ends."""

from pathlib import Path

import pytest

from sweep.callback import Sweep

SMALL = ["model=mini", "data.batch_size=4", "data.block_size=16", "sample.max_new_tokens=5"]
SMALL.append("probes=none")


@pytest.fixture(autouse=True)
def no_report(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out what a sweep's end writes: tests/report and tests/test_sweep.py test that."""
    monkeypatch.setattr(Sweep, "compare", lambda self, norms: True)


def contents(folder: Path) -> dict[Path, bytes]:
    """Every file in it, but what Hydra and the log add to at each start."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {p: p.read_bytes() for p in files if p.name not in ("multirun.yaml", "train.log")}
