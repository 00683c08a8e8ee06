"""Where the learning rate was swept: each condition's optimum, with warnings."""

import math
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from report.group import Study, loss_by_rate
from report.intervals import basin_width, lr_sensitivity

NEIGHBOUR = 1.5  # rates closer than this are a factor of sqrt 2 apart
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
        best: the rate whose `capped` is lowest.
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
    best: float
    steps: float
    used: list[float]
    warnings: list[str]
    sensitivity: float = np.nan
    basin: float = np.nan

    @property
    def off_best(self) -> bool:
        """Did the reported runs use another rate than the best?"""
        return any(not math.isclose(rate, self.best) for rate in self.used)

    @property
    def at_edge(self) -> bool:
        """Is the best rate the lowest or the highest of those tried?"""
        return self.best in (self.rates.index[0], self.rates.index[-1])


def tuned_conditions(study: Study) -> list[Tuned]:
    """Every condition that has runs at two learning rates or more, at its greatest length."""
    seeds = {"tuning seeds": ["tuning"], "reported seeds": ["reported", "other rate"]}
    found = []
    for condition in dict.fromkeys([*study.conditions, *study.table.condition]):
        runs = study.table[study.table.condition == condition]
        used = sorted(study.of(condition).lr.dropna().unique())
        for on, roles in seeds.items():
            rows = runs[runs.role.isin(roles)]
            rows = rows[rows.max_steps == rows.max_steps.max()]
            if rows.lr.nunique() > 1:
                found.append(optimum(condition, on, rows, used))
                break
    return with_widths(found)


def optimum(condition: str, on: str, rows: pd.DataFrame, used: list[float]) -> Tuned:
    """One condition's best rate, from its runs on tuning or else on reported seeds."""
    rates = loss_by_rate(rows)
    return Tuned(
        condition=condition,
        on=on,
        rates=rates,
        best=float(rates.capped.idxmin()),
        steps=float(rows.max_steps.max()),
        used=used,
        warnings=doubts(rates),
    )


def doubts(rates: pd.DataFrame) -> list[str]:
    """Why the best rate may not be the best."""
    at, loss = rates.index.to_numpy(float), rates.capped.to_numpy()
    best = int(loss.argmin())
    found = []
    if best in (0, len(at) - 1):
        side = "lowest" if best == 0 else "highest"
        found.append(f"the best rate is the {side} that was tried, so the optimum may lie beyond")
    near = [i for i in (best - 1, best + 1) if 0 <= i < len(at)]
    near = [i for i in near if max(at[i], at[best]) / min(at[i], at[best]) < NEIGHBOUR]
    scatter = float(np.sqrt((rates.sd**2).mean()))  # pooled: two tuning seeds say little alone
    steep = [i for i in near if loss[i] - loss[best] > scatter]
    if steep:
        found.append(
            f"a rate next to the best one (at most a factor of {NEIGHBOUR:g} away) is worse by "
            f"more than the standard deviation of {scatter:.3f} between seeds, so the optimum is "
            "narrower than the grid"
        )
    if rates.failed.iloc[best]:
        found.append("a run failed at the best rate")
    return found


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
