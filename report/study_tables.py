"""The tables of what was searched and stated: learning rates, steps to a loss, claims, seeds."""

import math
from typing import Any

import pandas as pd

from report.cells import NOTHING, Table, between, marked, number, percent
from report.content import Content


def rates(content: Content) -> Table | None:
    """Where each optimum lies."""
    if not content.tuned:
        return None
    rows = []
    for entry in content.tuned:
        tried = f"{len(entry.rates)}: {entry.rates.index.min():g} to {entry.rates.index.max():g}"
        failed = f"{entry.rates.failed.sum()} of {entry.rates.n.sum()}"
        rows.append([
            marked(content, entry.condition), f"{entry.best:g}", number(entry.rates.capped.min()), tried,
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
    for condition, row in content.steps.iterrows():
        needed = "not reached" if math.isinf(row.steps) else number(row.steps, 0)
        ratio = f"{row.bound} {number(row.ratio, 2)} {between(row.low, row.high, 2, False)}"
        shown = "baseline" if condition == content.study.conditions[0] else ratio.strip()
        rows.append([marked(content, str(condition)), f"{row.n:.0f}", needed, shown])
    caption = (
        "The smallest number of steps whose own complete schedule ends at or below the final "
        "validation loss of the baseline's full length, same seed (median over seeds); the ratio "
        "to the baseline's steps is a geometric mean with a 95 % interval from the log scale; "
        "above 1: more steps are needed. A loss that is missed by less than the seeds' scatter "
        "counts as not reached."
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
        f"seed by seed, with its {level} interval: 1 − 0.05/{len(rows)} (Bonferroni), so that all "
        f"{len(rows)} intervals hold together with at least 95 % confidence. The study's "
        "configuration states the claims before it runs. Supported: the whole interval lies beyond "
        "the margin, or for “within ±” inside it; refuted: wholly on the other side; otherwise "
        "undecided."
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
        "margin. Seeds for 80 %: to tell a true difference of the margin from 0 in four of five "
        "studies; cautious: the same if the true SD is at its upper 80 % confidence limit, since "
        "few seeds may flatter it. Ratios are on the log scale, with their claim's own margin."
    )
    columns = ["contrast", "n", "found", "SD", "± now", f"seeds for ±{content.margin:g}"]
    columns += ["seeds for 80 %", "cautious", ""]
    if not any(row[-1] for row in rows):
        columns, rows = columns[:-1], [row[:-1] for row in rows]
    return Table(f"Seeds for a margin of {content.margin:g}", columns, rows, caption, [8])


def seeds_cell(n: Any, known: bool) -> str:
    """A number of seeds."""
    return NOTHING if not known else "over 1000" if pd.isna(n) else f"{n:.0f}"
