"""From a text to splits and batches, against slices of the text and formulas written out here."""

import itertools
import math
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from data.corpus import read_files
from data.datamodule import CharDataModule
from data.tokenizer import start_ids

PATIENT = settings(deadline=None)  # another process may have the machine
VERSE = "To be, or not to be, that is the question:\n"


def build(text: str = VERSE * 50, **options: object) -> CharDataModule:
    small = {"seed": 1, "block_size": 8, "batch_size": 4, "path": "verse.txt"}
    return CharDataModule(lambda path, encoding: text, **(small | options))


def text_of(data: CharDataModule, ids: torch.Tensor) -> str:
    return data.tokenizer.decode(ids.tolist())


def attach(data: CharDataModule, *, processed: int = 0, rank: int = 0) -> CharDataModule:
    total = SimpleNamespace(total=SimpleNamespace(processed=processed))
    loop = SimpleNamespace(epoch_loop=SimpleNamespace(batch_progress=total))
    data.trainer = SimpleNamespace(fit_loop=loop, global_rank=rank)
    return data


@PATIENT
@given(
    weights=st.lists(st.integers(0, 99), min_size=2, max_size=3),
    length=st.integers(50, 2000),
)
@example(weights=[90, 5, 5], length=997)
@example(weights=[90, 10], length=999)
@example(weights=[1, 1, 1], length=1000)
def test_splits_are_contiguous_in_order_and_the_whole_text(weights: list[int], length: int) -> None:
    weights = [w + 10 for w in weights]
    split = [w / sum(weights) for w in weights]
    text = "".join(chr(0x4E00 + i) for i in range(length))  # each character says where it was
    data = build(text, split=split, block_size=1, batch_size=1)
    parts = [data.train, data.val, data.test]
    assert "".join(text_of(data, part) for part in parts) == text
    for part, fraction in itertools.zip_longest(parts, split, fillvalue=0.0):
        assert abs(len(part) - fraction * length) <= 1


def test_no_character_is_dropped_where_the_fractions_sum_to_1_within_the_tolerance() -> None:
    data = build("ab" * 1_000_000, split=[0.9, 0.0999991], block_size=1)
    assert len(data.train) + len(data.val) + len(data.test) == 2_000_000


def test_two_fractions_leave_no_test_split_and_no_evaluation_batches_of_it() -> None:
    data = build(split=[0.9, 0.1])
    assert len(data.test) == 0 and len(data.train) + len(data.val) == 50 * len(VERSE)
    assert data.whole(data.test) == []


@pytest.mark.parametrize(
    "split",
    [
        [],
        [1.0],
        [0.9, 0.2],
        [0.5, 0.4],
        [1.1, -0.1],
        [0.4, 0.3, 0.2, 0.1],
        [90, 5, 5],
        [math.nan, 0.5, 0.5],
        [math.inf, -math.inf],
    ],
    ids=str,
)
def test_invalid_fractions_are_refused_by_key_and_value(split: list[float]) -> None:
    with pytest.raises(ValueError, match=re.escape(f"data.split={split}")) as error:
        build(split=split)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("length", "split", "name", "found"),
    [
        (0, [0.9, 0.05, 0.05], "training", 0),
        (1, [0.9, 0.05, 0.05], "training", 1),
        (64, [0.9, 0.1], "training", 58),
        (65, [0.9, 0.1], "training", 58),
        (66, [0.9, 0.1], "training", 59),
        (65, [1.0, 0.0], "validation", 0),
        (66, [0.985, 0.015], "validation", 1),
        (300, [0.9, 0.1], "validation", 30),
        (1290, [0.9, 0.05, 0.05], "test", 64),
        (300, [0.1, 0.9], "training", 30),
        (300, [0.0, 0.5, 0.5], "training", 0),
        (300, [0.4, 0.4, 0.2], "test", 60),
    ],
)
def test_a_split_too_short_for_a_window_is_refused_with_file_name_length_and_minimum(
    length: int, split: list[float], name: str, found: int, tmp_path: Path
) -> None:
    path = tmp_path / "short.txt"
    path.write_text((VERSE * 40)[:length])
    options = {"block_size": 64, "batch_size": 1, "path": str(path), "split": split, "seed": 1}
    with pytest.raises(ValueError, match=rf"\b{name} split\b") as error:
        CharDataModule(read_files, **options)
    message = str(error.value)
    assert str(path) in message and "\n" not in message
    assert {str(found), "65"} <= set(re.findall(r"\d+", message.replace(str(path), "")))


