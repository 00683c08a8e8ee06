"""Whatever probes have logged, found by name: `probe/WHAT` or `probe/WHAT/LAYER`."""

import re
import textwrap
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from report.curves import (
    FEWEST_POINTS,
    curve_caption,
    curves_of,
    draw_curves,
    label_of,
    most_points,
)
from report.failures import ERROR, NON_FINITE
from report.group import Study
from report.intervals import FEWEST, interval
from report.measures import family
from report.style import Drawn, Look, around, canvas, finish, name_lines

MOST = 8  # figures: a page is no archive
FIRST = {  # what says most about a norm, in words; others are drawn where there is none of these
    "residual_rms": "RMS of the residual stream",
    "grad_norm": "gradient norm of each block",
    "input_std_attention_norm": "standard deviation of the attention norm's input",
    "tid_mean_attention_norm": "distance of the batch mean from the running mean (in SDs)",
    "loss_running": "loss with running statistics (nats per character)",
    "loss_batch": "loss with batch statistics (nats per character)",
    "leak": "leak (nats per character)",
    "attention_entropy": "attention entropy, as a share of the greatest possible",
}
STOPPED = (NON_FINITE, ERROR)  # kinds of failure whose last values are at earlier steps
AXIS_WIDTH = 30  # characters that fit along the height of a figure
DODGE = 0.06  # of a layer, between conditions, so that their intervals do not hide each other


def draw_probes(study: Study, colours: dict[str, Look]) -> dict[str, Drawn]:
    """One figure per probe: its last values by layer where it has layers, else over training."""
    found = {name for curves in study.runs.curves.values() for name in curves.columns}
    probes = sorted(name for name in found if name.startswith("probe/"))
    families: dict[str, list[str]] = {}
    for name in probes:
        families.setdefault(family(name), []).append(name)
    known = [f"probe/{what}" for what in FIRST if f"probe/{what}" in families]
    drawn: dict[str, Drawn] = {}
    for stem in known or families:
        file, names = re.sub(r"\W+", "_", stem), families[stem]
        draw = by_layer if len(names) > 1 else over_steps
        figure = draw(file, study, colours, names)
        if figure is not None:
            drawn[file] = figure
        if len(drawn) == MOST:
            break
    return drawn


def by_layer(file: str, study: Study, colours: dict[str, Look], names: list[str]) -> Drawn | None:
    """The last values by layer: means with intervals, or each run of a condition by itself."""
    tables = {name: last_values(study, name, names) for name in study.conditions}
    tables = {condition: table for condition, table in tables.items() if table.size}
    if not tables:
        return None
    figure, axes = canvas()
    means = [name for name, t in tables.items() if len(t) >= FEWEST and not study.failed[name]]
    for i, (condition, table) in enumerate(tables.items()):
        shifted = table.set_axis(table.columns + DODGE * (i - (len(tables) - 1) / 2), axis=1)
        label = label_of(study, condition)
        draw_layers(axes, label, shifted, colours[condition], condition in means)
    shown = np.concatenate([table.to_numpy().ravel() for table in tables.values()])
    axes.set_ylim(*around(shown))  # an interval may go beyond
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    first = "the embeddings" if "residual" in file else "the first block"
    axes.set_xlabel(f"layer (0: {first})")
    axes.set_ylabel(textwrap.fill(words(names[0]), AXIS_WIDTH))
    name_lines(figure, axes)
    ways = ["means over seeds with their 95 % intervals"] * bool(means)
    if len(means) < len(tables):
        ways.append(f"each run by itself{' where a run failed or seeds are few' * bool(means)}")
    caption = f"At the end of training: {'; '.join(ways)}."
    stopped = study.reported[study.reported.failure.isin(STOPPED)].condition
    if len(stopped):  # their last values are at earlier steps
        each = ", ".join(f"{n} of {name}" for name, n in stopped.value_counts(sort=False).items())
        caption += f" Runs that stopped early are left out: {each}."
    return finish(figure, file, words(names[0]), caption)


def draw_layers(axes: Axes, label: str, table: pd.DataFrame, look: Look, mean: bool) -> None:
    """One condition: columns are layers, rows are runs. A line joins three layers or more."""
    at, values = table.columns, table.to_numpy().T
    joined = look.linestyle if len(at) >= FEWEST_POINTS else ""
    style: Any = {"color": look.color, "marker": look.marker, "ms": 4, "linestyle": joined}
    if mean:
        found = interval(values)
        axes.vlines(at, found.low, found.high, color=look.color, linewidth=1.2)
        axes.plot(at, found.mean, label=label, **style)
    else:
        axes.plot(at, values, linewidth=0.9, **style)[0].set_label(label)


def last_values(study: Study, condition: str, names: list[str]) -> pd.DataFrame:
    """One row per run that reached its last step, one column per layer."""
    runs = study.of(condition)
    last = {}
    for run in runs.run[~runs.failure.isin(STOPPED)]:
        logged = study.runs.curves[run].reindex(columns=names).ffill()
        last[run] = logged.iloc[-1] if len(logged) else logged.max()
    table = pd.DataFrame.from_dict(last, orient="index").dropna(axis=1)
    layers = [int(name.removeprefix(family(name)).strip("/._-") or 0) for name in table.columns]
    return table.set_axis(layers, axis=1).sort_index(axis=1)


def over_steps(file: str, study: Study, colours: dict[str, Look], names: list[str]) -> Drawn | None:
    """A probe without layers against steps; None with too few points for a curve."""
    curves = curves_of(study, names[0])
    if most_points(curves) < FEWEST_POINTS:
        return None
    figure, axes = canvas()
    draw_curves(axes, curves, colours, dots=True)
    axes.set_ylabel(textwrap.fill(words(names[0]), AXIS_WIDTH))
    name_lines(figure, axes)
    return finish(figure, file, words(names[0]), curve_caption(study, curves))


def words(name: str) -> str:
    """`probe/residual_rms/0` in words: `RMS of the residual stream`."""
    what = family(name).removeprefix("probe/")
    plain = FIRST.get(what, what.replace("_", " ").replace("/", ", "))
    return plain[:1].upper() + plain[1:]
