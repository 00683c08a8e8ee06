"""How figures look: one colour a condition over the whole report, light and dark alike.

matplotlib draws ink in one marked colour that becomes SVG's `currentColor`, on no background; so a
figure takes the colours of the page that it stands in. A figure's own file brings its own.
"""

import io
import re
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

INK, FAINT = "#010203", "#818283"  # stand for currentColor, and the grid
# Okabe and Ito's colours, the blue lighter for a dark page, without black and yellow, which vanish.
COLOURS = ["#2A85C4", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8A8A8A"]
DASHES = ["-", "--", ":", "-."]  # from the eighth condition on
MARKERS = "osD^vPX"
STYLE: Any = {
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "normlab",  # the same runs give the same file
    "font.size": 11,
    "font.family": "sans-serif",
    "text.parse_math": False,  # a condition's name is no formula
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": INK,
    "axes.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.formatter.use_mathtext": False,
    "grid.color": FAINT,
    "grid.alpha": 0.25,
    "xtick.color": INK,
    "ytick.color": INK,
    "figure.facecolor": "none",
    "savefig.facecolor": "none",
    "legend.frameon": False,
    "lines.linewidth": 1.8,
}
OWN_COLOURS = (
    "<style>svg{color:#1d1d1f;background:#fff}"
    "@media(prefers-color-scheme:dark){svg{color:#e8e8ea;background:#17181a}}</style>"
)


@dataclass(frozen=True)
class Drawn:
    """A figure: its SVG for a page (inline) and for a file, title and caption in words."""

    inline: str
    svg: str
    title: str
    caption: str


@dataclass(frozen=True)
class Look:
    """How one condition is drawn, everywhere."""

    color: str
    linestyle: str
    marker: str


def looks(conditions: list[str]) -> dict[str, Look]:
    """A look for each condition, told apart by colour, marker and, beyond seven, dashes."""
    n = len(COLOURS)
    return {
        condition: Look(COLOURS[i % n], DASHES[i // n % len(DASHES)], MARKERS[(i + i // n) % n])
        for i, condition in enumerate(conditions)
    }


def canvas(height: float = 3.6) -> tuple[Figure, Axes]:
    """An empty figure of one axes, sized for half a wide page and all of a narrow one."""
    figure = Figure(figsize=(5.6, height), layout="constrained")
    return figure, figure.add_subplot()


def add_legend(figure: Figure, axes: Axes) -> None:
    """Below the axes, where it hides nothing."""
    handles, labels = axes.get_legend_handles_labels()
    if handles:
        columns = 3 if max(map(len, labels)) < 16 else 2 if max(map(len, labels)) < 26 else 1
        figure.set_figheight(figure.get_figheight() + 0.2 * -(-len(labels) // columns))
        figure.legend(handles, labels, loc="outside lower center", ncols=columns, fontsize=10)


def finish(figure: Figure, name: str, title: str, caption: str) -> Drawn:
    """The figure as SVG, identifiers prefixed so that several can stand in one page."""
    out = io.StringIO()
    with mpl.rc_context(STYLE):
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    text = out.getvalue()
    text = text[text.index("<svg") :].replace(INK, "currentColor")
    text = re.sub(r'\bid="([^"]+)"', rf'id="{name}-\1"', text)
    text = re.sub(r'(url\(#|href="#)', rf"\1{name}-", text)
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    opening = f'<svg role="img" aria-label="{escaped(title)}"'
    inline = text.replace("<svg", opening, 1)
    own = inline.replace("<defs>", f"{OWN_COLOURS}<defs>", 1)
    return Drawn(inline, own, title, caption)


def escaped(text: str) -> str:
    """For an attribute's value."""
    for character, entity in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ('"', "&quot;")):
        text = text.replace(character, entity)
    return text


def plain_numbers(axis: Any) -> None:
    """A log axis with numbers as `0.003`, not as powers, and some between them."""
    axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter(lambda value, _: f"{value:g}")
    axis.set_minor_formatter(lambda value, _: "")
