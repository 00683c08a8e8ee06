"""Where the learning rate or the length was swept: optima with warnings, steps to a target."""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from report.intervals import basin_width, lr_sensitivity, ratio, steps_to_target
from report.study import Study, loss_by_rate

FRACTIONS = np.arange(3, 11) / 10  # of the baseline's length
NEIGHBOUR = 1.5  # rates closer than this are a factor of sqrt 2 apart


@dataclass(frozen=True)
class Tuned:
    """A condition's losses over learning rates.

    Attributes:
        condition: its label.
        on: `tuning seeds` or `reported seeds`.
        rates: one row a rate: n, failed, mean, sd (best validation loss, nats a character),
            capped (failed seeds at their last loss, at most that at the start).
        best: the rate whose `capped` is lowest.
        sensitivity: Wortsman's, in nats a character; NaN if no run trained.
        basin: log10 span of the rates within 0.02 nats of the best; NaN if no run trained.
        steps: of the runs.
        warnings: what makes the optimum doubtful, one phrase each.
    """

    condition: str
    on: str
    rates: pd.DataFrame
    best: float
    sensitivity: float
    basin: float
    steps: float
    warnings: list[str]


def tuned_conditions(study: Study) -> list[Tuned]:
    """Every condition that has runs at two learning rates or more, at its greatest length."""
    found = []
    for condition in dict.fromkeys([*study.conditions, *study.table.condition]):
        runs = study.table[study.table.condition == condition]
        for on, roles in (
            ("tuning seeds", ["tuning"]),
            ("reported seeds", ["reported", "other rate"]),
        ):
            rows = runs[runs.role.isin(roles)]
            rows = rows[rows.max_steps == rows.max_steps.max()]
            if rows.lr.nunique() > 1:
                found.append(tuned(condition, on, rows))
                break
    return found


def tuned(condition: str, on: str, rows: pd.DataFrame) -> Tuned:
    """One condition's optimum."""
    rates = loss_by_rate(rows)
    start = float(rows.loss_initial.mean())
    capped, at = rates.capped.to_numpy(), rates.index.to_numpy(float)
    trained = bool((rates.failed < rates.n).any())
    return Tuned(
        condition=condition,
        on=on,
        rates=rates,
        best=float(at[capped.argmin()]),
        sensitivity=lr_sensitivity(capped, start) if trained else np.nan,
        basin=basin_width(at, capped) if trained else np.nan,
        steps=float(rows.max_steps.max()),
        warnings=doubts(rates),
    )


def doubts(rates: pd.DataFrame) -> list[str]:
    """Why the best rate may not be the best."""
    at, loss = rates.index.to_numpy(float), rates.capped.to_numpy()
    best = int(loss.argmin())
    found = []
    if best in (0, len(at) - 1):
        side = "lowest" if best == 0 else "highest"
        found.append(f"the best rate is the {side} tried: the optimum may lie beyond")
    near = [i for i in (best - 1, best + 1) if 0 <= i < len(at)]
    near = [i for i in near if max(at[i], at[best]) / min(at[i], at[best]) < NEIGHBOUR]
    scatter = float(np.sqrt((rates.sd**2).mean()))  # pooled: two tuning seeds say little alone
    steep = [i for i in near if loss[i] - loss[best] > scatter]
    if steep:
        found.append(
            f"a rate next to the best (factor {NEIGHBOUR:g} or less) is worse by more than the "
            f"seeds' SD of {scatter:.3f}: the optimum is narrower than the grid"
        )
    if rates.failed.iloc[best]:
        found.append("a seed failed at the best rate")
    return found


def steps_table(study: Study) -> pd.DataFrame | None:
    """Steps to the baseline's final loss, from complete schedules; None without several lengths.

    The target is each seed's own: the final validation loss of the baseline at its full length.
    One row a condition: `steps` (the seeds' median; infinite: not within the longest), `ratio` to the
    baseline with its interval from the log scale, `bound` where a censored seed makes the ratio
    one: `at least`.
    """
    base = study.conditions[0]
    known = study.table[study.table.role.isin(["reported", "other length"])]
    if (study.of(base).failure != "").any() or not (
        known.groupby("condition").max_steps.nunique().max() >= 2
    ):
        return None
    needed = {condition: steps_needed(study, condition) for condition in study.conditions}
    full = float(study.of(base).max_steps.max())
    rows = {
        condition: compared(needed[condition], needed[base], full) for condition in study.conditions
    }
    return pd.DataFrame.from_dict(rows, orient="index")


def steps_needed(study: Study, condition: str) -> "pd.Series[float]":
    """A condition's steps to the first baseline's final loss, by seed; see `needed_steps`."""
    runs = study.table[study.table.condition == condition]
    runs = runs[runs.role.isin(["reported", "other length"])]
    runs = runs.assign(val_final=runs.val_final.where(runs.failure == "", np.inf))
    base = study.of(study.conditions[0])
    return needed_steps(runs, float(base.max_steps.max()), base.val_final)


def needed_steps(
    runs: pd.DataFrame, full: float, targets: "pd.Series[float]"
) -> "pd.Series[float]":
    """Per seed the smallest length among 0.3, 0.4, ... 1 of the baseline's at or below its target.

    Only seeds that ran at least two of these lengths can say.
    """
    on_grid = np.isclose(runs.max_steps.to_numpy()[:, None] / full, FRACTIONS, atol=0.005).any(1)
    steps = {
        seed: steps_to_target(rows.max_steps.to_numpy(), rows.val_final.to_numpy(), targets[seed])
        for seed, rows in runs[on_grid].groupby("seed")
        if len(rows) > 1 and seed in targets.index
    }
    return pd.Series(steps, dtype=float)


def compared(
    mine: "pd.Series[float]", theirs: "pd.Series[float]", full: float
) -> dict[str, object]:
    """Steps of a condition, and as a ratio to the baseline's over the seeds that both have."""
    pairs = pd.concat([mine, theirs], axis=1, join="inner").to_numpy()
    row: dict[str, object] = {
        "n": len(pairs),
        "steps": float(mine.median()) if len(mine) else np.nan,
    }
    censored = bool(np.isinf(pairs).any())  # then all that is known: more than the full length
    found = ratio(np.log(np.minimum(pairs[:, 0], full) / pairs[:, 1]))
    row |= {"ratio": found.mean, "bound": "at least" if censored else ""}
    return row | {
        "low": np.nan if censored else found.low,
        "high": np.nan if censored else found.high,
    }
