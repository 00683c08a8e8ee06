"""The footnotes: what a reader has to know before believing a number."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from report.formatting import Table, span
from report.group import TUNING_SEEDS, WITHOUT_TEST, Study
from report.judge import Judged
from report.rates import FEWEST_RATES, common_rates
from report.summary import training_failures

WORDS = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text("utf-8"))
MEANING = WORDS.pop("meanings")  # of the kinds of failure, in a sentence


@dataclass(frozen=True)
class Note:
    """A footnote.

    Attributes:
        text: whole sentences.
        conditions: those whose rows carry its number; none if it is about all.
        table: the name of the table whose numbers it qualifies; "" if it is about the whole report.
    """

    text: str
    conditions: list[str] = field(default_factory=list)
    table: str = ""


def note(name: str, conditions: list[str] | None = None, **words: Any) -> Note:
    """The note of that name in notes.yaml, with the words that it leaves open."""
    text = WORDS[name]["text"].format(**words, tuning=TUNING_SEEDS)
    return Note(text, conditions or [], WORDS[name]["table"])


def footnotes(judged: Judged) -> list[Note]:
    """Every reason why a number is not what it seems, the main table's first."""
    study = judged.study
    notes = [
        *about_failures(judged),
        *about_seeds(judged),
        *about_comparison(study),
        *about_training(judged),
        *about_rates(judged),
        *about_machines(study),
        *about_runs(study),
    ]
    order = ["comparison", "seeds", "losses", "rates", "settings", ""]
    return sorted(notes, key=lambda note: order.index(note.table))


def with_numbers(table: Table, notes: list[Note]) -> Table:
    """The table with the numbers of footnotes, from 1, after its conditions: `none [1,3]`."""
    if table.columns[0] != "condition":
        return table
    rows = []
    for condition, *cells in table.rows:
        of_it = [i for i, note in enumerate(notes, 1) if condition in note.conditions]
        numbers = ",".join(map(str, of_it))
        rows.append([f"{condition} [{numbers}]" if numbers else condition, *cells])
    return replace(table, rows=rows)


def about_failures(judged: Judged) -> Iterator[Note]:
    """Failed runs."""
    study = judged.study
    errors = study.reported[study.reported.failure == "error"].sort_values("seed")
    stopped = errors.drop_duplicates("condition").set_index("condition").error
    in_training = [name for name in study.conditions if study.failed[name] and name not in stopped]
    if in_training:
        kinds = sorted(set(study.reported.failure) & set(MEANING))
        meanings = "".join(f" {MEANING[kind].format(study=study)}" for kind in kinds)
        yield note("failed", in_training, meanings=meanings)
    for base in study.bases:
        those = [name for name, other in study.baselines.items() if other == base]
        if study.failed[base] and those:
            yield note("baseline_failed", those, base=base)
    if tests := failing_tests(judged):
        yield note("fail_equally", tests="; ".join(tests))
    for condition in [name for name in study.conditions if name in stopped]:
        yield note("error", [condition], error=str(stopped[condition]).rstrip("."))


def failing_tests(judged: Judged) -> list[str]:
    """Failures in training against the baseline's, with Fisher's p, where both have such runs."""
    study, tests = judged.study, []
    for condition, p in judged.summary.p_failing.dropna().items():
        base = study.baselines[condition]
        (a, n_a), (b, n_b) = (training_failures(study.of(str(name))) for name in (condition, base))
        tests.append(f"{condition} {a} of {n_a} against {base} {b} of {n_b}, p = {p:.2g}")
    return tests


def about_seeds(judged: Judged) -> Iterator[Note]:
    """Too few of them, or not the same ones."""
    study, summary = judged.study, judged.summary
    few = list(summary.index[summary.n.between(1, 2) & (summary.failed == 0)])
    if few:
        yield note("few_seeds", few)
    for condition, base in study.baselines.items():
        if base and set(study.of(condition).index) != set(study.of(base).index):
            pairs = summary.pairs[condition]
            name = "few_pairs" if pairs < 3 else "other_seeds"
            yield note(name, [condition], condition=condition, base=base, pairs=pairs)


