"""The report's figures. Each is one axes, so that a page can put them side by side or not."""

from collections.abc import Callable
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from report.curves import BINS, Curve, curve_of
from report.draw import (
    INK,
    STYLE,
    Drawn,
    Look,
    add_legend,
    canvas,
    finish,
    looks,
    plain_numbers,
)
from report.formatting import percent
from report.judge import Judged as Content
from report.layers import draw_probes

FEWEST_POINTS = 2
SMOOTHED = f"Averaged over at most {BINS} stretches of steps. "


def draw_all(content: Content) -> dict[str, Drawn]:
    """Every figure that the runs have the numbers for, by the name of its file."""
    conditions = content.study.conditions
    tuned = [entry.condition for entry in content.tuned if entry.condition not in conditions]
    colours = looks([*conditions, *tuned])
    made: list[tuple[str, Callable[[str, Content, dict[str, Look]], Drawn | None]]] = [
        ("differences", differences),
        ("loss_lr", loss_lr),
        ("loss_val_steps", over_training),
        ("loss_val_seconds", over_training),
        ("loss_train_steps", over_training),
        ("loss_train_seconds", over_training),
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


def over_training(name: str, content: Content, colours: dict[str, Look]) -> Drawn | None:
    """loss_(val|train)_(steps|seconds); seconds are steps times the condition's median step."""
    _, split, unit = name.split("_")
    metric, seconds = f"loss/{split}", unit == "seconds"
    curves = curves_of(content, metric)
    if max((points(curve) for curve in curves.values()), default=0) < FEWEST_POINTS:
        return None  # no curve: a start and an end are in the tables
    figure, axes = canvas()
    for condition, curve in curves.items():
        factor = content.summary.step_seconds[condition] if seconds else 1.0
        if np.isfinite(factor):
            draw_curve(
                axes, condition, curve, colours[condition], factor, dots=metric == "loss/val"
            )
    axes.set_ylim(*loss_range(list(curves.values())))
    axes.set_xlim(left=0)
    clamp_marks(axes)
    what = "Validation loss" if metric == "loss/val" else "Training loss"
    axes.set_ylabel(f"{what.lower()} (nats per character)")
    axes.set_xlabel("training time (s)" if seconds else "optimizer steps")
    add_legend(figure, axes)
    caption = f"{band_caption(curves)} {'Evaluation mode. ' if split == 'val' else SMOOTHED}"
    caption += f"The steep start is cut off.{unseen(content, curves)}"
    if split == "train" and (leaking := helped(content)):
        caption += f" Helped by text that should be predicted: {', '.join(leaking)} (notes)."
    if seconds:
        caption += " Seconds: steps times the median step time of the condition's own jobs."
    title = f"{what} against {'seconds' if seconds else 'steps'}"
    return finish(figure, name, title, caption)


def band_caption(curves: dict[str, Curve]) -> str:
    """What lines and shades are, of those that are there."""
    text = "Means over seeds"
    if any(np.isfinite(curve.low).any() for curve in curves.values()):
        text += " with 95 % intervals (at each step by itself), shaded"
    if any(curve.single for curve in curves.values()):
        text += "; where a run failed, each run by itself, × where a failed one ended"
    return f"{text}."


def unseen(content: Content, curves: dict[str, Curve]) -> str:
    """The conditions without a curve."""
    missing = [condition for condition in content.study.conditions if condition not in curves]
    return f" Nothing was logged before they ended: {', '.join(missing)}." if missing else ""


def helped(content: Content) -> list[str]:
    """Conditions that see later text while they train."""
    runs = content.study.reported
    leaking = set(runs[runs.causal_in_training.eq(False)].condition)
    return [condition for condition in content.study.conditions if condition in leaking]


def points(curve: Curve) -> int:
    """How many points a curve has, or the longest of its runs."""
    return max([len(curve.steps), *(len(steps) for steps, _ in curve.single)])


def draw_curve(
    axes: Axes, condition: str, curve: Curve, look: Look, factor: float, dots: bool = False
) -> None:
    """Mean and band; or the single runs, with a mark where a failed one ended."""
    few = dots and len(curve.steps) <= 30
    marker = look.marker if few else ""
    style: Any = {"color": look.color, "linestyle": look.linestyle}
    if len(curve.steps):
        x = curve.steps * factor
        axes.plot(x, curve.mean, label=condition, marker=marker, markersize=4, **style)
        axes.fill_between(x, curve.low, curve.high, color=look.color, alpha=0.2, linewidth=0)
    for i, (steps, values) in enumerate(curve.single):
        label = None if i else f"{condition} ({len(curve.ends)} of {len(curve.single)} failed)"
        axes.plot(steps * factor, values, label=label, linewidth=1, **style)
    for step, value in curve.ends:
        axes.plot(step * factor, value, "x", color=look.color, ms=9, mew=2.5, gid="failed")


def clamp_marks(axes: Axes) -> None:
    """A run that ended outside the picture is marked on its edge."""
    low, high = axes.get_ylim()
    for line in axes.get_lines():
        if line.get_gid() == "failed":
            line.set_ydata(np.clip(np.asarray(line.get_ydata(), float), low, high))
            line.set_clip_on(False)


def loss_range(curves: list[Curve]) -> tuple[float, float]:
    """From the lowest value to what was reached a tenth of the way: the start says little."""
    lines = [(c.steps, c.mean) for c in curves if len(c.steps)]
    lines += [line for c in curves for line in c.single]
    start = max(values[0] for _, values in lines)
    early = [values[steps >= 0.1 * steps[-1]][0] for steps, values in lines if len(values) > 8]
    early += [values.max() for _, values in lines if len(values) <= 8]
    early += [value for c in curves for _, value in c.ends]
    top = min(max(early), start * 1.05)
    lowest = [np.nanmin(np.append(c.mean, c.low)) for c in curves if len(c.steps)]
    lowest += [values.min() for c in curves for _, values in c.single]
    margin = 0.04 * (top - min(lowest)) or 0.1
    return min(lowest) - margin, top + margin


def differences(name: str, content: Content, colours: dict[str, Look]) -> Drawn | None:
    """Forest plot: each condition's paired difference to its baseline."""
    rows = [
        condition for condition in content.study.conditions if content.study.baselines[condition]
    ]
    table = content.summary
    if not rows or content.study.reported.empty:
        return None
    figure, axes = canvas(height=1.3 + 0.36 * len(rows))
    axes.axvline(0, color=INK, linewidth=1)
    for y, condition in enumerate(rows):
        row, look = table.loc[condition], colours[condition]
        if np.isfinite(row.difference_low):
            axes.plot([row.difference_low, row.difference_high], [y, y], color=look.color)
        if np.isfinite(row.difference):
            axes.plot(row.difference, y, look.marker, color=look.color, markersize=7)
        else:
            base = table.loc[row.baseline]
            who = row if row.failed else base
            said = f"{who.failed} of {who.n} failed" if who.failed else "no seed in common"
            said = said if row.failed or not base.failed else f"baseline: {said}"
            axes.annotate(said, (0, y), (6, 0), textcoords="offset points", va="center")
    axes.set_yticks(range(len(rows)), rows)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.margins(x=0.08)
    bases = {content.study.baselines[condition] for condition in rows}
    base = bases.pop() if len(bases) == 1 else "its baseline"
    axes.set_xlabel(f"{content.study.metric_name} minus that of {base} (nats per character)")
    intervals = ""
    if table.difference_low.notna().any():
        intervals = f", with {percent(content.level)} intervals"
    caption = f"Paired by seed{intervals}. Left of the line: a lower loss than the baseline's."
    return finish(figure, name, "Difference to the baseline", caption)


def loss_lr(name: str, content: Content, colours: dict[str, Look]) -> Drawn | None:
    """Best validation loss against the learning rate, where that was swept."""
    if not content.tuned:
        return None
    figure, axes = canvas()
    for entry in content.tuned:
        look, rates = colours[entry.condition], entry.rates
        axes.plot(
            rates.index, rates.capped, label=entry.condition, color=look.color,
            linestyle=look.linestyle, marker=look.marker, markersize=4,
        )  # fmt: skip
        best = rates.capped.min()
        axes.plot(entry.best, best, "o", ms=11, mfc="none", mec=look.color, mew=1.5)
        failed = rates[rates.failed > 0]
        if len(failed):
            style: Any = {"color": look.color, "ms": 9, "mew": 2.5, "gid": "failed"}
            axes.plot(failed.index, failed.capped, "x", **style)
    axes.set_ylim(*trained_range([entry.rates for entry in content.tuned]))
    clamp_marks(axes)
    axes.set_xscale("log")
    plain_numbers(axes.xaxis)
    axes.set_xlabel("peak learning rate")
    axes.set_ylabel("best validation loss (nats per character)")
    add_legend(figure, axes)
    caption = (
        "Means over seeds; a failed seed counts with its last loss. Circle: the best rate. "
        "×: at least one seed failed there; at the upper edge if it lies beyond."
    )
    return finish(figure, name, "Loss against the learning rate", caption)


def trained_range(tables: list[pd.DataFrame]) -> tuple[float, float]:
    """The losses of rates without a failed seed; the others are marked at the upper edge."""
    values = pd.concat([rates.capped[rates.failed == 0] for rates in tables])
    values = values if len(values) else pd.concat([rates.capped for rates in tables])
    margin = 0.06 * (values.max() - values.min()) or 0.1
    return float(values.min() - margin), float(values.max() + margin)


def gradient_norm(name: str, content: Content, colours: dict[str, Look]) -> Drawn | None:
    """The gradient's norm before clipping."""
    curves = curves_of(content, "optim/grad_norm", log=True)
    if not any((curve.mean > 0).any() or curve.single for curve in curves.values()):
        return None
    figure, axes = canvas()
    for condition, curve in curves.items():
        draw_curve(axes, condition, curve, colours[condition], 1.0)
    lines = [curve.mean for curve in curves.values() if len(curve.mean)]
    lines += [values for curve in curves.values() for _, values in curve.single]
    seen = np.concatenate(lines)
    axes.set_yscale("log")
    axes.set_ylim(seen[seen > 0].min() / 1.5, seen.max() * 1.5)  # bands may go on to 0
    clamp_marks(axes)
    plain_numbers(axes.yaxis)
    axes.set_xlim(left=0)
    axes.set_xlabel("optimizer steps")
    axes.set_ylabel("gradient norm before clipping")
    add_legend(figure, axes)
    caption = f"{band_caption(curves)} {SMOOTHED}Means are geometric."
    return finish(figure, name, "Gradient norm", caption)
