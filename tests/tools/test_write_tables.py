"""The generated tables of docs/norms.md are those that the code gives now."""

import pytest

from tests.conftest import NORMS
from tools import write_tables as tables


def test_no_table_is_out_of_date() -> None:
    page = tables.PAGE.read_text()
    assert tables.regenerated(page) == page, "run `make docs`"


@pytest.mark.parametrize("table", ["norm of linear", "linear of norm", "causality"])
def test_every_norm_has_a_row(table: str) -> None:
    shown = [row.split("|")[1] for row in tables.table(table).splitlines()]
    names = {name.strip() for names in shown for name in names.split(",")}
    assert set(NORMS) <= names


def test_an_empty_place_is_filled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "TABLES", ("norms",))
    monkeypatch.setattr(tables, "table", lambda name: f"the table of {name}")
    page = "above\n<!-- table: norms -->\n<!-- end -->\nbelow\n"
    filled = "above\n<!-- table: norms -->\nthe table of norms\n<!-- end -->\nbelow\n"
    assert tables.regenerated(page) == tables.regenerated(filled) == filled


def test_a_page_without_a_place_for_its_table_is_refused() -> None:
    with pytest.raises(ValueError, match="needs one `<!-- table: norms -->`, it has 0"):
        tables.regenerated("a page without tables")
