"""The run folder's small parts; the reference for quoting is Hydra's own parser."""

import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import DictConfig

from run.checks import check
from run.folder import (
    Refused,
    closing_block,
    environment,
    key_of,
    one_line,
    quoted,
    read_result,
    replace_file,
    write_failure,
    write_result,
)
from run.resume import flat

paths = st.text(
    st.characters(blacklist_categories=["Cs", "Cc"], blacklist_characters="$"), min_size=1
)


@given(st.one_of(paths, st.lists(paths, min_size=1)))
def test_a_quoted_value_comes_back_from_hydras_parser(value: str | list[str]) -> None:
    (override,) = OverridesParser.create().parse_overrides([f"data.path={quoted(value)}"])
    assert override.value() == value


@pytest.mark.parametrize(
    ("override", "key"),
    [
        ("norm=none", "norm"),
        ("++norm.eps=1", "norm.eps"),
        ("~norm", "norm"),
        ("+norm@model.qk_norm=rmsnorm", "norm@model.qk_norm"),
        ("data.path='a=b'", "data.path"),
    ],
)
def test_key_of_is_what_an_override_sets(override: str, key: str) -> None:
    assert key_of(override) == key


def test_replacing_a_file_that_fails_half_way_leaves_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "last.ckpt"
    path.write_bytes(b"old")
    with pytest.raises(RuntimeError), replace_file(path) as file:
        file.write(b"half")
        raise RuntimeError
    assert path.read_bytes() == b"old"
    with replace_file(path) as file:
        file.write(b"new")
    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]


def test_result_json_is_strict_json_and_comes_back(tmp_path: Path) -> None:
    write_result(tmp_path, {"val_best": math.inf, "test_final": math.nan, "steps": 3, "e": "é"})
    text = (tmp_path / "result.json").read_text("utf-8")
    assert "NaN" not in text
    assert "Infinity" not in text
    assert read_result(tmp_path) == {"val_best": None, "test_final": None, "steps": 3, "e": "é"}
    assert read_result(tmp_path / "unfinished") == {}


def test_a_failure_is_written_but_never_over_a_result(tmp_path: Path) -> None:
    write_failure(tmp_path, {"norm_name": "none", "seed": 1}, ["seed=1"], ValueError("a\nb"))
    failed = read_result(tmp_path)
    assert (failed["status"], failed["error"], failed["overrides"]) == ("failed", "a b", ["seed=1"])
    write_result(tmp_path, {"status": "finished"})
    write_failure(tmp_path, {}, [], ValueError("again"))
    assert read_result(tmp_path) == {"status": "finished"}


def test_one_line_says_the_users_mistake_without_its_wrapping() -> None:
    try:
        try:
            raise ValueError("data.split is wrong")
        except ValueError as inner:
            raise RuntimeError("Error in call to target\nfull_key: data") from inner
    except RuntimeError as error:
        assert one_line(error) == "data.split is wrong"
    assert one_line(RuntimeError()) == "RuntimeError"


def test_a_new_run_in_a_taken_folder_is_refused_and_a_resumed_one_is_not(
    tmp_path: Path, compose_config: Callable[..., DictConfig]
) -> None:
    cfg = compose_config()
    check(cfg, tmp_path)
    (tmp_path / ".hydra").mkdir()
    (tmp_path / ".hydra" / "overrides.yaml").touch()
    with pytest.raises(Refused, match="already holds a run"):
        check(cfg, tmp_path)
    cfg.resume = "last.ckpt"
    check(cfg, tmp_path)


def test_flat_keeps_every_leaf_once() -> None:
    nested = {"a": {"b": {"c": 1}, "d": [1, 2]}, "e": None}
    assert flat(nested) == {"a.b.c": 1, "a.d": [1, 2], "e": None}


def test_environment_names_the_versions_and_the_commit() -> None:
    found = environment()
    assert found["torch"].startswith("2.")
    assert found.keys() == {"python", "torch", "lightning", "commit", "dirty"}
    assert json.dumps(found)


def test_the_closing_block_shows_nats_and_bits_and_leaves_out_what_was_not_measured(
    tmp_path: Path,
) -> None:
    result = {
        "norm": "none",
        "seed": 2,
        "status": "diverged",
        "error": "training loss is nan at step 7",
        "steps": 6,
        "seconds": 1.0,
        "tokens_per_second": 1234.5,
        "val_final": math.nan,
        "test_final": math.nan,
        "train_final": math.nan,
        "val_best": math.log(2) * 3,
        "val_best_step": 5,
    }
    block = closing_block(result, tmp_path)
    assert "norm=none seed=2: diverged after 6 steps" in block
    assert "training loss is nan at step 7" in block
    assert "best evaluation (step 5)        2.0794      3.0000" in block
    assert "nan " not in block.replace("is nan at", "")
    assert "sample.py" not in block  # no checkpoint to sample from
