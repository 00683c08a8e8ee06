"""The report's figures. Each has one axes, so that a page can put them side by side or not."""

from collections.abc import Callable
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from report.cells import percent
from report.content import Content
from report.curves import BINS, Curve, curve_of
from report.layers import draw_probes
from report.style import (
    INK,
    STYLE,
    Drawn,
    Look,
    canvas,
    finish,
    in_rows,
    looks,
    name_lines,
    plain_numbers,
)
from report.tables import metric_name

FEWEST_EVALUATIONS = 5  # with fewer, the training loss is the curve to look at
FEWEST_POINTS = 3  # two points joined by a line are no curve
ROW_WIDTH = 16  # characters of a condition's name on one line of the forest plot
SMOOTHED = f"Each point is a mean over a stretch of steps, with at most {BINS} points in a curve."


def looks_of(content: Content) -> dict[str, Look]:
    """How each condition is drawn, in every figure and table of one report."""
    conditions = content.study.conditions
    tuned = [entry.condition for entry in content.tuned if entry.condition not in conditions]
    return looks([*conditions, *tuned])


def draw_all(content: Content) -> dict[str, Drawn]:
    """Every figure that the runs have the numbers for, by the name of its file."""
    colours = looks_of(content)
    made: list[tuple[str, Callable[[str, Content, dict[str, Look]], Drawn | None]]] = [
        ("differences", differences),
        ("loss_val_steps", validation_loss),
        ("loss_train_steps", training_loss),
        ("loss_lr", loss_lr),
        ("gradient_norm", gradient_norm),
    ]
    with mpl.rc_context(STYLE):
        drawn = {name: figure for name, make in made if (figure := make(name, content, colours))}
        return drawn | draw_probes(content.study, colours)


def curves_of(content: Content, metric: str, log: bool = False) -> dict[str, Curve]:
    """Each condition's curve, if it was logged."""
    study = content.study
    curves = {condition: curve_of(study, condition, metric, log) for condition in study.conditions}
    return {condition: curve for condition, curve in curves.items() if curve is not None}


def validation_loss(name: str, content: Content, colours: dict[str, Look]) -> Drawn | None:
    """Validation loss against steps, None with fewer than five evaluations."""
    curves = curves_of(content, "loss/val")
    if most_points(curves) < FEWEST_EVALUATIONS:
        return None
    caption = sentences(lines_and_shades(curves), unseen(content, curves))
    details = "The validation loss is measured in evaluation mode."
    return loss_figure(name, "Validation loss", curves, colours, caption, details, dots=True)


def training_loss(name: str, content: Content, colours: dict[str, Look]) -> Drawn | None:
    """Training loss against steps, smoothed."""
    curves = curves_of(content, "loss/train")
    if most_points(curves) < FEWEST_POINTS:
        return None
    warnings = [unseen(content, curves)]
    if leaking := helped(content):
        warnings.append(f"the loss of {', '.join(leaking)} is helped by later text")
    caption = sentences(lines_and_shades(curves), "; ".join(filter(None, warnings)))
    return loss_figure(name, "Training loss", curves, colours, caption, SMOOTHED)


def loss_figure(
    name: str,
    what: str,
    curves: dict[str, Curve],
    colours: dict[str, Look],
    caption: str,
    details: str,
    dots: bool = False,
) -> Drawn:
    """A loss against optimizer steps; `details` go on with what holds for both losses."""
    figure, axes = canvas()
    for condition, curve in curves.items():
        draw_curve(axes, condition, curve, colours[condition], dots)
    axes.set_ylim(*loss_range(list(curves.values())))
    axes.set_xlim(left=0)
    clamp_marks(axes)
    axes.set_ylabel(f"{what.lower()} (nats per character)")
    axes.set_xlabel("optimizer steps")
    name_lines(figure, axes)
    details = f"{details} The steep start of the curves is cut off."
    if any(has_band(curve) for curve in curves.values()):
        details += " At each step the interval is for that step alone, from Student's t."
    return finish(figure, name, f"{what} during training", caption, details)


def sentences(*parts: str) -> str:
    """Parts that are not empty, each as a sentence."""
    return " ".join(f"{part[:1].upper()}{part[1:]}." for part in parts if part)


