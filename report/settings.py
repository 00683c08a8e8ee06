"""What was fixed for all runs: their settings, versions, machine and command lines."""

from collections.abc import Iterable
from typing import Any

import pandas as pd

from report.conditions import RATE, Flat
from report.formatting import Table, number, plural, span
from report.group import Study
from report.judge import Judged

ROWS = {  # of the table; a key of a configuration belongs to the longest beginning that fits
    "model": ("model.",),
    "initialization": ("model.init", "model.embed_scale", "model.learn_embed_scale"),
    "text": ("data.corpus.", "data.split", "corpus_sha256"),
    "batch": ("data.batch_size", "data.block_size", "trainer.accumulate_grad_batches"),
    "optimizer": ("optimizer.",),
    "schedule": ("scheduler.",),
    "clipping": ("trainer.gradient_clip_val",),
    "trainer": ("trainer.max_steps", "trainer.precision"),
}
MOST = 4  # different values that are shown of one setting


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
    commands = study.runs.commands
    more = [f"and {len(commands) - MOST} more"] if len(commands) > MOST else []
    chosen = ["learning rate"] * bool(judged.tuned) + study.runs.nuisance
    found = {
        "scientific (compared)": ", ".join(study.keys),
        "nuisance (chosen for each condition)": ", ".join(chosen),
        "fixed (the same for all)": "every other setting; those that matter most are:",
        **configured(
            [study.runs.flat[run] for run in runs.index], [*study.keys, *study.runs.nuisance]
        ),
        "characters seen": listed(f"{n:,.0f}" for n in runs.tokens.dropna()),
        "parameters": parameters(judged.summary),
        **{name: listed(runs[name]) for name in ("python", "torch", "lightning", "device")},
        "threads": listed(runs.threads.dropna().astype(int)),
        "commit": listed(commit[:10] for commit in runs.commit.dropna())
        + " with changes that are in no commit" * bool(runs.dirty.eq(True).any()),
        "date": listed(f"{text[:10]}" for text in runs.started.dropna().sort_values()),
        "everything fixed": fixed([study.runs.flat[run] for run in runs.index]),
        "command": "\n".join([*commands[:MOST], *more]),
    }
    rows = [[name, value] for name, value in found.items() if value]
    return Table("settings", "Settings", ["setting", "value"], rows, [1])


def configured(flat: list[Flat], swept: list[str]) -> dict[str, str]:
    """The rows that come from configurations: `AdamW betas=[0.9, 0.99] weight_decay=0.1`."""
    row_of = {start: row for row, starts in ROWS.items() for start in starts}
    parts: dict[str, list[str]] = {row: [] for row in ROWS}
    for key in dict.fromkeys(key for config in flat for key in config):
        fits = [start for start in row_of if key.startswith(start)]
        if fits and key not in (*swept, RATE) and not key.startswith("model.norm"):
            values = [config[key] for config in flat if key in config]
            parts[row_of[max(fits, key=len)]].append(told(key.split(".")[-1], values))
    return {row: " ".join(filter(None, found)) for row, found in parts.items()}


def fixed(flat: list[Flat]) -> str:
    """Every setting that has one value in all runs, by its full name."""
    first = flat[0]
    same = [key for key in first if all(str(config.get(key)) == str(first[key]) for config in flat)]
    return " ".join(f"{key}={first[key]}" for key in sorted(same) if not key.endswith("_partial_"))


def told(name: str, values: list[Any]) -> str:
    """`lr=0.1`; a class is told by its name alone, a hash by its beginning."""
    if name == "_partial_":
        return ""
    if name == "_target_":
        return listed(value.rpartition(".")[2] for value in values)
    return f"{name}={listed(value[:12] if name == 'corpus_sha256' else value for value in values)}"


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
