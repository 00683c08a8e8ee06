"""A console that cannot write every character still shows every number."""

import codecs
import io
import sys

PLAIN = {"−": "-", "–": "-", "×": "x", "─": "-", "±": "+-", "√": "sqrt", "≤": "<=", "≥": ">="}


def plain(error: UnicodeError) -> tuple[str, int]:
    """Replace what an encoding lacks: signs by what they look like, all else by `?`."""
    assert isinstance(error, UnicodeEncodeError)
    lacking = error.object[error.start : error.end]
    return "".join(PLAIN.get(character, "?") for character in lacking), error.end


def write_anywhere() -> None:
    """Let stdout and stderr take every text, in whatever encoding they are."""
    codecs.register_error("plain", plain)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="plain")
