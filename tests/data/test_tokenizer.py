"""The character tokenizer, against Python's own strings and the `tokenizers` package's encoder.

A Python string is a sequence of code points, so `len(s)` and `sorted(set(s))` are the reference.
"""

import random
from pathlib import Path

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from data.tokenizer import build_tokenizer, encode, start_ids

HARD = [
    "",
    "\n",
    "  two  spaces ,\t\n\n and lines \r\n",
    "e\u0301 \u00e9 \ufb01 \u00df \u0130i\u0307",  # nothing is normalized or lower-cased
    "👩\u200d👩\u200d👧 🇩🇪 👍🏽 \ufe0f",
    "\u202eabc\u202c \u00a0\u2003\u3000\ufeff\x00\x7f\x85\u2028",
    "עִבְרִית देवनागरी ภาษาไทย 日本語",
    "<unk>[UNK] ##a Ġb ▁c",
    "\U0010ffff\ue000\ufffd\uffff",
]
TEXT = st.text(st.characters(exclude_categories=["Cs"]))  # all but surrogates: those are no text
PATIENT = settings(deadline=None)  # another process may have the machine
PROSE = st.text("ab \n\t.é\u0301😀")


def assert_exact(tokenizer: Tokenizer, text: str) -> None:
    ids = encode(tokenizer, text)
    assert ids.dtype == torch.int32 and ids.shape == (len(text),)
    assert tokenizer.decode(ids.tolist()) == text


@pytest.mark.parametrize("text", HARD)
def test_hard_characters_come_back_one_id_each(text: str) -> None:
    assert_exact(build_tokenizer(text), text)


@PATIENT
@given(TEXT | PROSE)
def test_decode_is_the_inverse_of_encode_with_one_id_a_code_point(text: str) -> None:
    assert_exact(build_tokenizer(text), text)


@PATIENT
@given(TEXT, st.randoms(use_true_random=False))
def test_any_string_over_the_vocabulary_comes_back(text: str, draw: random.Random) -> None:
    other = "".join(draw.choices(text, k=40)) if text else ""
    assert_exact(build_tokenizer(text), other)


@PATIENT
@given(TEXT | PROSE)
@example("".join(HARD))
def test_ids_equal_those_of_the_packages_own_encoder(text: str) -> None:
    tokenizer = build_tokenizer(text)
    assert encode(tokenizer, text).tolist() == tokenizer.encode(text).ids


@PATIENT
@given(TEXT | PROSE)
@example("".join(HARD))
def test_a_stored_tokenizer_gives_the_same_ids_and_text(text: str) -> None:
    before = build_tokenizer(text)
    after = Tokenizer.from_str(before.to_str(pretty=True))
    assert after.get_vocab() == before.get_vocab()
    assert torch.equal(encode(after, text), encode(before, text))
    assert after.encode(text).ids == before.encode(text).ids
    assert_exact(after, text)


@pytest.mark.parametrize("text", HARD)
def test_a_saved_file_is_the_same_tokenizer(text: str, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    build_tokenizer(text).save(str(path))
    assert_exact(Tokenizer.from_file(str(path)), text)
    path.write_text(build_tokenizer(text).to_str(pretty=True), "utf-8")  # as a run folder has it
    assert_exact(Tokenizer.from_file(str(path)), text)


@PATIENT
@given(TEXT)
def test_ids_follow_code_points_whatever_the_order_of_the_text(text: str) -> None:
    vocabulary = build_tokenizer(text).get_vocab()
    assert vocabulary == {character: i for i, character in enumerate(sorted(set(text)))}
    assert build_tokenizer(text[::-1] + text).get_vocab() == vocabulary


@PATIENT
@given(st.text("abc \n"), st.text("dé\u0301日😀", min_size=1), st.text("abc \n"))
def test_unseen_characters_are_refused_and_listed_once_each(a: str, b: str, c: str) -> None:
    tokenizer = build_tokenizer("abc \n")
    with pytest.raises(ValueError, match="not in the vocabulary of 5") as error:
        encode(tokenizer, a + b + c)
    listed = str(error.value).partition(" are not in")[0].removeprefix("characters ")
    assert listed == repr("".join(sorted(set(b))))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("prompt", ["a\udcff", "\ud800"])
def test_bytes_that_are_no_text_are_refused_as_unseen(prompt: str) -> None:
    """Python passes undecodable bytes of the command line on as lone surrogates."""
    with pytest.raises(ValueError, match="not in the vocabulary of 5"):
        encode(build_tokenizer("abc \n"), prompt)


@pytest.mark.parametrize(
    ("text", "prompt", "start"),
    [
        ("b a\nc", "", "\n"),
        ("\t\n\0", "", "\n"),
        ("cba", "", "a"),
        ("日本", "", "日"),
        ("b a\nc", "ab", "ab"),
        ("b a\nc", "\n", "\n"),
    ],
)
def test_generation_starts_from_the_prompt_a_line_end_or_the_first_character(
    text: str, prompt: str, start: str
) -> None:
    tokenizer = build_tokenizer(text)
    ids = start_ids(tokenizer, prompt)
    assert ids.dtype == torch.int64 and ids.shape == (1, len(start))
    assert tokenizer.decode(ids[0].tolist()) == start


def test_an_unseen_character_in_a_prompt_is_listed() -> None:
    with pytest.raises(ValueError, match="'日本'"):
        start_ids(build_tokenizer("ROMEO:\n"), "ROMEO日本日")
