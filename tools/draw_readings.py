"""Draw docs/probes_readings.svg: BatchNorm's loss with three kinds of statistics, by batch size.

python tools/draw_readings.py sweeps/<time>
"""

import json
import sys
from pathlib import Path

import matplotlib as mpl
import pandas as pd

sys.path.insert(0, str(Path(__file__).parent.parent))
from report.style import INK, STYLE, add_legend, canvas, finish, looks, plain_numbers

WAYS = {
    "val_final": "running statistics",
    "val_reestimated": "re-estimated statistics",
    "val_batch": "each batch's own",
    "without": "each batch's own, without the leak",
}


def readings(sweep: str) -> pd.DataFrame:
    """One row per run: norm, seed, characters in a batch, and the losses in nats per character."""
    rows = []
    for path in sorted(Path(sweep).glob("*/result.json")):
        result = json.loads(path.read_text())
        data = result["config"]["data"]
        row = {key: result[key] for key in ("norm", "seed", "leak", *list(WAYS)[:3])}
        rows.append(row | {"characters": data["batch_size"] * data["block_size"]})
    table = pd.DataFrame(rows)
    return table.assign(without=table.val_batch + table.leak)


def main() -> None:
    """Draw means over seeds, with bands from the lowest to the highest."""
    table = readings(sys.argv[1])
    print(table.groupby(["norm", "characters"]).agg(["mean", "min", "max"]).drop(columns="seed").T)
    with mpl.rc_context(STYLE):
        figure, axes = canvas()
        of = table[table.norm == "batchnorm"].groupby("characters")
        for (way, label), look in zip(WAYS.items(), looks(list(WAYS)).values(), strict=True):
            mean = of[way].mean()
            style = {"color": look.color, "marker": look.marker, "label": label}
            axes.plot(mean.index, mean, linestyle=look.linestyle, **style)
            axes.fill_between(mean.index, of[way].min(), of[way].max(), color=look.color, alpha=0.2)
        plain = table[table.norm == "layernorm"].groupby("characters").val_final.mean()
        axes.plot(plain.index, plain, color=INK, linestyle=":", label="LayerNorm")
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_xticks(plain.index, [f"{n:,}" for n in plain.index])
        plain_numbers(axes.yaxis)
        axes.set_xlabel("characters in a batch, of which BatchNorm takes its statistics")
        axes.set_ylabel("final validation loss\n(nats per character)")
        add_legend(figure, axes)
        drawn = finish(figure, "readings", "BatchNorm's loss by batch size and statistics", "")
    (Path(__file__).parent.parent / "docs" / "probes_readings.svg").write_text(drawn.svg)


if __name__ == "__main__":
    main()
