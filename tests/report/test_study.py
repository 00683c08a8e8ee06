"""From run folders to the numbers of the table: the answers are worked out by hand."""

import json
import math
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from report.compare import compare
from report.content import gather
from report.intervals import interval
from report.rates import steps_table, tuned_conditions
from report.read import read_runs
from report.study import Study, build_study
from report.summary import floor_of, summarize

Write = Callable[..., Path]
LAYER, BATCH = [2.0, 2.2, 2.1, 2.4], [2.1, 2.35, 2.15, 2.5]


def study_of(*folders: Path, baseline: str = "layernorm") -> Study:
    return build_study(read_runs(folders), baseline)


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


def diverge(folder: Path) -> None:
    result = json.loads((folder / "result.json").read_text())
    losses = dict.fromkeys(("val_final", "test_final", "test_best", "train_final"))
    (folder / "result.json").write_text(json.dumps(result | {"status": "diverged"} | losses))


def test_two_seeds_have_a_mean_and_no_interval(tmp_path: Path, write_sweep: Write) -> None:
    write_sweep(tmp_path, {"layernorm": LAYER[:2], "batchnorm": BATCH[:2]})
    row = summarize(study_of(tmp_path)).loc["batchnorm"]
    assert row.difference == pytest.approx(0.125)
    assert row[["low", "high", "difference_low", "detectable", "p"]].isna().all()


def test_holm_counts_the_comparisons(tmp_path: Path, write_sweep: Write) -> None:
    write_sweep(tmp_path, {"layernorm": LAYER, "batchnorm": BATCH, "none": [2.9, 3.0, 2.8, 3.1]})
    table = summarize(study_of(tmp_path))
    assert sorted(table.p_holm.dropna() / table.p.dropna()) == pytest.approx([1, 2])


def test_each_arm_is_compared_with_the_baseline_of_its_own_settings(
    tmp_path: Path, write_run: Write
) -> None:
    for norm in ("layernorm", "none"):
        for placement in ("pre", "post"):
            write_run(tmp_path / f"{norm}-{placement}", norm, model__placement=placement)
    study = study_of(tmp_path)
    assert study.keys == ["norm", "model.placement"]
    assert study.baselines["none placement=post"] == "layernorm placement=post"
    assert study.baselines["none placement=pre"] == "layernorm placement=pre"
    assert study.baselines["layernorm placement=pre"] is None
    one = study_of(tmp_path, baseline="none placement=pre")
    assert set(one.baselines.values()) == {None, "none placement=pre"}


def test_a_baseline_that_is_not_there(tmp_path: Path, write_sweep: Write) -> None:
    """The default gives way with a note; a typed one is a mistake."""
    write_sweep(tmp_path, {"batchnorm": BATCH, "none": LAYER})
    study = study_of(tmp_path)
    assert study.baselines == {"batchnorm": None, "none": "batchnorm"}
    assert "Differences are taken to batchnorm" in study.notes[0]
    with pytest.raises(ValueError, match=r"--baseline layrnorm; there are: batchnorm, none"):
        study_of(tmp_path, baseline="layrnorm")


def test_one_norm_with_another_key_swept_is_compared_with_the_first(
    tmp_path: Path, write_run: Write
) -> None:
    for size in (4, 8):
        write_run(tmp_path / f"{size}", "batchnorm", data__batch_size=size)
    study = study_of(tmp_path)
    assert list(study.baselines.values()) == [None, study.conditions[0]]


def test_the_same_run_twice_counts_once_and_an_error_gives_way(
    tmp_path: Path, write_sweep: Write
) -> None:
    write_sweep(tmp_path / "a", {"layernorm": [2.0, 2.1, 2.2]})
    write_sweep(tmp_path / "b", {"layernorm": [9.0, 9.0, 9.0]})
    result = json.loads((tmp_path / "a/layernorm-s1-0/result.json").read_text())
    (tmp_path / "a/layernorm-s1-0/result.json").write_text(
        json.dumps(result | {"status": "failed"})
    )
    study = study_of(tmp_path / "a", tmp_path / "b")
    losses = study.of("layernorm").test_best
    assert losses.to_dict() == {1: 9.0, 2: 2.1, 3: 2.2}
    assert "a/layernorm-s1-0, b/layernorm-s2-1" in study.notes[0]


def test_without_a_test_split_validation_stands_in_and_a_note_says_so(
    tmp_path: Path, write_sweep: Write
) -> None:
    write_sweep(tmp_path, {"layernorm": LAYER}, result={"test_best": None})
    study = study_of(tmp_path)
    assert study.metric == "val_best"
    assert any("no test split" in note for note in study.notes)


def tuned_sweep(
    folder: Path,
    write_run: Write,
    losses: dict[float, list[float | None]],
    norm: str = "layernorm",
) -> None:
    """{rate: losses on seeds 101, 102, ...}; None: it diverged."""
    for rate, row in losses.items():
        for seed, loss in enumerate(row, 101):
            name = folder / f"{rate}-{seed}"
            run = write_run(name, norm, seed, loss or 2.0, optimizer__lr=rate)
            if loss is None:
                diverge(run)


