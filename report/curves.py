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
        steps: optimizer steps, increasing.
        mean: over seeds; NaN for a condition with a failed run.
        low: of the 95 % interval, NaN with fewer than 3 seeds.
        high: of the interval.
        single: of a condition with a failed run, each run's own steps and values, longest first.
        ends: (step, value) where a run that failed ended.
    """

    label: str
    steps: Array
    mean: Array
    low: Array
    high: Array
    single: list[tuple[Array, Array]]
    ends: list[tuple[float, float]]

    @property
    def lines(self) -> list[tuple[Array, Array]]:
        """Steps and values of the mean, or of each single run."""
        return [(self.steps, self.mean)] if len(self.steps) else self.single


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
        each = [binned(values.to_frame())[values.name] for values in series.values()]
        single = [(values.index.to_numpy(), values.to_numpy()) for values in each]
        single.sort(key=lambda line: -line[0][-1])  # the longest is the one that is named
        nothing = np.array([])
        return Curve(label, nothing, nothing, nothing, nothing, single, ends)
    frame = binned(pd.DataFrame(series))
    values = frame.clip(lower=np.finfo(float).tiny) if log else frame
    found = (ratio(np.log(values)) if log else interval(values)) if len(frame) else interval([])
    low, high = (np.broadcast_to(end, len(frame)) for end in (found.low, found.high))
    return Curve(label, frame.index.to_numpy(), np.asarray(found.mean), low, high, [], [])


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
    marker = look.marker if dots and len(curve.steps) <= 30 else ""
    style: Any = {"color": look.color, "linestyle": look.linestyle}
    if len(curve.steps):
        band: Any = {"color": look.color, "alpha": 0.2, "linewidth": 0}
        axes.fill_between(curve.steps, curve.low, curve.high, **band)
        axes.plot(curve.steps, curve.mean, label=curve.label, marker=marker, ms=4, **style)
    for i, (steps, values) in enumerate(curve.single):
        label = None if i else curve.label
        axes.plot(steps, values, label=label, linewidth=1, **style)
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
    if any(len(curve.steps) for curve in curves.values()):
        shaded = any(np.isfinite(curve.low).any() for curve in curves.values())
        parts.append("means over seeds" + " with their 95 % intervals, shaded" * shaded)
    if any(curve.single for curve in curves.values()):
        parts.append(
            "a condition with a failed run is drawn run by run, × where a failed run ended"
        )
    missing = [condition for condition in study.conditions if condition not in curves]
    if missing:
        parts.append(f"nothing was logged for {', '.join(missing)}")
    text = "; ".join(parts)
    return f"{text[:1].upper()}{text[1:]}."
