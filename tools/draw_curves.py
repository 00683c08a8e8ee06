"""Draw docs/curves.png, the README's picture, from finished sweep folders.

python tools/draw_curves.py sweeps/<time> [more...]
"""

import sys
from pathlib import Path

import matplotlib
import pandas as pd

matplotlib.use("Agg")
import matplotlib.pyplot as plt

COLOURS = {"layernorm": "#0072b2", "batchnorm": "#d55e00", "none": "#009e73"}  # colour-blind safe


def validation_curves(sweeps: list[str]) -> pd.DataFrame:
    """The validation loss of every run in the sweeps: columns norm, seed, step, value."""
    tables = []
    for path in [path for sweep in sweeps for path in sorted(Path(sweep).glob("*/metrics.csv"))]:
        table = pd.read_csv(path).query("name == 'loss/val'")
        result = pd.read_json(path.parent / "result.json", typ="series")
        tables.append(table.assign(norm=result.norm, seed=result.seed))
    return pd.concat(tables)


def main() -> None:
    """Draw the mean over seeds as one line per norm, and each seed as a thin line."""
    curves = validation_curves(sys.argv[1:])
    figure, axes = plt.subplots(figsize=(7.2, 3.6), dpi=150, layout="constrained")
    for norm, colour in COLOURS.items():
        runs = curves[curves.norm == norm].pivot(index="step", columns="seed", values="value")
        axes.plot(runs.index, runs, color=colour, linewidth=0.6, alpha=0.6)
        mean = runs.mean(axis=1)
        label = f"norm={norm}: {mean.iloc[-1]:.2f} at the end"
        axes.plot(mean, color=colour, linewidth=2, marker="o", markersize=3.5, label=label)
    seeds = curves.seed.nunique()
    axes.set(xlabel="optimizer steps", ylabel="validation loss (nats per character)")
    axes.set_title(f"Shakespeare's plays, 0.8 M parameters, mean of {seeds} seeds", fontsize=10)
    axes.set_ylim(1.7, 2.7)  # they all start at the logarithm of the vocabulary, 4.3
    axes.set_xlim(0, None)
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)
    figure.savefig(Path(__file__).parent.parent / "docs" / "curves.png")


if __name__ == "__main__":
    main()
