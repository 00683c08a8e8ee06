"""The footnotes: what a reader has to know before believing a number."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import pandas as pd

from report.failures import BLOWN_UP, FAILED_TO_LEARN, NON_FINITE
from report.formatting import Table, span
from report.group import TUNING_SEEDS, WITHOUT_TEST, Study
from report.judge import Judged
from report.summary import training_failures

MEANING = {  # of report/failures.py, in a sentence
    FAILED_TO_LEARN: "Failed to learn: the final validation loss is less than 0.1 nats below the "
    "entropy of single characters ({study.entropy:.2f}), so the run learned little more than how "
    "frequent each character is; this also happens to runs that are too short.",
    BLOWN_UP: "Blown up: to the end, the training loss stayed above its start or above twice its "
    "minimum.",
    NON_FINITE: "Non-finite: the loss became NaN or infinite, and the run stopped there.",
}


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


def numbers_of(notes: list[Note], condition: str) -> list[int]:
    """The numbers of a condition's footnotes, counted from 1."""
    return [number for number, note in enumerate(notes, 1) if condition in note.conditions]


def with_numbers(table: Table, notes: list[Note]) -> Table:
    """The table with the numbers of footnotes after its conditions: `none [1,3]`."""
    if table.columns[0] != "condition":
        return table
    rows = []
    for condition, *cells in table.rows:
        numbers = ",".join(map(str, numbers_of(notes, condition)))
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
        text = (
            "A condition with a failed run has no mean, no interval and no difference: a mean over "
            "the seeds that survived would flatter it."
        )
        meanings = [MEANING[kind].format(study=study) for kind in kinds]
        yield Note(" ".join([text, *meanings]), in_training, "comparison")
    for base in study.bases:
        those = [name for name, other in study.baselines.items() if other == base]
        if study.failed[base] and those:
            text = f"The baseline {base} has a failed run, so no difference to it can be given."
            yield Note(text, those, "comparison")
    if tests := failing_tests(judged):
        text = "Do they fail equally often? Fisher's exact test, not adjusted for the number of"
        yield Note(f"{text} tests: {'; '.join(tests)}.", table="comparison")
    for condition in [name for name in study.conditions if name in stopped]:
        error = str(stopped[condition]).rstrip(".")
        text = f"An error stopped a run, which says nothing about training: {error}. To try failed "
        text += "jobs again, repeat the sweep's command with its hydra.sweep.dir."
        yield Note(text, [condition], "comparison")


def failing_tests(judged: Judged) -> list[str]:
    """Failures in training against the baseline's, with Fisher's p, where both have such runs."""
    study, tests = judged.study, []
    for condition, p in judged.summary.p_failing.dropna().items():
        base = study.baselines[condition]
        (a, n_a), (b, n_b) = (training_failures(study, str(name)) for name in (condition, base))
        tests.append(f"{condition} {a} of {n_a} against {base} {b} of {n_b}, p = {p:.2g}")
    return tests


def about_seeds(judged: Judged) -> Iterator[Note]:
    """Too few of them, or not the same ones."""
    study, summary = judged.study, judged.summary
    few = list(summary.index[summary.n.between(1, 2) & (summary.failed == 0)])
    if few:
        yield Note("With fewer than 3 seeds no interval can be given.", few, "comparison")
    for condition, base in study.baselines.items():
        if base and set(study.of(condition).index) != set(study.of(base).index):
            pairs = summary.pairs[condition]
            text = (
                f"{condition} and {base} do not have the same seeds; the difference is over the "
                f"{pairs} that both have."
            )
            if pairs < 3:
                text += " With fewer than 3 of them no interval can be given."
            yield Note(text, [condition], "comparison")


def about_comparison(study: Study) -> Iterator[Note]:
    """The baseline, the metric, and what else differs between conditions."""
    asked = {*study.bases, *(study.settings[base].get("norm") for base in study.bases)}
    if len(study.conditions) > 1 and study.wanted not in asked:
        text = f"Differences are taken to {study.bases[0]}; --baseline NAME chooses another."
        yield Note(text, table="comparison")
    for condition in study.conditions:
        if condition not in study.bases and study.baselines[condition] is None:
            text = f"{condition} has no baseline: no {study.wanted} run has the same settings."
            yield Note(text, [condition], "comparison")
    if study.metric == WITHOUT_TEST:
        text = (
            "There is no test split, so conditions are compared by their best validation loss. It "
            "is biased slightly downwards, because its step was chosen on the same text."
        )
        yield Note(text, table="comparison")
    if (study.table.role == "other rate").any():
        text = (
            "Each condition is shown at the learning rate whose validation loss was lowest on the "
            "seeds that are also reported. Its loss is biased slightly downwards, because the same "
            f"losses chose the rate; seeds from {TUNING_SEEDS} on are meant for tuning."
        )
        yield Note(text, table="comparison")
    trained = study.reported[study.reported.failure == ""]
    if trained.steps.nunique() > 1:
        groups = trained.groupby("condition", sort=False).steps
        each = ", ".join(f"{condition} {span(steps)}" for condition, steps in groups)
        text = f"Not all conditions were trained equally long; their steps are: {each}."
        yield Note(text, table="comparison")


