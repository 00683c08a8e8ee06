"""comparison/report.html: one file that opens anywhere, offline, light and dark."""

import re
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from report.content import Content
from report.draw import Drawn
from report.tables import all_tables


def page(content: Content, figures: dict[str, Drawn]) -> str:
    """The whole page. Whatever comes from a run is escaped; only our own SVG is not."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
    )
    environment.filters["footnotes"] = footnotes
    return environment.get_template("page.html.j2").render(
        title=title(content),
        subtitle=subtitle(content),
        headline=content.headline,
        tables=all_tables(content),
        figures=figures,
        notes=content.notes,
    )


def title(content: Content) -> str:
    """The first conditions' names."""
    arms = content.study.arms
    more = f" and {len(arms) - 4} more" if len(arms) > 4 else ""
    return f"normlab: {', '.join(arms[:4])}{more}"


def subtitle(content: Content) -> str:
    """How many runs, of what, from where."""
    study = content.study
    runs, seeds = study.reported, study.reported.seed.nunique()
    sweeps = ", ".join(dict.fromkeys(study.table.sweep))
    words = f"{len(runs)} runs in the tables, {len(study.table)} read, {seeds} seeds; from {sweeps}"
    if runs.max_steps.nunique() == 1:
        words += f"; {runs.max_steps.iloc[0]:.0f} steps"
    return f"{words}."


def footnotes(cell: str) -> Markup:
    """A condition with its footnotes' numbers as links."""
    found = re.fullmatch(r"(.*) \[([\d,]+)\]", cell)
    if not found:
        return escape(cell)
    links = ", ".join(f'<a href="#note-{n}">{n}</a>' for n in found[2].split(","))
    return escape(found[1]) + Markup(f" <sup>{links}</sup>")
