"""Curves over training: the mean over seeds at common steps, with its interval; how it is drawn."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from report.group import Study
from report.intervals import interval, ratio
from report.style import Look, around

FEWEST_POINTS = 3  # two points joined by a line are no curve
BINS = 60  # points of a curve: more show the noise of single batches
Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Curve:
    """One condition over training.

    Attributes:
        label: the condition, with the number of its failed runs if there are any.
        lines: optimizer steps and values: one line, the mean over seeds; or, of a condition with a
            failed run, a line per run, the longest first.
        band: both ends of the mean's 95 % interval, NaN with fewer than 3 seeds; None without mean.
        ends: (step, value) where a run that failed ended.
    """

    label: str
    lines: list[tuple[Array, Array]]
    band: tuple[Array, Array] | None
    ends: list[tuple[float, float]]


def curves_of(study: Study, name: str, log: bool = False) -> dict[str, Curve]:
    """Each condition's curve of one metric, if it was logged."""
    curves = {condition: curve_of(study, condition, name, log) for condition in study.conditions}
    return {condition: curve for condition, curve in curves.items() if curve is not None}


def curve_of(study: Study, condition: str, name: str, log: bool = False) -> Curve | None:
    """One metric of a condition's reported runs; None if it was not logged.

    With `log` the mean and its interval are geometric, for what is drawn on a log axis.
    """
    runs = study.of(condition)
    series = {run: values_of(study, run, name) for run in runs.run}
    series = {run: values for run, values in series.items() if len(values)}
    if not series:
        return None
    label, kinds = label_of(study, condition), runs.set_index("run").failure
    if study.failed[condition]:
        ends = [end_of(study, run, name) for run in series if kinds[run]]
        each = [binned(values.to_frame()).squeeze("columns") for values in series.values()]
        each.sort(key=lambda values: -values.index[-1])  # the longest is the one that is named
        lines = [(values.index.to_numpy(), values.to_numpy()) for values in each]
        return Curve(label, lines, None, ends)
    frame = binned(pd.DataFrame(series))
    if frame.empty:
        return None
    values = frame.clip(lower=np.finfo(float).tiny) if log else frame
    found = ratio(np.log(values)) if log else interval(values)
    band = np.broadcast_to(found.low, len(frame)), np.broadcast_to(found.high, len(frame))
    return Curve(label, [(frame.index.to_numpy(), np.asarray(found.mean))], band, [])


def label_of(study: Study, condition: str) -> str:
    """`none`, or `none (2 of 3 failed)`."""
    failed = study.failed[condition]
    return f"{condition} ({failed} of {len(study.of(condition))} failed)" if failed else condition


def most_points(curves: dict[str, Curve]) -> int:
    """How many points the longest line has."""
    lengths = [len(steps) for curve in curves.values() for steps, _ in curve.lines]
    return max(lengths, default=0)


def values_of(study: Study, run: str, name: str) -> "pd.Series[float]":
    """A run's metric; values that are not finite are left out."""
    curves = study.runs.curves[run]
    if name not in curves:
        return pd.Series(dtype=float)
    values = curves[name].replace([np.inf, -np.inf], np.nan).dropna()
    return values[values.index > 0]  # the loss before training is no part of the curve


def end_of(study: Study, run: str, name: str) -> tuple[float, float]:
    """Where a failed run stopped: its last step of any metric, at its last finite value."""
    values = values_of(study, run, name)
    return float(study.runs.curves[run].index.max()), float(values.iloc[-1])


def binned(frame: pd.DataFrame) -> pd.DataFrame:
    """Steps that every run has; if they are too many to draw, means over equal stretches."""
    frame = frame.dropna()
    if len(frame) <= BINS:
        return frame
    stretch = np.arange(len(frame)) * BINS // len(frame)
    steps = pd.Series(frame.index).groupby(stretch).mean()
    return frame.groupby(stretch).mean().set_axis(steps.to_numpy(), axis=0)


def draw_curves(
    axes: Axes,
    curves: dict[str, Curve],
    colours: dict[str, Look],
    limits: tuple[float, float] | None = None,
    dots: bool = False,
) -> None:
    """Curves against steps; a run that failed outside the limits is marked on the edge."""
    for condition, curve in curves.items():
        draw_curve(axes, curve, colours[condition], dots)
    lines = [values for curve in curves.values() for _, values in curve.lines]
    axes.set_ylim(*(limits or around(np.concatenate(lines))))
    axes.set_xlim(left=0)
    axes.set_xlabel("optimizer steps")
    clamp_marks(axes)


def draw_curve(axes: Axes, curve: Curve, look: Look, dots: bool = False) -> None:
    """Mean and band; or the single runs, with a mark where a failed one ended."""
    style: Any = {"color": look.color, "linestyle": look.linestyle}
    if curve.band is None:
        style["linewidth"] = 1
    else:
        steps, _ = curve.lines[0]
        style |= {"marker": look.marker if dots and len(steps) <= 30 else "", "ms": 4}
        axes.fill_between(steps, *curve.band, color=look.color, alpha=0.2, linewidth=0)
    for i, (steps, values) in enumerate(curve.lines):
        axes.plot(steps, values, label=None if i else curve.label, **style)
    for step, value in curve.ends:
        axes.plot(step, value, "x", color=look.color, ms=9, mew=2.5, gid="failed")


def clamp_marks(axes: Axes) -> None:
    """Marks of failure beyond the limits are moved to the edge."""
    low, high = axes.get_ylim()
    for line in axes.get_lines():
        if line.get_gid() == "failed":
            line.set_ydata(np.clip(np.asarray(line.get_ydata(), float), low, high))
            line.set_clip_on(False)


def curve_caption(study: Study, curves: dict[str, Curve]) -> str:
    """One sentence: what the lines and shades of a figure are, of those that are there."""
    parts = []
    bands = [curve.band for curve in curves.values() if curve.band is not None]
    if bands:
        shaded = any(np.isfinite(low).any() for low, _ in bands)
        parts.append("means over seeds" + " with their 95 % intervals, shaded" * shaded)
    if len(bands) < len(curves):
        parts.append(
            "a condition with a failed run is drawn run by run, × where a failed run ended"
        )
    missing = [condition for condition in study.conditions if condition not in curves]
    if missing:
        parts.append(f"nothing was logged for {', '.join(missing)}")
    text = "; ".join(parts)
    return f"{text[:1].upper()}{text[1:]}."
