"""The tables of what the runs came to: conditions, seeds, losses, batch statistics, cost."""

import math
from collections.abc import Iterable

import pandas as pd

from report.cells import NOTHING, Table, between, marked, number, p_value, percent
from report.content import Content
from report.study import METRIC
from report.study_tables import planned, rates, steps, verdicts


def comparison(content: Content) -> Table | None:
    """The main table: each condition, and how far it is from its baseline."""
    if content.study.reported.empty:
        return None
    table, bases = content.summary, set(content.summary.baseline.dropna())
    rows = []
    for condition, row in table.iterrows():
        paired = pd.notna(row.baseline) and row.pairs not in (0, row.n)
        cells = [marked(content, str(condition)), f"{row.n}" + f" ({row.pairs} pairs)" * paired]
        rate = f"{row.lr:g}" if pd.notna(row.lr) else NOTHING
        if row.failed:
            rows.append([*cells, f"{row.failed} of {row.n} failed", row.failures, "", "", rate])
            continue
        half = (row.high - row.low) / 2
        apart = f"{number(row.difference, sign=True)} "
        apart += between(row.difference_low, row.difference_high)
        mean = number(row["mean"]) + (f" ± {number(half)}" if pd.notna(half) else "")
        if pd.isna(row.baseline) and str(condition) in bases:
            rows.append([*cells, mean, "baseline", "", "", rate])
        else:
            seen = [apart.strip(), number(row.detectable), p_value(row.p_holm)]
            rows.append([*cells, mean, *seen, rate])
    columns = ["condition", "n", f"{metric_name(content)} ± 95 %"]
    columns += [f"difference [{percent(content.level)}]", "detectable", "p (Holm)", "peak LR"]
    return Table("Comparison", columns, rows, comparison_caption(content))


def metric_name(content: Content) -> str:
    """What conditions are compared by."""
    return "test loss" if content.study.metric == METRIC else "best validation loss"


def comparison_caption(content: Content) -> str:
    """What the columns are."""
    what = "Best validation loss"
    if content.study.metric == METRIC:
        what = "Test loss (whole split) of the checkpoint with the lowest validation loss"
    m, level = int(content.summary.p.notna().sum()), percent(content.level)
    text = (
        f"{what}, in nats per character: mean over n seeds, with the half-width of its 95 % "
        "Student t interval. Whether two such intervals overlap does not say whether the paired "
        "difference is 0. The difference is paired: for each seed the loss minus the baseline's "
        "with that seed (same batches and, norms aside, same initial weights); mean and "
        f"{level} t interval of these n differences, which are taken to be roughly normal. "
        "Detectable: half that interval's width; an observed difference smaller than this cannot "
        "be told from 0, and a true one of just this size would be found in little more than half "
        "of such studies."
    )
    if m > 1:
        text += (
            f" p: two-sided paired t test, adjusted by Holm for the {m} comparisons of this table. "
            f"The intervals are each at {level} for its own comparison, so one may leave out 0 "
            "while p, which answers for all of them together, stays above 0.05."
        )
    elif m:
        text += " p: two-sided paired t test."
    return f"{text} LR: learning rate.{floor_sentence(content)}"


def floor_sentence(content: Content) -> str:
    """How far runs of one condition lie apart by their seeds alone."""
    if content.floor is None:
        return ""
    base, reach, itself = content.floor
    row = content.summary.loc[base]
    text = (
        f" Noise floor: the losses of {base} have an SD of {number(row.sd)} over its {row.n} "
        "seeds; two further single runs of it are predicted to end within "
        f"{number(reach)} of each other (95 % prediction interval, wide where the SD rests on few "
        "seeds). The differences above are between means."
    )
    if pd.notna(itself.low):
        text += f" Half of its seeds against the other half: {number(itself.mean, sign=True)} "
        text += f"{between(itself.low, itself.high)}."
    return text


def seeds(content: Content) -> Table | None:
    """Every run's own number."""
    study = content.study
    if study.reported.empty:
        return None
    order = sorted(study.reported.seed.dropna().unique())
    rows = []
    for condition in study.conditions:
        runs = study.of(condition)
        cells = [seed_cell(runs.loc[s], study.metric) if s in runs.index else "" for s in order]
        rows.append([marked(content, condition), *cells])
    name = metric_name(content)
    caption = (
        f"The {name} of each run, nats per character; of a failed one how it failed, and its final "
        "validation loss if it has one."
    )
    return Table("Each seed", ["condition", *(f"seed {s:.0f}" for s in order)], rows, caption)


