"""comparison/report.html: one file that opens anywhere, offline, in light and dark, and prints.

The page only arranges: the findings, the two main figures and the comparison first, then a section
for each further question. What it says comes from the findings, the tables, notes and figures.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from report.figures import looks_of
from report.findings import findings, tuning_command
from report.formatting import Table
from report.judge import Judged
from report.notes import Note, with_numbers
from report.settings import SPEED, subtitle
from report.style import Drawn

# Of each section its tables by name and its figures by how their names begin; the first one that
# wants a figure has it.
SECTIONS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "Claims": (("claims", "plan"), ()),
    "Each seed": (("seeds",), ()),
    "Losses": (("losses", "steps"), ("loss_train",)),
    "Learning rates": (("rates",), ("loss_lr",)),
    "Batch statistics": (("readings",), ("probe_tid", "probe_loss", "probe_leak")),
    "Inside the network": ((), ("gradient_norm", "probe")),
    "Cost": ((), ()),
    "Settings": (("settings",), ()),
    "Notes": ((), ()),
}
TEXTS = {"Cost": SPEED}


@dataclass(frozen=True)
class Section:
    """A part of the page below the first screen.

    Attributes:
        title: its heading.
        text: a paragraph, or "".
        tables: each with the numbered notes on its numbers.
        figures: by the names of their files.
        notes: numbered, on no table of the page.
    """

    title: str
    text: str
    tables: list[tuple[Table, list[tuple[int, Note]]]]
    figures: dict[str, Drawn]
    notes: list[tuple[int, Note]]


def page(judged: Judged, tables: list[Table], notes: list[Note], figures: dict[str, Drawn]) -> str:
    """The whole page. Whatever comes from a run is escaped; only our own SVG is not."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    colours = {condition: look.color for condition, look in looks_of(judged).items()}
    environment.filters["condition"] = lambda cell: condition_cell(cell, colours)
    curves = "loss_val_steps" if "loss_val_steps" in figures else "loss_train_steps"
    first = {name: figures[name] for name in ("differences", curves) if name in figures}
    shown = [with_numbers(table, notes) for table in tables]
    main = [(table, beside(table.name, notes)) for table in shown if table.name == "comparison"]
    return environment.get_template("page.html.j2").render(
        title=title(judged),
        subtitle=subtitle(judged.study),
        findings=findings(judged),
        command=tuning_command(judged),
        first=first,
        main=main,
        sections=sections(shown, notes, {k: v for k, v in figures.items() if k not in first}),
    )


def title(judged: Judged) -> str:
    """The first conditions' names."""
    conditions = judged.study.conditions
    more = f" and {len(conditions) - 4} more" if len(conditions) > 4 else ""
    return f"{', '.join(conditions[:4])}{more}"


def sections(tables: list[Table], notes: list[Note], figures: dict[str, Drawn]) -> list[Section]:
    """What follows the first screen, in order; a section without content is left out."""
    names, left, made = {table.name for table in tables}, dict(figures), []
    for heading, (of_tables, starts) in SECTIONS.items():
        held = [(table, beside(table.name, notes)) for table in tables if table.name in of_tables]
        drawn = {
            name: left.pop(name) for name in figures if name in left and name.startswith(starts)
        }
        others = [(i, note) for i, note in enumerate(notes, 1) if note.table not in names]
        section = Section(
            heading, TEXTS.get(heading, ""), held, drawn, others if heading == "Notes" else []
        )
        if section.text or section.tables or section.figures or section.notes:
            made.append(section)
    return made


def beside(table: str, notes: list[Note]) -> list[tuple[int, Note]]:
    """The notes on a table's numbers, with theirs."""
    return [(number, note) for number, note in enumerate(notes, 1) if note.table == table]


def condition_cell(cell: str, colours: dict[str, str]) -> Markup:
    """A condition after a dot of its colour, the numbers of its notes as links."""
    found = re.fullmatch(r"(.*?)(?: \[([\d,]+)\])?", cell, re.DOTALL)
    assert found is not None
    name, numbers = found[1], found[2]
    shown = escape(name)
    if name in colours:
        dot = Markup('<span class="dot" style="background: {}"></span>&nbsp;')
        shown = dot.format(colours[name]) + shown
    if numbers:
        links = ", ".join(f'<a href="#note-{n}">{n}</a>' for n in numbers.split(","))
        shown += Markup(f" <sup>{links}</sup>")
    return shown