def lines_and_shades(curves: dict[str, Curve]) -> str:
    """What the lines and shades of a figure are, of those that are there."""
    text = "means over seeds"
    if any(has_band(curve) for curve in curves.values()):
        text += " with their 95 % intervals, shaded"
    if any(curve.single for curve in curves.values()):
        each = "a condition with a failed run is drawn run by run, with × where a failed run ended"
        text = f"{text}; {each}" if any(len(c.steps) for c in curves.values()) else each
    return text


def has_band(curve: Curve) -> bool:
    """Has the curve an interval anywhere?"""
    return bool(np.isfinite(curve.low).any())


def unseen(content: Content, curves: dict[str, Curve]) -> str:
    """Which conditions have no curve."""
    missing = [condition for condition in content.study.conditions if condition not in curves]
    return f"nothing was logged for {', '.join(missing)}" if missing else ""


def helped(content: Content) -> list[str]:
    """Conditions that see later text while they train."""
    runs = content.study.reported
    leaking = set(runs[runs.causal_in_training.eq(False)].condition)
    return [condition for condition in content.study.conditions if condition in leaking]


def most_points(curves: dict[str, Curve]) -> int:
    """How many points the longest curve or single run has."""
    lengths = [len(curve.steps) for curve in curves.values()]
    lengths += [len(steps) for curve in curves.values() for steps, _ in curve.single]
    return max(lengths, default=0)


def draw_curve(axes: Axes, condition: str, curve: Curve, look: Look, dots: bool = False) -> None:
    """Mean and band; or the single runs, with a mark where a failed one ended."""
    few = dots and len(curve.steps) <= 30
    marker = look.marker if few else ""
    style: Any = {"color": look.color, "linestyle": look.linestyle}
    if len(curve.steps):
        axes.plot(curve.steps, curve.mean, label=condition, marker=marker, markersize=4, **style)
        band: Any = {"color": look.color, "alpha": 0.2, "linewidth": 0}
        axes.fill_between(curve.steps, curve.low, curve.high, **band)
    for i, (steps, values) in enumerate(curve.single):
        label = None if i else f"{condition} ({len(curve.ends)} of {len(curve.single)} failed)"
        axes.plot(steps, values, label=label, linewidth=1, **style)
    for step, value in curve.ends:
        axes.plot(step, value, "x", color=look.color, ms=9, mew=2.5, gid="failed")


def clamp_marks(axes: Axes) -> None:
    """A run that ended outside the picture is marked on its edge."""
    low, high = axes.get_ylim()
    for line in axes.get_lines():
        if line.get_gid() == "failed":
            line.set_ydata(np.clip(np.asarray(line.get_ydata(), float), low, high))
            line.set_clip_on(False)


def loss_range(curves: list[Curve]) -> tuple[float, float]:
    """From the lowest value to what was reached a tenth of the way: the start says little.

    Means and single runs decide, not the ends of intervals: with three seeds these can be far away.
    """
    lines = [(c.steps, c.mean) for c in curves if len(c.steps)]
    lines += [line for c in curves for line in c.single]
    start = max(values[0] for _, values in lines)
    early = [values[steps >= 0.1 * steps[-1]][0] for steps, values in lines if len(values) > 8]
    early += [values.max() for _, values in lines if len(values) <= 8]
    early += [value for c in curves for _, value in c.ends]
    top = min(max(early), start * 1.05)
    lowest = min(values.min() for _, values in lines)
    margin = 0.04 * (top - lowest) or 0.1
    return lowest - margin, top + margin


