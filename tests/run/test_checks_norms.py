"""A norm's options are compared with its own constructor, so a user's norm is checked as ours are.

The norm here is one that nobody but this test knows.
"""

from collections.abc import Callable
from typing import Any, Literal

import pytest
import yaml
from omegaconf import DictConfig, OmegaConf

from model.gpt import GPT
from run.checks import SITES, check_norms, check_options
from tests.conftest import NORMS, ROOT


class OwnNorm:
    """A user's norm, with an option of every kind."""

    def __init__(
        self,
        dim: int,
        *,
        size: int,
        rate: float = 0.1,
        share: float | None = None,
        on: bool = True,
        mode: str = "a",
        choice: Literal["x", "y"] = "x",
        anything: Any = None,
    ) -> None: ...


def own_norm(dim: int, **options: float) -> None:
    """A function makes a norm, too; this one takes what it is given."""


def options(**given: Any) -> dict[str, Any]:
    return {"_target_": f"{__name__}.OwnNorm", "_partial_": True, "size": 2, **given}


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({"size": 2.5}, "norm.size must be a whole number, got 2.5"),
        ({"size": True}, "norm.size must be a whole number, got True"),
        ({"size": None}, "norm.size must be a whole number, got None"),
        ({"rate": "1e-5"}, "norm.rate must be a number, got 1e-5"),
        ({"rate": True}, "norm.rate must be a number, got True"),
        ({"rate": float("nan")}, "norm.rate must be a finite number, got nan"),
        ({"rate": [1.0]}, r"norm.rate must be a number, got \[1.0\]"),
        ({"share": "null"}, "norm.share must be a number or null, got null"),
        ({"share": float("-inf")}, "norm.share must be a finite number, got -inf"),
        ({"on": 1}, "norm.on must be true or false, got 1"),
        ({"on": "no"}, "norm.on must be true or false, got no"),
        ({"mode": 3}, "norm.mode must be text, got 3"),
        ({"sise": 3}, "norm.sise is not an option of OwnNorm; the options of OwnNorm are size, ra"),
        ({"dim": 3}, "norm.dim is not an option of OwnNorm"),
    ],
)
def test_a_value_of_another_type_is_refused_by_the_key_that_was_typed(
    given: dict[str, Any], wanted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ValueError, match=f"^{wanted}"):
        check_options("norm", options(**given))
    with pytest.raises(ValueError, match=f"^model.final_{wanted}"):
        check_options("model.final_norm", options(**given))


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"rate": 1, "share": 1, "size": 0},
        {"share": None, "on": False, "mode": "b"},
        {"choice": "z", "anything": [1]},  # these annotations say nothing that can be tested here
    ],
)
def test_what_the_constructor_takes_passes(given: dict[str, Any]) -> None:
    check_options("norm", options(**given))
    check_options("norm", {"_target_": f"{__name__}.own_norm", "whatever": "x"})


def test_a_target_that_is_not_there_is_left_to_what_builds_the_net() -> None:
    check_options("norm", {"_target_": "model.norms.LayerNrm", "eps": "x"})


@pytest.mark.parametrize("norm", NORMS)
def test_every_yaml_passes_and_a_text_for_any_number_does_not(
    norm: str, compose_config: Callable[..., DictConfig]
) -> None:
    cfg = compose_config(f"norm={norm}")
    check_norms(cfg)
    raw = yaml.safe_load((ROOT / "configs" / "norm" / f"{norm}.yaml").read_text())
    values = OmegaConf.to_container(cfg.norm, resolve=True)
    numbers = [key for key in raw if isinstance(values[key], float)]
    for key in numbers:
        with pytest.raises(ValueError, match=f"^norm.{key} must be a number"):
            check_options("norm", {**values, key: "text"})


def test_the_sites_are_those_of_the_net() -> None:
    assert SITES == ["attention_norm", "mlp_norm", "final_norm", "embedding_norm", "qk_norm"]
    assert set(SITES) <= set(GPT.__init__.__annotations__)
