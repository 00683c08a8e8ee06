"""The report on the console, by rich."""

import io
import shutil

from rich import box
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from report import tables
from report.content import Content

SHOWN = (tables.verdicts, tables.comparison, tables.rates, tables.steps, tables.planned)


def console_text(content: Content) -> str:
    """Headline, tables, footnotes: plain text, as wide as the terminal."""
    width = max(shutil.get_terminal_size((110, 24)).columns, 60)
    out = Console(file=io.StringIO(), width=width, highlight=False, markup=False)
    out.print(content.headline.text)
    if content.headline.command:
        out.print(f"To tune each: {content.headline.command}", soft_wrap=True)
    for make in SHOWN:
        table = make(content)
        if table is not None:
            out.print(rich_table(table))
    for number, note in enumerate(content.notes, 1):
        out.print(Text(f"[{number}] {note.text}"))
    text = out.file.getvalue()  # type: ignore[attr-defined]
    return "\n".join(line.rstrip() for line in text.splitlines())


def rich_table(table: tables.Table) -> RichTable:
    """One table."""
    made = RichTable(title=table.title, box=box.SIMPLE_HEAD, title_justify="left", padding=(0, 1))
    for i, column in enumerate(table.columns):
        left = i == 0 or i in table.text_columns
        made.add_column(column, justify="left" if left else "right", no_wrap=not left)
    for row in table.rows:
        made.add_row(*row)
    return made
