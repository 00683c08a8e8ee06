"""report.html: one file, whatever the runs are called."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from report.compare import compare
from report.figures import looks_of
from report.notes import footnotes
from tests.report.conftest import judged_of

Write = Callable[..., Path]
FULL = {"layernorm": [2.0, 2.1, 2.2], "batchnorm": [2.4, 2.6, 2.5], "none": [2.5, 2.6, 3.5]}
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


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory, write_full: Write) -> Path:
    """A compared sweep with every kind of figure, a failed run and a leak."""
    folder = write_full(tmp_path_factory.mktemp("swept"), FULL)
    compare(folder)
    return folder


@pytest.fixture(scope="module")
def full(swept: Path) -> str:
    """Its page."""
    return (swept / "comparison/report.html").read_text()


def test_the_answer_comes_first_then_the_contents_then_the_sections(full: str) -> None:
    parts = ['id="findings"', 'id="differences"', 'id="loss_val_steps"', 'id="comparison"']
    parts += ['class="contents"', 'id="each-seed"', 'id="losses"', 'id="loss_train_steps"']
    parts += ['id="batch-statistics"', 'id="inside-the-network"', 'id="cost"', 'id="settings"']
    places = [full.index(part) for part in parts]
    assert places == sorted(places)
    contents = full[full.index('class="contents"') : full.index("</nav>")]
    sections = re.findall(r'<section id="([^"]+)">', full)
    assert re.findall(r'href="#([^"]+)"', contents) == [s for s in sections if s != "comparison"]


def test_every_figure_is_on_the_page_once(full: str, swept: Path) -> None:
    figures = sorted(path.stem for path in (swept / "comparison").glob("*.svg"))
    assert sorted(re.findall(r'<figure id="([^"]+)">', full)) == figures
    batch = full[full.index('id="batch-statistics"') : full.index('id="inside-the-network"')]
    assert re.findall(r'<figure id="([^"]+)">', batch) == ["probe_leak"]


def test_a_visible_caption_has_at_most_two_sentences(full: str) -> None:
    captions = re.findall(
        r'<figcaption>(.*?)</figcaption>|<p class="caption">(.*?)</p>', full, re.DOTALL
    )
    texts = [figure or table for figure, table in captions]
    assert len(texts) > 9
    for text in texts:
        assert 1 <= len(re.findall(r"[.!?](?=\s|$)", text)) <= 2, text


def test_each_note_is_under_the_table_whose_numbers_it_qualifies(full: str, swept: Path) -> None:
    """Those on a condition are under the main table, where its row has their numbers."""
    notes = footnotes(judged_of(swept))
    sections = dict(re.findall(r'<section id="([^"]+)">(.*?)</section>', full, re.DOTALL))
    assert {bool(note.conditions) for note in notes} == {True, False}
    for number, note in enumerate(notes, 1):
        assert full.count(f'id="note-{number}"') == 1
        place = "comparison" if note.conditions else note.table
        assert f'id="note-{number}"' in sections[place]
        assert (f'href="#note-{number}"' in sections["comparison"]) == bool(note.conditions)
    assert "notes" not in sections  # for notes on no table


def test_a_note_on_no_table_has_a_section_of_its_own(tmp_path: Path, write_sweep: Write) -> None:
    write_sweep(tmp_path, LOSSES)
    (tmp_path / "something").mkdir()
    compare(tmp_path)
    page = (tmp_path / "comparison/report.html").read_text()
    assert "something" in page[page.index('<section id="notes">') :]


def test_a_condition_has_the_colour_of_its_figures_in_the_tables(full: str, swept: Path) -> None:
    for condition, look in looks_of(judged_of(swept)).items():
        dot = f'<span class="dot" style="background: {look.color}"></span><span>{condition} '
        assert full.count(dot) + full.count(dot.strip() + "<") >= 3


def test_speed_is_not_shown_and_the_page_says_how_to_measure_it(full: str) -> None:
    assert full.count("python benchmarks/norms.py --step") == 1
    words = re.sub(r"<svg.*?</svg>|<style.*?</style>|<details>.*?</details>", "", full, flags=re.S)
    assert not re.search(r"tokens_per_second|characters/s|ms per step|training time", words)


def test_one_condition_alone_has_a_page_without_a_forest_plot(
    tmp_path: Path, write_full: Write
) -> None:
    compare(write_full(tmp_path, {"layernorm": [2.0, 2.1, 2.2]}))
    page = (tmp_path / "comparison/report.html").read_text()
    assert 'id="differences"' not in page and 'id="loss_val_steps"' in page
    assert "Batch statistics" in page  # the leak was logged
    assert "Learning rates" not in page and "Claims" not in page
