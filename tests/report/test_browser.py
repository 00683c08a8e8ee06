"""The page in a real browser: Chromium, headless. Skipped where there is none."""

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from report.comparison import compare

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine"),
]


def test_the_page_opens_with_every_figure_no_error_and_no_outside_request(
    tmp_path: Path, write_sweep: Callable[..., Path]
) -> None:
    compare(write_sweep(tmp_path / "s", {"layernorm": [2.0, 2.1, 2.2], "none": [2.5, 2.6, 2.7]}))
    place = tmp_path / "s/comparison"
    page = (place / "report.html").as_uri()
    seen = tmp_path / "net.json"
    command = [
        str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr",
        "--disable-background-networking", "--disable-component-update", "--no-first-run",
        f"--user-data-dir={tmp_path / 'profile'}", f"--log-net-log={seen}", "--dump-dom", page,
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    figures = {path.stem for path in place.glob("*.svg")}
    shown = set(re.findall(r'<figure id="(\w+)">\s*<h3>[^<]+</h3>\s*<svg', done.stdout))
    assert shown == figures
    assert len(figures) >= 5
    assert "CONSOLE" not in done.stderr
    asked = {
        event["params"]["initiator"]
        for event in json.loads(seen.read_text())["events"]
        if "initiator" in event.get("params", {})
    }
    assert not {origin for origin in asked if origin.startswith(("file:", "null"))}
