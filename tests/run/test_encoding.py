"""A console in any encoding takes every text, and numbers keep their signs."""

import io
import sys

import pytest

from run.encoding import write_anywhere


def test_numbers_arrive_on_a_console_that_is_not_utf_8(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii"))
    write_anywhere()
    print("−0.12 ± 0.03 – 2×3 █", flush=True)
    assert raw.getvalue() == b"-0.12 +- 0.03 - 2x3 ?\n"
