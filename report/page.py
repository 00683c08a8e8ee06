"""comparison/report.html: one file that opens anywhere, offline, light and dark."""

import re
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from report.draw import Drawn
from report.findings import findings, tuning_command
from report.formatting import Table
from report.judge import Judged
from report.notes import Note, with_numbers
from report.settings import subtitle


def page(judged: Judged, tables: list[Table], notes: list[Note], figures: dict[str, Drawn]) -> str:
    """The whole page. Whatever comes from a run is escaped; only our own SVG is not."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
    )
    environment.filters["footnotes"] = footnotes
    return environment.get_template("page.html.j2").render(
        title=title(judged),
        subtitle=subtitle(judged.study),
        findings=findings(judged),
        command=tuning_command(judged),
        tables=[with_numbers(table, notes) for table in tables],
        figures=figures,
        notes=notes,
    )


def title(judged: Judged) -> str:
    """The first conditions' names."""
    conditions = judged.study.conditions
    more = f" and {len(conditions) - 4} more" if len(conditions) > 4 else ""
    return f"normlab: {', '.join(conditions[:4])}{more}"


def footnotes(cell: str) -> Markup:
    """A condition with its footnotes' numbers as links."""
    found = re.fullmatch(r"(.*) \[([\d,]+)\]", cell)
    if not found:
        return escape(cell)
    links = ", ".join(f'<a href="#note-{n}">{n}</a>' for n in found[2].split(","))
    return escape(found[1]) + Markup(f" <sup>{links}</sup>")
