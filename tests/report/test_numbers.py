"""The CSV files: what they hold, and that each column has its unit in docs/numbers.md."""

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from report.compare import compare
from tests.conftest import ROOT
from tests.report.conftest import LOSSES_BY_PLACEMENT, judged_of

Write = Callable[..., Path]
FILES = ("summary", "runs", "verdicts", "planner", "rates", "curves")


@pytest.fixture
def tables(claims_sweep: Path) -> dict[str, pd.DataFrame]:
    """Every file of a study with claims."""
    compare(claims_sweep)
    place = claims_sweep / "comparison"
    return {name: pd.read_csv(place / f"{name}.csv", index_col=0) for name in FILES}


def test_every_column_has_a_unit_and_a_meaning_in_the_docs(tables: dict[str, pd.DataFrame]) -> None:
    text = (ROOT / "docs/numbers.md").read_text()
    for name, table in tables.items():
        section = text.partition(f"## {name}.csv")[2].partition("\n## ")[0]
        rows = re.findall(r"^\| (`.*?`) \| (.+?) \| (.+?) \|$", section, re.MULTILINE)
        told = {column for cells, _, _ in rows for column in re.findall(r"`(.+?)`", cells)}
        there = {column for column in [table.index.name, *table.columns] if "." not in column}
        assert there == told, name


def test_the_files_hold_the_numbers_of_the_page(tables: dict[str, pd.DataFrame]) -> None:
    first = tables["verdicts"].iloc[0]
    assert (first.verdict, first["mean"]) == ("supported", pytest.approx(-0.31))
    assert tables["planner"].power.iloc[0] == pytest.approx(1, abs=0.01)
    rates = tables["rates"].loc["layernorm placement=pre"]
    assert rates.set_index("lr").capped[3e-3] == pytest.approx(1.5)
    curves = tables["curves"].loc["layernorm placement=pre"]
    last = curves[curves.metric == "loss/val"].iloc[-1]
    assert last.low < last.value < last.high


def test_a_difference_is_told_in_sds_of_the_noise_floor_and_simultaneously(
    tables: dict[str, pd.DataFrame], claims_sweep: Path
) -> None:
    """The baseline's scatter over its seeds; of three comparisons each at 1 - 0.05 / 3."""
    row = tables["summary"].loc["batchnorm placement=pre"]
    sd = np.std(LOSSES_BY_PLACEMENT["layernorm", "pre"], ddof=1)
    assert row.difference_sds == pytest.approx(row.difference / sd)
    k = sum(base is not None for base in judged_of(claims_sweep).study.baselines.values())
    page = (claims_sweep / "comparison/report.html").read_text()
    assert ("hold together at 95 %" in page) == (k > 1)
    assert ("together_0" in page) == (k > 1)
    assert "difference in SDs" in page and "everything fixed" in page
    assert "model.n_layer=2" in page


def test_a_report_without_claims_leaves_no_verdicts_of_an_earlier_one(
    tmp_path: Path, write_sweep: Write
) -> None:
    write_sweep(tmp_path, {"layernorm": [2.0], "none": [2.5]})
    (tmp_path / "comparison").mkdir()
    (tmp_path / "comparison/verdicts.csv").write_text("old")
    compare(tmp_path)
    assert not (tmp_path / "comparison/verdicts.csv").exists()
