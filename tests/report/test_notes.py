"""What the first lines and the footnotes say, and that they say it of the right runs."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from report.compare import compare
from report.content import Content, gather
from report.curves import curve_of
from report.tables import comparison, seeds

Write = Callable[..., Path]


def tune(folder: Path, write_run: Write, norm: str, ran_at: float, steps: int = 200) -> None:
    """Tuning runs whose best rate is 2e-3, and three reported runs at a rate."""
    for rate in (1e-3, 2e-3, 4e-3):
        loss = 2 + abs(np.log2(rate / 2e-3))
        how = {"optimizer__lr": rate, "trainer__max_steps": steps}
        write_run(folder / f"{norm}-s101-{rate}", norm, 101, loss, **how)
    for seed in (1, 2, 3):
        write_run(folder / f"{norm}-s{seed}", norm, seed, 2 + 0.01 * seed, optimizer__lr=ran_at)


def said(content: Content) -> str:
    return " ".join(note.text for note in content.notes)


def test_norms_that_ran_beside_their_best_rate_are_not_shown_as_at_their_own(
    tmp_path: Path, write_run: Write
) -> None:
    tune(tmp_path, write_run, "layernorm", ran_at=2e-3)
    tune(tmp_path, write_run, "none", ran_at=4e-3)
    content = gather([tmp_path])
    assert "none did not run at the best one" in content.headline.text
    assert "not every norm is at the best" in content.headline.unjudged
    assert "none ran at 0.004; its best on tuning seeds is 0.002." in said(content)


def test_each_norm_at_its_best_rate_is_said_with_the_edge_of_the_grid(
    tmp_path: Path, write_run: Write
) -> None:
    tune(tmp_path, write_run, "layernorm", ran_at=2e-3)
    tune(tmp_path, write_run, "none", ran_at=2e-3)
    content = gather([tmp_path])
    assert content.headline.text.endswith("among those tried.")
    assert not content.headline.unjudged
    write_run(tmp_path / "more", "none", 101, 1.5, optimizer__lr=8e-3)
    for seed in (1, 2, 3):
        write_run(tmp_path / f"none8-{seed}", "none", seed, 1.6, optimizer__lr=8e-3)
    assert "For none that is the lowest or highest" in gather([tmp_path]).headline.text


def test_a_rate_that_was_chosen_by_runs_of_another_length_is_said(
    tmp_path: Path, write_run: Write
) -> None:
    tune(tmp_path, write_run, "layernorm", ran_at=2e-3)
    tune(tmp_path, write_run, "none", ran_at=2e-3, steps=100)
    assert "The rate of none was chosen by runs of 100 steps; it ran for 200." in said(
        gather([tmp_path])
    )


def test_a_norm_that_learned_nothing_has_no_basin_and_its_least_loss_is_its_best_rate(
    tmp_path: Path, write_run: Write
) -> None:
    """All above the entropy of single characters, yet not all the same."""
    for rate, loss in ((1e-3, 3.9), (2e-3, 3.5), (4e-3, 3.7)):
        write_run(tmp_path / f"{rate}", "none", 101, loss, optimizer__lr=rate)
    (entry,) = gather([tmp_path]).tuned
    assert entry.best == 2e-3
    assert np.isnan(entry.basin) and np.isnan(entry.sensitivity)


def test_a_failed_baseline_and_tests_of_failure_are_told_with_their_counts(
    tmp_path: Path, write_sweep: Write, write_run: Write
) -> None:
    write_sweep(tmp_path, {"layernorm": [2.0, 3.9, 2.1], "batchnorm": [2.2, 2.3, 2.4]})
    broken = {"status": "failed", "error": "no file x."}
    write_run(tmp_path / "none-s1-9", "none", 1, result=broken)
    text = said(gather([tmp_path]))
    assert "layernorm, the baseline, has a failed run" in text
    assert "batchnorm 0 of 3 against layernorm 1 of 3, p = 1" in text
    assert "none 0 of 0" not in text and "none against" not in text
    assert "Stopped by an error, not by training: no file x. Failed jobs are tried again" in text
    assert "entropy of single characters (3.30)" in text


def test_the_pairs_are_counted_where_they_are_fewer_than_the_seeds(
    tmp_path: Path, write_sweep: Write, write_run: Write
) -> None:
    write_sweep(tmp_path, {"layernorm": [2.0, 2.1, 2.2]})
    for seed in (2, 3, 4):
        write_run(tmp_path / f"none-s{seed}", "none", seed, 2.5 + 0.1 * seed)
    content = gather([tmp_path])
    table = comparison(content)
    assert table is not None
    assert [row[1] for row in table.rows] == ["3", "3 (2 pairs)"]
    assert "the difference is over the 2 that are. Fewer than 3 give no interval." in said(content)


def test_every_seeds_own_value_is_on_the_page(tmp_path: Path, write_sweep: Write) -> None:
    write_sweep(tmp_path, {"layernorm": [2.0, 2.1], "none": [2.5, 3.9]})
    table = seeds(gather([tmp_path]))
    assert table is not None
    assert table.columns == ["condition", "seed 1", "seed 2"]
    assert [row[1:] for row in table.rows] == [
        ["2.000", "2.100"],
        ["2.500", "failed to learn 3.900"],
    ]


def test_an_option_that_a_norm_does_not_have_is_no_part_of_its_name(
    tmp_path: Path, write_run: Write
) -> None:
    for seed in (1, 2):
        for momentum in (0.1, None):
            folder = write_run(tmp_path / f"b{momentum}-{seed}", "batchnorm", seed)
            for path in (folder / ".hydra/config.yaml", folder / "result.json"):
                text = path.read_text()
                path.write_text(text.replace("momentum: 0.1", "momentum: null"))
            result = json.loads((folder / "result.json").read_text())
            result["config"]["norm"]["momentum"] = momentum
            (folder / "result.json").write_text(json.dumps(result))
        write_run(tmp_path / f"l{seed}", "layernorm", seed)
    assert set(gather([tmp_path]).study.conditions) == {
        "layernorm",
        "batchnorm momentum=0.1",
        "batchnorm momentum=None",
    }


def test_curves_on_a_log_axis_are_averaged_there(tmp_path: Path, write_run: Write) -> None:
    """Geometric means and intervals: exp of those of the logarithms, never below 0."""
    values = np.array([[1.0, 4.0], [2.0, 9.0], [8.0, 0.5]])
    for seed, (a, b) in enumerate(values, 1):
        rows = [(1, "optim/grad_norm", a), (2, "optim/grad_norm", b), (2, "loss/val", 2.0)]
        write_run(tmp_path / f"l{seed}", "layernorm", seed, curves=rows)
    curve = curve_of(gather([tmp_path]).study, "layernorm", "optim/grad_norm", log=True)
    assert curve is not None
    assert curve.mean == pytest.approx(np.exp(np.log(values).mean(0)))
    half = 4.302652729911275 * np.log(values).std(0, ddof=1) / np.sqrt(3)  # t at 0.975, 2 degrees
    assert curve.low == pytest.approx(curve.mean / np.exp(half))
    assert curve.high == pytest.approx(curve.mean * np.exp(half))


def test_a_tuning_sweep_alone_has_no_table_of_steps(tmp_path: Path, write_run: Write) -> None:
    for rate in (1e-3, 2e-3):
        write_run(tmp_path / f"{rate}", "none", 101, 2 + rate, optimizer__lr=rate)
    assert "Steps to the baseline" not in compare(tmp_path)


def test_the_page_says_on_what_it_rests(tmp_path: Path, write_sweep: Write) -> None:
    compare(write_sweep(tmp_path, {"layernorm": [2.0, 2.1]}))
    page = (tmp_path / "comparison/report.html").read_text()
    assert "12 x 64 characters a step" in page
    assert "torch 2.13.0; threads 1; commit abc; started 2026-01-01." in page
