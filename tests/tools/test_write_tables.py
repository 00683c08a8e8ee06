"""The generated tables of README.md and docs/norms.md are those that the code gives now."""

import pytest

from tests.conftest import NORMS, ROOT
from tools import write_tables as tables


@pytest.mark.parametrize("page", tables.PAGES)
def test_no_table_is_stale(page: str) -> None:
    assert tables.regenerated(page) == (ROOT / page).read_text(), "run python tools/write_tables.py"


@pytest.mark.parametrize("table", ["norm of linear", "linear of norm", "causality"])
def test_every_norm_has_a_row(table: str) -> None:
    shown = [row.split("|")[1] for row in tables.table(table).splitlines()]
    names = {name.strip() for names in shown for name in names.split(",")}
    assert set(NORMS) <= names


def test_a_page_without_a_place_for_its_table_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(tables.PAGES, "LICENSE", ("norms",))
    with pytest.raises(ValueError, match="LICENSE needs one"):
        tables.regenerated("LICENSE")
