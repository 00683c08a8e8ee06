"""Optima of the learning rate with their warnings."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from report.compare import compare
from report.judge import judge
from report.notes import footnotes
from report.rates import tuned_conditions
from tests.report.conftest import judged_of, study_of, write_tuning

Write = Callable[..., Path]


def test_tuning_seeds_choose_the_rate_and_are_not_reported(
    tmp_path: Path, write_run: Write
) -> None:
    """Best 2.0 at 2e-3; mean of min(loss, 4) is (2.5 + 2.0 + 4) / 3, so sensitivity 0.8333."""
    losses = {1e-3: [2.4, 2.6], 2e-3: [1.9, 2.1], 4e-3: [None, None]}
    write_tuning(tmp_path, write_run, losses)
    for seed in (1, 2, 3):
        write_run(tmp_path / f"final-{seed}", seed=seed, loss=2.05, optimizer__lr=2e-3)
    study = study_of(tmp_path)
    assert sorted(study.of("layernorm").index) == [1, 2, 3]
    (tuned,) = tuned_conditions(study)
    assert (tuned.best, tuned.on) == (2e-3, "tuning seeds")
    assert ["0.004" in text for text in tuned.warnings] == [True]
    assert tuned.sensitivity == pytest.approx(2.5 / 3)
    assert tuned.rates.failed.tolist() == [0, 0, 2]


@pytest.mark.parametrize(
    ("losses", "warning"),
    [
        ({1e-3: [2.0, 2.1], 2e-3: [2.2, 2.3]}, "lowest that was tried"),
        ({1e-3: [2.2, 2.3], 2e-3: [2.0, 2.1]}, "highest that was tried"),
        ({1e-3: [2.2, 2.2], 2e-3: [2.0, 2.01], 2.8e-3: [2.9, 2.9]}, "rise steeply just above"),
        ({1e-3: [2.2, 2.2], 2e-3: [2.0, None], 4e-3: [2.1, 2.1]}, "a seed failed"),
        ({1e-3: [3.9, 3.9], 2e-3: [2.0, None], 4e-3: [3.9, 3.9]}, "at every learning rate"),
    ],
)
def test_a_doubtful_optimum_is_warned_of(
    losses: dict[float, list[float | None]], warning: str, tmp_path: Path, write_run: Write
) -> None:
    write_tuning(tmp_path, write_run, losses)
    (tuned,) = tuned_conditions(study_of(tmp_path))
    assert any(warning in text for text in tuned.warnings)


def test_a_fallen_seed_is_a_failure_that_is_named(tmp_path: Path, write_run: Write) -> None:
    """2.55 beside 2.29, as just past LayerNorm's best rate."""
    for norm, lost in (("layernorm", 2.55), ("rmsnorm", 2.31)):
        for seed, loss in enumerate([2.29, 2.30, lost, 2.28], 1):
            write_run(tmp_path / f"{norm}-{seed}", norm, seed, loss)
    judged = judged_of(tmp_path)
    assert judged.study.of("layernorm").failure.tolist() == ["", "", "fallen", ""]
    assert judged.study.failed == {"layernorm": 1, "rmsnorm": 0}
    assert judged.summary.failures["layernorm"] == "1 fallen"
    assert np.isnan(judged.summary["mean"]["layernorm"])
    assert any("6 standard deviations" in note.text for note in footnotes(judged))


def test_rates_on_reported_seeds_show_the_best_and_say_that_it_flatters(
    tmp_path: Path, write_run: Write
) -> None:
    for rate, loss in ((1e-3, 2.5), (2e-3, 2.0), (4e-3, 2.6)):
        for seed in (1, 2, 3):
            write_run(tmp_path / f"{rate}-{seed}", seed=seed, loss=loss, optimizer__lr=rate)
    study = study_of(tmp_path)
    assert study.of("layernorm").lr.unique().tolist() == [2e-3]
    notes = footnotes(judge(study))
    assert any("its loss is biased slightly downwards" in note.text.lower() for note in notes)


def test_a_norm_that_learned_nothing_has_no_basin_and_its_least_loss_is_its_best_rate(
    tmp_path: Path, write_run: Write
) -> None:
    """All above the entropy of single characters, yet not all the same."""
    for rate, loss in ((1e-3, 3.9), (2e-3, 3.5), (4e-3, 3.7)):
        write_run(tmp_path / f"{rate}", "none", 101, loss, optimizer__lr=rate)
    (entry,) = judged_of(tmp_path).tuned
    assert entry.best == 2e-3
    assert np.isnan(entry.basin) and np.isnan(entry.sensitivity)


def test_a_tuning_sweep_alone_has_no_table_of_steps(tmp_path: Path, write_run: Write) -> None:
    for rate in (1e-3, 2e-3):
        write_run(tmp_path / f"{rate}", "none", 101, 2 + rate, optimizer__lr=rate)
    assert "Steps to the baseline" not in compare(tmp_path)


def test_sensitivity_and_basin_are_over_the_rates_that_all_conditions_have(
    tmp_path: Path, write_run: Write
) -> None:
    """Equal on the common grid; each refined where it was lowest, which must not turn them."""
    grid = {1e-3: [2.2], 2e-3: [2.0], 4e-3: [2.2]}
    write_tuning(tmp_path / "s", write_run, grid | {1.41e-3: [2.0], 2.83e-3: [2.0]})
    write_tuning(tmp_path / "s", write_run, grid | {8e-3: [3.9], 16e-3: [3.9]}, "none")
    tuned = judged_of(tmp_path / "s").tuned
    assert [entry.sensitivity for entry in tuned] == pytest.approx([0.4 / 3, 0.4 / 3])
    assert tuned[0].basin == tuned[1].basin == 0


def test_without_common_rates_there_is_no_sensitivity_and_the_page_says_why(
    tmp_path: Path, write_run: Write
) -> None:
    write_tuning(tmp_path / "s", write_run, {1e-3: [2.2], 2e-3: [2.0], 4e-3: [2.2]})
    write_tuning(tmp_path / "s", write_run, {2e-3: [2.2], 4e-3: [2.0], 8e-3: [2.2]}, "none")
    assert all(np.isnan(entry.sensitivity) for entry in judged_of(tmp_path / "s").tuned)
    compare(tmp_path / "s")
    page = (tmp_path / "s/comparison/report.html").read_text()
    assert "at least 3, and there are 2." in " ".join(page.split())
