"""What a claim compares: one number for each seed of a condition.

test_best                   any loss of result.json, in nats per character; also gap, leak
val_final - val_best        the difference of two of them
lr_sensitivity              mean loss over the rates that all conditions have, minus the lowest
steps                       to the same loss, a ratio (report/budgets.py)
probe/NAME                  what a probe logged last: the mean over its layers
probe/NAME/2                ... or one layer
"""

import re

import numpy as np
import pandas as pd

from report.group import Study
from report.summary import LOSSES

STEPS, SENSITIVITY = "steps", "lr_sensitivity"
SEARCH = ("tuning", "reported", "other rate")  # the roles of runs at a condition's full length


def unknown_metric(metric: str) -> str:
    """What is wrong with the name of a metric, "" if nothing is."""
    known = [*LOSSES, STEPS, SENSITIVITY]
    parts = metric.split(" - ")
    difference = len(parts) == 2 and set(parts) <= set(LOSSES)
    if metric in ("", *known) or difference or re.fullmatch(r"probe/\S+", metric):
        return ""
    return (
        f"metric must be one of {', '.join(known)}, the difference of two of these losses "
        f"(val_final - val_best), or probe/NAME, got {metric}"
    )


def measure(study: Study, runs: pd.DataFrame, metric: str) -> "pd.Series[float]":
    """A metric of some runs, whose names are in the column `run`; the index is theirs."""
    if metric.startswith("probe/"):
        values = [last_of_probe(study.runs.curves[run], metric) for run in runs.run]
        return pd.Series(values, runs.index, dtype=float)
    first, _, second = metric.partition(" - ")
    return runs[first] - runs[second] if second else runs[first]


def last_of_probe(curves: pd.DataFrame, metric: str) -> float:
    """The last value of each layer that fits, averaged."""
    fits = [name for name in curves.columns if metric in (name, family(name))]
    return float(curves[fits].ffill().iloc[-1].mean()) if fits else np.nan


def family(name: str) -> str:
    """A probe's name without its layer."""
    return re.sub(r"[/._-]?\d+$", "", name)


def at_common_rates(study: Study, conditions: list[str], tuning: bool) -> dict[str, pd.DataFrame]:
    """Each condition's runs at the learning rates that all of them have, at its greatest length.

    With `tuning` also those on tuning seeds.
    """
    found = {}
    for condition in conditions:
        rows = study.table[study.table.condition == condition]
        rows = rows[rows.role.isin(SEARCH if tuning else SEARCH[1:])]
        rows = rows[rows.max_steps == rows.max_steps.max()]
        found[condition] = rows.assign(run=rows.index).set_index("seed")
    rates = set.intersection(*(set(rows.lr.dropna()) for rows in found.values()))
    return {condition: rows[rows.lr.isin(rates)] for condition, rows in found.items()}


def sensitivities(runs: pd.DataFrame) -> "pd.Series[float]":
    """Per seed: mean over the rates of min(loss, loss at the start), minus the lowest of these."""
    capped = runs.val_best.where(runs.failure == "", np.inf).clip(upper=runs.loss_initial)
    by_rate = runs.assign(capped=capped).pivot_table(index="seed", columns="lr", values="capped")
    return (by_rate.mean(axis=1) - by_rate.min(axis=1))[by_rate.notna().all(axis=1)]
