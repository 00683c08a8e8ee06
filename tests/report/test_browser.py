"""The page in a real browser: Chromium, headless. Skipped where there is none."""

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from report.compare import compare

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine"),
]


def opened(page: Path, place: Path) -> tuple[str, bool, set[str]]:
    """The page's DOM, whether its console had anything to say, and what it asked of whom.

    Chromium's own requests have no page as their origin; a page of a file has the origin `null`.
    """
    seen = place / "net.json"
    command = [
        str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr",
        "--disable-background-networking", "--disable-component-update", "--no-first-run",
        "--host-resolver-rules=MAP * ~NOTFOUND", f"--user-data-dir={place / 'profile'}",
        f"--log-net-log={seen}", "--dump-dom", page.as_uri(),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    requests = [event.get("params", {}) for event in json.loads(seen.read_text())["events"]]
    asked = {r["url"] for r in requests if r.get("initiator", "").startswith(("null", "file"))}
    return done.stdout, "CONSOLE" in done.stderr, asked


def test_the_page_opens_with_every_figure_no_error_and_no_outside_request(
    tmp_path: Path, write_sweep: Callable[..., Path]
) -> None:
    compare(write_sweep(tmp_path / "s", {"layernorm": [2.0, 2.1, 2.2], "none": [2.5, 2.6, 2.7]}))
    place = tmp_path / "s/comparison"
    dom, complained, asked = opened(place / "report.html", tmp_path)
    figures = {path.stem for path in place.glob("*.svg")}
    assert len(figures) >= 3
    assert set(re.findall(r'<figure id="(\w+)">\s*<h3>[^<]+</h3>\s*<svg', dom)) == figures
    assert (complained, asked) == (False, set())


def test_a_page_with_an_error_and_an_outside_request_would_be_caught(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text('<img src="http://example.invalid/x.png"><script>missing()</script>')
    _, complained, asked = opened(page, tmp_path)
    assert (complained, asked) == (True, {"http://example.invalid/x.png"})