def test_splits_of_one_window_each_are_enough_and_the_test_split_may_be_empty() -> None:
    assert len(build((VERSE * 9)[:18], split=[0.5, 0.5, 0.0], batch_size=1).test) == 0
    data = build((VERSE * 9)[: 3 * 65], split=[1 / 3, 1 / 3, 1 / 3], block_size=64, batch_size=1)
    assert torch.equal(data.windows()[0], data.train[None].long())
    for part in (data.val, data.test):
        (batch,) = data.whole(part)
        assert torch.equal(batch, part[None].long())


def test_a_batch_larger_than_the_text_is_refused_with_the_numbers() -> None:
    characters = int(0.9 * 50 * len(VERSE))
    with pytest.raises(ValueError, match=r"data\.batch_size=100000\b") as error:
        build(batch_size=100_000, block_size=64)
    numbers = set(re.findall(r"\d+", str(error.value)))
    assert {str(characters), str(characters - 64), "64"} <= numbers
    build(batch_size=characters - 64, block_size=64)
    with pytest.raises(ValueError, match="batch_size"):
        build(batch_size=characters - 63, block_size=64)


@pytest.mark.parametrize("name", ["block_size", "batch_size", "eval_batches"])
@pytest.mark.parametrize("value", [0, -1])
def test_sizes_below_one_are_refused_by_name(name: str, value: int) -> None:
    with pytest.raises(ValueError, match=rf"data\.{name} .*{value}$"):
        build(**{name: value})


def test_the_vocabulary_is_that_of_the_whole_text() -> None:
    text = VERSE * 39 + "日" + VERSE * 3 + "本"
    data = build(text)
    assert "日" in text_of(data, data.val) and "本" in text_of(data, data.test)
    assert not {"日", "本"} & set(text_of(data, data.train))
    assert data.vocab_size == len(set(text))
    assert text_of(data, start_ids(data.tokenizer, "日本")[0]) == "日本"


def test_unigram_entropy_is_that_of_the_training_split_in_nats() -> None:
    data = build("aab" * 300 + "zyxw" * 25)
    counts = Counter(text_of(data, data.train)).values()
    total = sum(counts)
    formula = -sum(n / total * math.log(n / total) for n in counts)
    assert data.unigram_entropy == pytest.approx(formula, rel=1e-12)
    assert build("ab" * 500, split=[0.5, 0.5]).unigram_entropy == pytest.approx(math.log(2))


@pytest.mark.parametrize("batch_size", [1, 64])
@pytest.mark.parametrize("block_size", [1, 7, 64, 100, 1000, 16_384])
def test_evaluation_batches_are_of_16384_characters_whatever_the_sizes(
    block_size: int, batch_size: int
) -> None:
    data = build("ab" * 500_000, block_size=block_size, batch_size=batch_size, split=[0.5, 0.5])
    for batches in (data.spaced(data.val), data.whole(data.val)[:-2], list(data.val_dataloader())):
        sizes = {batch[:, 1:].numel() for batch in batches}
        assert len(sizes) == 1 and 16_384 - block_size < sizes.pop() <= 16_384
    assert len(data.spaced(data.val)) == data.eval_batches == 4


def test_a_block_longer_than_an_evaluation_batch_is_one_window() -> None:
    data = build("ab" * 100_000, block_size=20_000, batch_size=1, split=[0.5, 0.5])
    assert [tuple(batch.shape) for batch in data.spaced(data.val)] == [(1, 20_001)] * 4


def test_validation_reads_the_same_windows_each_time() -> None:
    first, second = (list(data.val_dataloader()) for data in (build(), build(seed=2)))
    assert len(first) == len(second)
    assert all(map(torch.equal, first, second))


@pytest.mark.parametrize("rank", [0, 3])
@pytest.mark.parametrize("num_workers", [0, 2])
def test_training_continues_at_the_first_batch_not_processed_without_a_warning(
    num_workers: int, rank: int, recwarn: pytest.WarningsRecorder, capfd: pytest.CaptureFixture
) -> None:
    data = attach(build(num_workers=num_workers), processed=5, rank=rank)
    data.tokenizer.encode(VERSE)  # the package's threads, then a fork
    batches = list(itertools.islice(data.train_dataloader(), 4))
    wanted = [build().windows(rank)[k] for k in range(5, 9)]
    assert torch.equal(torch.stack(batches), torch.stack(wanted))
    assert [str(warning.message) for warning in recwarn] == []
    assert "fork" not in capfd.readouterr().err


@pytest.mark.parametrize("path", [None, "a.txt", ["a.txt", "b.txt"]])
def test_one_line_says_what_is_read(path: str | Sequence[str] | None) -> None:
    line = build(path=path).describe()
    assert f"{50 * len(VERSE):,}" in line and str(len(set(VERSE))) in line
    assert "\n" not in line and (path is None or str(path) in line)
