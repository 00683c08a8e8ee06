"""docs/axes.png shows, for every norm, the numbers that its formula says an output is made from."""

from functools import cache

import pytest
import torch
from PIL import Image

from tests.conftest import NORMS
from tools import draw_axes as axes

b, t, c = axes.AT


@cache
def panels() -> list[axes.Panel]:
    return axes.panels()


def masks_of(name: str) -> list[torch.Tensor]:
    return [panel.mask for panel in panels() if name in panel.names]


def filled(*index: int | slice) -> torch.Tensor:
    mask = torch.zeros(axes.B, axes.T, axes.C, dtype=torch.bool)
    mask[index] = True
    return mask


def test_every_norm_is_in_one_panel() -> None:
    assert sorted(name for panel in panels() for name in panel.names) == NORMS


@pytest.mark.parametrize(
    ("name", "mask"),
    [
        ("layernorm", filled(b, t)),
        ("rmsnorm", filled(b, t)),
        ("batchnorm", filled(slice(None), slice(None), c)),
        ("batchnorm_causal", filled(slice(None), slice(t + 1), c)),
        ("batchnorm_position", filled(slice(None), t, c)),
        ("none", filled(b, t, c)),
    ],
)
def test_an_output_is_made_from_what_the_formula_says(name: str, mask: torch.Tensor) -> None:
    (measured,) = masks_of(name)
    assert torch.equal(measured, mask)


def test_a_warm_up_and_a_memory_are_described_in_words() -> None:
    notes = {name: panel.note for panel in panels() for name in panel.names}
    assert notes["powernorm"].startswith("at the start; later: ")
    assert notes["batchnorm_running"] == "and earlier batches"
    assert notes["batchnorm"] == notes["layernorm"] == ""


def test_the_picture_is_not_out_of_date() -> None:
    with Image.open(axes.PICTURE) as picture:
        assert picture.info["Description"] == axes.described(panels()), "run `make docs`"
