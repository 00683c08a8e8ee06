"""What was the same for all runs: their settings, versions, machine and command lines."""

from collections.abc import Iterable
from typing import Any

import pandas as pd

from report.conditions import Flat
from report.formatting import Table, number, plural, span
from report.group import Study
from report.judge import Judged

ROW = {  # of each key of a configuration, by the longest beginning that fits
    "model.": "model",
    "model.init": "initialization",
    "model.embed_scale": "initialization",
    "model.learn_embed_scale": "initialization",
    "data.corpus.": "text",
    "data.split": "text",
    "corpus_sha256": "text",
    "data.batch_size": "batch",
    "data.block_size": "batch",
    "trainer.accumulate_grad_batches": "batch",
    "optimizer.": "optimizer",
    "scheduler.": "schedule",
    "trainer.gradient_clip_val": "clipping",
    "trainer.max_steps": "trainer",
    "trainer.precision": "trainer",
}
ELSEWHERE = ("norm", "model.norm", "optimizer.lr")  # in the conditions' names, and a column
MOST = 4  # different values that are shown of one setting
SPEED = (
    "Speed is not compared here, because the times of these runs also depend on whatever else ran "
    "on the machine; to measure the speed of each norm, run python benchmarks/norms.py --step on "
    "an idle machine."
)


def subtitle(study: Study) -> str:
    """How many runs, of what length, from where: one line."""
    runs = study.reported
    steps = f", {span(runs.max_steps.dropna())} steps" if runs.max_steps.notna().any() else ""
    sweeps = ", ".join(dict.fromkeys(study.table.sweep))
    seeds = plural(runs.seed.nunique(), "seed")
    read = plural(len(study.table), "run")
    return f"{len(runs)} of {read} reported, {seeds}{steps}; from {sweeps}."


def settings(judged: Judged) -> Table:
    """The table of what the reported runs have in common."""
    study = judged.study
    runs = study.reported if len(study.reported) else study.table
    told = {
        **configured([study.runs.flat[run] for run in runs.index], study.keys),
        "characters seen": listed(f"{n:,.0f}" for n in runs.tokens.dropna()),
        "parameters": parameters(judged.summary),
        "versions": versions(runs),
        "device": listed(runs.device),
        "threads": listed(runs.threads.dropna().astype(int)),
        "commit": commits(runs),
        "date": listed(f"{text[:10]}" for text in runs.started.dropna().sort_values()),
        "command": "\n".join(study.runs.commands[:MOST]),
    }
    rows = [[name, value] for name, value in told.items() if value]
    caption = "Settings that all reported runs share; several values are joined by “or”."
    details = (
        "Names are those of the configuration, so each can be set on a command line, for instance "
        "model.n_layer=4. Each run's own settings are in its folder, in .hydra/config.yaml. The "
        "times of the runs are in runs.csv: step_seconds, seconds, tokens_per_second."
    )
    return Table("settings", "Settings", ["setting", "value"], rows, caption, details, [1])


def configured(flat: list[Flat], swept: list[str]) -> dict[str, str]:
    """The rows that come from configurations: `AdamW betas=[0.9, 0.99] weight_decay=0.1`."""
    parts: dict[str, list[str]] = {row: [] for row in ROW.values()}
    for key in dict.fromkeys(key for config in flat for key in config):
        fits = [start for start in ROW if key.startswith(start)]
        last = key.split(".")[-1]
        if not fits or key in swept or key.startswith(ELSEWHERE) or last == "_partial_":
            continue
        of_row = parts[ROW[max(fits, key=len)]]
        values = [str(config[key]) for config in flat if key in config]
        if last == "_target_":
            of_row.insert(0, listed(value.rpartition(".")[2] for value in values))
        else:
            of_row.append(
                f"{last}={listed(value[:12] if 'sha' in last else value for value in values)}"
            )
    return {row: " ".join(found) for row, found in parts.items()}


def listed(values: Iterable[Any]) -> str:
    """The different values: `1`, `1 or 2`."""
    known = list(dict.fromkeys(str(value) for value in values if not pd.isna(value)))
    return " or ".join(known[:MOST]) + " or others" * (len(known) > MOST)


def parameters(summary: pd.DataFrame) -> str:
    """`107,584 (640 in norms): layernorm, batchnorm; 106,944 (0 in norms): none`."""
    known = summary.dropna(subset=["params"])
    sizes = [
        f"{number(params, 0)} ({number(in_norms, 0)} in norms): {', '.join(rows.index)}"
        for (params, in_norms), rows in known.groupby(["params", "norm_params"], sort=False)
    ]
    return "; ".join(sizes)


def versions(runs: pd.DataFrame) -> str:
    """`python 3.11, torch 2.13`."""
    known = {name: listed(runs[name]) for name in ("python", "torch", "lightning")}
    return ", ".join(f"{name} {value}" for name, value in known.items() if value)


def commits(runs: pd.DataFrame) -> str:
    """The code's commits, and whether there were changes on top."""
    changed = " with changes that are in no commit" * bool(runs.dirty.eq(True).any())
    return f"{listed(commit[:10] for commit in runs.commit.dropna())}{changed}"
