"""The page in a real browser: Chromium, headless. Skipped where there is none."""

import html
import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from report.compare import compare

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
WIDE, TELEPHONE = (1300, 900), (390, 844)  # pixels
LOSSES = {
    "layernorm": [2.0, 2.1, 2.2],
    "batchnorm": [2.4, 2.6, 2.5],
    "none": [2.5, 2.6, 3.5],  # the last one has failed to learn
}

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


MEASURE = """
const measure = (frame) => {
  const view = frame.contentWindow, root = frame.contentDocument.documentElement;
  const box = (selector) => {
    const found = root.querySelector(selector).getBoundingClientRect();
    return [found.left, found.top, found.right, found.bottom];
  };
  const table = root.querySelector("#comparison table").parentElement;
  const text = [...root.querySelectorAll("p, li, td, th, figcaption, summary")];
  return {
    window: [view.innerWidth, view.innerHeight],
    page: root.scrollWidth,
    table: [table.scrollWidth, table.clientWidth],
    smallest: Math.min(...text.map((each) => parseFloat(view.getComputedStyle(each).fontSize))),
    findings: box("#findings"),
    forest: box("#differences svg"),
    curves: box("#loss_val_steps svg"),
    row: box("#comparison tbody tr"),
  };
};
onload = () => {
  const found = [...document.querySelectorAll("iframe")].map(measure);
  seen.textContent = JSON.stringify(found);
};
"""


def measured(views: list[tuple[str, int, int]], place: Path) -> list[dict[str, Any]]:
    """Where things are, in pixels, for each page in a window of its width and height.

    Each window is a frame: Chromium makes none of its own as narrow as a telephone.
    """
    frames = [
        f'<iframe width="{width}" height="{height}" style="border: 0" '
        f'srcdoc="{html.escape(page)}"></iframe>'
        for page, width, height in views
    ]
    wrapper = place / "wrapper.html"
    wrapper.write_text(f'<pre id="seen"></pre><script>{MEASURE}</script>{"".join(frames)}')
    dom, _, _ = opened(wrapper, place)
    found = re.search(r'<pre id="seen">(.+?)</pre>', dom)
    assert found is not None, "the script in the wrapper has written nothing"
    seen: list[dict[str, Any]] = json.loads(html.unescape(found[1]))
    assert [each["window"] for each in seen] == [[width, height] for _, width, height in views]
    return seen


def out_of_view(seen: dict[str, Any]) -> list[str]:
    """What a reader of the first screen does not see whole."""
    width, height = seen["window"]
    whole = {
        name: left >= 0 and top >= 0 and right <= width and bottom <= height and right > left
        for name in ("findings", "forest", "curves", "row")
        for left, top, right, bottom in [seen[name]]
    }
    return [name for name, inside in whole.items() if not inside]


@pytest.fixture(scope="module")
def comparison(tmp_path_factory: pytest.TempPathFactory, write_full: Callable[..., Path]) -> Path:
    """The report of a sweep with every kind of figure, a failed run and a leak."""
    folder = write_full(tmp_path_factory.mktemp("swept"), LOSSES)
    compare(folder)
    return folder / "comparison"


@pytest.fixture(scope="module")
def page(comparison: Path) -> str:
    """Its page."""
    return (comparison / "report.html").read_text()


def test_the_page_opens_with_every_figure_no_error_and_no_outside_request(
    tmp_path: Path, comparison: Path
) -> None:
    dom, complained, asked = opened(comparison / "report.html", tmp_path)
    figures = {path.stem for path in comparison.glob("*.svg")}
    assert len(figures) == 7
    assert set(re.findall(r'<figure id="(\w+)">\s*<h3>[^<]+</h3>\s*<svg', dom)) == figures
    assert (complained, asked) == (False, set())


def test_a_page_with_an_error_and_an_outside_request_would_be_caught(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text('<img src="http://example.invalid/x.png"><script>missing()</script>')
    _, complained, asked = opened(page, tmp_path)
    assert (complained, asked) == (True, {"http://example.invalid/x.png"})


def test_the_first_screen_shows_the_answer_and_a_telephone_scrolls_tables_only(
    tmp_path: Path, page: str
) -> None:
    wide, narrow = measured([(page, *WIDE), (page, *TELEPHONE)], tmp_path)
    assert out_of_view(wide) == []
    assert wide["forest"][1] == wide["curves"][1]  # side by side
    assert wide["forest"][2] < wide["curves"][0]
    assert narrow["page"] <= TELEPHONE[0]
    inner, outer = narrow["table"]
    assert inner > outer
    assert narrow["smallest"] >= 12


def test_a_row_below_the_first_screen_and_a_page_that_scrolls_sideways_would_be_caught(
    tmp_path: Path, page: str
) -> None:
    longer = page.replace("<h2>Comparison</h2>", "<h2>Comparison</h2>" + "<br>" * 30)
    broken = page.replace('<div class="wide"', '<div class="broken"')
    wide, narrow = measured([(longer, *WIDE), (broken, *TELEPHONE)], tmp_path)
    assert out_of_view(wide) == ["row"]
    assert narrow["page"] > TELEPHONE[0]
