r"""Lines, padded: against the lines themselves, counts by hand, and a straight run.

The text is given to a fake corpus, so that a test sees what became of each of its lines.
"""

import itertools
import math
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer
from torch import nn
from torch.utils.data import DataLoader

from data import corpus
from data.lines import LineDataModule
from run.result import read_result
from tests.conftest import ROOT

PATIENT = settings(deadline=None)  # another process may have the machine
NAMES = ROOT.parent / "shared" / "data" / "names.txt"
LINES = [f"{'ab' * (i % 9)}{i}" for i in range(100)]  # 1 to 18 characters, all different
PARTS = ("train", "val", "test")


def build(lines: list[str] = LINES, **options: object) -> LineDataModule:
    text = "".join(f"{line}\n" for line in lines)
    small = {"seed": 1, "block_size": 20, "batch_size": 4, "path": "names.txt"}
    return LineDataModule(lambda path, encoding: text, **(small | options))


def texts(data: LineDataModule, rows: torch.Tensor) -> list[str]:
    """Rows of ids without their padding, as text."""
    return [data.tokenizer.decode([i for i in row if i >= 0]) for row in rows.tolist()]


def lines_of(data: LineDataModule, part: torch.Tensor) -> list[str]:
    return [text[1:-1] for text in texts(data, part)]


@PATIENT
@given(st.lists(st.text(st.characters(exclude_characters="\n", exclude_categories=["Cs"]))))
@example(["a", "", "  b ", "a", "\r", " \t", "日本", "\u2028x\x85y"])
def test_every_line_that_is_not_blank_comes_back_once(lines: list[str]) -> None:
    lines += ["a", "b"]  # one for training, one for validation at least
    data = build(lines, block_size=10_000, batch_size=1, split=[0.5, 0.5])
    found = [line for name in PARTS for line in lines_of(data, getattr(data, name))]
    assert Counter(found) == Counter(line for line in lines if line.strip())
    assert set(data.tokenizer.get_vocab()) == set("".join(found)) | {"\n"}


@pytest.mark.parametrize(
    "text", ["one\ntwo\nthree", "one\ntwo\nthree\n", "\n\none\n\ntwo\nthree\n"]
)
def test_the_last_lines_end_may_be_missing_and_line_ends_may_be_many(text: str) -> None:
    options = {"seed": 1, "block_size": 6, "batch_size": 1, "split": [0.7, 0.3]}
    data = LineDataModule(lambda path, encoding: text, **options)
    assert sorted(texts(data, torch.cat([data.train, data.val]))) == [
        "\none\n",
        "\nthree\n",
        "\ntwo\n",
    ]


@pytest.mark.parametrize("split", [[0.9, 0.05, 0.05], [0.5, 0.3, 0.2], [0.9, 0.1]], ids=str)
def test_all_seeds_have_the_same_splits_and_they_hold_each_line_once(split: list[float]) -> None:
    one, other = build(split=split), build(split=split, seed=2)
    for name, fraction in itertools.zip_longest(PARTS, split, fillvalue=0.0):
        assert torch.equal(getattr(one, name), getattr(other, name))
        assert len(getattr(one, name)) == round(100 * fraction)
    found = [line for name in PARTS for line in lines_of(one, getattr(one, name))]
    assert sorted(found) == sorted(LINES) and found != LINES


def test_the_order_stays_what_it_was() -> None:
    data = build([str(i) for i in range(10)], split=[0.5, 0.3, 0.2])
    assert [lines_of(data, getattr(data, name)) for name in PARTS] == [
        ["9", "2", "1", "5", "0"],
        ["8", "6", "7"],
        ["3", "4"],
    ]