def seed_cell(run: pd.Series, metric: str) -> str:
    """A run's loss, or its failure."""
    if not run.failure:
        return number(run[metric])
    return str(run.failure) + (f" {number(run.val_final)}" if pd.notna(run.val_final) else "")


def losses(content: Content) -> Table | None:
    """Every loss, also in bits."""
    if content.study.reported.empty:
        return None
    names = {
        "val_best": "best validation", "val_best_step": "at step", "val_final": "final validation",
        "test_best": "test at best", "test_final": "test at end",
        "train_final": "training, eval mode", "gap": "gap",
    }  # fmt: skip
    rows = []
    for condition, row in content.summary.iterrows():
        cells = [number(row[n], 0 if n == "val_best_step" else 3, n == "gap") for n in names]
        bits = row["test_best"] if pd.notna(row["test_best"]) else row["val_best"]
        spikes = f"{row.spikes}" if row.spikes else "0"
        cells += [number(bits / math.log(2)), spikes, number(row.first_at_baseline, 0)]
        rows.append([marked(content, str(condition)), *cells])
    columns = ["condition", *names.values(), "bits", "spikes", "reaches baseline"]
    caption = (
        "Means over seeds (at step: the median), nats per character. Best validation is over the "
        "evaluations' windows; final validation and test losses are over whole splits, the "
        "training loss over evenly spaced windows of the training split. Gap: final validation "
        "minus training loss, both in evaluation mode. Bits: test loss at the best step (without "
        "a test split the best validation loss) in bits per character. Spikes: runs whose training "
        "loss, after the first tenth, rose above its start or to twice its minimum and came down "
        "again. Reaches baseline: the first evaluation, in steps (median over seeds), at or below "
        "the baseline's last of the same seed; –: half the seeds or more never do. The learning "
        "rate is still high there, so a run whose whole schedule is that long would likely end "
        "lower: the speed-up is at least about this."
    )
    return Table("Losses", columns, rows, caption)


def readings(content: Content) -> Table | None:
    """BatchNorm read three ways, and its leak."""
    if content.study.reported.empty:
        return None
    rows = []
    for condition in content.study.conditions:
        every = content.study.of(condition)
        read = every.dropna(subset=["val_batch"])
        mean = read[["val_final", "val_reestimated", "val_batch"]].mean()
        n = f"{len(read)}" if len(read) == len(every) else f"{len(read)} of {len(every)}"
        leak = number(read.leak.mean(), 4, sign=True)
        rows += [[marked(content, condition), n, *map(number, mean), leak]] * (len(read) > 0)
    if not rows:
        return None
    columns = ["condition", "n", "running", "re-estimated", "batch", "leak"]
    caption = (
        "Norms with batch statistics: final validation loss read three ways, and the leak; means "
        "over the n runs that ended with these readings, even if they count as failed: then this "
        "may say why. Nats per character. Running: the statistics that training kept, as in all "
        "other tables. Re-estimated: their averages over training batches with the final weights. "
        "Batch: each batch's own, in batches of the training size, on which they depend; as in "
        "training, later characters are in them. Leak: how much such characters lower the loss in "
        "training: that of the same predictions after all later text was replaced, minus theirs. "
        "Training minus evaluation loss is something else: it holds the running statistics' error."
    )
    return Table("Batch statistics", columns, rows, caption)


def cost(content: Content) -> Table | None:
    """Speed and size."""
    if content.study.reported.empty:
        return None
    rows = []
    for condition, row in content.summary.iterrows():
        cells = [number(row.step_seconds * 1000, 2), number(row.tokens_per_second, 0)]
        cells += [number(row.seconds, 1), number(row.params, 0), number(row.norm_params, 0)]
        rows.append([marked(content, str(condition)), *cells])
    columns = ["condition", "ms per step", "characters/s", "seconds", "parameters", "in norms"]
    caption = "Medians over runs; seconds of training, without evaluations and checkpoints."
    return Table("Cost", columns, rows, caption)


def all_tables(content: Content) -> Iterable[Table]:
    """In the page's order."""
    every = (verdicts, comparison, seeds, rates, steps, losses, readings, cost, planned)
    return [table for make in every if (table := make(content)) is not None]
