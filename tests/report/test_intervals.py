"""Simulated sweeps whose truth is known, and numbers worked out by hand."""

import math

import numpy as np
import pytest
from scipy import stats
from scipy.special import gammaln

from report import intervals as st

SWEEPS = 20_000
RESIDUAL = 1.0  # of a run around its seed's and its norm's effect
SEED_EFFECT = 3 * RESIDUAL


def sweeps(n: int, conditions: int, effects: float = 0.0, draw: int = 1) -> np.ndarray:
    """Losses (sweep, condition, seed): the seeds' effect is shared by a sweep's conditions."""
    rng = np.random.default_rng(draw)
    seeds = rng.normal(0, SEED_EFFECT, (SWEEPS, 1, n))
    losses = seeds + rng.normal(0, RESIDUAL, (SWEEPS, conditions, n))
    losses[:, 1] += effects
    return losses


def differences(n: int, **how: float) -> np.ndarray:
    losses = sweeps(n, 2, **how)
    return losses[:, 1] - losses[:, 0]


def c4(n: int) -> float:
    """The mean of a standard deviation of n normal values whose true one is 1."""
    return math.sqrt(2 / (n - 1)) * math.exp(gammaln(n / 2) - gammaln((n - 1) / 2))


@pytest.mark.parametrize("n", [3, 5, 10])
def test_intervals_cover_the_truth_as_often_as_they_say(n: int) -> None:
    """Expected: 95 %, and a mean half-width of t c4(n) s_d / sqrt n."""
    found = st.interval(differences(n, effects=0.7))
    covered = np.mean((found.low <= 0.7) & (found.high >= 0.7))
    assert 0.944 <= covered <= 0.956
    s_d = math.sqrt(2) * RESIDUAL
    expected = stats.t.ppf(0.975, n - 1) * c4(n) * s_d / math.sqrt(n)
    assert found.half.mean() == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize("n", [3, 5, 10])
def test_no_difference_is_called_as_rarely_as_it_says(n: int) -> None:
    called = np.mean(st.interval(differences(n)).p < 0.05)
    assert 0.044 <= called <= 0.056


@pytest.mark.parametrize("n", [3, 5, 10])
def test_pairing_takes_the_seeds_effect_out(n: int) -> None:
    """Unpaired, the same differences have intervals sqrt 10 times as wide."""
    losses = sweeps(n, 2)
    paired = st.interval(losses[:, 1] - losses[:, 0]).sd ** 2
    unpaired = losses[:, 0].var(-1, ddof=1) + losses[:, 1].var(-1, ddof=1)
    assert unpaired.mean() / paired.mean() == pytest.approx(10, rel=0.05)


@pytest.mark.parametrize("n", [3, 5, 10])
def test_holm_keeps_the_family_wise_rate_over_eleven_norms(n: int) -> None:
    """The baseline is shared, so the eleven comparisons are correlated."""
    losses = sweeps(n, 12)
    p = st.interval(losses[:, 1:] - losses[:, :1]).p
    assert np.mean((st.holm(p) < 0.05).any(-1)) <= 0.053


def test_three_standard_deviations_are_called_at_five_seeds() -> None:
    """Alone nearly always; among eleven comparisons, with Holm, in three of four."""
    effect = 3 * math.sqrt(2) * RESIDUAL
    losses = sweeps(5, 12, effects=effect)
    p = st.interval(losses[:, 1:] - losses[:, :1]).p
    assert np.mean(p[:, 0] < 0.05) >= 0.99
    assert 0.70 <= np.mean(st.holm(p)[:, 0] < 0.05) <= 0.76


def test_heavy_tails_make_intervals_wider_not_wrong() -> None:
    values = stats.t.rvs(2, size=(SWEEPS, 5), random_state=np.random.default_rng(1))
    found = st.interval(values)
    assert np.mean((found.low <= 0) & (found.high >= 0)) >= 0.95


def test_an_interval_equals_the_one_worked_out_by_hand() -> None:
    """1, 2, 3: mean 2, sd 1, t(2) = 4.3027, half-width 4.3027 / sqrt 3 = 2.4841; t = 3.4641."""
    found = st.interval([1.0, 2.0, 3.0])
    assert (found.n, found.mean, found.sd) == (3, 2.0, 1.0)
    assert (found.low, found.high) == pytest.approx((2 - 2.4841, 2 + 2.4841), abs=1e-4)
    assert found.half == pytest.approx(2.4841, abs=1e-4)
    assert found.p == pytest.approx(0.0742, abs=1e-4)


@pytest.mark.parametrize("n", [0, 1, 2])
def test_fewer_than_three_seeds_have_no_interval(n: int) -> None:
    found = st.interval([1.0, 2.0][:n])
    assert np.isnan([found.low, found.high, found.p]).all()
    assert found.n == n


def test_equal_values_have_an_interval_without_width_and_no_warning() -> None:
    found = st.interval([0.5, 0.5, 0.5])
    assert (found.mean, found.low, found.high, found.p) == (0.5, 0.5, 0.5, 0.0)
    assert st.interval([0.0, 0.0, 0.0]).p == 1.0


