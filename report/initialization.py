"""Nets at initialization (at_init.py): two figures and the tables, from at_init.csv."""

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.console import Console

from report.cells import NOTHING, Table
from report.console import rich_table
from report.draw import INK, STYLE, Drawn, Look, finish, looks, plain_numbers
from run.files import replace_file
from run.folder import shown

ANY = "any"  # all placements are one net, as without norms
LOOKS = {**looks(["pre", "post", "sandwich", "out", "deepnorm"]), ANY: Look(INK, "-", "o")}
GRADIENT, RMS = "gradient_norm_mlp_proj", "residual_rms"
GUIDE = "1 / √depth"
SPREAD = "Means over seeds; the band goes from the lowest to the highest."


def report(folder: Path) -> str:
    """Write gradient.svg and activations.svg beside at_init.csv; returns the console's text."""
    cells = pd.read_csv(folder / "at_init.csv", keep_default_na=False, na_values={"value": "nan"})
    with mpl.rc_context(STYLE):
        for name, figure in (("gradient", gradient(cells)), ("activations", activations(cells))):
            with replace_file(folder / f"{name}.svg", "w") as file:
                file.write(figure.svg)
    text = io.StringIO()
    out = Console(file=text, width=1000, highlight=False, markup=False)
    for init, part in cells.groupby("init", sort=False):
        out.print(rich_table(table(str(init), part)))
        out.print()
    out.print(
        "gradient  norm of the gradient of the second MLP matrix in the last of L blocks\n"
        "L^p       the power of L that the gradient follows; 1 / sqrt(L) is p = -0.5\n"
        "RMS       root mean square of the residual stream of the deepest net, by blocks passed\n"
        "±         half of the distance between the lowest and the highest seed\n"
        f"folder    {shown(folder)}: at_init.csv, gradient.svg, activations.svg"
    )
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines())


def spread(values: pd.Series) -> str:
    """The mean over seeds, and half of the distance between the lowest and the highest."""
    mean = values.mean()
    half = (values.max() - values.min()) / 2
    return f"{short(mean)} ±{half / mean:.0%}" if half > 0 else short(mean)


def short(x: float) -> str:
    """Three digits."""
    return f"{x:,.0f}" if 1000 <= abs(x) < 1e9 else f"{x:.3g}"


def exponent(slope: pd.Series) -> str:
    """The p of `gradient ~ L^p`, with half of the distance between its lowest and highest seed."""
    if slope.empty:
        return NOTHING
    spread_of_seeds = f" ±{np.ptp(slope) / 2:.2f}" if len(slope) > 1 else ""
    return f"{slope.mean():+.2f}{spread_of_seeds}"


def power(part: pd.DataFrame) -> pd.Series:
    """The p of `gradient ~ L^p` for each seed: least squares on logarithms."""
    by_seed = part.pivot(index="n_layer", columns="seed", values="value")
    if len(by_seed) < 2 or not np.isfinite(by_seed).all(axis=None) or (by_seed <= 0).any(axis=None):
        return pd.Series(dtype=float)
    return pd.Series(np.polyfit(np.log(by_seed.index), np.log(by_seed), 1)[0])


def table(init: str, part: pd.DataFrame) -> Table:
    """The table of one initialization, with one row per norm and placement."""
    depths = sorted(set(part.n_layer))
    deepest = depths[-1]
    layers = {"embeddings": 0, "first block": 1, "last block": deepest}
    rows = []
    for (norm, placement), cell in part.groupby(["norm", "placement"], sort=False):
        steep = cell[cell.quantity == GRADIENT]
        rms = cell[(cell.quantity == RMS) & (cell.n_layer == deepest)]
        rows.append(
            [str(norm), str(placement)]
            + [spread(steep.value[steep.n_layer == depth]) for depth in depths]
            + [exponent(power(steep))]
            + [short(rms.value[rms.layer == layer].mean()) for layer in layers.values()]
        )
    columns = ["norm", "placement", *(f"gradient L={depth}" for depth in depths), "gradient L^p"]
    columns += [f"RMS {name}" for name in layers]
    return Table(f"init={init}", columns, rows, text_columns=[1])


