"""Text from tiny trained runs, in this process, against the run's own text and other samples of it.

The vocabulary and the weights are those stored with the run, unknown characters of the prompt are
listed, and requests may be long, empty or of length zero.
"""

import argparse
import re
import shutil
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
import torch

from sample import parse_arguments, sample
from tests.conftest import here, train_here

BLOCK = 16
SMALL = ["model=mini", f"data.block_size={BLOCK}", "data.batch_size=4", "trainer.accelerator=cpu"]
VERSE = "Thee, love, king of night:\nAnd art the sword, o thee.\n"
Trained = Callable[..., Path]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """The run of a norm on a text: trained once."""
    root = tmp_path_factory.mktemp("runs")

    @cache
    def run(norm: str = "layernorm", text: str = VERSE * 20, steps: int = 3) -> Path:
        folder = root / f"{norm}-{steps}-{len(text)}"
        path = root / f"{folder.name}.txt"
        path.write_text(text, "utf-8")
        few = f"trainer.max_steps={steps}"
        return train_here(folder, *SMALL, f"norm={norm}", f"data.path={path}", few)

    return run


@pytest.fixture(scope="module")
def folder(trained: Trained) -> Path:
    return trained(steps=30)


def write(folder: Path, prompt: str = "", n: int = 40, **options: object) -> str:
    defaults = {"temperature": 1.0, "top_k": None, "seed": 1}
    options = defaults | options | {"prompt": prompt, "max_new_tokens": n}
    return sample(argparse.Namespace(folder=folder, **options))


@pytest.mark.parametrize("length", [1, BLOCK - 1, BLOCK, BLOCK + 1, BLOCK + 50])
@pytest.mark.parametrize("n", [0, 1, 3 * BLOCK])
def test_the_prompt_is_written_whole_and_exactly_n_characters_after_it(
    folder: Path, length: int, n: int
) -> None:
    prompt = (VERSE * 2)[3 : 3 + length]
    text = write(folder, prompt, n)
    assert text.startswith(prompt) and len(text) == length + n
    assert set(text) <= set(VERSE)


@pytest.mark.parametrize("n", [0, 1, 3 * BLOCK])
def test_an_empty_prompt_gives_exactly_n_characters_from_the_start_of_a_line(
    folder: Path, n: int
) -> None:
    text = write(folder, "", n)
    assert len(text) == n
    assert text == write(folder, "\n", n)[1:]


def test_a_text_without_a_line_end_is_sampled_from_its_first_character(trained: Trained) -> None:
    folder = trained(text="cabba" * 200)
    text = write(folder, "", 30)
    assert len(text) == 30 and text == write(folder, "a", 30)[1:]


def test_what_lies_before_the_last_block_of_the_prompt_does_not_count(folder: Path) -> None:
    end = VERSE[-BLOCK:]
    short, long = (write(folder, prompt, 3 * BLOCK) for prompt in (end, "king " * 9 + end))
    assert long == "king " * 9 + short


def test_one_seed_gives_one_text_and_another_seed_another(folder: Path) -> None:
    assert write(folder, "Thee") == write(folder, "Thee")
    assert write(folder, "Thee", seed=2) != write(folder, "Thee")
    torch.manual_seed(5)  # the program's own generator does not count
    assert write(folder, "Thee", seed=2) == write(folder, "Thee", seed=2)
    assert write(folder, "Thee", 20) == write(folder, "Thee", 40)[:24]


def test_temperature_zero_and_top_k_one_take_the_likeliest_whatever_the_seed(folder: Path) -> None:
    likeliest = write(folder, "Thee", temperature=0)
    assert likeliest == write(folder, "Thee", temperature=0, seed=2)
    for seed in (1, 2):
        assert likeliest == write(folder, "Thee", top_k=1, temperature=0.7, seed=seed)
    assert likeliest != write(folder, "Thee", temperature=1.0)


def test_top_k_of_the_vocabulary_or_more_changes_nothing(folder: Path) -> None:
    for k in (len(set(VERSE)), 10_000):
        assert write(folder, "Thee", top_k=k) == write(folder, "Thee")
    assert write(folder, "Thee", top_k=2) != write(folder, "Thee")


