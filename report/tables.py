"""The report's tables as text cells, for the console and the page alike."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from report.content import Content
from report.study import METRIC

NOTHING = "–"


@dataclass(frozen=True)
class Table:
    """Cells as they are shown; the first column is text, the others are numbers.

    `text_columns` are those whose cells are sentences and may wrap.
    """

    title: str
    columns: list[str]
    rows: list[list[str]]
    caption: str = ""
    text_columns: list[int] = field(default_factory=list)


def number(x: Any, digits: int = 3, sign: bool = False) -> str:
    """A number, or a dash where there is none."""
    if x is None or pd.isna(x):
        return NOTHING
    return f"{x:{'+' if sign else ''},.{digits}f}".replace("-", "\N{MINUS SIGN}")


def between(low: Any, high: Any, digits: int = 3, sign: bool = True) -> str:
    """An interval, or nothing."""
    if pd.isna(low) or pd.isna(high):
        return ""
    return f"[{number(low, digits, sign)}, {number(high, digits, sign)}]"


def p_value(p: Any) -> str:
    """Three digits, and no p value of 0."""
    return NOTHING if pd.isna(p) else "<0.001" if p < 0.001 else f"{p:.3f}"


def marked(content: Content, arm: str) -> str:
    """The arm's name with the numbers of its footnotes."""
    numbers = [i for i, note in enumerate(content.notes, 1) if arm in note.arms]
    return f"{arm} [{','.join(map(str, numbers))}]" if numbers else arm


def percent(level: float) -> str:
    """`95 %`, `98.3 %`."""
    return f"{100 * level:.3g} %"


def comparison(content: Content) -> Table | None:
    """The main table: each condition, and how far it is from its baseline."""
    if content.study.reported.empty:
        return None
    table, bases = content.summary, set(content.summary.baseline.dropna())
    name = "test loss" if content.study.metric == METRIC else "best validation loss"
    rows = []
    for arm, row in table.iterrows():
        cells = [marked(content, str(arm)), f"{row.n}"]
        rate = f"{row.lr:g}" if pd.notna(row.lr) else NOTHING
        if row.failed:
            rows.append([*cells, f"{row.failed} of {row.n} failed", row.failures, "", "", rate])
            continue
        half = (row.high - row.low) / 2
        apart = f"{number(row.difference, sign=True)} "
        apart += between(row.difference_low, row.difference_high)
        mean = number(row["mean"]) + (f" ± {number(half)}" if pd.notna(half) else "")
        if pd.isna(row.baseline) and str(arm) in bases:
            rows.append([*cells, mean, "baseline", "", "", rate])
        else:
            seen = [apart.strip(), number(row.detectable), p_value(row.p_holm)]
            rows.append([*cells, mean, *seen, rate])
    columns = ["condition", "n", f"{name} ± 95 %", f"difference [{percent(content.level)}]"]
    columns += ["detectable", "p (Holm)", "peak LR"]
    return Table("Comparison", columns, rows, comparison_caption(content))


