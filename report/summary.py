"""One row a condition: its losses, its paired difference to the baseline, its failures, its cost."""

from collections import Counter

import numpy as np
import pandas as pd

from report.failures import OF_TRAINING
from report.intervals import Interval, crossing, fisher, holm, interval, noise_floor
from report.study import Study

LOSSES = ["val_best", "val_final", "test_best", "test_final", "train_final", "gap"]
LOSSES += ["val_reestimated", "val_batch", "leak"]  # of norms with batch statistics


def summarize(study: Study, level: float = 0.95) -> pd.DataFrame:
    """The table behind the console, the page and summary.csv; the index is the condition.

    Args:
        study: the runs in order.
        level: of the differences' intervals: 1 - 0.05/k where the study made k claims, so that
            the table cannot say other than the verdicts do. A mean's own interval is at 95 %.

    Returns:
        Losses in nats a character, `step_seconds` in seconds. A condition with any failed run has no
        mean, no interval and no difference: what is left would be the lucky seeds.
    """
    rows = {condition: row_of(study, condition, level) for condition in study.conditions}
    table = pd.DataFrame.from_dict(rows, orient="index")
    table.insert(table.columns.get_loc("p") + 1, "p_holm", holm(table["p"].to_numpy(float)))
    return table


def row_of(study: Study, condition: str, level: float) -> dict[str, object]:
    """One condition."""
    runs = study.of(condition)
    kinds = Counter(kind for kind in runs.failure if kind)
    failed = sum(kinds.values())
    mean = interval(runs[study.metric] if not failed else [])
    base = study.baselines[condition]
    apart = difference(study, condition, base, level)
    row: dict[str, object] = {key: study.settings[condition].get(key) for key in study.keys}
    row |= {"lr": only(runs.lr), "max_steps": only(runs.max_steps)}
    row |= {"n": len(runs), "failed": failed, "failures": told(kinds), "spikes": runs.spike.sum()}
    row |= {"mean": mean.mean, "low": mean.low, "high": mean.high, "sd": mean.sd}
    row |= {"baseline": base, "pairs": apart.n, "difference": apart.mean}
    row |= {"difference_low": apart.low, "difference_high": apart.high}
    row |= {"detectable": apart.half, "p": apart.p, "p_failing": failing(study, condition, base)}
    row |= {name: runs[name].mean() if not failed else np.nan for name in LOSSES}
    row["val_best_step"] = runs.val_best_step.median() if not failed else np.nan
    row["first_at_baseline"] = first_at_baseline(study, condition, base) if not failed else np.nan
    trained = runs[runs.failure != "error"]
    for name in ("tokens_per_second", "step_seconds", "seconds", "params", "norm_params"):
        row[name] = trained[name].median()
    return row


def told(kinds: Counter[str]) -> str:
    """`2 non-finite, 1 failed to learn`."""
    return ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))


def only(values: "pd.Series[float]") -> float:
    """The one value, NaN where there are several or none."""
    known = values.dropna().unique()
    return float(known[0]) if len(known) == 1 else np.nan


def difference(
    study: Study, condition: str, base: str | None, level: float, log: bool = False
) -> Interval:
    """The condition's metric minus the baseline's, seed by seed over the seeds that both have."""
    if base is None:
        return interval([])
    mine, theirs = study.of(condition), study.of(base)
    if (mine.failure != "").any() or (theirs.failure != "").any():
        return interval([])
    pairs = pd.concat([mine[study.metric], theirs[study.metric]], axis=1, join="inner").dropna()
    values = np.log(pairs.to_numpy()) if log else pairs.to_numpy()
    return interval(values[:, 0] - values[:, 1], level)


def failing(study: Study, condition: str, base: str | None) -> float:
    """Fisher's exact p, two-sided, that condition and baseline fail equally often.

    A job that raised an error took no part in training, and takes none here.
    """
    if base is None:
        return np.nan
    counts = [training_failures(study, name) for name in (condition, base)]
    if not any(failed for failed, _ in counts) or not all(trained for _, trained in counts):
        return np.nan
    return fisher(*counts[0], *counts[1], "two-sided")


def training_failures(study: Study, condition: str) -> tuple[int, int]:
    """How many of a condition's runs failed in training, and of how many."""
    kinds = study.of(condition).failure
    return int(kinds.isin(OF_TRAINING).sum()), int((kinds != "error").sum())


def evaluations(study: Study, run: str) -> "pd.Series[float]":
    """A run's validation losses as training went on; the index is the step."""
    curves = study.runs.curves[run]
    return curves["loss/val"].dropna() if "loss/val" in curves else pd.Series(dtype=float)


def first_at_baseline(study: Study, condition: str, base: str | None) -> float:
    """Median over seeds of the first evaluation at or below the baseline's last one of that seed.

    In steps; NaN where the median seed never gets there. Inside one run the rate has not come
    down yet, so a schedule of that length would do better: a speed-up is at least this.
    """
    theirs = study.of(base or condition)
    theirs = theirs[theirs.failure == ""]
    steps = []
    for seed, run in study.of(condition).run.items():
        if seed not in theirs.index:
            continue
        target, loss = evaluations(study, theirs.run[seed]), evaluations(study, run)
        if len(target):
            steps.append(crossing(loss.index.to_numpy(), loss.to_numpy(), target.iloc[-1]))
    middle = float(np.median(steps)) if steps else np.inf
    return middle if np.isfinite(middle) else np.nan


def floor_of(study: Study) -> tuple[str, float, Interval] | None:
    """The first baseline against itself on other seeds; None if it has a failed run or 1 seed."""
    base = study.conditions[0]
    runs = study.of(base)
    if (runs.failure != "").any() or len(runs) < 3:
        return None
    return base, *noise_floor(runs[study.metric].to_numpy())