def gradient(cells: pd.DataFrame) -> Drawn:
    """The last block's gradient against depth; dotted, the fall of pre-norm's bound."""
    seen = cells[cells.quantity == GRADIENT]
    figure, panels = grid(seen, "depth (blocks)", "gradient norm, last block's second MLP matrix")
    for axes, part in panels:
        lines(axes, part, "n_layer")
        first = part[part.n_layer == part.n_layer.min()]
        start = first[first.placement == first.placement.iloc[0]].value.mean()
        depths = np.array(sorted(set(part.n_layer)))
        guide = start * np.sqrt(depths[0] / depths)
        axes.plot(depths, guide, ":", color=INK, linewidth=1.2, label=GUIDE)
        axes.set_xscale("log")
        axes.set_xticks(depths, [str(depth) for depth in depths])
    return finished(figure, "gradient", "The last block's gradient against depth, before training")


def activations(cells: pd.DataFrame) -> Drawn:
    """The residual stream through the deepest net."""
    seen = cells[(cells.quantity == RMS) & (cells.n_layer == cells.n_layer.max())]
    figure, panels = grid(seen, "blocks passed", "RMS of the residual stream")
    for axes, part in panels:
        lines(axes, part, "layer")
        axes.set_xlim(left=0)
    title = f"Activations by layer in the net of {seen.n_layer.max()} blocks, before training"
    return finished(figure, "activations", title)


def grid(seen: pd.DataFrame, x: str, y: str) -> tuple[Figure, Iterator[tuple[Axes, pd.DataFrame]]]:
    """Axes in one row per norm and one column per initialization, and the data of each."""
    norms = list(seen.norm.unique())
    inits = list(seen.init.unique())
    size = (1 + 3.1 * len(inits), 1 + 1.9 * len(norms))
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots(len(norms), len(inits), sharex=True, sharey="row", squeeze=False)
    figure.supylabel(y, fontsize=11)
    for panel in axes[-1]:
        panel.set_xlabel(x)
    places = [(norm, init) for norm in norms for init in inits]

    def panels() -> Iterator[tuple[Axes, pd.DataFrame]]:
        for panel, (norm, init) in zip(axes.flat, places, strict=True):
            panel.set_title(f"{norm}, init={init}", fontsize=11)
            panel.set_yscale("log")
            part = seen[(seen.norm == norm) & (seen.init == init)]
            part = part[(part.value > 0) & np.isfinite(part.value)]
            if len(part):
                yield panel, part
            else:  # a gate that starts at 0, or an overflow
                panel.text(0.5, 0.5, "0 or not finite", transform=panel.transAxes, ha="center")

    return figure, panels()


def lines(axes: Axes, part: pd.DataFrame, x: str) -> None:
    """Draw one line per placement, and the band between its seeds."""
    for placement, cell in part.groupby("placement", sort=False):
        look = LOOKS[str(placement)]
        values = cell.groupby(x).value
        mean = values.mean()
        label = f"{placement} placement" if placement == ANY else str(placement)
        style: Any = {"color": look.color, "marker": look.marker, "markersize": 4}
        axes.plot(mean.index, mean, label=label, **style)
        axes.fill_between(
            mean.index, values.min(), values.max(), color=look.color, alpha=0.2, linewidth=0
        )


def finished(figure: Figure, name: str, title: str) -> Drawn:
    """Finish a figure: plain numbers, one legend for all axes."""
    for panel in figure.axes:
        low, high = panel.get_ylim()
        if high < 50 * low:
            plain_numbers(panel.yaxis)
        panel.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        panel.minorticks_off()
    found = [panel.get_legend_handles_labels() for panel in figure.axes]
    entries = {label: handle for pair in found for handle, label in zip(*pair, strict=True)}
    if GUIDE in entries:  # the last one
        entries[GUIDE] = entries.pop(GUIDE)
    columns = 6 if figure.get_figwidth() > 7 else 3
    figure.legend(entries.values(), entries, loc="outside lower center", ncols=columns, fontsize=10)
    return finish(figure, name, title, SPREAD)