def comparison_caption(content: Content) -> str:
    """What the columns are."""
    chosen = "at the step with the lowest validation loss, " * (content.study.metric == METRIC)
    text = (
        f"Loss in nats per character, {chosen}mean over n seeds with the half-width of its 95 % "
        "Student t interval. The difference is to the baseline, taken seed by seed, with its "
        f"{percent(content.level)} interval; detectable: a difference smaller than this could not "
        "have been told from 0 with these seeds (half the interval's width). p: of a two-sided "
        "paired t test, adjusted by Holm for the number of comparisons. LR: learning rate."
    )
    if content.floor is not None:
        base, reach, itself = content.floor
        text += (
            f" Noise floor: two single runs of {base} that differ by their seed alone end less "
            f"than {number(reach)} apart in 95 % of cases"
        )
        if pd.notna(itself.low):
            ends = between(itself.low, itself.high)
            text += f"; half of its seeds against the other half {number(itself.mean, sign=True)} "
            text += ends
        text += "."
    return text


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
    for arm, row in content.summary.iterrows():
        cells = [number(row[n], 0 if n == "val_best_step" else 3, n == "gap") for n in names]
        bits = row["test_best"] if pd.notna(row["test_best"]) else row["val_best"]
        spikes = f"{row.spikes}" if row.spikes else "0"
        cells += [number(bits / math.log(2)), spikes, number(row.first_at_baseline, 0)]
        rows.append([marked(content, str(arm)), *cells])
    columns = ["condition", *names.values(), "bits", "spikes", "reaches baseline"]
    caption = (
        "Means over seeds, nats per character. Best validation is over the evaluations' windows, "
        "the final losses are over whole splits. Gap: final validation minus training loss, both "
        "in evaluation mode. Bits: test loss at the best step (without a test split the best "
        "validation loss) in bits per character. Spikes: runs whose training loss rose above its "
        "start or to twice its minimum and recovered. Reaches baseline: the first evaluation, in "
        "steps (median over seeds), at or below the baseline's last of the same seed; a schedule "
        "made for that length would need fewer steps still."
    )
    return Table("Losses", columns, rows, caption)


