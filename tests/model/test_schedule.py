"""The schedule of the rate: factors computed by hand, and the horizon of a loaded state."""

import math

import pytest
import torch
from torch import nn

from model.schedule import warmup_cosine

PEAK = 0.5


def factors(updates: int, **schedule: float) -> list[float]:
    """What the first updates use, as fractions of the peak rate."""
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=PEAK)
    scheduler, used = warmup_cosine(optimizer, **schedule), []
    for _ in range(updates):
        used.append(optimizer.param_groups[0]["lr"] / PEAK)
        optimizer.step()
        scheduler.step()
    return used


def test_warmup_rises_to_the_peak_then_half_a_cosine_falls_to_the_floor_and_stays() -> None:
    wanted = [0.5, 1.0]  # w = 2 updates, then 0.1 + 0.9 (1 + cos(pi p)) / 2 at p = 1/6, ..., 6/6
    wanted += [0.1 + 0.9 * share for share in (0.9330127, 0.75, 0.5, 0.25, 0.0669873)]
    wanted += [0.1, 0.1, 0.1]
    used = factors(10, warmup=0.25, total_steps=8, floor=0.1)
    assert used == pytest.approx(wanted, abs=1e-7)
    assert used[1] == 1.0 and used[7:] == [0.1, 0.1, 0.1]  # exactly


def test_without_warmup_the_first_update_is_on_the_cosine_already() -> None:
    wanted = [0.8535534, 0.5, 0.1464466, 0.0, 0.0]
    assert factors(5, warmup=0, total_steps=4, floor=0) == pytest.approx(wanted, abs=1e-7)


@pytest.mark.parametrize("floor", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("total_steps", [1, 7, 100])
def test_the_floor_is_met_exactly_at_total_steps(total_steps: int, floor: float) -> None:
    used = factors(total_steps + 3, warmup=0.05, total_steps=total_steps, floor=floor)
    assert used[total_steps - 1 :] == [floor] * 4
    assert all(factor > floor or floor == 1 for factor in used[5 : total_steps - 1])


@pytest.mark.parametrize(("warmup", "total_steps"), [(0.95, 10), (0.6, 1), (0.999, 100)])
def test_a_warmup_that_rounds_to_the_whole_horizon_ends_on_the_floor_too(
    warmup: float, total_steps: int
) -> None:
    used = factors(total_steps + 2, warmup=warmup, total_steps=total_steps, floor=0.1)
    assert used[total_steps:] == [0.1, 0.1]


@pytest.mark.parametrize(
    ("option", "value"),
    [
        *(("warmup", value) for value in (-0.1, 1.0, math.nan)),
        *(("floor", value) for value in (-0.1, 1.1, math.nan)),
        *(("total_steps", value) for value in (0, -5)),
    ],
)
def test_an_invalid_schedule_is_refused_and_named(option: str, value: float) -> None:
    schedule = {"warmup": 0.25, "total_steps": 8, "floor": 0.1, option: value}
    with pytest.raises(ValueError, match=f"{option}={value}"):
        factors(1, **schedule)


def test_the_horizon_is_the_configurations_not_that_of_a_loaded_state() -> None:
    optimizers = [torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=PEAK) for _ in range(2)]
    old, new = (
        warmup_cosine(optimizer, warmup=0, total_steps=total_steps, floor=0)
        for optimizer, total_steps in zip(optimizers, (4, 8), strict=True)
    )
    for _ in range(2):
        optimizers[0].step()
        old.step()
    new.load_state_dict(old.state_dict())
    optimizers[1].step()
    new.step()
    assert new.get_last_lr()[0] / PEAK == factors(4, warmup=0, total_steps=8, floor=0)[3]
