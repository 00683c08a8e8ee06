"""Where the learning rate was swept: each condition's optimum, with warnings."""

import math
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from report.group import Study, capped, loss_by_rate, optimum
from report.intervals import basin_width, lr_sensitivity
from report.optimum import Optimum

TUNING_ONLY = "there are only tuning runs"
FEWEST_RATES = 3  # for a sensitivity
ONE_RATE = "all conditions ran at one learning rate"
NOT_AT_BEST = "not every condition ran at the best learning rate that was found for it"


@dataclass(frozen=True)
class Tuned:
    """A condition's losses over learning rates.

    Attributes:
        condition: its name.
        on: `tuning seeds` or `reported seeds`.
        rates: one row per rate: n, failed, mean, sd (best validation loss, nats per character),
            capped (failed seeds at their last loss, at most that at the start).
        seeds: every run's rate and loss (`lr`, `capped`), and whether it failed.
        optimum: the choice (report/optimum.py).
        best: what it chose; on reported seeds, where each rate is one that ran, the lowest mean.
        steps: of the runs.
        used: the rates of the condition's reported runs.
        warnings: what makes the optimum doubtful, one clause each.
        sensitivity: Wortsman's, in nats per character, over the rates that all conditions have; NaN
            if these are fewer than 3 or no run trained.
        basin: log10 span of those rates within 0.02 nats of the lowest; NaN likewise.
    """

    condition: str
    on: str
    rates: pd.DataFrame
    seeds: pd.DataFrame
    optimum: Optimum
    best: float
    steps: float
    used: list[float]
    warnings: list[str]
    sensitivity: float = np.nan
    basin: float = np.nan

    @property
    def off_best(self) -> bool:
        """Did the reported runs use another rate than the best, or the one of the lowest mean?"""
        good = (self.best, self.optimum.lowest)
        return not all(any(math.isclose(rate, of) for of in good) for rate in self.used)

    @property
    def at_edge(self) -> bool:
        """Is the best rate the lowest or the highest of those tried?"""
        return bool(self.optimum.edge)


def tuned_conditions(study: Study) -> list[Tuned]:
    """Every condition that has runs at two learning rates or more, at its greatest length."""
    found = []
    for condition in dict.fromkeys([*study.conditions, *study.table.condition]):
        on, rows = study.searched(condition)
        if on:
            used = sorted(study.of(condition).lr.dropna().unique())
            found.append(tuned(condition, on, rows, used))
    return with_widths(found)


def tuned(condition: str, on: str, rows: pd.DataFrame, used: list[float]) -> Tuned:
    """One condition's best rate, from its runs on tuning or else on reported seeds."""
    rates, found = loss_by_rate(rows), optimum(rows)
    return Tuned(
        condition=condition,
        on=on,
        rates=rates,
        seeds=rows.assign(capped=capped(rows), failed=rows.failure != ""),
        optimum=found,
        best=found.rate if on == "tuning seeds" else float(rates.capped.idxmin()),
        steps=float(rows.max_steps.max()),
        used=used,
        warnings=doubts(found),
    )


def doubts(found: Optimum) -> list[str]:
    """What a reader has to know about a best rate."""
    said = [f"{found.doubt}, and no difference to it is given"] if found.doubt else []
    unsound = ", ".join(f"{rate:g}" for rate in found.unsound)
    if unsound and not found.spoiled:
        said.append(
            f"a seed failed, or ended far above the others, at {unsound}; what is at such a rate "
            "and above it took no part in the choice"
        )
    if found.cliff:
        said.append("losses rise steeply just above the best rate, so a lower one was chosen")
    return said


def common_rates(tuned: list[Tuned]) -> list[float]:
    """The rates that all conditions have, whatever each was refined by."""
    return sorted(set.intersection(*(set(entry.rates.index) for entry in tuned))) if tuned else []


def with_widths(tuned: list[Tuned]) -> list[Tuned]:
    """Sensitivity and basin over the common rates: over others they differ by design."""
    common = common_rates(tuned)
    widths = []
    for entry in tuned:
        rates = entry.rates.loc[common]
        if len(common) >= FEWEST_RATES and (rates.failed < rates.n).any():
            losses = rates.capped.to_numpy()  # none above the loss at the start
            basin = basin_width(np.array(common), losses)
            entry = replace(entry, sensitivity=lr_sensitivity(losses, np.inf), basin=basin)
        widths.append(entry)
    return widths


def why_unjudged(study: Study, tuned: list[Tuned]) -> str:
    """Why these runs cannot rank the norms or judge a claim; "" if they can."""
    if study.reported.empty:
        return TUNING_ONLY
    if len(study.conditions) < 2:
        return ""
    searched = {entry.condition for entry in tuned}
    if searched >= set(study.conditions) and not any(entry.off_best for entry in tuned):
        return ""
    return ONE_RATE if not tuned and study.reported.lr.nunique() == 1 else NOT_AT_BEST
