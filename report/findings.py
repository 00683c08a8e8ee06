"""The report's first sentences, and the command that tunes each norm's learning rate."""

import shlex
from collections.abc import Iterable

from report.judge import Judged
from report.rates import NOT_AT_BEST, ONE_RATE, TUNING_ONLY

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
    """Each norm at its best rate; where the search ended at an edge, that is said at once."""
    found = [
        "Each norm is shown at its own learning rate: the one with the lowest validation loss "
        "among those that were tried."
    ]
    at_edge = [entry.condition for entry in judged.tuned if entry.at_edge]
    if at_edge:
        found.append(f"For {', '.join(at_edge)} this is the lowest or the highest rate tried.")
    return found


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