def differences(name: str, content: Content, colours: dict[str, Look]) -> Drawn | None:
    """Forest plot: each condition's paired difference to its baseline."""
    study, table = content.study, content.summary
    rows = [condition for condition in study.conditions if study.baselines[condition]]
    if not rows or study.reported.empty:
        return None
    figure, axes = canvas(height=max(3.1, 1.0 + 0.36 * len(rows)))
    axes.axvline(0, color=INK, linewidth=1)
    for y, condition in enumerate(rows):
        row, look = table.loc[condition], colours[condition]
        if np.isfinite(row.difference_low):
            axes.plot([row.difference_low, row.difference_high], [y, y], color=look.color)
        if np.isfinite(row.difference):
            axes.plot(row.difference, y, look.marker, color=look.color, markersize=7)
            each = study.of(condition)[study.metric] - study.of(row.baseline)[study.metric]
            axes.plot(each, np.full(len(each), y + 0.2), ".", color=look.color, markersize=5)
        else:
            said = why_no_difference(row, table.loc[row.baseline])
            axes.annotate(said, (0, y), (6, 0), textcoords="offset points", va="center")
    axes.set_yticks(range(len(rows)), [in_rows(row, ROW_WIDTH) for row in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.margins(x=0.08)
    bases = {study.baselines[condition] for condition in rows}
    base = bases.pop() if len(bases) == 1 else "its baseline"
    axes.set_xlabel(f"{metric_name(content)} minus that of {base}\n(nats per character)")
    intervals = ""
    if table.difference_low.notna().any():
        intervals = f", with {percent(content.level)} intervals"
    caption = (
        f"Paired by seed{intervals}; the small dots are the single seeds. Left of the line the "
        "loss is lower than the baseline's."
    )
    return finish(figure, name, "Difference to the baseline", caption)


def why_no_difference(row: pd.Series, base: pd.Series) -> str:
    """What stands in the forest plot where no difference can be taken."""
    if row.failed:
        return f"{row.failed} of {row.n} failed"
    if base.failed:
        return f"baseline: {base.failed} of {base.n} failed"
    return "no seed in common"


def loss_lr(name: str, content: Content, colours: dict[str, Look]) -> Drawn | None:
    """Best validation loss against the learning rate, where that was swept."""
    if not content.tuned:
        return None
    figure, axes = canvas()
    for entry in content.tuned:
        look, rates = colours[entry.condition], entry.rates
        joined = look.linestyle if len(rates) >= FEWEST_POINTS else ""
        style: Any = {"color": look.color, "linestyle": joined, "marker": look.marker}
        axes.plot(rates.index, rates.capped, label=entry.condition, markersize=4, **style)
        best: Any = {"ms": 11, "mfc": "none", "mec": look.color, "mew": 1.5}
        axes.plot(entry.best, rates.capped.min(), "o", **best)
        failed = rates[rates.failed > 0]
        if len(failed):
            cross: Any = {"color": look.color, "ms": 9, "mew": 2.5, "gid": "failed"}
            axes.plot(failed.index, failed.capped, "x", **cross)
    axes.set_ylim(*trained_range([entry.rates for entry in content.tuned]))
    clamp_marks(axes)
    axes.set_xscale("log")
    plain_numbers(axes.xaxis)
    axes.set_xlabel("peak learning rate")
    axes.set_ylabel("best validation loss\n(nats per character)")
    name_lines(figure, axes)
    failures = any((entry.rates.failed > 0).any() for entry in content.tuned)
    caption = "Means over seeds; the circle is the best rate."
    if failures:
        caption += " At × at least one seed failed; × on the upper edge lies beyond it."
    details = "A failed seed counts with its last loss." if failures else ""
    return finish(figure, name, "Loss against the learning rate", caption, details)


def trained_range(tables: list[pd.DataFrame]) -> tuple[float, float]:
    """The losses of rates without a failed seed; the others are marked at the upper edge."""
    values = pd.concat([rates.capped[rates.failed == 0] for rates in tables])
    values = values if len(values) else pd.concat([rates.capped for rates in tables])
    margin = 0.06 * (values.max() - values.min()) or 0.1
    return float(values.min() - margin), float(values.max() + margin)


def gradient_norm(name: str, content: Content, colours: dict[str, Look]) -> Drawn | None:
    """The gradient's norm before clipping."""
    curves = curves_of(content, "optim/grad_norm", log=True)
    lines = [curve.mean for curve in curves.values() if len(curve.mean)]
    lines += [values for curve in curves.values() for _, values in curve.single]
    seen = np.concatenate([line[line > 0] for line in lines]) if lines else np.array([])
    if most_points(curves) < FEWEST_POINTS or not len(seen):
        return None
    figure, axes = canvas()
    for condition, curve in curves.items():
        draw_curve(axes, condition, curve, colours[condition])
    axes.set_yscale("log")
    axes.set_ylim(seen.min() / 1.5, seen.max() * 1.5)  # an interval may reach down to 0
    clamp_marks(axes)
    plain_numbers(axes.yaxis)
    axes.set_xlim(left=0)
    axes.set_xlabel("optimizer steps")
    axes.set_ylabel("gradient norm before clipping")
    name_lines(figure, axes)
    caption = sentences(lines_and_shades(curves), unseen(content, curves))
    details = f"{SMOOTHED} Means over seeds are geometric."
    return finish(figure, name, "Gradient norm during training", caption, details)