def about_comparison(study: Study) -> Iterator[Note]:
    """The baseline, the metric, and what else differs between conditions."""
    asked = {*study.bases, *(study.settings[base].get("norm") for base in study.bases)}
    if len(study.conditions) > 1 and study.wanted not in asked:
        yield note("other_baseline", base=study.bases[0])
    for condition in study.conditions:
        if condition not in study.bases and study.baselines[condition] is None:
            yield note("no_baseline", [condition], condition=condition, wanted=study.wanted)
    if study.metric == WITHOUT_TEST:
        yield note("no_test_split")
    if (study.table.role == "other rate").any():
        yield note("chosen_on_reported")
    trained = study.reported[study.reported.failure == ""]
    if trained.steps.nunique() > 1:
        groups = trained.groupby("condition", sort=False).steps
        each = ", ".join(f"{condition} {span(steps)}" for condition, steps in groups)
        yield note("other_lengths", each=each)


def about_training(judged: Judged) -> Iterator[Note]:
    """Training losses: spikes, and norms whose training sees what it is to predict."""
    study = judged.study
    spikes = list(judged.summary.index[judged.summary.spikes > 0])
    if spikes:
        yield note("spikes", spikes)
    if study.leaking:
        leaks = {condition: study.trained(condition).leak.mean() for condition in study.leaking}
        known = [f"{condition} {leak:.2g}" for condition, leak in leaks.items() if pd.notna(leak)]
        name = "leaking_by" if known else "leaking"
        yield note(name, study.leaking, names=", ".join(study.leaking), leaks="; ".join(known))


def about_rates(judged: Judged) -> Iterator[Note]:
    """Doubts about an optimum, rates that are not the optimum, and how the rates were searched."""
    for entry in judged.tuned:
        those, who = [entry.condition], {"condition": entry.condition}
        for warning in entry.warnings:
            yield note("doubtful_rate", those, warning=warning, **who)
        if entry.off_best:
            rates = ", ".join(f"{rate:g}" for rate in entry.used)
            yield note("off_best", those, rates=rates, seeds=entry.on, best=entry.best, **who)
        lengths = judged.study.of(entry.condition).max_steps
        if set(lengths.dropna()) - {entry.steps}:
            words = {"steps": entry.steps, "lengths": span(lengths)}
            yield note("rate_of_other_length", those, **words, **who)
    if len({(len(entry.rates), entry.rates.n.sum()) for entry in judged.tuned}) > 1:
        each = [
            f"{e.condition} {e.rates.n.sum()} runs at {len(e.rates)} rates" for e in judged.tuned
        ]
        yield note("unequal_search", each=", ".join(each))
    common = len(common_rates(judged.tuned))
    if judged.tuned and common < FEWEST_RATES:
        yield note("few_common_rates", n=common, fewest=FEWEST_RATES)
    tuning = judged.study.table[judged.study.table.role == "tuning"]
    if len(tuning):
        yield note("tuning_runs", n=len(tuning), seeds=tuning.seed.nunique())


def about_machines(study: Study) -> Iterator[Note]:
    """Runs that differ by more than what was swept."""
    runs = study.reported
    resumed = set(runs[runs.legs > 1].condition)
    if resumed:
        yield note("resumed", [name for name in study.conditions if name in resumed])
    words = {"device": "devices", "torch": "torch versions", "threads": "thread counts"}
    for column, what in (words | {"commit": "commits of the code"}).items():
        values = list(dict.fromkeys(str(v)[:12] for v in runs[column].dropna()))
        if len(values) > 1:
            yield note("different", what=what, values=", ".join(values))
    if runs.dirty.eq(True).any():
        yield note("dirty")


def about_runs(study: Study) -> Iterator[Note]:
    """Runs that are not in the tables, or that one would not expect there."""
    table = study.table
    repeats = sorted(table.index[table.role == "repeat"])
    if repeats:
        yield note("repeats", names=", ".join(repeats))
    if (table.seed[~table.role.isin(["tuning", "repeat"])] >= TUNING_SEEDS).any():
        yield note("tuning_seeds_reported")
    unreported = [name for name in dict.fromkeys(table.condition) if name not in study.conditions]
    if unreported and len(study.reported):
        yield note("only_tuning", names=", ".join(unreported))
    if study.runs.unstarted:
        yield note("unstarted", jobs="; ".join(study.runs.unstarted))
    if study.runs.skipped:
        yield note("not_read", names="; ".join(study.runs.skipped))
