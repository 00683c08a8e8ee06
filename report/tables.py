"""The report's tables: conditions, seeds, losses, batch statistics, rates, steps and claims."""

import math
from typing import Any

import pandas as pd

from report.claims import Claim
from report.formatting import NOTHING, Table, between, number, p_value, percent
from report.group import SEARCHED
from report.judge import Judged
from report.settings import settings
from report.verdicts import Verdict


def all_tables(judged: Judged) -> list[Table]:
    """Those that the runs have numbers for, in the page's order."""
    of_reported = [comparison(judged), seeds(judged), losses(judged), readings(judged)]
    if judged.study.reported.empty:
        of_reported = [None] * len(of_reported)
    main, each, every, read = of_reported
    order = [claims(judged), main, each, rates(judged), steps(judged), every, read, plan(judged)]
    return [table for table in [*order, settings(judged)] if table is not None]


def comparison(judged: Judged) -> Table:
    """The main table: each condition, and how far it is from its baseline."""
    rows = []
    for condition, row in judged.summary.iterrows():
        paired = pd.notna(row.baseline) and row.pairs not in (0, row.n)
        n = f"{row.n} ({row.pairs} pairs)" if paired else f"{row.n}"
        rate = f"{row.lr:g}" if pd.notna(row.lr) else NOTHING
        rows.append([str(condition), n, *comparison_cells(judged, str(condition), row), rate])
    columns = ["condition", "n", f"{judged.study.metric_name} ± 95 %"]
    columns += [f"difference [{percent(judged.level)}]", "detectable", "p (Holm)", "peak LR"]
    return Table("comparison", "Comparison", columns, rows)


def comparison_cells(judged: Judged, condition: str, row: "pd.Series[Any]") -> list[str]:
    """Mean, difference, smallest detectable difference and p of one condition."""
    if row.failed:
        return [f"{row.failed} of {row.n} failed", row.failures, "", ""]
    half = (row.high - row.low) / 2
    mean = number(row["mean"]) + (f" ± {number(half)}" if pd.notna(half) else "")
    baselines = judged.study.baselines
    if baselines[condition] is None and condition in baselines.values():
        return [mean, "baseline", "", ""]
    ends = between(row.difference_low, row.difference_high)
    apart = f"{number(row.difference, sign=True)} {ends}".strip()
    return [mean, apart, number(row.detectable), p_value(row.p_holm)]


def seeds(judged: Judged) -> Table:
    """Every run's own number."""
    study = judged.study
    order = sorted(study.reported.seed.dropna().unique())
    rows = []
    for condition in study.conditions:
        runs = study.of(condition)
        cells = [seed_cell(runs.loc[s], study.metric) if s in runs.index else "" for s in order]
        rows.append([condition, *cells])
    columns = ["condition", *(f"seed {s:.0f}" for s in order)]
    return Table("seeds", "Each seed", columns, rows)


def seed_cell(run: "pd.Series[Any]", metric: str) -> str:
    """A run's loss, or its failure."""
    if not run.failure:
        return number(run[metric])
    return str(run.failure) + (f" {number(run.val_final)}" if pd.notna(run.val_final) else "")


def losses(judged: Judged) -> Table:
    """Every loss, also in bits."""
    names = {
        "val_best": "best validation",
        "val_best_step": "at step",
        "val_final": "final validation",
        "test_best": "test at best",
        "test_final": "test at end",
        "train_final": "training, eval mode",
        "gap": "gap",
    }
    rows = []
    for condition, row in judged.summary.iterrows():
        cells = [number(row[n], 0 if n == "val_best_step" else 3, n == "gap") for n in names]
        bits = row.test_best if pd.notna(row.test_best) else row.val_best
        cells += [number(bits / math.log(2)), f"{row.spikes:.0f}"]
        cells += [number(row.first_at_baseline, 0), number(row.difference_sds, 1, sign=True)]
        rows.append([str(condition), *cells])
    columns = ["condition", *names.values(), "bits", "spikes", "reaches baseline"]
    columns += ["difference in SDs"]
    return Table("losses", "Losses", columns, rows)


def readings(judged: Judged) -> Table | None:
    """BatchNorm read three ways, and its leak: means, and each failed run by itself."""
    study, rows = judged.study, []
    for condition in study.conditions:
        every = study.of(condition)
        read = every.dropna(subset=["val_batch"])
        trained = read[read.failure == ""]
        if len(trained):
            n = (
                f"{len(trained)}"
                if len(trained) == len(every)
                else f"{len(trained)} of {len(every)}"
            )
            rows.append([condition, n, *reading_cells(trained.mean(numeric_only=True))])
        for seed, run in read[read.failure != ""].iterrows():
            rows.append([condition, f"seed {seed:.0f}, {run.failure}", *reading_cells(run)])
    if not rows:
        return None
    columns = ["condition", "n", "running", "re-estimated", "batch", "leak"]
    return Table("readings", "Batch statistics", columns, rows)


