"""One row per condition: its losses, its paired difference to the baseline, its failures."""

from collections import Counter

import numpy as np
import pandas as pd

from report.failures import OF_TRAINING
from report.group import Study
from report.intervals import (
    Interval,
    family_level,
    fisher,
    holm,
    interval,
    noise_floor,
    steps_to_target,
)

LOSSES = [
    *("val_best", "val_final", "test_best", "test_final", "train_final", "gap"),
    *("val_reestimated", "val_batch", "leak"),  # of norms with batch statistics
]
MEDIANS = ("tokens_per_second", "step_seconds", "seconds", "params", "norm_params")


def summarize(study: Study, level: float = 0.95) -> pd.DataFrame:
    """The table behind the console, the page and summary.csv; the index is the condition.

    Args:
        study: the runs in order.
        level: of the differences' intervals: 1 - 0.05/k where the study made k claims, so that
            the table cannot contradict the verdicts. A mean's own interval is at 95 %.

    Returns:
        Losses in nats per character, `step_seconds` in seconds. A condition with any failed run has
        no mean, no interval and no difference: what is left would be the lucky seeds.
    """
    rows = {condition: row_of(study, condition, level) for condition in study.conditions}
    table = pd.DataFrame.from_dict(rows, orient="index")
    noise = table.sd.reindex(table.baseline).to_numpy(float)
    table.insert(table.columns.get_loc("detectable"), "difference_sds", table.difference / noise)
    table.insert(table.columns.get_loc("p") + 1, "p_holm", holm(table["p"].to_numpy(float)))
    return table


def row_of(study: Study, condition: str, level: float) -> dict[str, object]:
    """One condition."""
    runs, whole = study.of(condition), not study.failed[condition]
    kinds = Counter(filter(None, runs.failure))
    mean = interval(runs[study.metric] if whole else [])
    base = study.baselines[condition]
    ran = runs[runs.failure != "error"]
    apart = difference(study, condition, base, level)
    together = difference(study, condition, base, family_level(comparisons(study)))
    of_settings = {key: study.settings[condition].get(key) for key in study.keys}
    return of_settings | {
        "lr": only(runs.lr),
        "max_steps": only(runs.max_steps),
        "n": len(runs),
        "failed": study.failed[condition],
        "failures": ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items())),
        "spikes": runs.spike.sum(),
        "mean": mean.mean,
        "low": mean.low,
        "high": mean.high,
        "sd": mean.sd,
        "baseline": base,
        "pairs": apart.n,
        "difference": apart.mean,
        "difference_low": apart.low,
        "difference_high": apart.high,
        "simultaneous_low": together.low,
        "simultaneous_high": together.high,
        "detectable": apart.half,
        "p": apart.p,
        "p_failing": failing(study, condition, base),
        **{name: runs[name].mean() if whole else np.nan for name in LOSSES},
        "val_best_step": runs.val_best_step.median() if whole else np.nan,
        "first_at_baseline": first_at_baseline(study, condition, base) if whole else np.nan,
        **{name: ran[name].median() for name in MEDIANS},
    }


def comparisons(study: Study) -> int:
    """How many conditions are compared with a baseline."""
    return sum(base is not None for base in study.baselines.values())


def only(values: "pd.Series[float]") -> float:
    """The one value, NaN where there are several or none."""
    known = values.dropna().unique()
    return float(known[0]) if len(known) == 1 else np.nan


def difference(
    study: Study, condition: str, base: str | None, level: float, log: bool = False
) -> Interval:
    """The condition's metric minus the baseline's, seed by seed over the seeds that both have."""
    if base is None or study.failed[condition] or study.failed[base]:
        return interval([])
    if {condition, base} & study.doubts.keys():
        return interval([])
    mine, theirs = study.of(condition), study.of(base)
    pairs = pd.concat([mine[study.metric], theirs[study.metric]], axis=1, join="inner").dropna()
    values = np.log(pairs.to_numpy()) if log else pairs.to_numpy()
    return interval(values[:, 0] - values[:, 1], level)


def failing(study: Study, condition: str, base: str | None) -> float:
    """Fisher's exact p, two-sided, that condition and baseline fail equally often.

    A job that stopped with an error does not count: it says nothing about training.
    """
    if base is None:
        return np.nan
    counts = [training_failures(study.of(name)) for name in (condition, base)]
    if not any(failed for failed, _ in counts) or not all(trained for _, trained in counts):
        return np.nan
    return fisher(*counts[0], *counts[1], "two-sided")


def training_failures(runs: pd.DataFrame) -> tuple[int, int]:
    """How many of some runs failed in training, and of how many."""
    return int(runs.failure.isin(OF_TRAINING).sum()), int((runs.failure != "error").sum())


def evaluations(study: Study, run: str) -> "pd.Series[float]":
    """A run's validation losses as training went on; the index is the step."""
    curves = study.runs.curves[run]
    return curves["loss/val"].dropna() if "loss/val" in curves else pd.Series(dtype=float)


def first_at_baseline(study: Study, condition: str, base: str | None) -> float:
    """Median over seeds of the first evaluation at or below the baseline's last one of that seed.

    In steps; NaN where the median seed never gets there. Inside one run the rate has not come
    down yet, so a schedule of that length would do better: a speed-up is at least this.
    """
    theirs = study.trained(base or condition)
    steps = []
    for seed, run in study.of(condition).run.items():
        if seed not in theirs.index:
            continue
        target, loss = evaluations(study, theirs.run[seed]), evaluations(study, run)
        if len(target):
            first = steps_to_target(loss.index.to_numpy(), loss.to_numpy(), target.iloc[-1])
            steps.append(first)
    middle = float(np.median(steps)) if steps else np.inf
    return middle if np.isfinite(middle) else np.nan


def floor_of(study: Study) -> tuple[str, float, Interval] | None:
    """The first baseline against itself on other seeds; None with a failed run or under 3 seeds."""
    base = study.conditions[0]
    runs = study.of(base)
    if study.failed[base] or len(runs) < 3:
        return None
    return base, *noise_floor(runs[study.metric].to_numpy())
