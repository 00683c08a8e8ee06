"""The report on the console, drawn by rich."""

import io
import re
import shutil

from rich import box
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from report.formatting import Table
from report.notes import Note, with_numbers

SHOWN = ("claims", "comparison", "rates", "steps", "readings", "plan")


def console_text(findings: list[str], command: str, tables: list[Table], notes: list[Note]) -> str:
    """Findings, tables, footnotes: plain text, as wide as the terminal; no number is cut off."""
    width = max(shutil.get_terminal_size((110, 24)).columns, 60)
    out = Console(file=io.StringIO(), width=1000, highlight=False, markup=False)
    out.print(" ".join(findings), width=width)
    if command:
        out.print(f"To tune the learning rate of each norm:\n{command}", soft_wrap=True)
    for table in tables:
        if table.name in SHOWN:
            made = rich_table(with_numbers(table, notes))
            out.print()
            out.print(made, width=max(width, out.measure(made).minimum))
    out.print()
    for number, note in enumerate(notes, 1):
        out.print(Text(f"[{number}] {note.text}"), width=width)
    text = out.file.getvalue()  # type: ignore[attr-defined]
    return "\n".join(line.rstrip() for line in text.splitlines())


def rich_table(table: Table) -> RichTable:
    """One table; long headers are broken into two lines."""
    made = RichTable(
        title=table.title,
        box=box.SIMPLE_HEAD,
        title_justify="left",
        padding=(0, 1, 0, 0),
        show_edge=False,
    )
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
