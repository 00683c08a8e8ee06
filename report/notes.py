"""What a reader has to know before believing a number: the headline and the footnotes."""

import math
import shlex
from dataclasses import dataclass, field

import pandas as pd

from report.failures import BLOWN_UP, FAILED_TO_LEARN, NON_FINITE
from report.rates import Tuned
from report.study import Study
from report.summary import training_failures

MEANING = {  # of report/failures.py, in a sentence
    FAILED_TO_LEARN: "Failed to learn: the final validation loss is not 0.1 nats below the entropy "
    "of single characters ({study.entropy:.2f}), so the run learned no more than how frequent each "
    "is; also true of a run too short to learn.",
    BLOWN_UP: "Blown up: to the end the training loss stayed above its start, or above twice its "
    "minimum.",
    NON_FINITE: "Non-finite: the loss became NaN or infinite, and the run stopped there.",
}
CHOSEN_THERE = ("experiment", "optimizer.lr")  # by the tuning command itself


@dataclass(frozen=True)
class Headline:
    """The page's first sentences; `unjudged` says why claims may not be judged, if so."""

    text: str
    command: str = ""
    unjudged: str = ""


@dataclass(frozen=True)
class Note:
    """A footnote; `conditions` are those whose rows carry its number (none: it is about all)."""

    text: str
    conditions: list[str] = field(default_factory=list)


def headline(study: Study, tuned: list[Tuned]) -> Headline:
    """What kind of comparison this is: at one learning rate, or at each norm's own."""
    conditions = study.reported
    if conditions.empty:
        text = "Tuning runs only: they choose the learning rates, and no norm is compared by them."
        return Headline(text, unjudged="tuning runs only")
    of_conditions = conditions.drop_duplicates("condition").set_index("condition").norm
    norms = list(dict.fromkeys(of_conditions.reindex(study.conditions).dropna()))
    if len(norms) < 2:
        return Headline(
            f"{len(study.conditions)} condition{'s' * (len(study.conditions) != 1)}, one norm."
        )
    rates = sorted(conditions.lr.dropna().unique())
    elsewhere = [entry.condition for entry in tuned if ran_elsewhere(study, entry)]
    missing = [
        condition
        for condition in study.conditions
        if condition not in {entry.condition for entry in tuned}
    ]
    if not missing and not elsewhere:
        return Headline(at_their_own(tuned))
    command = tuning_command(study)
    if not tuned and len(rates) == 1:
        text = (
            f"{'Both' if len(norms) == 2 else f'All {len(norms)}'} norms ran at one learning rate, "
            f"{rates[0]:g}. Each norm has a best rate of its own, so this page says what happens "
            "at this rate and does not rank the norms."
        )
        return Headline(text, command, "one learning rate for all norms")
    if not tuned:
        text = (
            "The norms were trained at different learning rates; the runs that chose these rates "
            "are not among the folders, so nothing here shows that each norm is at its best."
        )
    elif missing:
        text = (
            f"The learning rate was searched for some norms only, not for {', '.join(missing)}: "
            "those may look worse than they are."
        )
    else:
        text = (
            f"The learning rate was searched for each norm, but {', '.join(elsewhere)} did not run "
            "at the best one that was found."
        )
    return Headline(text, command, "not every norm is at the best learning rate found for it")


def ran_elsewhere(study: Study, entry: Tuned) -> bool:
    """Did a condition's reported runs use another rate than its best?"""
    used = study.of(entry.condition).lr.dropna()
    return any(not math.isclose(rate, entry.best) for rate in used)


def at_their_own(tuned: list[Tuned]) -> str:
    """Each at its best rate; where the search ended at an edge, that is said at once."""
    text = (
        "Each norm is shown at its own learning rate: the one with the lowest validation loss "
        "among those tried."
    )
    at_edge = [entry.condition for entry in tuned if entry.best in (entry.rates.index[[0, -1]])]
    if at_edge:
        text += f" For {', '.join(at_edge)} that is the lowest or highest rate tried."
    return text


