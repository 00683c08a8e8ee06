"""The report's figures. Each has one axes, so that a page can put them side by side or not."""

from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from report.curves import (
    BINS,
    FEWEST_POINTS,
    Curve,
    clamp_marks,
    curve_caption,
    curves_of,
    draw_curves,
    most_points,
)
from report.formatting import percent
from report.intervals import family_level
from report.judge import Judged
from report.layers import draw_probes
from report.style import (
    INK,
    STYLE,
    Drawn,
    Look,
    around,
    canvas,
    finish,
    in_rows,
    looks,
    name_lines,
    plain_numbers,
)
from report.summary import comparisons

FEWEST_EVALUATIONS = 5  # with fewer, the training loss is the curve to look at
ROOMY = 8  # conditions of a forest plot whose names may take two lines
SMOOTHED = f"Each point is a mean over a stretch of steps, with at most {BINS} points in a curve."


def looks_of(judged: Judged) -> dict[str, Look]:
    """How each condition is drawn, in every figure and table of one report."""
    tuned = [entry.condition for entry in judged.tuned]
    return looks(list(dict.fromkeys([*judged.study.conditions, *tuned])))


def draw_all(judged: Judged) -> dict[str, Drawn]:
    """Every figure that the runs have the numbers for, by the name of its file."""
    colours = looks_of(judged)
    made = {
        "differences": differences,
        "loss_val_steps": loss,
        "loss_train_steps": loss,
        "loss_lr": loss_lr,
        "gradient_norm": gradient_norm,
    }
    with mpl.rc_context(STYLE):
        drawn = {
            name: figure for name, make in made.items() if (figure := make(name, judged, colours))
        }
        return drawn | draw_probes(judged.study, colours)