def test_tuning_seeds_choose_the_rate_and_are_not_reported(
    tmp_path: Path, write_run: Write
) -> None:
    """Best 2.0 at 2e-3; mean of min(loss, 4) is (2.5 + 2.0 + 4) / 3, so sensitivity 0.8333."""
    losses = {1e-3: [2.4, 2.6], 2e-3: [1.9, 2.1], 4e-3: [None, None]}
    tuned_sweep(tmp_path, write_run, losses)
    for seed in (1, 2, 3):
        write_run(tmp_path / f"final-{seed}", seed=seed, loss=2.05, optimizer__lr=2e-3)
    study = study_of(tmp_path)
    assert sorted(study.of("layernorm").index) == [1, 2, 3]
    (tuned,) = tuned_conditions(study)
    assert (tuned.best, tuned.on, tuned.warnings) == (2e-3, "tuning seeds", [])
    assert tuned.sensitivity == pytest.approx(2.5 / 3)
    assert tuned.rates.failed.tolist() == [0, 0, 2]


def test_tuning_runs_alone_compare_nothing(tmp_path: Path, write_run: Write) -> None:
    """As after the first stage of a tuning sweep, whose report comes by itself."""
    for norm in ("layernorm", "none"):
        tuned_sweep(tmp_path / norm, write_run, {1e-3: [2.4], 2e-3: [1.9], 4e-3: [None]}, norm)
    text = compare([tmp_path / "layernorm", tmp_path / "none"])
    assert text.startswith("Tuning runs only")
    assert "Comparison" not in text
    assert "Learning rates, on tuning seeds" in text


@pytest.mark.parametrize(
    ("losses", "warning"),
    [
        ({1e-3: [2.0, 2.1], 2e-3: [2.2, 2.3]}, "lowest tried"),
        ({1e-3: [2.2, 2.3], 2e-3: [2.0, 2.1]}, "highest tried"),
        ({1e-3: [3.0, 3.0], 2e-3: [2.0, 2.1], 2.8e-3: [2.5, 2.5]}, "narrower than the grid"),
        ({1e-3: [3.9, 3.9], 2e-3: [2.0, None], 4e-3: [3.9, 3.9]}, "a seed failed"),
    ],
)
def test_a_doubtful_optimum_is_warned_of(
    losses: dict[float, list[float | None]], warning: str, tmp_path: Path, write_run: Write
) -> None:
    tuned_sweep(tmp_path, write_run, losses)
    (tuned,) = tuned_conditions(study_of(tmp_path))
    assert any(warning in text for text in tuned.warnings)


def test_rates_on_reported_seeds_show_the_best_and_say_that_it_flatters(
    tmp_path: Path, write_run: Write
) -> None:
    for rate, loss in ((1e-3, 2.5), (2e-3, 2.0), (4e-3, 2.6)):
        for seed in (1, 2, 3):
            write_run(tmp_path / f"{rate}-{seed}", seed=seed, loss=loss, optimizer__lr=rate)
    study = study_of(tmp_path)
    assert study.of("layernorm").lr.unique().tolist() == [2e-3]
    assert any("biased slightly downwards" in note for note in study.notes)


def test_high_seeds_are_ordinary_where_no_rate_was_swept_on_them(
    tmp_path: Path, write_run: Write
) -> None:
    write_run(tmp_path / "a", seed=1337)
    assert study_of(tmp_path).of("layernorm").index.tolist() == [1337]


def test_steps_to_target_come_from_complete_schedules(tmp_path: Path, write_run: Write) -> None:
    """Per seed, the baseline ends at 2.0 after 1000; `none` gets there with 500, 500, 800."""
    for seed in (1, 2, 3):
        for steps, loss in ((500, 2.3), (1000, 2.0)):
            folder = tmp_path / f"l{steps}-{seed}"
            write_run(folder, "layernorm", seed, loss, trainer__max_steps=steps)
        for steps, loss in ((500, 2.01 if seed == 3 else 2.0), (800, 1.9), (1000, 1.8)):
            write_run(tmp_path / f"n{steps}-{seed}", "none", seed, loss, trainer__max_steps=steps)
    study = study_of(tmp_path)
    assert study.keys == ["norm"]
    table = steps_table(study)
    assert table is not None
    assert (table.steps["layernorm"], table.steps["none"]) == (1000, 500)
    assert table.ratio["none"] == pytest.approx((0.5 * 0.5 * 0.8) ** (1 / 3))
    logs = interval(np.log([0.5, 0.5, 0.8]))
    assert table.high["none"] == pytest.approx(math.exp(logs.high))
    assert summarize(study).max_steps.unique().tolist() == [1000]


def test_a_seed_that_never_gets_there_makes_the_ratio_a_bound(
    tmp_path: Path, write_run: Write
) -> None:
    for seed in (1, 2, 3):
        for steps in (500, 1000):
            for norm, loss in (("layernorm", 2.0), ("none", 2.0 if seed > 1 else 2.5)):
                folder = tmp_path / f"{norm}{steps}-{seed}"
                loss = loss + (steps == 500)
                write_run(folder, norm, seed, loss, trainer__max_steps=steps)
    table = steps_table(study_of(tmp_path))
    assert table is not None
    assert (table.bound["none"], table.ratio["none"]) == ("at least", pytest.approx(1.0))
    assert pd.isna(table.low["none"])


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
        (tmp_path / folder / "result.json").write_text(
            json.dumps({
                "status": "failed", "error": "no", "norm": folder.split("-")[0], "seed": 1,
                "overrides": [f"norm={folder.split('-')[0]}", "seed=1"],
            })
        )  # fmt: skip
    content = gather([tmp_path])
    assert content.summary.failures.tolist() == ["1 error", "1 error"]
