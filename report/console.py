"""The report on the console, by rich."""

import io
import re
import shutil

from rich import box
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from report import study_tables, tables
from report.cells import Table
from report.content import Content

SHOWN = (
    study_tables.verdicts,
    tables.comparison,
    study_tables.rates,
    study_tables.steps,
    tables.readings,
    study_tables.planned,
)


def console_text(content: Content) -> str:
    """Headline, tables, footnotes: plain text, as wide as the terminal; no number is cut off."""
    width = max(shutil.get_terminal_size((110, 24)).columns, 60)
    out = Console(file=io.StringIO(), width=1000, highlight=False, markup=False)
    out.print(content.headline.text, width=width)
    if content.headline.command:
        out.print(f"To tune each:\n{content.headline.command}", soft_wrap=True)
    for make in SHOWN:
        table = make(content)
        if table is not None:
            made = rich_table(table)
            out.print()
            out.print(made, width=max(width, out.measure(made).minimum))
    out.print()
    for number, note in enumerate(content.notes, 1):
        out.print(Text(f"[{number}] {note.text}"), width=width)
    text = out.file.getvalue()  # type: ignore[attr-defined]
    return "\n".join(line.rstrip() for line in text.splitlines())


def rich_table(table: Table) -> RichTable:
    """One table; long headers stand on two lines."""
    made = RichTable(
        title=table.title, box=box.SIMPLE_HEAD, title_justify="left", padding=(0, 1, 0, 0),
        show_edge=False,
    )  # fmt: skip
    for i, column in enumerate(table.columns):
        left = i == 0 or i in table.text_columns
        if len(column) > 6 and not left:
            column = re.sub(r" (?=[±\[(])", "\n", column)
            column = column if "\n" in column else column.replace(" ", "\n", 1)
        words = [word for row in table.rows for word in row[i].split()] if i == 0 else []
        made.add_column(
            column,
            justify="left" if left else "right",
            no_wrap=not left,
            overflow="fold",
            min_width=max(map(len, [*words, column])) if i == 0 else None,
        )
    for row in table.rows:
        made.add_row(*row)
    return made
