"""Checks of a whole configuration; tests/test_mistakes.py has what a user would type."""

from collections.abc import Callable
from pathlib import Path

import pytest
from omegaconf import DictConfig

from run.checks import check
from run.errors import Refused


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