def tuning_command(study: Study) -> str:
    """The command that gives each norm of these runs a learning rate of its own."""
    lines = ["python train.py experiment=tune"]
    for key, overrides in study.runs.typed.items():
        if key not in CHOSEN_THERE:
            others = (override.partition("=")[2] for override in overrides[1:])
            part = shlex.quote(",".join([overrides[0], *others]))
            if len(lines[-1]) + len(part) > 75:  # of 80, with a blank and the backslash
                lines.append("   ")
            lines[-1] += f" {part}"
    return " \\\n".join(lines)


def footnotes(study: Study, summary: pd.DataFrame, tuned: list[Tuned]) -> list[Note]:
    """Every reason why a number is not what it seems."""
    notes = [
        *about_failures(study, summary),
        *about_seeds(study, summary),
        *about_training_loss(study),
        *about_lengths(study, summary),
        *about_rates(study, tuned),
        *about_time(study),
        *about_machines(study),
        *(Note(text) for text in study.notes),
    ]
    if study.skipped:
        notes.append(Note(f"Not read: {'; '.join(study.skipped)}."))
    return notes


def about_failures(study: Study, summary: pd.DataFrame) -> list[Note]:
    """Failed and spiking runs."""
    notes = []
    broken = set(study.reported[study.reported.failure == "error"].condition)
    failed = [
        condition for condition in summary.index[summary.failed > 0] if condition not in broken
    ]
    if failed:
        text = (
            "A condition with a failed run has no mean, no interval and no difference: a mean over "
            "the seeds that survived would flatter it."
        )
        kinds = set(study.reported.failure) & set(MEANING)
        text += "".join(f" {MEANING[kind].format(study=study)}" for kind in sorted(kinds))
        notes.append(Note(text, failed))
    bases = {base for base in study.baselines.values() if base}
    for base in bases & set(summary.index[summary.failed > 0]):
        text = f"{base}, the baseline, has a failed run: no difference to it can be taken."
        notes.append(
            Note(text, [condition for condition, b in study.baselines.items() if b == base])
        )
    if tests := failing_tests(study, summary):
        text = (
            f"Do they fail equally often? Fisher's exact test, not adjusted for the number of "
            f"tests: {'; '.join(tests)}."
        )
        notes.append(Note(text))
    for condition in study.conditions:
        rows = study.of(condition)[study.of(condition).failure == "error"]
        if len(rows):
            text = f"Stopped by an error, not by training: {str(rows.error.iloc[0]).rstrip('.')}. "
            text += "Failed jobs are tried again by the sweep's command with its hydra.sweep.dir."
            notes.append(Note(text, [condition]))
    spikes = list(summary.index[summary.spikes > 0])
    if spikes:
        text = (
            "After the first tenth of the run, the training loss of at least one run rose above "
            "its start, or to twice its minimum, and came down again; the run counts as trained."
        )
        notes.append(Note(text, spikes))
    return notes


def failing_tests(study: Study, summary: pd.DataFrame) -> list[str]:
    """Failures in training against the baseline's, with Fisher's p, where both have such runs."""
    tests = []
    for condition, p in summary.p_failing.dropna().items():
        base = summary.baseline[condition]
        (a, n_a), (b, n_b) = (training_failures(study, str(name)) for name in (condition, base))
        tests.append(f"{condition} {a} of {n_a} against {base} {b} of {n_b}, p = {p:.2g}")
    return tests


def about_seeds(study: Study, summary: pd.DataFrame) -> list[Note]:
    """Too few of them, or not the same ones."""
    notes = []
    few = list(summary.index[summary.n.between(1, 2) & (summary.failed == 0)])
    if few:
        notes.append(Note("Fewer than 3 seeds: no interval can be given.", few))
    for condition, base in study.baselines.items():
        if base and set(study.of(condition).index) != set(study.of(base).index):
            pairs = summary.pairs[condition]
            text = f"Not all seeds are also {base}'s; the difference is over the {pairs} that are."
            if pairs < 3:
                text += " Fewer than 3 give no interval."
            notes.append(Note(text, [condition]))
    return notes


