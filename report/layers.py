"""Whatever probes have logged, found by name: `probe/WHAT` or `probe/WHAT/LAYER`."""

import re
import textwrap
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from report.curves import curve_of
from report.failures import ERROR, NON_FINITE
from report.intervals import FEWEST, interval
from report.study import Study
from report.style import Drawn, Look, canvas, finish, name_lines

MOST = 8  # figures: a page is no archive
FEWEST_POINTS = 3  # two points joined by a line are no curve
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
        stem = re.sub(r"[/._-]?\d+$", "", name)
        families.setdefault(stem, []).append(name)
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
    """The last value of each run against the layer's number, with what the seeds say of it."""
    layers = {int(re.sub(r".*?(\d+)$", r"\1", f"0{name}")): name for name in names}
    tables = {condition: last_values(study, condition, layers) for condition in study.conditions}
    tables = {condition: table for condition, table in tables.items() if table.size}
    if not tables:
        return None
    figure, axes = canvas()
    for i, (condition, table) in enumerate(tables.items()):
        shift = DODGE * (i - (len(tables) - 1) / 2)
        mean = averaged(study, condition, table)
        draw_layers(axes, condition, table, shift, colours[condition], mean)
    shown = np.concatenate([table.to_numpy().ravel() for table in tables.values()])
    margin = 0.06 * np.ptp(shown) or 0.1
    axes.set_ylim(shown.min() - margin, shown.max() + margin)  # an interval may go beyond
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    first = "the embeddings" if "residual" in file else "the first block"
    axes.set_xlabel(f"layer (0: {first})")
    title = words(names[0])
    axes.set_ylabel(textwrap.fill(title, AXIS_WIDTH))
    name_lines(figure, axes)
    return finish(figure, file, title, f"{layer_caption(tables, study)}{left_out(study)}")


def last_values(study: Study, condition: str, layers: dict[int, str]) -> pd.DataFrame:
    """One row per run that reached its last step, one column per layer: the last value logged."""
    runs = study.of(condition)
    rows = {}
    for run in runs.run[~runs.failure.isin(STOPPED)]:
        curves = study.runs.curves[run]
        known = {layer: curves[name].dropna() for layer, name in layers.items() if name in curves}
        rows[run] = {layer: values.iloc[-1] for layer, values in known.items() if len(values)}
    return pd.DataFrame.from_dict(rows, orient="index").sort_index(axis=1).dropna(axis=1)


def averaged(study: Study, condition: str, table: pd.DataFrame) -> bool:
    """Is a condition shown by a mean and intervals? With few seeds or a failure, run by run."""
    return len(table) >= FEWEST and not (study.of(condition).failure != "").any()


def draw_layers(
    axes: Axes, label: str, table: pd.DataFrame, shift: float, look: Look, mean: bool
) -> None:
    """Mean and intervals, or each run by itself."""
    at = table.columns.to_numpy(float) + shift
    joined = look.linestyle if len(at) >= FEWEST_POINTS else ""
    style: Any = {"color": look.color, "marker": look.marker, "linestyle": joined}
    if mean:
        found = interval(table.to_numpy().T)
        axes.vlines(at, found.low, found.high, color=look.color, linewidth=1.2)
        axes.plot(at, found.mean, label=label, markersize=5, **style)
        return
    for i, values in enumerate(table.to_numpy()):
        name = None if i else label
        axes.plot(at, values, label=name, markersize=4, linewidth=0.9, **style)


def layer_caption(tables: dict[str, pd.DataFrame], study: Study) -> str:
    """What dots and bars are."""
    means = [averaged(study, condition, table) for condition, table in tables.items()]
    parts = ["means over seeds with their 95 % intervals"] * any(means)
    if not all(means):
        why = "of a condition with fewer than 3 seeds or a failed run " * any(means)
        parts.append(f"each run {why}by itself".replace("  ", " "))
    return f"At the end of training: {'; '.join(parts)}."


def left_out(study: Study) -> str:
    """Which runs have no last values to compare, as a sentence."""
    stopped = study.reported[study.reported.failure.isin(STOPPED)]
    counts = stopped.condition.value_counts(sort=False)
    if counts.empty:
        return ""
    each = ", ".join(f"{condition} ({count})" for condition, count in counts.items())
    return f" Runs that stopped early are left out: {each}."


def over_steps(file: str, study: Study, colours: dict[str, Look], names: list[str]) -> Drawn | None:
    """A probe without layers against steps, None if no run logged it three times."""
    curves = {condition: curve_of(study, condition, names[0]) for condition in study.conditions}
    lines = {name: c.single or [(c.steps, c.mean)] for name, c in curves.items() if c is not None}
    if max((len(x) for each in lines.values() for x, _ in each), default=0) < FEWEST_POINTS:
        return None
    figure, axes = canvas()
    for condition, each in lines.items():
        look = colours[condition]
        for i, (steps, values) in enumerate(each):
            label = None if i else condition
            style: Any = {"color": look.color, "linestyle": look.linestyle, "marker": look.marker}
            axes.plot(steps, values, label=label, markersize=3, **style)
    title = words(names[0])
    axes.set_xlim(left=0)
    axes.set_xlabel("optimizer steps")
    axes.set_ylabel(textwrap.fill(title, AXIS_WIDTH))
    name_lines(figure, axes)
    failed = any(curve.single for curve in curves.values() if curve is not None)
    each_run = "; a condition with a failed run is drawn run by run" * failed
    return finish(figure, file, title, f"Means over seeds{each_run}.")


def words(name: str) -> str:
    """`probe/residual_rms/0` in words: `RMS of the residual stream`."""
    what = re.sub(r"[/._-]?\d+$", "", name.removeprefix("probe/"))
    plain = FIRST.get(what, what.replace("_", " ").replace("/", ", "))
    return plain[:1].upper() + plain[1:]
