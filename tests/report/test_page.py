"""report.html: one file, whatever the runs are called."""

import re
from collections.abc import Callable
from pathlib import Path

from report.compare import compare

Write = Callable[..., Path]
LOSSES = {"layernorm": [2.0, 2.1, 2.05], "batchnorm": [2.1, 2.25, 2.2], "none": [2.5, 2.6, 2.45]}


def test_the_page_is_one_file_that_asks_for_nothing(tmp_path: Path, write_sweep: Write) -> None:
    compare(write_sweep(tmp_path, LOSSES))
    page = (tmp_path / "comparison/report.html").read_text()
    addresses = set(re.findall(r"https?://[^\s\"'<]+", page))
    assert addresses <= {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}
    assert not re.search(r"<(script|link|img|iframe)|@import|url\((?!#)", page)
    assert page.count("<svg") == len(list((tmp_path / "comparison").glob("*.svg")))
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    for used in re.findall(r'(?:url\(#|href="#)([^)"]+)', page):
        assert used in ids
    assert "prefers-color-scheme: dark" in page


def test_what_comes_from_a_run_cannot_break_the_page(tmp_path: Path, write_run: Write) -> None:
    evil = "<script>alert(1)</script> [bold]{{ 7*7 }} $x_1$"
    write_run(tmp_path / "a", evil, 1)
    write_run(tmp_path / "b", "layernorm", 1)
    text = compare(tmp_path)
    assert evil in " ".join(text.split())
    page = (tmp_path / "comparison/report.html").read_text()
    assert "<script" not in page
    assert "{{ 7*7 }}" in page
