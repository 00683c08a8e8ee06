"""The first sentences, to be read aloud, and the command that tunes each learning rate."""

import shlex
from collections.abc import Iterable

from report.claims import Claim
from report.formatting import percent
from report.judge import Judged
from report.rates import NOT_AT_BEST, ONE_RATE, TUNING_ONLY

NAMES, MARGIN = "{names}", Claim.margin  # nats per character
CHOSEN_THERE = ("experiment", "optimizer.lr")  # by the tuning command itself


def findings(judged: Judged) -> list[str]:
    """What kind of comparison this is: at one learning rate, or at each norm's own."""
    study = judged.study
    if judged.unjudged == TUNING_ONLY:
        return [
            "These are tuning runs only: they choose the learning rates, and no norms are "
            "compared by them."
        ]
    if len(study.conditions) < 2:
        return [f"These runs are of one condition, {study.conditions[0]}."]
    if judged.unjudged == ONE_RATE:
        rate, n = study.reported.lr.dropna().iloc[0], len(study.conditions)
        what = "norm" if len(study.norms) == n else "condition"
        return [
            f"{'Both' if n == 2 else f'All {n}'} {what}s ran at one learning rate, {rate:g}.",
            f"Each {what} has a best rate of its own, so this page says what happens at this rate "
            f"and does not rank the {what}s.",
        ]
    return not_at_best(judged) if judged.unjudged else at_their_own(judged)


def at_their_own(judged: Judged) -> list[str]:
    """What the runs say of each condition at its best rate, and on what this rests."""
    return [
        *differences(judged),
        "Each condition is shown at its own learning rate, chosen by the validation loss among "
        f"those that were tried; what is said of differences rests on {percent(judged.level)} "
        "intervals.",
    ]


def differences(judged: Judged) -> list[str]:
    """Each condition against its baseline; those with the same answer share a sentence."""
    answers: dict[str, list[str]] = {}
    for condition in judged.study.conditions:
        if base := judged.study.baselines[condition]:
            answers.setdefault(answer(judged, condition, base), []).append(condition)
    return [said.replace(NAMES, " and ".join(names)) for said, names in answers.items()]


def answer(judged: Judged, condition: str, base: str) -> str:
    """One condition's answer: larger than the margin, within it, or not to be told."""
    study, row = judged.study, judged.summary.loc[condition]
    for name in (condition, base):
        if study.failed[name]:
            n = len(study.of(name))
            return f"{study.failed[name]} of {n} runs of {name} failed, so it has no difference."
    edges = [entry.condition for entry in judged.tuned if entry.at_edge]
    for name in (condition, base):
        if name in edges:
            return (
                f"The best learning rate of {name} is the lowest or the highest that was tried, so "
                "no difference to it is given."
            )
    of, limit = f"the {study.metric_name} of {NAMES}", f"{MARGIN:g} nats per character"
    low, high = row.difference_low, row.difference_high
    if high < -MARGIN or low > MARGIN:
        side = "lower" if high < 0 else "higher"
        return f"T{of[1:]} is {side} than that of {base} by more than {limit}."
    if -MARGIN < low and high < MARGIN:
        return f"T{of[1:]} is within {limit} of that of {base}."
    unknown = f"From these runs nobody can tell whether {of} is"
    if low > -MARGIN or high < MARGIN:
        side, other = ("higher", "lower") if low > -MARGIN else ("lower", "higher")
        unknown += f" {side} than that of {base} by more than {limit}"
        return f"{unknown}, but it is not {other} by so much."
    return f"{unknown} lower or higher than that of {base} by more than {limit}, or neither."


def not_at_best(judged: Judged) -> list[str]:
    """Why not every norm is at its best rate."""
    if not judged.tuned:
        return [
            "The norms were trained at different learning rates.",
            "The runs that chose these rates are not in the folders given, so nothing here shows "
            "that each norm is at its best.",
        ]
    searched = {entry.condition for entry in judged.tuned}
    missing = [condition for condition in judged.study.conditions if condition not in searched]
    if missing:
        return [
            f"The learning rate was searched for some norms only, not for {', '.join(missing)}: "
            "those may look worse than they are."
        ]
    elsewhere = [entry.condition for entry in judged.tuned if entry.off_best]
    return [
        f"The learning rate was searched for each norm, but {', '.join(elsewhere)} did not run at "
        "the best rate that was found."
    ]


def tuning_command(judged: Judged) -> str:
    """The command that finds a learning rate for each norm of these runs; "" if none is needed."""
    if judged.unjudged not in (ONE_RATE, NOT_AT_BEST):
        return ""
    parts = ["python", "train.py", "experiment=tune"]
    for key, overrides in judged.study.runs.typed.items():
        if key not in CHOSEN_THERE:
            others = (override.partition("=")[2] for override in overrides[1:])
            parts.append(shlex.quote(",".join([overrides[0], *others])))
    return wrapped(parts)


def wrapped(parts: Iterable[str]) -> str:
    """A shell command on lines of at most 80 characters."""
    first, *others = parts
    lines = [first]
    for part in others:
        if len(lines[-1]) + len(part) > 75:  # of 80, with a blank and the backslash
            lines.append("   ")
        lines[-1] += f" {part}"
    return " \\\n".join(lines)
