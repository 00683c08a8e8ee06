"""comparison/report.html: one file that opens anywhere, offline, in light and dark, and prints.

The page only arranges: the findings, the two main figures and the comparison first, then a section
for each further question. What it says comes from the findings, the tables, notes and figures.
"""

from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from report.figures import looks_of
from report.findings import findings, tuning_command
from report.formatting import Table, between, number, percent
from report.judge import Judged
from report.notes import Note, with_numbers
from report.settings import subtitle
from report.style import Drawn

MAIN = "comparison"  # the table of the first screen
BATCH = ("probe_tid", "probe_loss", "probe_leak")  # figures of batch statistics
# Of each section the tables by name, and the figures by how their names begin.
SECTIONS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "Claims": (("claims", "plan"), ()),
    "Each seed": (("seeds",), ()),
    "Losses": (("losses", "steps"), ("loss_train",)),
    "Learning rates": (("rates",), ("loss_lr",)),
    "Batch statistics": (("readings",), BATCH),
    "Inside the network": ((), ("gradient_norm", "probe")),
    "Cost": ((), ()),
    "Settings": (("settings",), ()),
    "Notes": ((), ()),
}
Numbered = list[tuple[int, Note]]
Noted = tuple[Table, Numbered]  # a table and the notes on its numbers


@dataclass(frozen=True)
class Section:
    """A part of the page below the first screen; its notes are on no table of the page."""

    title: str
    tables: list[Noted]
    figures: dict[str, Drawn]
    notes: Numbered


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
    environment.filters |= {"number": number, "between": between, "percent": percent}
    environment.filters["condition"] = lambda cell: condition_cell(cell, colours)
    curves = "loss_val_steps" if "loss_val_steps" in figures else "loss_train_steps"
    first = {name: figures[name] for name in ("differences", curves) if name in figures}
    at = notes_by_place(notes, {table.name for table in tables})
    noted = {table.name: (with_numbers(table, notes), at[table.name]) for table in tables}
    names = judged.study.conditions
    return environment.get_template("page.html.j2").render(
        judged=judged,
        title=", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else ""),
        subtitle=subtitle(judged.study),
        findings=findings(judged),
        command=tuning_command(judged),
        first=first,
        comparison=noted.get(MAIN),
        sections=sections(noted, {k: v for k, v in figures.items() if k not in first}, at[""]),
    )


def notes_by_place(notes: list[Note], tables: set[str]) -> dict[str, Numbered]:
    """The numbered notes by the table that they go under, "" for none.

    Notes on a condition go under the main table, whose rows carry their numbers.
    """
    places: dict[str, Numbered] = {place: [] for place in ["", *tables]}
    for i, note in enumerate(notes, 1):
        wanted = MAIN if note.conditions and MAIN in tables else note.table
        places[wanted if wanted in tables else ""].append((i, note))
    return places


def sections(
    tables: dict[str, Noted], figures: dict[str, Drawn], others: Numbered
) -> list[Section]:
    """What follows the first screen, in order; a section without content is left out."""
    made: list[Section] = []
    for heading, (names, starts) in SECTIONS.items():
        taken = {name for section in made for name in section.figures}
        section = Section(
            title=heading,
            tables=[tables[name] for name in names if name in tables],
            figures={k: v for k, v in figures.items() if k.startswith(starts) and k not in taken},
            notes=others if heading == "Notes" else [],
        )
        if heading == "Cost" or section.tables or section.figures or section.notes:
            made.append(section)
    return made


def condition_cell(cell: str, colours: dict[str, str]) -> Markup:
    """A condition after a dot of its colour, the numbers of its notes as links."""
    name, _, numbers = cell.partition(" [") if cell.endswith("]") else (cell, "", "")
    shown = escape(name)
    if numbers:
        links = ", ".join(f'<a href="#note-{n}">{n}</a>' for n in numbers[:-1].split(","))
        shown += Markup(f" <sup>{links}</sup>")
    if name not in colours:
        return shown
    dot = Markup('<span class="dot" style="background: {}"></span>').format(colours[name])
    return Markup('<span class="condition">{}<span>{}</span></span>').format(dot, shown)