def test_a_ratio_is_taken_on_the_log_scale() -> None:
    """Ratios 1/2, 1/4, 1/8: geometric mean 1/4, log2 interval -2 +- 2.4841 (as 1, 2, 3)."""
    found = st.ratio(np.log([0.5, 0.25, 0.125]))
    assert found.mean == pytest.approx(0.25)
    assert (found.low, found.high) == pytest.approx((2**-4.4841, 2**0.4841), abs=1e-4)


def test_holm_by_hand_and_around_a_missing_value() -> None:
    """0.01 x 4, 0.02 x 3, 0.03 x 2, 0.04 x 1, never falling."""
    assert st.holm([0.04, 0.01, 0.03, 0.02]) == pytest.approx([0.06, 0.04, 0.06, 0.06])
    assert st.holm([0.02, np.nan, 0.01])[[0, 2]] == pytest.approx([0.02, 0.02])
    assert np.isnan(st.holm([0.02, np.nan, 0.01])[1])


def test_fisher_by_hand() -> None:
    """All 3 of 3 against 0 of 3: one of C(6, 3) = 20 tables, two-sided two of them."""
    assert st.fisher(3, 3, 0, 3, "greater") == pytest.approx(1 / 20)
    assert st.fisher(3, 3, 0, 3, "two-sided") == pytest.approx(2 / 20)


def test_lr_sensitivity_by_hand() -> None:
    """min(loss, 4) = 2, 1, 3, 4, 4: mean 2.8, best 1."""
    losses = np.array([2.0, 1.0, 3.0, 9.0, np.nan])
    assert st.lr_sensitivity(losses, loss_initial=4.0) == pytest.approx(1.8)


def test_basin_width_is_of_the_stretch_around_the_best() -> None:
    """1e-3 is as good as its far neighbour, but 3e-3 between them is not."""
    rates = np.array([1e-1, 1e-3, 3e-3, 1e-2, 3e-2])
    losses = np.array([np.nan, 1.01, 1.5, 1.0, 1.02])
    assert st.basin_width(rates, losses) == pytest.approx(math.log10(3))
    assert st.basin_width(rates, losses + np.array([0, 0, 0, 0, 1])) == 0


def test_steps_to_target_take_the_smallest_budget_that_gets_there() -> None:
    budgets = np.array([1000, 300, 500, 800])
    losses = np.array([1.0, 2.0, 1.5, 1.2])
    assert st.steps_to_target(budgets, losses, 1.5) == 500
    assert st.steps_to_target(budgets, losses, 0.9) == math.inf


def test_the_noise_floor_is_that_of_two_runs() -> None:
    """Sd 1 over 1, 2, 3: t(2) sqrt 2 = 6.0849. In simulation 95 % of new pairs stay below."""
    assert st.noise_floor(np.array([1.0, 2.0, 3.0]))[0] == pytest.approx(6.0849, abs=1e-4)
    rng = np.random.default_rng(1)
    floors = [st.noise_floor(rng.normal(size=5))[0] for _ in range(4000)]
    apart = np.abs(rng.normal(size=4000) - rng.normal(size=4000))
    assert np.mean(apart < floors) == pytest.approx(0.95, abs=0.012)
    assert st.noise_floor(np.arange(6.0))[1].mean == -3


@pytest.mark.parametrize("count", [4000, pytest.param(SWEEPS, marks=pytest.mark.slow)])
@pytest.mark.parametrize("n", [3, 5, 12])
def test_the_power_of_a_verdict_is_how_often_it_is_given(n: int, count: int) -> None:
    """`less`, `equal` and refuted, at Bonferroni levels, by the rule of report/verdicts.py."""
    rng = np.random.default_rng(1)
    for level, effect, low, high in (
        *((1 - 0.05 / k, -0.06, -math.inf, -0.02) for k in (1, 3)),
        *((1 - 0.05 / k, 0.0, -0.04, 0.04) for k in (1, 3)),
        (0.95, 0.02, -0.02, math.inf),
    ):
        found = st.interval(rng.normal(effect, 0.02, (count, n)), level)
        share = np.mean((found.low > low) & (found.high < high))
        assert st.power_of(effect, 0.02, n, level, low, high) == pytest.approx(share, abs=0.02)


def test_power_against_0_is_that_of_the_noncentral_t() -> None:
    """An independent reference: the probability that t is beyond its critical value."""
    n = np.array([3, 10, 40])
    wanted = stats.nct.sf(stats.t.ppf(0.975, n - 1), n - 1, np.sqrt(n))
    assert st.power_of(1.0, 1.0, n, 0.95, 0.0) == pytest.approx(wanted, abs=1e-3)
    assert st.power_of(1.0, 0.0, 3, 0.95, 0.0) == pytest.approx(1)


def test_the_fewest_failures_that_could_decide() -> None:
    """Against 0 of 6 by hand: 5 of 6 has p = 6 / 792 = 0.0076, 4 of 6 has 15 / 495 = 0.030."""
    assert st.fewest_failures(6, 6, 0.025) == 5
    assert st.fewest_failures(3, 3, 0.025) is None  # 1 / 20


def test_a_cautious_standard_deviation_is_an_upper_limit() -> None:
    samples = np.random.default_rng(1).normal(size=(SWEEPS, 4)).std(-1, ddof=1)
    limits = [st.cautious_sd(sd, 4) for sd in samples[:2000]]
    assert np.mean(np.array(limits) > 1) == pytest.approx(0.8, abs=0.03)