def differences(name: str, judged: Judged, colours: dict[str, Look]) -> Drawn | None:
    """Forest plot: each condition's paired difference to its baseline."""
    study = judged.study
    rows = [condition for condition in study.conditions if study.baselines[condition]]
    if not rows or study.reported.empty:
        return None
    figure, axes = canvas(height=max(3.1, min(1 + 0.36 * len(rows), 4.2), 1 + 0.2 * len(rows)))
    axes.axvline(0, color=INK, linewidth=1)
    for y, condition in enumerate(rows):
        draw_difference(axes, y, judged, condition, colours[condition])
    width = 16 if len(rows) <= ROOMY else 40
    axes.set_yticks(range(len(rows)), [in_rows(condition, width) for condition in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.margins(x=0.08)
    bases = {study.baselines[condition] for condition in rows}
    base = bases.pop() if len(bases) == 1 else "its baseline"
    axes.set_xlabel(f"{study.metric_name} minus that of {base}\n(nats per character)")
    known = judged.summary.difference_low.notna().any()
    caption = "Paired by seed" + (f", with {percent(judged.level)} intervals" if known else "")
    if known and (k := comparisons(study)) > 1:
        caption += f" (thin: {percent(family_level(k))}, so that all {k} hold together at 95 %)"
    caption += "; the small dots are single seeds. Left of the line the loss is lower than the "
    caption += "baseline's."
    return finish(figure, name, "Difference to the baseline", caption)


def draw_difference(axes: Axes, y: int, judged: Judged, condition: str, look: Look) -> None:
    """A row of the forest plot: mean, interval and single seeds, or why there are none."""
    study, row = judged.study, judged.summary.loc[condition]
    below = min(0.06 * len(study.conditions), 0.25)
    if np.isfinite(row.difference):
        if comparisons(study) > 1:
            ends = [row.simultaneous_low, row.simultaneous_high]
            axes.plot(ends, [y, y], color=look.color, linewidth=0.7, gid=f"together_{y}")
        axes.plot([row.difference_low, row.difference_high], [y, y], color=look.color)
        axes.plot(row.difference, y, look.marker, color=look.color, markersize=7)
        each = study.of(condition)[study.metric] - study.of(row.baseline)[study.metric]
        axes.plot(each, np.full(len(each), y + below), ".", color=look.color, markersize=5)
    else:
        said = why_no_difference(row, judged.summary.loc[row.baseline])
        axes.annotate(said, (0, y), (6, 0), textcoords="offset points", va="center")


def why_no_difference(row: pd.Series, base: pd.Series) -> str:
    """What the forest plot says where no difference can be taken."""
    if row.failed:
        return f"{row.failed} of {row.n} failed"
    return f"baseline: {base.failed} of {base.n} failed" if base.failed else "no seed in common"


def loss(name: str, judged: Judged, colours: dict[str, Look]) -> Drawn | None:
    """loss_val_steps or loss_train_steps; None with too few points for a curve."""
    validation = name == "loss_val_steps"
    curves = curves_of(judged.study, "loss/val" if validation else "loss/train")
    if most_points(curves) < (FEWEST_EVALUATIONS if validation else FEWEST_POINTS):
        return None
    what = "Validation loss" if validation else "Training loss"
    figure, axes = canvas()
    axes.set_ylabel(f"{what.lower()} (nats per character)")
    draw_curves(axes, curves, colours, loss_range(list(curves.values())), dots=validation)
    name_lines(figure, axes)
    caption = curve_caption(judged.study, curves)
    if judged.study.leaking and not validation:
        caption += f" The loss of {', '.join(judged.study.leaking)} is helped by later text."
    details = "The validation loss is in evaluation mode." if validation else SMOOTHED
    details += " The steep start of the curves is cut off; an interval is for its own step alone."
    return finish(figure, name, what, caption, details)


def gradient_norm(name: str, judged: Judged, colours: dict[str, Look]) -> Drawn | None:
    """The gradient's norm before clipping."""
    curves = curves_of(judged.study, "optim/grad_norm", log=True)
    lines = [values for curve in curves.values() for _, values in curve.lines]
    seen = np.concatenate([values[values > 0] for values in lines]) if lines else np.array([])
    if most_points(curves) < FEWEST_POINTS or not len(seen):
        return None
    figure, axes = canvas()
    axes.set_yscale("log")
    axes.set_ylabel("gradient norm before clipping")
    limits = (seen.min() / 1.5, seen.max() * 1.5)  # an interval may reach down to 0
    draw_curves(axes, curves, colours, limits)
    plain_numbers(axes.yaxis)
    name_lines(figure, axes)
    details = f"{SMOOTHED} Means over seeds are geometric."
    return finish(figure, name, "Gradient norm", curve_caption(judged.study, curves), details)


def loss_range(curves: list[Curve]) -> tuple[float, float]:
    """From the lowest value to what was reached a tenth of the way: the start says little.

    Means and single runs decide, not the ends of intervals: with three seeds these may be far away.
    """
    lines = [line for curve in curves for line in curve.lines]
    start = max(values[0] for _, values in lines)
    early = [values[steps >= 0.1 * steps[-1]][0] for steps, values in lines if len(values) > 8]
    early += [values.max() for _, values in lines if len(values) <= 8]
    early += [value for c in curves for _, value in c.ends]
    top = min(max(early), start * 1.05)
    lowest = min(values.min() for _, values in lines)
    margin = 0.04 * (top - lowest) or 0.1
    return lowest - margin, top + margin


def loss_lr(name: str, judged: Judged, colours: dict[str, Look]) -> Drawn | None:
    """Best validation loss against the learning rate, where that was swept."""
    if not judged.tuned:
        return None
    figure, axes = canvas()
    for entry in judged.tuned:
        look, rates = colours[entry.condition], entry.rates
        joined = look.linestyle if len(rates) >= FEWEST_POINTS else ""
        style: Any = {"color": look.color, "linestyle": joined, "marker": look.marker, "ms": 4}
        axes.plot(rates.index, rates.capped, label=entry.condition, **style)
        axes.axvline(entry.best, color=look.color, linestyle=":", linewidth=1)
        seeds, failed = entry.seeds[~entry.seeds.failed], entry.seeds[entry.seeds.failed]
        axes.plot(seeds.lr, seeds.capped, ".", color=look.color, ms=3)
        axes.plot(failed.lr, failed.capped, "x", color=look.color, ms=9, mew=2.5, gid="failed")
    every = pd.concat([entry.rates for entry in judged.tuned])
    trained = every.capped[every.failed == 0]  # other rates are marked, if need be at the edge
    axes.set_ylim(*around(trained if len(trained) else every.capped))
    axes.set_xscale("log")
    clamp_marks(axes)
    plain_numbers(axes.xaxis)
    axes.set_xlabel("peak learning rate")
    axes.set_ylabel("best validation loss\n(nats per character)")
    name_lines(figure, axes)
    caption = "Means over seeds; each dot is a seed, and the dotted line is the rate chosen."
    if any((entry.rates.failed > 0).any() for entry in judged.tuned):
        caption += " × marks a seed that failed, on the upper edge if its loss is beyond."
    return finish(figure, name, "Loss against the learning rate", caption)
