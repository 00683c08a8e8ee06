"""How the report writes numbers: tables of text cells, for the console and the page alike."""

from dataclasses import dataclass, field
from typing import Any

import pandas as pd

NOTHING = "–"


@dataclass(frozen=True)
class Table:
    """Cells as they are shown; the first column is text, the others are numbers.

    Attributes:
        name: one word; the table's anchor on the page, and what words.html.j2 knows it by.
        title: its heading.
        columns: the headers.
        rows: the cells. Where the first header is `condition`, the first cells are conditions.
        text_columns: those whose cells are sentences and may wrap.
    """

    name: str
    title: str
    columns: list[str]
    rows: list[list[str]]
    text_columns: list[int] = field(default_factory=list)


def number(x: Any, digits: int = 3, sign: bool = False) -> str:
    """A number, or a dash where there is none.

    >>> number(-0.5), number(1234567, 0), number(0.1, 2, sign=True), number(None)
    ('−0.500', '1,234,567', '+0.10', '–')
    """
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


def percent(level: float) -> str:
    """`95 %`, `98.3 %`."""
    return f"{100 * level:.3g} %"


def span(values: "pd.Series[float]") -> str:
    """`500`, or `300 to 500`."""
    low, high = values.min(), values.max()
    return f"{low:.0f}" if low == high else f"{low:.0f} to {high:.0f}"


def plural(count: int, noun: str) -> str:
    """`1 seed`, `2 seeds`."""
    return f"{count} {noun}{'s' * (count != 1)}"
