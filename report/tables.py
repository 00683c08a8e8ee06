"""The report's tables: conditions, seeds, losses, batch statistics, rates, steps and claims."""

import math
from typing import Any

import pandas as pd

from report.claims import Claim, Verdict
from report.formatting import NOTHING, Table, between, number, p_value, percent
from report.group import METRIC
from report.judge import Judged
from report.settings import settings


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
    caption = (
        f"Mean {judged.study.metric_name} in nats per character over n seeds, and its difference "
        f"to the baseline, taken seed by seed, with a {percent(judged.level)} interval. An "
        "observed difference smaller than “detectable” cannot be told from 0."
    )
    return Table("comparison", "Comparison", columns, rows, caption, comparison_details(judged))


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


def comparison_details(judged: Judged) -> str:
    """What the columns are, exactly."""
    what = "Best validation loss"
    if judged.study.metric == METRIC:
        what = "The test loss is that of the whole split, of the checkpoint with the lowest "
        what += "validation loss"
    m, level = int(judged.summary.p.notna().sum()), percent(judged.level)
    text = (
        f"{what}. After ± comes half the width of the mean's own 95 % Student t interval. Whether "
        "two such intervals overlap does not say whether the paired difference is 0. The "
        "difference is paired: for each seed it is the loss minus the baseline's with that seed "
        "(same batches and, norms aside, same initial weights); the table gives the mean and the "
        f"{level} t interval of these n differences, which are taken to be roughly normal. "
        "Detectable is half the width of that interval; a true difference of just this size would "
        "be found in little more than half of such studies."
    )
    if m > 1:
        text += (
            f" p is that of a two-sided paired t test, adjusted by Holm for the {m} comparisons of "
            f"this table. Each interval is at {level} for its own comparison, so one may leave out "
            "0 while p, which answers for all of them together, stays above 0.05."
        )
    elif m:
        text += " p is that of a two-sided paired t test."
    return f"{text} LR is the learning rate.{floor_sentence(judged)}"


def floor_sentence(judged: Judged) -> str:
    """How far runs of one condition lie apart by their seeds alone."""
    if judged.floor is None:
        return ""
    base, reach, itself = judged.floor
    row = judged.summary.loc[base]
    text = (
        f" Noise floor: the losses of {base} have a standard deviation of {number(row.sd)} over "
        f"its {row.n} seeds; two further single runs of it are predicted to end within "
        f"{number(reach)} of each other (a 95 % prediction interval, which is wide with few "
        "seeds). The differences above are between means."
    )
    if pd.notna(itself.low):
        ends = between(itself.low, itself.high)
        text += f" Half of its seeds minus the other half: {number(itself.mean, sign=True)} {ends}."
    return text


def seeds(judged: Judged) -> Table:
    """Every run's own number."""
    study = judged.study
    order = sorted(study.reported.seed.dropna().unique())
    rows = []
    for condition in study.conditions:
        runs = study.of(condition)
        cells = [seed_cell(runs.loc[s], study.metric) if s in runs.index else "" for s in order]
        rows.append([condition, *cells])
    caption = (
        f"The {study.metric_name} of each run, in nats per character. A run that failed has the "
        "kind of its failure, and its final validation loss if there is one."
    )
    columns = ["condition", *(f"seed {s:.0f}" for s in order)]
    return Table("seeds", "Each seed", columns, rows, caption)


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
        rows.append([str(condition), *cells, number(row.first_at_baseline, 0)])
    columns = ["condition", *names.values(), "bits", "spikes", "reaches baseline"]
    caption = (
        "Means over seeds, in nats per character; the gap is the final validation loss minus the "
        "training loss, both in evaluation mode."
    )
    details = (
        "Best validation is over the evaluations' windows, and at step is the median of the steps "
        "where it was found. The final validation and test losses are over whole splits, the "
        "training loss is over evenly spaced windows of the training split. Bits: the test loss at "
        "the best step (without a test split the best validation loss) in bits per character. "
        "Spikes: how many runs had a training loss that, after the first tenth of the run, rose "
        "above its start or to twice its minimum and came down again. Reaches baseline: the first "
        "evaluation, in steps (median over seeds), at or below the baseline's last one of the same "
        "seed; – means that half of the seeds or more never get there. The learning rate is still "
        "high at that step, so a run whose whole schedule is that long would likely end lower: "
        "the speed-up is at least about this."
    )
    return Table("losses", "Losses", columns, rows, caption, details)


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
    caption = (
        "The final validation loss of norms with batch statistics, read three ways, and the leak, "
        "in nats per character. The leak is how much later characters lower the loss in training."
    )
    details = (
        "Means over the n runs that trained and have these readings; a run that failed has a row "
        "of its own, since the readings may say why it failed. Running: with the statistics that "
        "training kept, as in all other tables. Re-estimated: with their averages over training "
        "batches and the final weights. Batch: with each batch's own statistics, in batches of the "
        "training size, on which they depend; as in training, they include later characters. Leak: "
        "the training loss of the same predictions after all later text was replaced by other "
        "text, minus the training loss itself. The training loss minus the evaluation loss is "
        "something else: it also holds the error of the running statistics."
    )
    return Table("readings", "Batch statistics", columns, rows, caption, details)


