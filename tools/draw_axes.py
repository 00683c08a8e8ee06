"""Draw docs/axes.png: which numbers of a batch one output number of each norm is made from.

python tools/draw_axes.py

This is measured in training, at the first step: an input number is shaded if a change of it changes
the marked output. Norms are found by listing configs/norm; yamls of one class with the same picture
share a panel.
"""

import math
import sys
import textwrap
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parent.parent))  # a script sees only its own folder

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import torch
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.patches import Patch
from torch import nn

from tests.model.norms import properties as p

PICTURE = Path(__file__).parent.parent / "docs" / "axes.png"
B, T, C = 6, 5, 12  # more rows than a ghost batch, slices of more than two features
AT = (1, 2, 4)  # the output number; neither the first nor the last of anything
LEGEND = {"other numbers": "#e3e3e3", "what it is made from": "#56b4e9", "this number": "#a83200"}
COLUMNS = 4


class Panel(NamedTuple):
    """The yamls that share a picture, its mask (B, T, C), and a note on what it cannot show."""

    names: tuple[str, ...]
    mask: torch.Tensor
    note: str


def made_from(norm: nn.Module, at: tuple[int, int, int] = AT) -> torch.Tensor:
    """Which inputs (B, T, C) change the output number `at`, in train mode."""
    x = p.drawn(B, T, C, seed=7)
    before, mask = p.output(norm, x)[at], torch.zeros(B, T, C, dtype=torch.bool)
    for index in product(range(B), range(T), range(C)):
        after = p.output(norm, p.changed(x, *index, times=-0.5, plus=1))[at]
        mask[index] = (after - before).abs() > p.SAME
    return mask


def note_of(name: str) -> str:
    """What an output is made from besides this batch, and what changes after a warm-up."""
    start, later = (p.averages_over(norm) for norm in p.phases(p.exact(name)).values())
    if later != start:
        return f"at the start; later: {', '.join(later) or 'nothing else'}"
    return "and earlier batches" if "earlier batches" in start else ""


def panels() -> list[Panel]:
    """The panels of all yamls in configs/norm, those that use the fewest numbers first."""
    found: dict[tuple[str, bytes, str], Panel] = {}
    for name, config in p.configs().items():
        mask, note = made_from(p.started(p.exact(name), C)), note_of(name)
        key = (config._target_, mask.numpy().tobytes(), note)
        names = found[key].names if key in found else ()
        found[key] = Panel((*names, name), mask, note)
    return sorted(found.values(), key=lambda panel: (int(panel.mask.sum()), panel.names))


def described(shown: Sequence[Panel]) -> str:
    """The panels as one line of text, kept in the file: by it a test finds an outdated picture."""
    texts = []
    for names, mask, note in shown:
        digits = "".join(str(int(cell)) for cell in mask.flatten())
        texts.append(f"{','.join(names)}: {int(digits, 2):x} {note}".strip())
    return "; ".join(texts)


def draw_sheets(axes: Axes, mask: torch.Tensor, marked: float = 2) -> None:
    """Draw B grids side by side, each with T columns and C rows, one cell apart."""
    cells = torch.full((C, B * (T + 1)), torch.nan)
    codes = mask.float()
    codes[AT] = marked
    for b in range(B):
        cells[:, b * (T + 1) : b * (T + 1) + T] = codes[b].T
    axes.pcolormesh(
        cells[:, :-1],
        cmap=ListedColormap(list(LEGEND.values())),
        vmin=0,
        vmax=2,
        edgecolors="white",
        linewidth=0.3,
    )
    axes.set(aspect="equal", xlim=(0, B * (T + 1) - 1), ylim=(C, 0))


def draw_key(axes: Axes) -> None:
    """Draw the batch alone, with its axes named."""
    draw_sheets(axes, torch.zeros(B, T, C, dtype=torch.bool), marked=0)
    width, line = B * (T + 1) - 1, {"color": "black", "linewidth": 0.8, "clip_on": False}
    axes.plot((0, width), (-0.8, -0.8), **line)
    axes.plot((0, T), (C + 0.8, C + 0.8), **line)
    axes.plot((-0.8, -0.8), (0, C), **line)
    text = {"fontsize": 8, "color": "black"}
    axes.text(width / 2, -1.4, "B sequences", ha="center", va="bottom", **text)
    axes.text(0, C + 1.4, "T tokens", ha="left", va="top", **text)
    axes.text(-1.4, C / 2, "C features", ha="right", va="center", rotation=90, **text)


def draw_panel(axes: Axes, panel: Panel) -> None:
    """Draw the sheets, with the names above and the note below."""
    draw_sheets(axes, panel.mask)
    names = textwrap.fill(", ".join(panel.names), 26)
    axes.set_title(names, loc="left", fontsize=8, family="monospace", pad=3)
    axes.text(0, C + 0.6, textwrap.fill(panel.note, 31), fontsize=7, ha="left", va="top")


def main() -> None:
    """Draw the key and all panels."""
    torch.set_num_threads(1)
    shown = panels()
    rows = math.ceil((len(shown) + 1) / COLUMNS)
    size = (7.2, 0.4 + 1.1 * rows)
    figure, grid = plt.subplots(rows, COLUMNS, figsize=size, dpi=200, layout="constrained")
    figure.get_layout_engine().set(w_pad=0.08, h_pad=0.06)  # a margin: pages may be dark
    for axes in grid.flat:
        axes.set_axis_off()
    draw_key(grid.flat[0])
    for axes, panel in zip(grid.flat[1:], shown, strict=False):
        draw_panel(axes, panel)
    handles = [Patch(color=colour, label=label) for label, colour in LEGEND.items()]
    figure.legend(
        handles=handles[::-1], loc="outside upper center", ncols=3, frameon=False, fontsize=9
    )
    figure.savefig(PICTURE, metadata={"Software": None, "Description": described(shown)})


if __name__ == "__main__":
    main()
