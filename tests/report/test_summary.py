"""From run folders to the numbers of the main table: the answers are worked out by hand."""

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from report.summary import floor_of, summarize
from report.tables import comparison
from tests.report.conftest import diverge, judged_of, study_of

Write = Callable[..., Path]
LAYER, BATCH = [2.0, 2.2, 2.1, 2.4], [2.1, 2.35, 2.15, 2.5]


def test_the_difference_is_taken_seed_by_seed(tmp_path: Path, write_sweep: Write) -> None:
    """0.1, 0.15, 0.05, 0.1: mean 0.1, sd 0.040825, t(3) = 3.1824: half-width 0.06496."""
    write_sweep(tmp_path, {"layernorm": LAYER, "batchnorm": BATCH})
    row = summarize(study_of(tmp_path)).loc["batchnorm"]
    assert (row.n, row.pairs, row.baseline) == (4, 4, "layernorm")
    assert row["mean"] == pytest.approx(2.275)
    assert row.difference == pytest.approx(0.1)
    assert (row.difference_low, row.difference_high) == pytest.approx(
        (0.1 - 0.06496, 0.1 + 0.06496), abs=1e-5
    )
    assert row.detectable == pytest.approx(0.06496, abs=1e-5)
    assert row.p == row.p_holm == pytest.approx(0.01628, abs=1e-5)


def test_the_order_of_folders_is_of_no_consequence(tmp_path: Path, write_run: Write) -> None:
    jobs = [("layernorm", s, x) for s, x in enumerate(LAYER)]
    jobs += [("batchnorm", s, x) for s, x in enumerate(BATCH)]
    random.Random(1).shuffle(jobs)
    for i, (norm, seed, loss) in enumerate(jobs):
        write_run(tmp_path / f"{i:02}", norm, seed, loss)
    assert summarize(study_of(tmp_path)).difference["batchnorm"] == pytest.approx(0.1)


def test_a_missing_seed_leaves_the_pairs_that_both_have(tmp_path: Path, write_run: Write) -> None:
    for seed, loss in enumerate(LAYER):
        write_run(tmp_path / f"l{seed}", "layernorm", seed, loss)
    for seed in (0, 2, 3):
        write_run(tmp_path / f"b{seed}", "batchnorm", seed, BATCH[seed])
    row = summarize(study_of(tmp_path)).loc["batchnorm"]
    assert (row.n, row.pairs) == (3, 3)
    assert row.difference == pytest.approx((0.1 + 0.05 + 0.1) / 3)


def test_a_failed_run_takes_mean_and_difference_away(tmp_path: Path, write_sweep: Write) -> None:
    """Fisher's exact test, 1 of 4 against 0 of 4: p = 1."""
    write_sweep(tmp_path, {"layernorm": LAYER, "batchnorm": BATCH, "none": LAYER})
    diverge(tmp_path / "none-s2-9")
    table = summarize(study_of(tmp_path))
    assert (table.failed["none"], table.failures["none"]) == (1, "1 non-finite")
    lost = ["mean", "low", "difference", "p", "p_holm", "val_final", "gap"]
    assert table.loc["none", lost].isna().all()
    assert table.p_failing["none"] == pytest.approx(1.0)
    assert table.difference["batchnorm"] == pytest.approx(0.1)
    assert table.p_holm["batchnorm"] == table.p["batchnorm"]  # a family of one is left


def test_two_seeds_have_a_mean_and_no_interval(tmp_path: Path, write_sweep: Write) -> None:
    write_sweep(tmp_path, {"layernorm": LAYER[:2], "batchnorm": BATCH[:2]})
    row = summarize(study_of(tmp_path)).loc["batchnorm"]
    assert row.difference == pytest.approx(0.125)
    assert row[["low", "high", "difference_low", "detectable", "p"]].isna().all()


def test_holm_counts_the_comparisons(tmp_path: Path, write_sweep: Write) -> None:
    write_sweep(tmp_path, {"layernorm": LAYER, "batchnorm": BATCH, "none": [2.9, 3.0, 2.8, 3.1]})
    table = summarize(study_of(tmp_path))
    assert sorted(table.p_holm.dropna() / table.p.dropna()) == pytest.approx([1, 2])


def test_the_noise_floor_is_the_baselines(tmp_path: Path, write_sweep: Write) -> None:
    """Sd of 2, 2.2, 2.4 is 0.2; t(2) sqrt 2 0.2 = 1.2170."""
    write_sweep(tmp_path, {"layernorm": [2.0, 2.2, 2.4], "none": [3.0, 3.0, 3.0]})
    found = floor_of(study_of(tmp_path))
    assert found is not None
    assert found[:2] == ("layernorm", pytest.approx(1.2170, abs=1e-4))


def test_the_first_evaluation_at_the_baselines_loss_is_found(
    tmp_path: Path, write_run: Write
) -> None:
    """The baseline ends at 2.0 in evaluation; the other passes that at step 30, inside its run."""
    for norm, values in (("layernorm", [3, 2.5, 2.2, 2.0]), ("none", [3, 2.5, 1.9, 1.8])):
        rows = [(10 * i, "loss/val", float(x)) for i, x in enumerate(values, 1)]
        write_run(tmp_path / norm, norm, curves=rows)
    table = summarize(study_of(tmp_path))
    assert table.first_at_baseline.to_dict() == {"layernorm": 40, "none": 30}


def test_a_sweep_whose_every_run_failed_still_has_a_table(
    tmp_path: Path, write_sweep: Write
) -> None:
    write_sweep(tmp_path, {"layernorm": LAYER[:1], "none": LAYER[:1]})
    for folder in ("layernorm-s1-0", "none-s1-1"):
        norm = folder.split("-")[0]
        fields = {"status": "failed", "error": "no", "norm": norm, "seed": 1}
        overrides = [f"norm={norm}", "seed=1"]
        result = json.dumps(fields | {"overrides": overrides})
        (tmp_path / folder / "result.json").write_text(result)
    judged = judged_of(tmp_path)
    assert judged.summary.failures.tolist() == ["1 error", "1 error"]
    assert [row[2] for row in comparison(judged).rows] == ["1 of 1 failed", "1 of 1 failed"]
