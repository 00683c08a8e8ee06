"""Which runs speak for a condition, and what each condition is compared with."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from report.group import Study, build_study
from report.judge import judge
from report.notes import footnotes
from report.read import read_runs
from tests.report.conftest import diverge, study_of, tune, write_tuning

Write = Callable[..., Path]
LAYER, BATCH = [2.0, 2.2, 2.1, 2.4], [2.1, 2.35, 2.15, 2.5]


def has_note(study: Study, words: str) -> bool:
    return any(words in note.text for note in footnotes(judge(study)))


def test_each_condition_is_compared_with_the_baseline_of_its_own_settings(
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
    assert has_note(study, "Differences are taken to batchnorm; --baseline NAME chooses another.")
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
    assert has_note(study, "seed already has a run: a/layernorm-s1-0, b/layernorm-s2-1")


def test_without_a_test_split_validation_stands_in_and_a_note_says_so(
    tmp_path: Path, write_sweep: Write
) -> None:
    write_sweep(tmp_path, {"layernorm": LAYER}, result={"test_best": None})
    study = study_of(tmp_path)
    assert study.metric == "val_best"
    assert has_note(study, "There is no test split")


def test_high_seeds_are_ordinary_where_no_rate_was_swept_on_them(
    tmp_path: Path, write_run: Write
) -> None:
    write_run(tmp_path / "a", seed=1337)
    study = study_of(tmp_path)
    assert study.of("layernorm").index.tolist() == [1337]
    assert has_note(study, "reported like all others")


def test_a_condition_without_a_baseline_of_its_settings_has_none_and_comes_after_the_baselines(
    tmp_path: Path, write_run: Write
) -> None:
    """The first condition is a baseline: steps to a target are taken to that one."""
    write_run(tmp_path / "a", "batchnorm", model__placement="sandwich")
    for placement in ("pre", "post"):
        write_run(tmp_path / placement, "layernorm", model__placement=placement)
    study = study_of(tmp_path)
    assert study.bases == ["layernorm placement=post", "layernorm placement=pre"]
    assert study.conditions == [*study.bases, "batchnorm placement=sandwich"]
    assert set(study.baselines.values()) == {None}
    assert has_note(study, "batchnorm placement=sandwich has no baseline")


def test_the_study_knows_what_failed_and_what_leaks(tmp_path: Path, write_sweep: Write) -> None:
    write_sweep(tmp_path, {"layernorm": LAYER, "batchnorm": BATCH, "none": [2.5, 3.9, 2.6]})
    diverge(tmp_path / "none-s1-8")
    study = study_of(tmp_path)
    assert study.failed == {"layernorm": 0, "batchnorm": 0, "none": 2}
    assert study.leaking == ["batchnorm"]
    assert study.norms == ["layernorm", "batchnorm", "none"]
    assert study.trained("none").index.tolist() == [3]
    assert len(study.trained("layernorm")) == len(study.of("layernorm")) == 4


def test_conditions_with_tuning_runs_only_are_not_reported(
    tmp_path: Path, write_run: Write
) -> None:
    tune(tmp_path, write_run, "layernorm", ran_at=2e-3)
    write_tuning(tmp_path / "none", write_run, {1e-3: [2.4], 2e-3: [1.9]}, "none")
    study = build_study(read_runs([tmp_path, tmp_path / "none"]), "layernorm")
    assert study.conditions == ["layernorm"]
    assert has_note(study, "These conditions have tuning runs only so far: none.")
