"""What a reader has to know before believing a number: the headline and the footnotes."""

import math
import shlex
from dataclasses import dataclass, field

import pandas as pd

from report.rates import Tuned
from report.study import Study

CHOSEN_THERE = ("experiment", "optimizer.lr")  # by the tuning command itself


@dataclass(frozen=True)
class Headline:
    """The page's first sentences; `verdicts` says whether claims may be judged."""

    text: str
    command: str = ""
    verdicts: bool = True


@dataclass(frozen=True)
class Note:
    """A footnote; `arms` are those whose rows carry its number (none: it is about all)."""

    text: str
    arms: list[str] = field(default_factory=list)


def headline(study: Study, tuned: list[Tuned]) -> Headline:
    """What kind of comparison this is: at one learning rate, or at each norm's own."""
    arms = study.reported
    if arms.empty:
        text = "Tuning runs only: they choose the learning rates, and no norm is compared by them."
        return Headline(text, verdicts=False)
    norms = list(dict.fromkeys(arms.set_index("arm").norm.dropna()[study.arms]))
    if len(norms) < 2:
        return Headline(f"{len(study.arms)} condition{'s' * (len(study.arms) != 1)}, one norm.")
    rates = sorted(arms.lr.dropna().unique())
    searched = {entry.arm for entry in tuned}
    if set(study.arms) <= searched:
        return Headline(
            "Each norm is shown at its own learning rate: the one with the lowest validation loss "
            "among those tried."
        )
    command = tuning_command(study)
    if len(rates) == 1:
        text = (
            f"All {len(norms)} norms were trained at one learning rate, {rates[0]:g}. Each norm "
            "has a best rate of its own, so this page says what happens at this rate and does not "
            "rank the norms."
        )
        return Headline(text, command, verdicts=False)
    if not searched:
        text = (
            "The norms were trained at different learning rates; the runs that chose these rates "
            "are not among the folders, so nothing here shows that each norm is at its best."
        )
    else:
        missing = ", ".join(arm for arm in study.arms if arm not in searched)
        text = (
            f"The learning rate was searched for some norms only, not for {missing}: "
            "those may look worse than they are."
        )
    return Headline(text, command, verdicts=False)


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
        *about_training_loss(study, summary),
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
    failed = list(summary.index[summary.failed > 0])
    if failed:
        text = (
            "A condition with a failed run has no mean, no interval and no difference: a mean over "
            "the seeds that survived would flatter it."
        )
        tests = [
            f"{arm} against {summary.baseline[arm]} p = {p:.2g}"
            for arm, p in summary.p_failing.dropna().items()
        ]
        if tests:
            text += f" Do they fail equally often? Fisher's exact test: {'; '.join(tests)}."
        notes.append(Note(text, failed))
    errors = study.reported[study.reported.failure == "error"]
    for arm, rows in errors.groupby("arm", sort=False):
        notes.append(Note(f"Stopped by an error, not by training: {rows.error.iloc[0]}", [arm]))
    spikes = list(summary.index[summary.spikes > 0])
    if spikes:
        text = (
            "The training loss of at least one run rose above its start, or to twice its minimum, "
            "and came down again; the run counts as trained."
        )
        notes.append(Note(text, spikes))
    return notes


def about_seeds(study: Study, summary: pd.DataFrame) -> list[Note]:
    """Too few of them, or not the same ones."""
    notes = []
    few = list(summary.index[summary.n.between(1, 2) & (summary.failed == 0)])
    if few:
        notes.append(Note("Fewer than 3 seeds: no interval can be given.", few))
    unlike = [
        arm
        for arm, base in study.baselines.items()
        if base and set(study.of(arm).index) != set(study.of(base).index)
    ]
    if unlike:
        text = "Not all seeds are in both; the difference is over those that are."
        notes.append(Note(text, unlike))
    return notes


def about_training_loss(study: Study, summary: pd.DataFrame) -> list[Note]:
    """A norm whose training sees what it is to predict."""
    runs = study.reported
    leaking = [
        arm for arm in study.arms if runs[runs.arm == arm].causal_in_training.eq(False).any()
    ]
    if not leaking:
        return []
    text = (
        "While training, this norm averages over later characters too: its training loss (the "
        "curve) is helped by text that it should predict. Losses in the tables are all taken in "
        "evaluation mode, where it sees none of that{}."
    )
    known = summary.leak[leaking].dropna()
    size = "; ".join(f"{arm} {leak:.2g}" for arm, leak in known.items())
    but = " (but for the column with batch statistics)" if len(known) else ""
    text = text.format(but)
    if size:
        text += f" The help (the leak, nats per character at the end of training): {size}."
    return [Note(text, leaking)]


def about_lengths(study: Study, summary: pd.DataFrame) -> list[Note]:
    """Conditions that were not trained equally long."""
    runs = study.reported[study.reported.failure == ""]
    if runs.steps.nunique() < 2:
        return []
    each = [f"{arm} {span(rows.steps)}" for arm, rows in runs.groupby("arm", sort=False)]
    return [Note(f"Not all trained equally long, in steps: {', '.join(each)}.")]


def about_rates(study: Study, tuned: list[Tuned]) -> list[Note]:
    """Doubts about an optimum, and rates that are not the optimum."""
    notes = [
        Note(f"Learning rate of {entry.arm}: {warning}.", [entry.arm])
        for entry in tuned
        for warning in entry.warnings
    ]
    for entry in tuned:
        used = study.of(entry.arm).lr.dropna().unique()
        if entry.on == "tuning seeds" and len(used) and not math.isclose(used[0], entry.best):
            text = f"{entry.arm} ran at {used[0]:g}; its best on tuning seeds is {entry.best:g}."
            notes.append(Note(text, [entry.arm]))
    if len({(len(entry.rates), entry.rates.n.sum()) for entry in tuned}) > 1:
        each = [f"{e.arm} {e.rates.n.sum()} runs at {len(e.rates)} rates" for e in tuned]
        notes.append(Note(f"The tuning was not the same for all: {', '.join(each)}."))
    return notes


def about_time(study: Study) -> list[Note]:
    """What wall clock is worth."""
    text = (
        "Times are those of the jobs themselves: whatever else ran on the machine, jobs side by "
        "side included, is in them. They are no measurement of the norm alone."
    )
    resumed = study.reported[study.reported.legs > 1]
    notes = [Note(text)] if len(study.reported) else []
    if len(resumed):
        text = (
            "At least one run was resumed: its seconds and tokens/s add up several legs, each with "
            "a start of its own, perhaps on different machines."
        )
        notes.append(Note(text, [arm for arm in study.arms if arm in set(resumed.arm)]))
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