def test_the_splits_of_a_sorted_file_are_alike() -> None:
    data = build(["a" * (1 + i // 1000) for i in range(10_000)], split=[0.8, 0.1, 0.1])
    for part in (data.train, data.val, data.test):
        mean = sum(map(len, lines_of(data, part))) / len(part)
        assert abs(mean - 5.5) < 0.4  # the standard error of 1000 lines is 0.09


def test_a_row_begins_and_ends_with_a_line_end_and_padding_is_right_of_it_only() -> None:
    data = build()
    batches = [data.windows()[k] for k in range(50)]
    for batch in [*batches, *data.whole(data.train), *data.spaced(data.val)]:
        assert batch.dtype == torch.int64 and batch.min() >= -1
        real = batch >= 0
        assert torch.equal(real, real.cummin(1).values)
        assert int(real.sum(1).max()) == batch.shape[1] <= data.block_size + 1  # trimmed
        assert all(re.fullmatch(r"\n[^\n]+\n", text) for text in texts(data, batch))
    assert len({batch.shape[1] for batch in batches}) > 1
    assert all(len(batch) == 4 for batch in batches)


def test_batches_hold_training_lines_only_and_all_of_them_in_time() -> None:
    data = build()
    drawn = {line for k in range(500) for line in lines_of(data, data.windows()[k])}
    assert drawn == set(lines_of(data, data.train))


def test_a_new_object_and_any_order_give_the_same_batches() -> None:
    one, other = build().windows(), build().windows()
    forward = {k: one[k] for k in range(6)}
    torch.manual_seed(7)  # nothing global counts
    assert all(torch.equal(other[k], forward[k]) for k in (5, 0, 3, 3, 1))


@pytest.mark.parametrize("num_workers", [0, 2])
def test_another_process_gives_the_same_batches(num_workers: int) -> None:
    windows = build().windows()
    loader = DataLoader(
        windows, batch_size=None, sampler=itertools.count(3), num_workers=num_workers
    )
    batches = list(itertools.islice(loader, 5))
    assert len(batches) == 5
    assert all(map(torch.equal, batches, (windows[k] for k in range(3, 8))))


def test_batches_of_other_seeds_numbers_and_ranks_differ() -> None:
    drawn = [build(batch_size=32).windows()[k] for k in range(3)]
    drawn += [build(batch_size=32, seed=2).windows()[0], build(batch_size=32).windows(rank=1)[0]]
    assert len({str(batch.tolist()) for batch in drawn}) == 5


def test_unigram_entropy_is_that_of_the_training_lines_and_their_ends_in_nats() -> None:
    data = build(["ab", "c"] * 50)
    counts = Counter("".join(f"{line}\n" for line in lines_of(data, data.train)))
    total = sum(counts.values())
    formula = -sum(n / total * math.log(n / total) for n in counts.values())
    assert data.unigram_entropy == pytest.approx(formula, rel=1e-12)
    assert build(["a"] * 9).unigram_entropy == pytest.approx(math.log(2))  # as many ends as a's


def test_the_whole_split_is_each_of_its_lines_once_in_batches_of_16384_positions() -> None:
    data = build([str(i) for i in range(10_000, 60_000)], split=[0.5, 0.5])
    batches = data.whole(data.val)
    assert [line for b in batches for line in lines_of(data, b)] == lines_of(data, data.val)
    assert sum(int((b[:, 1:] >= 0).sum()) for b in batches) == 25_000 * 6
    assert {b[:, 1:].numel() for b in batches[:-1]} == {16_384 // 6 * 6}
    assert data.whole(data.test) == []


def test_spaced_lines_hold_16384_characters_for_each_evaluation_batch() -> None:
    lines = [str(10**i) for i in range(10)] * 4000
    data = build(lines, split=[0.5, 0.5])
    spaced = data.spaced(data.val)
    characters = sum(int((batch[:, 1:] >= 0).sum()) for batch in spaced)
    assert abs(characters / (4 * 16_384) - 1) < 0.02
    assert all(map(torch.equal, spaced, build(lines, split=[0.5, 0.5], seed=2).spaced(data.val)))
    assert torch.equal(spaced[0][0], data.val[0].long()[: spaced[0].shape[1]])
    assert torch.equal(spaced[-1][-1], data.val[-1].long()[: spaced[-1].shape[1]])


def test_of_a_small_split_each_line_is_read_at_each_evaluation() -> None:
    data = build()
    (batch,) = data.val_dataloader()
    assert lines_of(data, batch) == lines_of(data, data.val)


@pytest.mark.parametrize(
    ("lines", "options", "message"),
    [
        (["a" * 20], {}, "data.block_size=20 holds lines of up to 19 characters, but names.txt "),
        (["a" * 20], {}, "has one of 20 ('aaaaaaaaa'...): give data.block_size=21"),
        ([], {}, "names.txt has no lines; give a file with one sample per line"),
        (["", " ", "\t"], {}, "names.txt has no lines"),
        (["a"], {}, "the validation split of names.txt has 0 of 1 lines, but needs at least 1"),
        (["a"] * 9, {"split": [0.0, 0.5, 0.5]}, "the training split of names.txt has 0 of 9 lines"),
        (["a"] * 9, {"split": [1.0, 0.0]}, "the validation split of names.txt has 0 of 9 lines"),
        (["a"] * 9, {"batch_size": 9}, "data.batch_size=9 is more than the 8 training lines of"),
        (["a"] * 9, {"split": [0.9, 0.2]}, "data.split=[0.9, 0.2] must be two or three fractions"),
        (["a"] * 9, {"batch_size": 0}, "data.batch_size must be at least 1, got 0"),
    ],
)
def test_invalid_data_is_refused_in_one_line_that_says_what_to_do(
    lines: list[str], options: dict[str, object], message: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(message)) as error:
        build(lines, **options)
    assert "\n" not in str(error.value)


def test_the_block_size_that_the_message_names_is_enough() -> None:
    data = build(["a" * 20] * 9, block_size=21)
    assert data.windows()[0].shape == (4, 22)


def test_one_line_says_what_is_read() -> None:
    line = build().describe()
    assert "on 100 lines of names.txt" in line and "\n" not in line
    assert f"{sum(len(line) + 1 for line in LINES):,} characters (13 different)" in line


def test_the_verse_lines_are_the_plays_lines_without_the_speakers() -> None:
    plays, found = corpus.shakespeare(), corpus.verse_lines()
    assert found.endswith("\n") and "\n\n" not in found
    lines = Counter(found.removesuffix("\n").split("\n"))
    speakers = Counter(re.findall(r"(?:\A|\n\n)([^\n]+:)(?=\n)", plays))
    assert lines == Counter(line for line in plays.split("\n") if line) - speakers
    assert lines.total() == 110_155 and max(map(len, lines)) == 74
    assert not {"HAMLET:", "First Witch:", "COUNTESS:"} & lines.keys()
    assert lines["To be, or not to be: that is the question:"] == 1


def test_each_file_begins_a_line(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\ntwo")
    (tmp_path / "b.txt").write_text("three\r\n")
    text = corpus.verse_lines([str(tmp_path / "a.txt"), str(tmp_path / "b.txt")])
    assert [line for line in text.split("\n") if line] == ["one", "two", "three"]


@pytest.mark.skipif(not NAMES.is_file(), reason="the names are not part of the repository")
def test_the_32033_names_come_back() -> None:
    data = LineDataModule(corpus.verse_lines, path=str(NAMES), seed=1, block_size=16, batch_size=32)
    found = [line for name in PARTS for line in lines_of(data, getattr(data, name))]
    assert len(found) == 32_033 and sorted(found) == sorted(NAMES.read_text().split())


class Script(nn.Module):
    """Writes given characters, whatever it sees; notes what it sees."""

    def __init__(self, tokenizer: Tokenizer, text: str) -> None:
        super().__init__()
        self.place, self.tokenizer = nn.Parameter(torch.zeros(1)), tokenizer
        self.ids, self.seen = iter(tokenizer.encode(text).ids), list[str]()

    def generate(self, idx: torch.Tensor, max_new_tokens: int, **how: object) -> torch.Tensor:
        self.seen.append(self.tokenizer.decode(idx[0].tolist()))
        return torch.cat([idx, torch.tensor([[next(self.ids)] * max_new_tokens])], dim=1)


@pytest.mark.parametrize(
    ("prompt", "seen"),
    [
        ("", ["\n", "\na", "\n", "\nb"]),
        ("\n", ["\n", "\na", "\n", "\nb"]),
        ("ab", ["\nab", "\naba", "\n", "\nb"]),
        ("ab\nb", ["\nb", "\nba", "\n", "\nb"]),
    ],
)
def test_text_is_written_line_by_line(prompt: str, seen: list[str]) -> None:
    data = build(["ab"] * 9)
    net = Script(data.tokenizer, "a\nbb")
    assert data.continue_text(net, data.tokenizer, prompt, 4, seed=1) == "a\nbb"
    assert net.seen == seen


@pytest.mark.parametrize("norm", ["layernorm", "batchnorm", "powernorm"])
def test_stopping_and_resuming_gives_what_a_straight_run_gives(
    norm: str, tmp_path: Path, run: Callable[..., Path], resume: Callable[..., Path]
) -> None:
    """Without statistics, with masked ones, and where padding counts in a warm-up.

    Every norm is stopped and resumed in tests/run/test_resume.py.
    """
    same = ["data=lines", "data.block_size=48", f"norm={norm}", "scheduler.total_steps=12"]
    straight = run(tmp_path / "straight", *same, "trainer.max_steps=12")
    stopped = resume(
        run(tmp_path / "stopped", *same, "trainer.max_steps=7"), "trainer.max_steps=12"
    )
    states = [
        torch.load(folder / "checkpoints" / "last.ckpt", weights_only=True)["state_dict"]
        for folder in (straight, stopped)
    ]
    assert states[0].keys() == states[1].keys()
    assert all(torch.equal(value, states[1][name]) for name, value in states[0].items())
    one, two = read_result(straight), read_result(stopped)
    for key in ("status", "val_final", "test_final", "val_best", "loss_initial", "steps", "tokens"):
        assert one[key] == two[key], key
    assert one["val_final"] < one["loss_initial"]


def test_tokens_are_the_real_characters(tmp_path: Path, run: Callable[..., Path]) -> None:
    more = ["data=lines", "data.block_size=48", "trainer.max_steps=5"]
    folder = run(tmp_path / "run", *more, "trainer.accumulate_grad_batches=2")
    path = read_result(folder)["config"]["data"]["path"]
    data = LineDataModule(corpus.verse_lines, path=path, seed=1, block_size=48, batch_size=4)
    characters = sum(len(line) + 1 for k in range(10) for line in lines_of(data, data.windows()[k]))
    assert read_result(folder)["tokens"] == characters
    rows = (folder / "metrics.csv").read_text().splitlines()
    assert f"5,tokens,{float(characters)}" in rows
