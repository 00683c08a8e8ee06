"""How figures look: each condition has one colour in the whole report, in light and dark alike.

matplotlib draws ink in one marked colour that becomes SVG's `currentColor`, on no background. So a
figure takes the colours of the page around it, and a figure's own file brings its own colours.
"""

import io
import re
import textwrap
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

INK = "#010203"  # as in figures.mplstyle; becomes currentColor
# Okabe and Ito's colours, the blue lighter for a dark page, without black and yellow, which vanish.
COLOURS = ["#2A85C4", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8A8A8A"]
DASHES = ["-", "--", ":", "-."]  # from the eighth condition on
MARKERS = "osD^vPX"
STYLE: Any = mpl.rc_params_from_file(
    Path(__file__).with_name("figures.mplstyle"), use_default_template=False
)
OWN_COLOURS = (
    "<style>svg{color:#1d1d1f;background:#fff}"
    "@media(prefers-color-scheme:dark){svg{color:#e8e8ea;background:#17181a}}</style>"
)
MOST_DIRECT = 3  # so many lines are named at their ends, more in a legend
LABEL_WIDTH = 16  # characters of a name on one line beside the axes


@dataclass(frozen=True)
class Drawn:
    """A figure and its words.

    Attributes:
        inline: its SVG for a page.
        svg: its SVG for a file of its own.
        title: what it shows.
        caption: one or two sentences that a reader always sees.
        details: what a reader may unfold.
    """

    inline: str
    svg: str
    title: str
    caption: str
    details: str = ""


@dataclass(frozen=True)
class Look:
    """How one condition is drawn, in every figure."""

    color: str
    linestyle: str
    marker: str


def looks(conditions: list[str]) -> dict[str, Look]:
    """A look for each condition; they differ in colour, marker and, beyond seven, dashes."""
    n = len(COLOURS)
    return {
        condition: Look(COLOURS[i % n], DASHES[i // n % len(DASHES)], MARKERS[(i + i // n) % n])
        for i, condition in enumerate(conditions)
    }


def canvas(height: float = 3.1) -> tuple[Figure, Axes]:
    """An empty figure of one axes, sized for half a wide page and all of a narrow one."""
    figure = Figure(figsize=(5.0, height), layout="constrained")
    return figure, figure.add_subplot()


def around(values: Any) -> tuple[float, float]:
    """The limits of an axis that shows these values."""
    margin = 0.06 * np.ptp(values) or 0.1
    return float(np.min(values) - margin), float(np.max(values) + margin)


def name_lines(figure: Figure, axes: Axes) -> None:
    """Name up to three lines at their right ends, more of them in a legend below."""
    lines = [line for line in axes.get_lines() if not str(line.get_label()).startswith("_")]
    names = [in_rows(str(line.get_label()), LABEL_WIDTH) for line in lines]
    rows = [row for name in names for row in name.split("\n")]
    if len(lines) > MOST_DIRECT or max(map(len, rows), default=0) > 1.5 * LABEL_WIDTH:
        add_legend(figure, axes)
        return
    ends = [end_of(line, axes) for line in lines]
    tallest = 16 * max((1 + name.count("\n") for name in names), default=1)
    gap = tallest / (figure.get_figheight() * 72 - 50)  # of the axes' height, both in points
    for line, name, end, y in zip(
        lines, names, ends, spread([y for _, y in ends], gap), strict=True
    ):
        axes.annotate(
            name,
            end,
            (1.05, y),
            xycoords="axes fraction",
            va="center",
            arrowprops={"arrowstyle": "-", "linestyle": ":", "color": line.get_color()},
            annotation_clip=False,
        )


def in_rows(name: str, width: int) -> str:
    """A condition's name on several lines, what is in brackets on lines of its own."""
    parts = name.replace(" (", "\n(").split("\n")
    return "\n".join(textwrap.fill(part, width, break_long_words=False) for part in parts)


def end_of(line: Any, axes: Axes) -> tuple[float, float]:
    """A line's last point in fractions of the axes, on the edge if it is beyond."""
    points = axes.transData.transform(np.column_stack(line.get_data(orig=False)))
    x, y = axes.transAxes.inverted().transform(points[np.isfinite(points).all(1)])[-1]
    return float(np.clip(x, 0, 1)), float(np.clip(y, 0, 1))


def spread(wanted: list[float], gap: float) -> list[float]:
    """Places between 0 and 1 that are near the wanted ones and at least a gap apart.

    >>> spread([0.5, 0.5, 0.0], 0.25), spread([1.0, 1.0], 0.25)
    ([0.5, 0.75, 0.0], [0.75, 1])
    """
    places = list(wanted)
    order = sorted(range(len(wanted)), key=wanted.__getitem__)
    for low, high in pairwise(order):
        places[high] = max(places[high], places[low] + gap)
    for high, low in pairwise(order[::-1]):
        places[high] = min(places[high], 1)
        places[low] = min(places[low], places[high] - gap)
    return places


def add_legend(figure: Figure, axes: Axes) -> None:
    """Below the axes, where it hides nothing."""
    handles, labels = axes.get_legend_handles_labels()
    if handles:
        columns = 3 if max(map(len, labels)) < 16 else 2 if max(map(len, labels)) < 26 else 1
        figure.set_figheight(figure.get_figheight() + 0.15 + 0.21 * -(-len(labels) // columns))
        figure.legend(handles, labels, loc="outside lower center", ncols=columns, fontsize=10)


def finish(figure: Figure, name: str, title: str, caption: str, details: str = "") -> Drawn:
    """The figure as SVG, with prefixed identifiers, so that a page can hold several."""
    out = io.StringIO()
    with mpl.rc_context(STYLE):
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    text = out.getvalue()
    text = text[text.index("<svg") :].replace(INK, "currentColor")
    text = re.sub(r'\bid="([^"]+)"', rf'id="{name}-\1"', text)
    text = re.sub(r'(url\(#|href="#)', rf"\1{name}-", text)
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    opening = f'<svg role="img" aria-label="{escape(title)}"'
    inline = text.replace("<svg", opening, 1)
    own = inline.replace("<defs>", f"{OWN_COLOURS}<defs>", 1)
    return Drawn(inline, own, title, caption, details)


def plain_numbers(axis: Any) -> None:
    """A log axis with numbers as `0.003`, not as powers, and some between them."""
    axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter(lambda value, _: f"{value:g}")
    axis.set_minor_formatter(lambda value, _: "")