def about_training(judged: Judged) -> Iterator[Note]:
    """Training losses: spikes, and norms whose training sees what it is to predict."""
    study = judged.study
    spikes = list(judged.summary.index[judged.summary.spikes > 0])
    if spikes:
        text = (
            "After the first tenth of the run, the training loss of at least one run rose above "
            "its start, or to twice its minimum, and came down again; such a run counts as trained."
        )
        yield Note(text, spikes, "losses")
    if study.leaking:
        text = (
            f"In training, the statistics of {', '.join(study.leaking)} include later characters, "
            "so the training loss (the curve) is helped by text that is to be predicted. All "
            "tables except that of batch statistics give losses in evaluation mode, where this "
            "is impossible."
        )
        leaks = {condition: study.trained(condition).leak.mean() for condition in study.leaking}
        known = [f"{condition} {leak:.2g}" for condition, leak in leaks.items() if pd.notna(leak)]
        if known:
            text += (
                " The size of this help (the leak, in nats per character at the end of training)"
            )
            text += f" is: {'; '.join(known)}."
        yield Note(text, study.leaking, "losses")


def about_rates(judged: Judged) -> Iterator[Note]:
    """Doubts about an optimum, rates that are not the optimum, and how the rates were searched."""
    for entry in judged.tuned:
        those = [entry.condition]
        for warning in entry.warnings:
            yield Note(f"Learning rate of {entry.condition}: {warning}.", those, "rates")
        if entry.off_best:
            rates = ", ".join(f"{rate:g}" for rate in entry.used)
            text = f"{entry.condition} ran at the learning rate {rates}; the best one on {entry.on}"
            yield Note(f"{text} is {entry.best:g}.", those, "comparison")
        lengths = judged.study.of(entry.condition).max_steps
        if set(lengths.dropna()) - {entry.steps}:
            text = (
                f"The learning rate of {entry.condition} was chosen by runs of {entry.steps:.0f} "
                f"steps, but the reported runs have {span(lengths)}."
            )
            yield Note(text, those, "rates")
    if len({(len(entry.rates), entry.rates.n.sum()) for entry in judged.tuned}) > 1:
        each = [
            f"{e.condition} {e.rates.n.sum()} runs at {len(e.rates)} rates" for e in judged.tuned
        ]
        text = f"The search was not the same for all conditions: {', '.join(each)}."
        yield Note(text, table="rates")
    tuning = int((judged.study.table.role == "tuning").sum())
    if tuning:
        text = (
            f"The {tuning} runs on tuning seeds ({TUNING_SEEDS} and above) chose the learning "
            "rates and are not used in any other table."
        )
        yield Note(text, table="rates")


def about_machines(study: Study) -> Iterator[Note]:
    """Runs that differ by more than what was swept."""
    runs = study.reported
    resumed = set(runs[runs.legs > 1].condition)
    if resumed:
        text = (
            "At least one run was resumed: its seconds and tokens_per_second in runs.csv add up "
            "several starts, perhaps on different machines."
        )
        those = [condition for condition in study.conditions if condition in resumed]
        yield Note(text, those, "settings")
    words = {"device": "devices", "torch": "torch versions", "threads": "thread counts"}
    for column, word in (words | {"commit": "commits of the code"}).items():
        values = list(dict.fromkeys(str(v)[:12] for v in runs[column].dropna()))
        if len(values) > 1:
            text = f"The runs have different {word} ({', '.join(values)}), which may change losses."
            yield Note(text, table="settings")
    if runs.dirty.eq(True).any():
        text = "Some runs were made with changes to the code that are not in any commit."
        yield Note(text, table="settings")


def about_runs(study: Study) -> Iterator[Note]:
    """Runs that are not in the tables, or that one would not expect there."""
    table = study.table
    repeats = sorted(table.index[table.role == "repeat"])
    if repeats:
        text = "These runs were left out because the same condition and seed already has a run"
        yield Note(f"{text}: {', '.join(repeats)}.", table="seeds")
    if (table.seed[~table.role.isin(["tuning", "repeat"])] >= TUNING_SEEDS).any():
        text = (
            f"Seeds from {TUNING_SEEDS} on are meant for tuning. No learning rate was swept on "
            "them here, so they are reported like all others."
        )
        yield Note(text, table="seeds")
    unreported = [name for name in dict.fromkeys(table.condition) if name not in study.conditions]
    if unreported and len(study.reported):
        text = f"These conditions have tuning runs only so far: {', '.join(unreported)}."
        yield Note(text, table="comparison")
    if study.runs.skipped:
        yield Note(f"These folders were not read: {'; '.join(study.runs.skipped)}.")
