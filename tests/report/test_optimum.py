"""The choice of a learning rate, and by simulation what it does to the intervals that follow."""

import math
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from scipy import stats

from report.optimum import Optimum, choose, fallen, round_rate, scatter

GRID = [7.5e-4, 1.5e-3, 3e-3, 6e-3, 1.2e-2, 2.4e-2]  # that of configs/hydra/sweeper/tune.yaml
Loss = Callable[[float, int], np.ndarray]  # losses at a rate, of some seeds


def near(best: float, rates: list[float]) -> dict[float, list[float]]:
    """A parabola of 0.02 nats per octave squared, on three seeds."""
    return {r: [2 + 0.02 * math.log2(r / best) ** 2 + s / 1000 for s in (0, 1, 2)] for r in rates}


def test_the_lowest_point_of_a_parabola_is_found_between_the_rates() -> None:
    found = choose(near(3.5e-3, [1.5e-3, 3e-3, 6e-3, 2.12e-3, 4.24e-3]))
    assert (found.rate, found.lowest, found.edge, found.doubt) == (3.5e-3, 3e-3, "", "")


@pytest.mark.parametrize(("best", "edge"), [(1e-5, "lowest"), (1.0, "highest")])
def test_the_best_rate_at_an_edge_is_doubtful(best: float, edge: str) -> None:
    found = choose(near(best, GRID))
    assert found.edge == edge
    assert edge in found.doubt


def test_a_cliff_is_kept_away_from() -> None:
    """One seed of three fell at 4.24e-3: it and what is above takes no part, however good."""
    losses = near(3.2e-3, [1.5e-3, 2.12e-3, 3e-3, 4.24e-3, 6e-3])
    losses[4.24e-3][1] += 0.25
    losses[6e-3] = [1.0, 1.0, 1.0]
    found = choose(losses)
    assert (found.lowest, found.unsound, found.cliff) == (3e-3, [4.24e-3], True)
    assert found.rate == round_rate(3e-3 / math.sqrt(2))


def test_a_rate_at_which_every_seed_fell_is_the_far_side_of_the_cliff() -> None:
    losses = near(3.2e-3, [1.5e-3, 2.12e-3, 3e-3, 4.24e-3, 6e-3])
    losses[4.24e-3] = [loss + 0.25 for loss in losses[4.24e-3]]
    assert choose(losses).rate == round_rate(3e-3 / math.sqrt(2))


def test_rates_too_low_to_learn_at_are_no_cliff() -> None:
    found = choose(near(6e-3, GRID), failed={7.5e-4})
    assert (found.rate, found.doubt) == (6e-3, "")


def test_a_condition_that_failed_at_every_rate_is_spoiled() -> None:
    found = choose(near(3e-3, GRID), failed=set(GRID))
    assert found.lowest == 3e-3
    assert "at every learning rate" in found.doubt


def test_a_seed_far_above_the_others_has_fallen_and_a_scattered_one_has_not() -> None:
    """The standard deviation comes from all groups, and the fallen seed changes little in it."""
    draw = np.random.default_rng(1)
    groups = [(2 + 0.02 * draw.standard_normal(3)).tolist() for _ in range(8)]
    groups[2][0] = 2.3
    sd = scatter(groups)
    assert 0.01 < sd < 0.03
    assert [any(fallen(group, sd)) for group in groups] == [i == 2 for i in range(8)]
    assert fallen(groups[2], sd) == [True, False, False]


def tune(loss: Loss, seeds: int = 3) -> Optimum:
    """The phases of sweep/tuning.py."""
    seen = {rate: loss(rate, seeds).tolist() for rate in GRID}
    for _ in range(3):
        if not (edge := choose(seen).edge):
            break
        rate = round_rate(min(seen) / 2 if edge == "lowest" else max(seen) * 2)
        seen[rate] = loss(rate, seeds).tolist()
    lowest = choose(seen).lowest
    for rate in map(round_rate, (lowest / math.sqrt(2), lowest * math.sqrt(2))):
        seen[rate] = loss(rate, seeds).tolist()
    return choose(seen)


def simulate(
    studies: int, curvature: float, sd: float, cliff: float = math.inf, drop: float = 0.25
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Two equal norms, each tuned: (studies, 2) true losses, chances to fall, and edges.

    The loss is 2 at the best rate, which differs from study to study. `cliff` octaves above it
    half of the seeds fall, and all of them half an octave further.
    """
    draw = np.random.default_rng(7)
    true, falls, edges = np.zeros((3, studies, 2))
    for study in range(studies):
        centre = draw.uniform(math.log2(1.5e-3), math.log2(1.2e-2))

        def at(rate: float, centre: float = centre) -> tuple[float, float]:
            x = math.log2(rate) - centre
            return 2 + curvature * x * x, min(1.0, 0.5 + x - cliff) if x > cliff else 0.0

        def loss(
            rate: float, seeds: int, at: Callable[..., tuple[float, float]] = at
        ) -> np.ndarray:
            mean, chance = at(rate)
            return mean + sd * draw.standard_normal(seeds) + drop * (draw.random(seeds) < chance)

        for norm in (0, 1):
            found = tune(loss)
            true[study, norm], falls[study, norm] = at(found.rate)
            edges[study, norm] = bool(found.edge)
    return true, falls, edges


def called_different(true: np.ndarray, sd: float, seeds: int) -> float:
    """In what share of studies the 95 % interval of the paired difference leaves 0 out."""
    noise = np.random.default_rng(8).standard_normal((len(true), 2, seeds))
    apart = true[:, 0, None] - true[:, 1, None] + sd * (noise[:, 0] - noise[:, 1])
    reach = stats.t.ppf(0.975, seeds - 1) * apart.std(1, ddof=1) / math.sqrt(seeds)
    return float((np.abs(apart.mean(1)) > reach).mean())


equal_norms = cache(simulate)
STUDIES = [pytest.param(1000, id="1000"), pytest.param(5000, id="5000", marks=pytest.mark.slow)]
NOISE = [(0.01, 0.012), (0.01, 0.02), (0.02, 0.02), (0.02, 0.026)]  # curvature, sd between seeds


@pytest.mark.parametrize("studies", STUDIES)
def test_two_equal_norms_that_were_tuned_are_seldom_called_different(studies: int) -> None:
    """At nominal 5 %: 5 to 9 of 100 studies, where the lowest of two means gave 7, 13 and 21."""
    shares = {3: 0.0, 8: 0.0, 16: 0.0}
    for curvature, sd in NOISE:
        true, _, edges = equal_norms(studies, curvature, sd)
        assert edges.mean() < 0.01
        for seeds in shares:
            shares[seeds] += called_different(true, sd, seeds) / len(NOISE)
    assert shares[3] < 0.065 and shares[8] < 0.075 and shares[16] < 0.09


@pytest.mark.parametrize("studies", STUDIES)
def test_final_runs_seldom_fall_off_a_cliff_and_their_intervals_cover(studies: int) -> None:
    """With the lowest of two means 20 of 100 fell. Coverage is 93 % with 3 seeds, less with 16."""
    for past in (0.1, 0.4):
        true, falls, _ = simulate(studies // 2, 0.02, 0.02, past)
        safe = true[(falls == 0).all(1)]
        assert falls.mean() < 0.05
        assert called_different(safe, 0.02, 3) < 0.07
        assert called_different(safe, 0.02, 16) < 0.14  # beside a cliff the choice is less sure