def reading_cells(row: "pd.Series[Any]") -> list[str]:
    """The three losses and the leak, of a run or of a mean."""
    losses = [number(row[name]) for name in ("val_final", "val_reestimated", "val_batch")]
    return [*losses, number(row.leak, 4, sign=True)]


def rates(judged: Judged) -> Table | None:
    """Where each optimum lies."""
    if not judged.tuned:
        return None
    rows, runs = [], judged.study.table
    chosen = any(setting for entry in judged.tuned for setting in entry.seeds.setting)
    for entry in judged.tuned:
        tried = f"{len(entry.rates)}: {entry.rates.index.min():g} to {entry.rates.index.max():g}"
        failed = f"{entry.rates.failed.sum()} of {entry.rates.n.sum()}"
        mine = runs[(runs.condition == entry.condition) & runs.role.isin(SEARCHED[entry.on])]
        cells = [f"{entry.best:g}", *[entry.seeds.setting.iloc[0]] * chosen, f"{len(mine)}"]
        widths = [number(entry.basin, 2), number(entry.sensitivity)]
        rows.append([entry.condition, *cells, tried, failed, *widths])
    columns = ["condition", "best rate", *["chosen with it"] * chosen, "runs"]
    columns += ["tried", "failed", "basin", "sensitivity"]
    on = list(dict.fromkeys(entry.on for entry in judged.tuned))
    title = f"Learning rates, on {on[0]}"
    if len(on) > 1:
        title = "Learning rates"
        columns.append("on")
        rows = [[*row, entry.on] for row, entry in zip(rows, judged.tuned, strict=True)]
    return Table("rates", title, columns, rows)


def steps(judged: Judged) -> Table | None:
    """Steps to the baseline's loss from complete schedules."""
    if judged.steps is None:
        return None
    rows = []
    for condition, row in judged.steps.iterrows():
        needed = "not reached" if math.isinf(row.steps) else number(row.steps, 0)
        ratio = f"{number(row.ratio, 2)} {between(row.low, row.high, 2, False)}".strip()
        shown = "baseline" if condition == judged.study.conditions[0] else row.reason or ratio
        rows.append([str(condition), f"{row.n:.0f}", shown, needed])
    columns = ["condition", "n", "ratio [95 %]", "shortest run"]
    return Table("steps", "Steps to the baseline's loss", columns, rows, [2])


def claims(judged: Judged) -> Table | None:
    """The study's claims and their verdicts."""
    if not judged.verdicts:
        return None
    rows = [claim_row(verdict) for verdict in judged.verdicts]
    columns = ["claim", "verdict", f"found [{percent(judged.level)}]", "expected", "source"]
    return Table("claims", "Claims", columns, rows, [1, 4])


def claim_row(verdict: Verdict) -> list[str]:
    """A claim, its verdict with a reason, what was found, what was expected, and who says so."""
    claim, found, linear = verdict.claim, verdict.found, verdict.claim.scale == "linear"
    change = float if linear else math.exp
    ends = between(change(found.low), change(found.high), 3, linear)
    value = f"{number(change(found.mean), 3, linear)} {ends}".strip()
    reason = f"({verdict.reason})" if verdict.reason else ""
    return [claim.name, f"{verdict.verdict} {reason}".strip(), value, expected(claim), claim.source]


def expected(claim: Claim) -> str:
    """`below −0.020`, `within ±0.01`, `within a factor of 1.01`, `fails more often`."""
    if claim.expect == "fails":
        return "fails more often"
    if claim.expect == "less":
        edge = (
            number(-claim.margin) if claim.scale == "linear" else f"{math.exp(-claim.margin):.3g}"
        )
        return f"below {edge}"
    if claim.scale == "log":
        return f"within a factor of {math.exp(claim.margin):.3g}"
    return f"within ±{claim.margin:g}"


def plan(judged: Judged) -> Table | None:
    """The seed planner."""
    if judged.planned is None:
        return None
    rows = []
    for name, row in judged.planned.iterrows():
        known = pd.notna(row.sd)
        seeds = [NOTHING if pd.isna(n) else f"{n:.0f}" for n in (row.seeds, row.cautious)]
        power = NOTHING if pd.isna(row.power) else percent(round(row.power, 2))
        effect = f"{number(row.effect, sign=True)} ({row['from']})" if known else NOTHING
        found = [number(row["mean"], sign=True), number(row.sd), number(row.reach)]
        rows.append([str(name), f"{row.n:.0f}", *found, effect, power, *seeds, row.reason])
    columns = ["contrast", "n", "found", "SD", f"± now ({percent(judged.level)})", "true effect"]
    columns += ["power now", "seeds for 80 %", "cautious", ""]
    if not any(row[-1] for row in rows):
        columns = columns[:-1]
        rows = [row[:-1] for row in rows]
    return Table("plan", "Seeds for a verdict", columns, rows, [9])