def about_training_loss(study: Study) -> list[Note]:
    """A norm whose training sees what it is to predict, and what that is worth to it."""
    runs = study.reported
    leaking = set(runs[runs.causal_in_training.eq(False)].condition)
    if not leaking:
        return []
    conditions = [condition for condition in study.conditions if condition in leaking]
    text = (
        f"The statistics of {', '.join(conditions)} include later characters while training, so the "
        "training loss (the curve) is helped by text that is to be predicted. Losses are taken in "
        "evaluation mode, where that cannot be, in all tables but that on batch statistics."
    )
    leaks = {condition: study.of(condition).leak.mean() for condition in conditions}
    known = [f"{condition} {leak:.2g}" for condition, leak in leaks.items() if pd.notna(leak)]
    if known:
        text += " The help (the leak, nats per character at the end of training): "
        text += f"{'; '.join(known)}."
    return [Note(text, conditions)]


def about_lengths(study: Study, summary: pd.DataFrame) -> list[Note]:
    """Conditions that were not trained equally long."""
    runs = study.reported[study.reported.failure == ""]
    if runs.steps.nunique() < 2:
        return []
    each = [
        f"{condition} {span(rows.steps)}"
        for condition, rows in runs.groupby("condition", sort=False)
    ]
    return [Note(f"Not all trained equally long, in steps: {', '.join(each)}.")]


def about_rates(study: Study, tuned: list[Tuned]) -> list[Note]:
    """Doubts about an optimum, and rates that are not the optimum."""
    notes = [
        Note(f"Learning rate of {entry.condition}: {warning}.", [entry.condition])
        for entry in tuned
        for warning in entry.warnings
    ]
    for entry in tuned:
        used = study.of(entry.condition)
        if ran_elsewhere(study, entry):
            rates = ", ".join(f"{rate:g}" for rate in sorted(used.lr.dropna().unique()))
            text = f"{entry.condition} ran at {rates}; its best on {entry.on} is {entry.best:g}."
            notes.append(Note(text, [entry.condition]))
        lengths = sorted(set(used.max_steps.dropna()) - {entry.steps})
        if lengths:
            text = f"The rate of {entry.condition} was chosen by runs of {entry.steps:.0f} steps; "
            text += f"it ran for {span(used.max_steps)}."
            notes.append(Note(text, [entry.condition]))
    if len({(len(entry.rates), entry.rates.n.sum()) for entry in tuned}) > 1:
        each = [f"{e.condition} {e.rates.n.sum()} runs at {len(e.rates)} rates" for e in tuned]
        notes.append(Note(f"The tuning was not the same for all: {', '.join(each)}."))
    return notes


def about_time(study: Study) -> list[Note]:
    """What wall clock is worth."""
    text = (
        "Times include the effect of whatever else ran on the machine, other jobs of the sweep "
        "too; they do not measure the norm alone."
    )
    resumed = study.reported[study.reported.legs > 1]
    notes = [Note(text)] if len(study.reported) else []
    if len(resumed):
        text = (
            "At least one run was resumed: its seconds and tokens/s add up several legs, each with "
            "a start of its own, perhaps on different machines."
        )
        notes.append(
            Note(
                text,
                [
                    condition
                    for condition in study.conditions
                    if condition in set(resumed.condition)
                ],
            )
        )
    return notes


def about_machines(study: Study) -> list[Note]:
    """Runs that differ by more than what was swept."""
    notes = []
    runs = study.reported
    words = {"device": "devices", "torch": "torch versions", "threads": "thread counts"}
    for column, word in (words | {"commit": "commits of the code"}).items():
        values = list(dict.fromkeys(str(v)[:12] for v in runs[column].dropna()))
        if len(values) > 1:
            text = f"Mixed {word}: {', '.join(values)}. Losses may differ by these too."
            notes.append(Note(text))
    if runs.dirty.eq(True).any():
        notes.append(Note("Some runs were made with changes that are not in any commit."))
    return notes


def span(values: "pd.Series[float]") -> str:
    """`500`, or `300 to 500`."""
    low, high = values.min(), values.max()
    return f"{low:.0f}" if low == high else f"{low:.0f} to {high:.0f}"