@pytest.mark.parametrize(
    ("option", "value"),
    [("--temperature", v) for v in ("1e-320", "1e-40", "1e30", "inf")] + [("--seed", str(2**64))],
)
@pytest.mark.parametrize("more", [[], ["--top-k=5"]], ids=["all", "top 5"])
def test_an_extreme_value_writes_the_text_or_is_refused_by_name(
    folder: Path,
    option: str,
    value: str,
    more: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments = [str(folder), "--prompt=Thee", "--max-new-tokens=40", f"{option}={value}", *more]
    left = here(*arguments, cwd=tmp_path, program="sample.py")
    out, err = capsys.readouterr()
    refused = option.removeprefix("--") in f"{left} {err}" and left != 0 and out == ""
    assert refused or (left == 0 and len(out) == len("Thee") + 40 + len("\n"))


@pytest.mark.parametrize(
    ("prompt", "unseen"), [("日本", "日本"), ("Thee日love日", "日"), ("Zebra Q", "QZb")]
)
def test_unseen_characters_of_the_prompt_are_listed(folder: Path, prompt: str, unseen: str) -> None:
    with pytest.raises(ValueError, match=re.escape(repr("".join(sorted(unseen))))) as error:
        write(folder, prompt)
    assert "\n" not in str(error.value)


def test_changing_or_deleting_the_text_file_afterwards_changes_nothing(trained: Trained) -> None:
    folder = trained(text=VERSE * 21)
    path = folder.with_suffix(".txt")
    before = write(folder, "Thee")
    path.write_text("日本 0123456789\n" * 100, "utf-8")
    assert write(folder, "Thee") == before
    with pytest.raises(ValueError, match="日"):
        write(folder, "日")
    path.unlink()
    assert write(folder, "Thee") == before


def test_a_run_folder_can_be_moved(folder: Path, tmp_path: Path) -> None:
    moved = Path(shutil.copytree(folder, tmp_path / "my runs, v2=b"))
    assert write(moved, "Thee") == write(folder, "Thee")


def test_sampling_leaves_the_folder_as_it_was(folder: Path) -> None:
    def listing() -> dict[str, tuple[int, bytes]]:
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        return {str(path): (path.stat().st_mtime_ns, path.read_bytes()) for path in files}

    before = listing()
    write(folder, "Thee")
    assert listing() == before and len(before) > 5


def test_weights_saved_on_a_gpu_are_read_without_one(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkpoint names the device of each tensor: here it says cuda:0, as a GPU run's does."""
    moved = Path(shutil.copytree(folder, tmp_path / "run"))
    checkpoint = moved / "checkpoints" / "best.ckpt"
    state = torch.load(checkpoint, weights_only=True)
    with monkeypatch.context() as patch:
        patch.setattr(torch.serialization, "location_tag", lambda storage: "cuda:0")
        torch.save(state, checkpoint)
    assert write(moved, "Thee") == write(folder, "Thee")


def test_dropout_is_off(tmp_path: Path) -> None:
    path = tmp_path / "verse.txt"
    path.write_text(VERSE * 20)
    more = ["model.dropout=0.5", "trainer.max_steps=1", f"data.path={path}"]
    run = train_here(tmp_path / "run", *SMALL, *more)
    torch.manual_seed(1)
    text = write(run, "Thee")
    torch.manual_seed(2)
    assert write(run, "Thee") == text


def test_a_run_without_a_test_split_can_be_sampled_from(tmp_path: Path) -> None:
    path = tmp_path / "verse.txt"
    path.write_text(VERSE * 20)
    split = "data.split=[0.9,0.1]"
    run = train_here(tmp_path / "run", *SMALL, f"data.path={path}", split, "trainer.max_steps=1")
    assert len(write(run, "Thee", 9)) == 13


def test_a_run_on_lines_begins_anew_after_each_line_end(tmp_path: Path) -> None:
    path = tmp_path / "words.txt"
    path.write_text(VERSE.replace(" ", "\n") * 20)
    run = train_here(
        tmp_path / "run", *SMALL, "data=lines", f"data.path={path}", "trainer.max_steps=3"
    )
    path.unlink()
    text = write(run, "", 500, temperature=0.8)
    assert text == (run / "sample.txt").read_text() and text.count("\n") > 9
    assert all(write(run, p, 500, temperature=0.8) == p + text for p in ("\n", "the\n", "o\nthe\n"))


@pytest.mark.parametrize("part", [".hydra/config.yaml", "tokenizer.json", "checkpoints/best.ckpt"])
def test_a_folder_without_one_of_its_parts_is_refused_by_name(
    folder: Path, part: str, tmp_path: Path
) -> None:
    moved = Path(shutil.copytree(folder, tmp_path / "run"))
    (moved / part).unlink()
    with pytest.raises(ValueError, match=re.escape(f"{moved} has no {part}")):
        write(moved)


@pytest.mark.parametrize(
    "arguments",
    [["nowhere"], ["."], ["{folder}/checkpoints/best.ckpt"], ["{folder}", "--prompt", "日本"]],
)
def test_a_mistake_is_one_line_and_no_traceback(
    folder: Path, arguments: list[str], tmp_path: Path
) -> None:
    given = [argument.format(folder=folder) for argument in arguments]
    message = str(here(*given, cwd=tmp_path, program="sample.py"))
    assert message.startswith("error: ") and "\n" not in message


def test_the_program_prints_the_prompt_and_the_text(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = [str(folder), "--prompt", "Thee", "--max-new-tokens", "9", "--top-k", "3", "--seed", "4"]
    assert here(*line, "--temperature", "0.5", cwd=tmp_path, program="sample.py") == 0
    wanted = write(folder, "Thee", 9, top_k=3, seed=4, temperature=0.5)
    assert capsys.readouterr().out == wanted + "\n"


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--max-new-tokens", "-1"),
        ("--max-new-tokens", "1.5"),
        ("--temperature", "-0.1"),
        ("--temperature", "nan"),
        ("--temperature", "hot"),
        ("--top-k", "0"),
        ("--top-k", "-3"),
        ("--seed", "one"),
        ("--sead", "1"),
    ],
)
def test_invalid_values_exit_with_2_and_name_the_option(
    option: str, value: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["sample.py", "runs/x", f"{option}={value}"])
    with pytest.raises(SystemExit) as stop:
        parse_arguments()
    assert stop.value.code == 2
    assert option in capsys.readouterr().err.splitlines()[-1]


def test_the_smallest_values_are_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    smallest = ["--max-new-tokens=0", "--temperature=0", "--top-k=1", "--seed=0"]
    monkeypatch.setattr(sys, "argv", ["sample.py", "runs/x", *smallest])
    found = parse_arguments()
    assert (found.max_new_tokens, found.temperature, found.top_k, found.seed) == (0, 0, 1, 0)
