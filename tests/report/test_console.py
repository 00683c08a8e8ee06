"""The report as a terminal shows it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from report.console import console_text
from report.findings import findings, tuning_command
from report.notes import footnotes
from report.tables import all_tables
from tests.report.conftest import judged_of

Write = Callable[..., Path]
LOSSES = {"layernorm": [2.0, 2.1, 2.05], "batchnorm": [2.1, 2.25, 2.2], "none": [2.5, 2.6, 2.45]}


def test_the_console_fits_a_narrow_terminal(
    tmp_path: Path, write_sweep: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    judged = judged_of(write_sweep(tmp_path, LOSSES))
    command = tuning_command(judged)
    text = console_text(findings(judged), command, all_tables(judged), footnotes(judged))
    lines = text.splitlines()
    assert max(map(len, lines)) <= 80
    assert not [line for line in lines if "…" in line]
    (row,) = [line for line in lines if line.startswith("batchnorm")]
    assert row.split()[-1] == "0.003"