def readings(content: Content) -> Table | None:
    """BatchNorm read three ways, and its leak."""
    if content.study.reported.empty:
        return None
    read = content.summary.dropna(subset=["val_batch"])
    rows = []
    for arm, row in read.iterrows():
        ways = [number(row[name]) for name in ("val_final", "val_reestimated", "val_batch")]
        rows.append([marked(content, str(arm)), *ways, number(row.leak, 4, sign=True)])
    if not rows:
        return None
    columns = ["condition", "running", "re-estimated", "batch", "leak"]
    caption = (
        "Norms with batch statistics: final validation loss read three ways, and the leak; means "
        "over seeds, nats per character. Running: the statistics that training kept, as in all "
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
    for arm, row in content.summary.iterrows():
        cells = [number(row.step_seconds * 1000, 2), number(row.tokens_per_second, 0)]
        cells += [number(row.seconds, 1), number(row.params, 0), number(row.norm_params, 0)]
        rows.append([marked(content, str(arm)), *cells])
    columns = ["condition", "ms per step", "characters/s", "seconds", "parameters", "in norms"]
    caption = "Medians over runs; seconds of training, all legs, without evaluations at the end."
    return Table("Cost", columns, rows, caption)


def rates(content: Content) -> Table | None:
    """Where each optimum lies."""
    if not content.tuned:
        return None
    rows = []
    for entry in content.tuned:
        tried = f"{len(entry.rates)}: {entry.rates.index.min():g} to {entry.rates.index.max():g}"
        failed = f"{entry.rates.failed.sum()} of {entry.rates.n.sum()}"
        rows.append([
            marked(content, entry.arm), f"{entry.best:g}", number(entry.rates.capped.min()), tried,
            failed, number(entry.basin, 2), number(entry.sensitivity),
        ])  # fmt: skip
    columns = ["condition", "best rate", "loss there", "tried", "failed", "basin", "sensitivity"]
    caption = (
        "Best validation loss, mean over seeds in nats per character; a failed seed counts with "
        "its last loss, at most that at the start. Basin: how many powers of ten around the best "
        "rate stay within 0.02 nats of it. Sensitivity: mean over the rates tried of min(loss, "
        "loss at the start), minus the best loss (Wortsman et al. 2023); it can be compared only "
        "over the same rates."
    )
    on = list(dict.fromkeys(entry.on for entry in content.tuned))
    title = f"Learning rates, on {on[0]}"
    if len(on) > 1:
        title, columns = "Learning rates", [*columns, "on"]
        rows = [[*row, entry.on] for row, entry in zip(rows, content.tuned, strict=True)]
    return Table(title, columns, rows, caption)


def steps(content: Content) -> Table | None:
    """Steps to the baseline's final loss from complete schedules."""
    if content.steps is None:
        return None
    rows = []
    for arm, row in content.steps.iterrows():
        needed = "not reached" if math.isinf(row.steps) else number(row.steps, 0)
        ratio = f"{row.bound} {number(row.ratio, 2)} {between(row.low, row.high, 2, False)}"
        rows.append([marked(content, str(arm)), f"{row.n:.0f}", needed, ratio.strip()])
    caption = (
        "The smallest number of steps whose own complete schedule ends at or below the final "
        "validation loss of the baseline's full length, same seed (median over seeds); the ratio "
        "to the baseline's steps is a geometric mean with a 95 % interval from the log scale."
    )
    return Table(
        "Steps to the baseline's loss", ["condition", "n", "steps", "ratio"], rows, caption
    )


def verdicts(content: Content) -> Table | None:
    """The study's claims."""
    if not content.verdicts:
        return None
    rows = []
    for item in content.verdicts:
        found, claim, change = (
            item.found,
            item.claim,
            math.exp if item.claim.scale == "log" else float,
        )
        ends = between(change(found.low), change(found.high), 3, claim.scale == "linear")
        value = f"{number(change(found.mean), 3, claim.scale == 'linear')} {ends}".strip()
        wanted = {"less": "below", "equal": "within ±", "fails": "fails more"}[claim.expect]
        edge = "" if claim.expect == "fails" else f" {signed_margin(item.claim)}"
        words = f"{item.verdict} {f'({item.reason})' if item.reason else ''}".strip()
        rows.append([claim.name, words, value, wanted + edge, claim.source])
    level = percent(content.level)
    caption = (
        "Each claim is a weighted sum over conditions (of logarithms where it is a ratio), taken "
        f"seed by seed, with its {level} interval: 1 − 0.05/{len(rows)}, as the study's "
        f"configuration states {len(rows)} before it runs. Decided only where the whole interval "
        "lies on one side of the margin."
    )
    columns = ["claim", "verdict", f"found [{level}]", "expected", "source"]
    return Table("Claims", columns, rows, caption, [1, 4])


def signed_margin(claim: Any) -> str:
    """The margin on the claim's own scale: nats, or a ratio."""
    edge = -claim.margin if claim.expect == "less" else claim.margin
    if claim.scale == "log":
        return f"×{math.exp(edge):.3g}"
    return number(edge, 3) if claim.expect == "less" else f"{edge:g}"


def planned(content: Content) -> Table | None:
    """The seed planner."""
    if content.planned is None:
        return None
    rows = []
    for name, row in content.planned.iterrows():
        known = pd.notna(row.sd)
        seeds = [seeds_cell(row[c], known) for c in ("width", "power", "cautious")]
        cells = [f"{row.n:.0f}", number(row["mean"], sign=True), number(row.sd), number(row.reach)]
        rows.append([str(name), *cells, *seeds, row.reason])
    caption = (
        f"SD: of the seed-wise contrast. ± now: half the {percent(content.level)} interval's width "
        f"with the seeds there are. Seeds for ±{content.margin:g}: until that is at most the "
        "margin. Seeds for 80 %: to call a true difference of the margin in four of five studies; "
        "cautious: the same if the true SD is at its upper 80 % confidence limit, since few seeds "
        "may flatter it."
    )
    columns = ["contrast", "n", "found", "SD", "± now", f"seeds for ±{content.margin:g}"]
    columns += ["seeds for 80 %", "cautious", ""]
    if not any(row[-1] for row in rows):
        columns, rows = columns[:-1], [row[:-1] for row in rows]
    return Table(f"Seeds for a margin of {content.margin:g}", columns, rows, caption, [8])


def seeds_cell(n: Any, known: bool) -> str:
    """A number of seeds."""
    return NOTHING if not known else "over 1000" if pd.isna(n) else f"{n:.0f}"


def all_tables(content: Content) -> Iterable[Table]:
    """In the page's order."""
    every = (verdicts, comparison, rates, steps, losses, readings, cost, planned)
    return [table for make in every if (table := make(content)) is not None]
