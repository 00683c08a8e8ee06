"""comparison/report.html: one file that opens anywhere, offline, in light and dark, and prints.

The page only arranges: the findings, the two main figures and the comparison first, then a section
for each further question. What it says comes from the tables, the figures and the notes.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from report.cells import Table
from report.conditions import Flat
from report.content import Content
from report.figures import looks_of
from report.notes import Note
from report.style import Drawn
from report.tables import all_tables

FIRST_SCREEN = ("differences", "loss_val_steps")
OF_BATCH_STATISTICS = ("probe_tid", "probe_loss", "probe_leak")
NO_SPEED = (
    "Speed is not shown: the times of jobs that run side by side say more about the machine than "
    "about the norm. To measure the cost of each norm by itself, run python benchmarks/norms.py."
)


@dataclass(frozen=True)
class Section:
    """A part of the page below the first screen; one without content is left out."""

    name: str
    title: str
    tables: list[dict[str, Any]]
    figures: dict[str, Drawn]
    text: str = ""
    notes: list[tuple[int, Note]] = field(default_factory=list)


def page(content: Content, figures: dict[str, Drawn]) -> str:
    """The whole page. Whatever comes from a run is escaped; only our own SVG is not."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    colours = {condition: look.color for condition, look in looks_of(content).items()}
    environment.filters["condition"] = lambda cell: condition_cell(cell, colours)
    tables = {
        name: shown(table)
        for table in all_tables(content)
        for name, start in NAMES.items()
        if table.title.startswith(start)
    }
    first = first_figures(figures)
    return environment.get_template("page.html.j2").render(
        title=title(content),
        subtitle=subtitle(content),
        circumstances=circumstances(content),
        findings=[content.headline.text],
        command=content.headline.command,
        first=first,
        comparison=tables.get("comparison"),
        beside=[(i, note) for i, note in enumerate(content.notes, 1) if note.conditions],
        sections=sections(content, tables, {k: v for k, v in figures.items() if k not in first}),
    )


def first_figures(figures: dict[str, Drawn]) -> dict[str, Drawn]:
    """The forest plot and the validation curves, or the training curves in their place."""
    names = [name for name in FIRST_SCREEN if name in figures]
    if "loss_val_steps" not in figures and "loss_train_steps" in figures:
        names.append("loss_train_steps")
    return {name: figures[name] for name in names}


def sections(
    content: Content, tables: dict[str, dict[str, Any]], figures: dict[str, Drawn]
) -> list[Section]:
    """What follows the first screen, in order."""
    batch = [name for name in figures if name.startswith(OF_BATCH_STATISTICS)]
    inside = [n for n in figures if n.startswith("probe") and n not in batch]

    def section(
        title: str, of_tables: list[str], of_figures: Iterable[str] = (), text: str = ""
    ) -> Section:
        held = [tables[name] for name in of_tables if name in tables]
        drawn = {name: figures[name] for name in of_figures if name in figures}
        return Section(title.lower().replace(" ", "-"), title, held, drawn, text)

    others = [(i, note) for i, note in enumerate(content.notes, 1) if not note.conditions]
    every = [
        section("Claims", ["verdicts", "planned"]),
        section("Each seed", ["seeds"]),
        section("Losses", ["losses", "steps"], ["loss_train_steps"]),
        section("Learning rates", ["rates"], ["loss_lr"]),
        section("Batch statistics", ["readings"], batch),
        section("Inside the network", [], ["gradient_norm", *inside]),
        section("Cost", ["cost"], text=NO_SPEED),
        section("Settings", ["settings"], text=circumstances(content)),
        Section("notes", "Notes", [], {}, notes=others),
    ]
    return [each for each in every if each.tables or each.figures or each.text or each.notes]


def title(content: Content) -> str:
    """The first conditions' names."""
    conditions = content.study.conditions
    more = f" and {len(conditions) - 4} more" if len(conditions) > 4 else ""
    return f"{', '.join(conditions[:4])}{more}"


def subtitle(content: Content) -> str:
    """How many runs of what are compared, and from where they come."""
    study = content.study
    runs, seeds = study.reported, study.reported.seed.nunique()
    sweeps = ", ".join(dict.fromkeys(study.table.sweep))
    steps = f" of {runs.max_steps.iloc[0]:.0f} steps" if runs.max_steps.nunique() == 1 else ""
    words = f"{len(runs)} runs{steps} on {seeds} seeds are compared here"
    if len(study.table) > len(runs):
        words += f"; {len(study.table)} were read"
    return f"{words}, from {sweeps}."


def circumstances(content: Content) -> str:
    """On what, when, by which code: a page that is passed on carries it."""
    runs, flat = content.study.reported, content.study.runs.flat
    of_runs = [flat[run] for run in runs.index]

    def said(name: str, values: Iterable[Any], shorten: int = 40) -> str:
        known = list(dict.fromkeys(str(v)[:shorten] for v in values if not pd.isna(v)))
        return f"{name} {', '.join(known[:3])}{' ...' * (len(known) > 3)}" if known else ""

    corpus = [str(c.get("data.corpus._target_", "")).rpartition(".")[2] for c in of_runs]
    parts = [
        said("model", (size_of(config) for config in of_runs)),
        said("text", corpus),
        said("characters seen", (f"{n:,.0f}" for n in runs.tokens.dropna())),
        said("on", runs.device),
        said("torch", runs.torch),
        said("threads", runs.threads),
        said("commit", runs.commit, 10),
        said("started", (str(s)[:10] for s in runs.started.dropna())),
    ]
    text = "; ".join(part for part in parts if part)
    return f"{text[:1].upper()}{text[1:]}."


def size_of(config: Flat) -> str:
    """`4L 4H 128d, 12 x 64 characters a step`."""
    size = "L ".join(str(config.get(f"model.{key}", "?")) for key in ("n_layer", "n_head"))
    batch = " x ".join(str(config.get(f"data.{key}", "?")) for key in ("batch_size", "block_size"))
    return f"{size}H {config.get('model.n_embd', '?')}d, {batch} characters a step"


def condition_cell(cell: str, colours: dict[str, str]) -> Markup:
    """A condition after a dot of its colour, its notes' numbers as links."""
    found = re.fullmatch(r"(.*?)(?: \[([\d,]+)\])?", cell, re.DOTALL)
    assert found is not None
    name, numbers = found[1], found[2]
    shown = escape(name)
    if name in colours:
        shown = Markup('<span class="dot" style="background:{}"></span>&nbsp;{}').format(
            colours[name], name
        )
    if numbers:
        links = ", ".join(f'<a href="#note-{n}">{n}</a>' for n in numbers.split(","))
        shown += Markup(f" <sup>{links}</sup>")
    return shown


def shown(table: Table) -> dict[str, Any]:
    """A table with its long caption folded."""
    words = vars(table)
    return words | {"details": table.caption, "caption": ""}


NAMES = {
    "comparison": "Comparison",
    "seeds": "Each seed",
    "losses": "Losses",
    "verdicts": "Claims",
    "rates": "Learning rates",
    "steps": "Steps",
    "readings": "Batch",
    "planned": "Seeds for",
}
