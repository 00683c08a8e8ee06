"""The figures of the report."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from report.compare import compare
from report.curves import curve_of
from report.style import looks
from tests.report.conftest import (
    judged_of,
)

Write = Callable[..., Path]


def test_probes_are_drawn_by_name_by_layer_or_over_steps(tmp_path: Path, write_run: Write) -> None:
    """Those that say most; where there is none of these, whatever else was logged."""
    rows = [(s, f"probe/residual_rms/{i}", s + i) for s in (10, 20) for i in range(3)]
    other = [(s, f"probe/{n}", 1 / s) for s in (10, 20, 30) for n in ("leak", "batchnorm_gap")]
    for seed in (1, 2):
        write_run(tmp_path / f"a/{seed}", seed=seed, curves=rows + other)
        write_run(tmp_path / f"b/{seed}", seed=seed, curves=[r for r in other if "gap" in r[1]])
    for folder, names in (("a", ["leak", "residual_rms"]), ("b", ["batchnorm_gap"])):
        compare(tmp_path / folder)
        place = tmp_path / folder / "comparison"
        assert sorted(p.stem for p in place.glob("probe*.svg")) == [f"probe_{n}" for n in names]
    figure = (tmp_path / "a/comparison/probe_residual_rms.svg").read_text()
    assert "layer" in figure and "RMS of the residual stream" in figure


@pytest.mark.parametrize("norms", [1, 12])
def test_figures_name_their_units_and_tell_conditions_apart(
    norms: int, tmp_path: Path, write_sweep: Write
) -> None:
    names = [f"norm{i:02}" for i in range(norms)]
    compare(write_sweep(tmp_path, {name: [2.0, 2.1, 2.2] for name in names}), baseline="norm00")
    figure = (tmp_path / "comparison/loss_val_steps.svg").read_text()
    assert "validation loss (nats per character)" in figure
    assert "optimizer steps" in figure
    assert all(f">{name}<" in figure for name in names)


def test_looks_differ_between_conditions_and_not_between_figures() -> None:
    conditions = [f"a{i}" for i in range(28)]
    assert len(set(looks(conditions).values())) == 28


def test_curves_on_a_log_axis_are_averaged_there(tmp_path: Path, write_run: Write) -> None:
    """Geometric means and intervals: exp of those of the logarithms, never below 0."""
    values = np.array([[1.0, 4.0], [2.0, 9.0], [8.0, 0.5]])
    for seed, (a, b) in enumerate(values, 1):
        rows = [(1, "optim/grad_norm", a), (2, "optim/grad_norm", b), (2, "loss/val", 2.0)]
        write_run(tmp_path / f"l{seed}", "layernorm", seed, curves=rows)
    curve = curve_of(judged_of(tmp_path).study, "layernorm", "optim/grad_norm", log=True)
    assert curve is not None
    assert curve.mean == pytest.approx(np.exp(np.log(values).mean(0)))
    half = 4.302652729911275 * np.log(values).std(0, ddof=1) / np.sqrt(3)  # t at 0.975, 2 degrees
    assert curve.low == pytest.approx(curve.mean / np.exp(half))
    assert curve.high == pytest.approx(curve.mean * np.exp(half))