def reading_cells(row: "pd.Series[Any]") -> list[str]:
    """The three losses and the leak, of a run or of a mean."""
    losses = [number(row[name]) for name in ("val_final", "val_reestimated", "val_batch")]
    return [*losses, number(row.leak, 4, sign=True)]


def rates(judged: Judged) -> Table | None:
    """Where each optimum lies."""
    if not judged.tuned:
        return None
    rows = []
    for entry in judged.tuned:
        tried = f"{len(entry.rates)}: {entry.rates.index.min():g} to {entry.rates.index.max():g}"
        failed = f"{entry.rates.failed.sum()} of {entry.rates.n.sum()}"
        best = [f"{entry.best:g}", number(entry.rates.capped.min())]
        widths = [number(entry.basin, 2), number(entry.sensitivity)]
        rows.append([entry.condition, *best, tried, failed, *widths])
    columns = ["condition", "best rate", "loss there", "tried", "failed", "basin", "sensitivity"]
    on = list(dict.fromkeys(entry.on for entry in judged.tuned))
    title = f"Learning rates, on {on[0]}"
    if len(on) > 1:
        title = "Learning rates"
        columns.append("on")
        rows = [[*row, entry.on] for row, entry in zip(rows, judged.tuned, strict=True)]
    caption = (
        "Mean over seeds of the best validation loss, in nats per character, at the learning rate "
        "where it is lowest. A run that failed counts with its last loss, but at most with its "
        "loss at the start."
    )
    details = (
        "Basin: how many powers of ten around the best rate stay within 0.02 nats of it. "
        "Sensitivity: the mean over the rates tried of min(loss, loss at the start), minus the "
        "best loss (Wortsman et al. 2023); it can be compared only over the same rates."
    )
    return Table("rates", title, columns, rows, caption, details)


def steps(judged: Judged) -> Table | None:
    """Steps to the baseline's final loss from complete schedules."""
    if judged.steps is None:
        return None
    rows = []
    for condition, row in judged.steps.iterrows():
        needed = "not reached" if math.isinf(row.steps) else number(row.steps, 0)
        ratio = f"{row.bound} {number(row.ratio, 2)} {between(row.low, row.high, 2, False)}"
        shown = "baseline" if condition == judged.study.conditions[0] else ratio.strip()
        rows.append([str(condition), f"{row.n:.0f}", needed, shown])
    caption = (
        "The smallest number of steps whose own complete schedule ends at or below the final "
        "validation loss of the baseline's full length (median over seeds). A ratio above 1 means "
        "that more steps are needed than the baseline needs."
    )
    details = (
        "Each seed has its own target, the baseline's loss with that seed. The ratio to the "
        "baseline's steps is a geometric mean with a 95 % interval from the log scale. A loss that "
        "is missed by less than the scatter between seeds counts as not reached."
    )
    columns = ["condition", "n", "steps", "ratio"]
    return Table("steps", "Steps to the baseline's loss", columns, rows, caption, details)


def claims(judged: Judged) -> Table | None:
    """The study's claims and their verdicts."""
    if not judged.verdicts:
        return None
    rows = [claim_row(verdict) for verdict in judged.verdicts]
    level, k = percent(judged.level), len(rows)
    caption = (
        "The study stated these claims before it ran. A claim is supported if its whole interval "
        "lies beyond the margin (for “within”: inside it), refuted if the interval lies wholly "
        "on the other side, and undecided otherwise."
    )
    details = (
        "Each claim is a weighted sum over conditions (of logarithms where it is a ratio), taken "
        f"seed by seed, with its {level} interval: 1 − 0.05/{k} (Bonferroni), so that all {k} "
        "intervals hold together with at least 95 % confidence."
    )
    columns = ["claim", "verdict", f"found [{level}]", "expected", "source"]
    return Table("claims", "Claims", columns, rows, caption, details, [1, 4])


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
        numbers = [seeds_cell(row[c], known) for c in ("width", "power", "cautious")]
        cells = [f"{row.n:.0f}", number(row["mean"], sign=True), number(row.sd), number(row.reach)]
        rows.append([str(name), *cells, *numbers, row.reason])
    margin = f"{judged.margin:g}"
    columns = ["contrast", "n", "found", "SD", "± now", f"seeds for ±{margin}"]
    columns += ["seeds for 80 %", "cautious", ""]
    if not any(row[-1] for row in rows):
        columns = columns[:-1]
        rows = [row[:-1] for row in rows]
    caption = (
        f"Seeds for ±{margin}: until half the width of the {percent(judged.level)} interval is at "
        "most the margin. Seeds for 80 %: to tell a true difference of the margin from 0 in four "
        "of five studies."
    )
    details = (
        "SD is the standard deviation of the seed-wise contrast. ± now is half the interval's "
        "width with the seeds there are. Cautious is the number of seeds for 80 % if the true SD "
        "is at its upper 80 % confidence limit, since few seeds may flatter it. Ratios are on the "
        "log scale, with their claim's own margin."
    )
    return Table("plan", f"Seeds for a margin of {margin}", columns, rows, caption, details, [8])


def seeds_cell(n: float | None, known: bool) -> str:
    """A number of seeds."""
    return NOTHING if not known else "over 1000" if pd.isna(n) else f"{n:.0f}"
