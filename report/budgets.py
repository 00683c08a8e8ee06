"""Steps to the baseline's loss, from complete schedules of several lengths (budgets)."""

import numpy as np
import pandas as pd

from report.group import Study, loss_by_rate
from report.intervals import log_shifts, ratio, steps_to_target

FEWEST_BUDGETS = 3  # for a slope: two points say nothing about how straight a curve is


def budgets_of(study: Study, condition: str) -> pd.DataFrame:
    """Final validation losses on the reported seeds: a row per seed, a column per length.

    NaN means that the run failed or is missing. A length that ran at several learning rates is
    shown at its best one.
    """
    rows = study.table[study.table.condition == condition]
    rows = rows[rows.role.isin(["reported", "other length"])]
    kept = []
    for _, same in rows.groupby("max_steps"):
        several = same.lr.nunique() > 1
        kept.append(same[same.lr == loss_by_rate(same).capped.idxmin()] if several else same)
    if not kept:
        return pd.DataFrame()
    rows = pd.concat(kept)
    rows = rows.assign(loss=rows.val_final.where(rows.failure == ""))
    return rows.pivot_table(index="seed", columns="max_steps", values="loss", dropna=False)


def step_shifts(study: Study, weights: dict[str, float]) -> tuple["pd.Series[float]", str]:
    """Per seed the logarithm of the steps that a contrast of conditions takes; or why not.

    With weights 1 and -1 it is the logarithm of the ratio of the steps to one and the same loss,
    over the budgets and the seeds that all the conditions have.
    """
    tables = [budgets_of(study, condition) for condition in weights]
    common = [b for b in tables[0] if all(b in table for table in tables)]
    seeds = [s for s in tables[0].index if all(s in table.index for table in tables)]
    nothing = pd.Series(dtype=float)
    if len(common) < FEWEST_BUDGETS:
        return nothing, (
            f"steps need runs at {FEWEST_BUDGETS} lengths or more that all conditions have, "
            f"got {len(common)}"
        )
    losses = np.array([table.loc[seeds, common] for table in tables])
    if np.isnan(losses).any():
        return nothing, "a run at one of the lengths failed or is missing"
    shifts = log_shifts(losses, np.array(list(weights.values())), np.array(common))
    if len(seeds) and np.isnan(shifts).all():
        return nothing, "the losses do not fall with more steps"
    return pd.Series(shifts, seeds), ""


def steps_table(study: Study) -> pd.DataFrame | None:
    """Each condition's steps beside the first baseline's; None without several lengths.

    Returns:
        One row per condition: `n` seeds, `steps` (the smallest length that ends at or below the
        baseline's loss at its full length, the seeds' median; infinite: none does; a description,
        rounded up to the lengths that were run), `ratio` of the steps to the same loss with its
        95 % interval, and the `reason` where there is none.
    """
    base = study.conditions[0]
    lengths = study.table[study.table.role.isin(["reported", "other length"])]
    several = (lengths.groupby("condition").max_steps.nunique() > 1).any()
    if not several or study.failed[base]:
        return None
    rows = {condition: compared(study, condition, base) for condition in study.conditions}
    return pd.DataFrame.from_dict(rows, orient="index")


def compared(study: Study, condition: str, base: str) -> dict[str, object]:
    """One row of the table of steps."""
    shifts, reason = pd.Series(dtype=float), ""
    if condition != base:
        shifts, reason = step_shifts(study, {condition: 1.0, base: -1.0})
    found = ratio(shifts)
    return {
        "n": len(budgets_of(study, condition)),
        "steps": smallest(study, condition, base),
        "ratio": found.mean,
        "low": found.low,
        "high": found.high,
        "reason": reason,
    }


def smallest(study: Study, condition: str, base: str) -> float:
    """The smallest length that ends at or below the baseline's final loss, the seeds' median."""
    targets = study.of(base).val_final
    table = budgets_of(study, condition)
    steps = [
        steps_to_target(table.columns.to_numpy(), losses.to_numpy(), targets[seed])
        for seed, losses in table.iterrows()
        if seed in targets.index
    ]
    return float(np.median(steps)) if steps else float("inf")
