"""Steps to the same loss: runs whose true ratio is known."""

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from report.compare import compare
from report.intervals import interval, log_shifts
from tests.report.conftest import judged_of

Write = Callable[..., Path]
NOISE, SEEDS = 0.02, 0.03  # standard deviations of a run and of a seed, nats per character


def curve(steps: np.ndarray) -> np.ndarray:
    """The final loss of a complete schedule: about 2.45 at 1000 steps, bent on log steps too."""
    return np.asarray(1.5 + 30 / np.sqrt(steps))


def studies(ratio: float, n: int, budgets: np.ndarray, count: int) -> np.ndarray:
    """(study, condition, seed, budget): the first condition needs `ratio` times the steps."""
    rng = np.random.default_rng(1)
    truth = np.stack([curve(budgets / ratio), curve(budgets)])[:, None]
    seeds = rng.normal(0, SEEDS, (count, 1, n, 1))
    return np.asarray(truth + seeds + rng.normal(0, NOISE, (count, 2, n, len(budgets))))


@pytest.mark.parametrize("count", [4000, pytest.param(20_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("n", [3, 5, 8])
def test_the_ratio_of_steps_is_unbiased_and_covered(n: int, count: int) -> None:
    """Whether three lengths or eight, at true ratios of 0.7, 1 and 1.4."""
    for budgets in (np.array([500, 700, 1000]), np.arange(3, 11) * 100):
        for ratio in (0.7, 1.0, 1.4):
            losses = studies(ratio, n, budgets, count)
            shifts = log_shifts(losses, np.array([1.0, -1.0]), budgets)
            found = interval(shifts)
            assert abs(np.mean(found.mean) - math.log(ratio)) < 0.01
            covered = (found.low <= math.log(ratio)) & (found.high >= math.log(ratio))
            assert 0.91 <= np.mean(covered) <= 0.97


def write_lengths(
    folder: Path, write_run: Write, norm: str, ratio: float, noise: np.ndarray, **how: object
) -> None:
    for seed, row in enumerate(noise, 1):
        for steps, error in zip((400, 700, 1000), row, strict=True):
            loss = float(curve(np.array(steps / ratio)) + error)
            place = folder / f"{norm}-{steps}-{seed}"
            write_run(place, norm, seed, loss, trainer__max_steps=steps, **how)


def test_a_true_ratio_of_0_7_is_on_the_page_and_is_claimed(
    tmp_path: Path, write_run: Write
) -> None:
    """The smallest length that gets there can only be 0.4, 0.7 or 1."""
    claim = {
        "name": "x",
        "weights": {"none": 1, "layernorm": -1},
        "metric": "steps",
        "scale": "log",
        "margin": 0.1,
    }
    rng = np.random.default_rng(1)
    for norm, ratio in (("layernorm", 1.0), ("none", 0.7)):
        noise = rng.normal(0, 0.005, (5, 3))
        write_lengths(tmp_path, write_run, norm, ratio, noise, claims=[claim])
    judged = judged_of(tmp_path)
    assert judged.steps is not None
    row = judged.steps.loc["none"]
    assert row.low < 0.7 < row.high
    assert row.ratio == pytest.approx(0.7, abs=0.02)
    assert math.exp(judged.verdicts[0].found.mean) == pytest.approx(row.ratio)
    compare(tmp_path)
    page = (tmp_path / "comparison/report.html").read_text()
    assert f"{row.ratio:.2f} [{row.low:.2f}, {row.high:.2f}]" in page
    assert judged.summary.max_steps.unique().tolist() == [1000]


def test_a_norm_equal_to_the_baseline_has_a_ratio_of_1(tmp_path: Path, write_run: Write) -> None:
    rng = np.random.default_rng(2)
    for norm in ("layernorm", "none"):
        write_lengths(tmp_path, write_run, norm, 1.0, rng.normal(0, 0.01, (4, 3)))
    judged = judged_of(tmp_path)
    assert judged.steps is not None
    row = judged.steps.loc["none"]
    assert row.low < 1 < row.high
    assert row.ratio == pytest.approx(1, abs=0.05)


def test_there_is_no_ratio_without_three_common_lengths_or_with_a_failed_run(
    tmp_path: Path, write_run: Write
) -> None:
    noise = np.zeros((3, 3))
    write_lengths(tmp_path, write_run, "layernorm", 1.0, noise)
    write_lengths(tmp_path, write_run, "none", 1.0, noise)
    lost = {"status": "diverged", "val_final": None}
    write_run(tmp_path / "lost", "none", 4, result=lost, trainer__max_steps=400)
    for seed in (1, 2, 3):
        write_run(tmp_path / f"dyt-{seed}", "dyt", seed, trainer__max_steps=1000)
    write_run(tmp_path / "l4", "layernorm", 4, trainer__max_steps=400)
    judged = judged_of(tmp_path)
    assert judged.steps is not None
    assert judged.steps.reason["dyt"].startswith("steps need runs at 3 lengths")
    assert judged.steps.reason["none"] == "a run at one of the lengths failed or is missing"
    assert np.isnan(judged.steps.ratio["none"])
