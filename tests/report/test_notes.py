"""What the footnotes say, and that they say it of the right conditions."""

import json
from collections.abc import Callable
from pathlib import Path

from report.notes import footnotes, with_numbers
from report.tables import all_tables, comparison
from tests.report.conftest import judged_of, tune

Write = Callable[..., Path]


def said(folder: Path) -> str:
    return "\n".join(note.text for note in footnotes(judged_of(folder)))


def conditions_of(folder: Path, words: str) -> list[str]:
    """The conditions of the one note that has these words."""
    (note,) = [note for note in footnotes(judged_of(folder)) if words in note.text]
    return note.conditions


def test_footnotes_warn_of_every_difference_that_was_not_swept(
    tmp_path: Path, write_run: Write
) -> None:
    """A leak, few seeds, unequal steps, other machines, a resumed run, an unfinished one."""
    write_run(tmp_path / "l1", "layernorm", 1, result={"torch": "2.12.0", "dirty": True})
    write_run(tmp_path / "b1", "batchnorm", 1, result={"legs": 3, "threads": 2, "commit": "x"})
    write_run(tmp_path / "n1", "none", 1, trainer__max_steps=100, result={"device": "cuda:0"})
    (write_run(tmp_path / "n2", "none", 2) / "result.json").unlink()
    text = said(tmp_path)
    for words in (
        "the statistics of batchnorm include later characters",
        "With fewer than 3 seeds",
        "equally long; their steps are: batchnorm 200, layernorm 200, none 100",
        "different devices (cpu, cuda:0)",
        "different torch versions",
        "different thread counts (2, 1)",
        "different commits",
        "not in any commit",
        "At least one run was resumed",
        "n2: unfinished",
    ):
        assert words in text, words
    assert conditions_of(tmp_path, "later characters") == ["batchnorm"]
    assert conditions_of(tmp_path, "was resumed") == ["batchnorm"]


def test_a_clean_sweep_has_no_footnote(tmp_path: Path, write_run: Write) -> None:
    for norm in ("layernorm", "rmsnorm"):
        for seed in (1, 2, 3):
            write_run(tmp_path / f"{norm}{seed}", norm, seed, 2 + 0.1 * seed)
    assert footnotes(judged_of(tmp_path)) == []


def test_a_failed_jobs_error_is_told(tmp_path: Path, write_sweep: Write, write_run: Write) -> None:
    write_sweep(tmp_path, {"layernorm": [2.0, 2.1, 2.05], "batchnorm": [2.1, 2.25, 2.2]})
    (tmp_path / "bad").mkdir()
    overrides = ["norm=batchnorm", "seed=4"]
    fields = {"status": "failed", "error": "more than 1 value per channel wanted", "seed": 4}
    result = fields | {"norm": "batchnorm", "overrides": overrides}
    (tmp_path / "bad/result.json").write_text(json.dumps(result))
    said = f"{' '.join(overrides)}: more than 1 value per channel wanted. To try them again"
    assert conditions_of(tmp_path, said) == []
    write_run(tmp_path / "late", "batchnorm", 4, result={"status": "failed", "error": "no room"})
    assert conditions_of(tmp_path, "says nothing about training: no room.") == ["batchnorm"]


def test_a_rate_that_was_chosen_by_runs_of_another_length_is_said(
    tmp_path: Path, write_run: Write
) -> None:
    tune(tmp_path, write_run, "layernorm", ran_at=2e-3)
    tune(tmp_path, write_run, "none", ran_at=2e-3, steps=100)
    words = "chosen by runs of 100 steps, but the reported runs have 200."
    assert conditions_of(tmp_path, words) == ["none"]


def test_a_rate_beside_the_best_is_said_beside_the_comparison(
    tmp_path: Path, write_run: Write
) -> None:
    tune(tmp_path, write_run, "layernorm", ran_at=2e-3)
    tune(tmp_path, write_run, "none", ran_at=4e-3)
    words = "none ran at the learning rate 0.004; the best one on tuning seeds is 0.002."
    (note,) = [note for note in footnotes(judged_of(tmp_path)) if words in note.text]
    assert (note.conditions, note.table) == (["none"], "comparison")


def test_a_search_that_was_not_the_same_for_all_is_said(tmp_path: Path, write_run: Write) -> None:
    tune(tmp_path, write_run, "layernorm", ran_at=2e-3)
    tune(tmp_path, write_run, "none", ran_at=2e-3)
    write_run(tmp_path / "more", "none", 102, 2.0, optimizer__lr=2e-3)
    assert "layernorm 3 runs at 3 rates, none 4 runs at 3 rates" in said(tmp_path)


def test_a_failed_baseline_and_tests_of_failure_are_told_with_their_counts(
    tmp_path: Path, write_sweep: Write, write_run: Write
) -> None:
    write_sweep(tmp_path, {"layernorm": [2.0, 3.9, 2.1], "batchnorm": [2.2, 2.3, 2.4]})
    broken = {"status": "failed", "error": "no file x."}
    write_run(tmp_path / "none-s1-9", "none", 1, result=broken)
    text = said(tmp_path)
    assert conditions_of(tmp_path, "The baseline layernorm has a failed run") == [
        "batchnorm",
        "none",
    ]
    assert "batchnorm 0 of 3 against layernorm 1 of 3, p = 1" in text
    assert "none 0 of 0" not in text and "none against" not in text
    assert "says nothing about training: no file x. To try failed jobs again" in text
    assert "entropy of single characters (3.30)" in text


def test_numbers_of_notes_follow_their_conditions(tmp_path: Path, write_run: Write) -> None:
    write_run(tmp_path / "l", "layernorm", result={"legs": 2})
    write_run(tmp_path / "b", "batchnorm")
    judged = judged_of(tmp_path)
    notes = footnotes(judged)
    table = with_numbers(comparison(judged), notes)
    assert [note.table for note in notes] == ["comparison", "losses", "settings"]
    assert [row[0] for row in table.rows] == ["layernorm [1,3]", "batchnorm [1,2]"]


def test_every_note_belongs_to_a_table_that_is_there(tmp_path: Path, write_run: Write) -> None:
    write_run(tmp_path / "l", "layernorm", result={"legs": 2})
    write_run(tmp_path / "b", "batchnorm", trainer__max_steps=100)
    tune(tmp_path, write_run, "none", ran_at=4e-3)
    judged = judged_of(tmp_path)
    tables = {table.name for table in all_tables(judged)}
    beside = {note.table for note in footnotes(judged)}
    assert beside == {"comparison", "losses", "rates", "settings"}
    assert beside <= tables


def test_a_failed_baseline_that_nothing_is_compared_with_is_no_note(
    tmp_path: Path, write_sweep: Write
) -> None:
    write_sweep(tmp_path, {"layernorm": [3.9, 3.9, 3.9]})
    assert "The baseline" not in said(tmp_path)
