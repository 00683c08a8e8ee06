"""What the report's tables are made of: text cells, for the console and the page alike."""

from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from report.content import Content

NOTHING = "–"


@dataclass(frozen=True)
class Table:
    """Cells as they are shown; the first column is text, the others are numbers.

    `text_columns` are those whose cells are sentences and may wrap.
    """

    title: str
    columns: list[str]
    rows: list[list[str]]
    caption: str = ""
    text_columns: list[int] = field(default_factory=list)


def number(x: Any, digits: int = 3, sign: bool = False) -> str:
    """A number, or a dash where there is none."""
    if x is None or pd.isna(x):
        return NOTHING
    return f"{x:{'+' if sign else ''},.{digits}f}".replace("-", "\N{MINUS SIGN}")


def between(low: Any, high: Any, digits: int = 3, sign: bool = True) -> str:
    """An interval, or nothing."""
    if pd.isna(low) or pd.isna(high):
        return ""
    return f"[{number(low, digits, sign)}, {number(high, digits, sign)}]"


def p_value(p: Any) -> str:
    """Three digits, and no p value of 0."""
    return NOTHING if pd.isna(p) else "<0.001" if p < 0.001 else f"{p:.3f}"


def marked(content: Content, condition: str) -> str:
    """The condition's name with the numbers of its footnotes."""
    numbers = [i for i, note in enumerate(content.notes, 1) if condition in note.conditions]
    return f"{condition} [{','.join(map(str, numbers))}]" if numbers else condition


def percent(level: float) -> str:
    """`95 %`, `98.3 %`."""
    return f"{100 * level:.3g} %"
