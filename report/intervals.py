"""The statistics of a comparison: intervals of paired differences, Holm, Fisher, planning seeds.

Every function works on the last axis, so that tests can run thousands of studies at once. A sample
of fewer than 3 has a mean, and its interval is NaN.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

Array = np.ndarray[Any, np.dtype[Any]]
FEWEST = 3  # seeds for an interval


@dataclass(frozen=True)
class Interval:
    """A mean with its two-sided Student t interval and its p value against 0.

    Attributes:
        n: how many values.
        mean: of them, in their unit.
        low: the interval's lower end, NaN with fewer than 3 values.
        high: its upper end.
        p: two-sided, for a true mean of 0.
        sd: standard deviation of the values (n - 1).
    """

    n: int
    mean: Any
    low: Any
    high: Any
    p: Any
    sd: Any

    @property
    def half(self) -> Any:
        """Half the interval's width: t sd / sqrt n. A difference's smallest detectable size."""
        return (self.high - self.low) / 2


def interval(values: Any, level: float = 0.95) -> Interval:
    """Mean and t interval over the last axis; values that are NaN make the result NaN.

    Equal values have no width: runs of one seed under several, or a copied folder.
    """
    x = np.asarray(values, float)
    n = x.shape[-1]
    nothing = np.full(x.shape[:-1], np.nan)[()]
    mean = x.mean(-1) if n else nothing
    sd = x.std(-1, ddof=1) if n > 1 else nothing
    if n < FEWEST:
        return Interval(n, mean, nothing, nothing, nothing, sd)
    sd = np.where(sd <= 1e-12 * np.abs(x).max(-1), 0.0, sd)[()]  # rounding is no scatter
    error = sd / np.sqrt(n)
    half = stats.t.ppf((1 + level) / 2, n - 1) * error
    with np.errstate(divide="ignore", invalid="ignore"):
        p = 2 * stats.t.sf(np.abs(mean / error), n - 1)
    return Interval(
        n, mean, mean - half, mean + half, np.where((error == 0) & (mean == 0), 1.0, p)[()], sd
    )


def family_level(k: int) -> float:
    """The level of each interval of k that are judged together: 1 - 0.05 / k."""
    return 1 - 0.05 / max(k, 1)


def ratio(log_values: Any, level: float = 0.95) -> Interval:
    """The interval of a ratio, taken on the log scale: give differences of logarithms.

    `sd` and `p` stay those of the logarithms.
    """
    log = interval(log_values, level)
    return Interval(log.n, np.exp(log.mean), np.exp(log.low), np.exp(log.high), log.p, log.sd)


def holm(p: Sequence[float] | Array) -> Array:
    """Holm's adjusted p values over the last axis (scipy has none); NaN takes no part.

    >>> holm([0.01, 0.04, 0.03]).round(3).tolist()
    [0.03, 0.06, 0.06]
    """
    p = np.asarray(p, float)
    order = np.argsort(p, axis=-1)  # NaN last
    ordered = np.take_along_axis(p, order, -1)
    tests = np.sum(~np.isnan(p), axis=-1, keepdims=True)
    factors = tests - np.arange(p.shape[-1])
    adjusted = np.minimum(np.maximum.accumulate(ordered * factors, axis=-1), 1)
    result = np.empty_like(p)
    np.put_along_axis(result, order, adjusted, -1)
    return result


def fisher(failed_a: int, n_a: int, failed_b: int, n_b: int, alternative: str) -> float:
    """Fisher's exact p value that a fails more (`greater`), less (`less`), or either way."""
    table = [[failed_a, n_a - failed_a], [failed_b, n_b - failed_b]]
    return float(stats.fisher_exact(table, alternative=alternative).pvalue)


def fewest_failures(n_a: int, n_b: int, limit: float) -> int | None:
    """How many of n_a runs have to fail, against none of n_b, for Fisher's p below a limit."""
    return next((a for a in range(1, n_a + 1) if fisher(a, n_a, 0, n_b, "greater") < limit), None)


def noise_floor(values: Array, level: float = 0.95) -> tuple[float, Interval]:
    """How much two runs of one condition differ by their seeds alone.

    Returns:
        The size that the difference of two single runs stays under with probability `level`
        (t sqrt 2 sd), and the condition against itself: the first half of its seeds against the
        second, which has an interval from 6 seeds on.
    """
    n = len(values)
    if n < FEWEST:
        return float("nan"), interval([])
    reach = stats.t.ppf((1 + level) / 2, n - 1) * np.sqrt(2) * np.std(values, ddof=1)
    half = n // 2
    return float(reach), interval(values[:half] - values[half : 2 * half], level)


def power_of(
    effect: float, sd: float, n: Any, level: float, low: float, high: float = np.inf
) -> Array:
    """How often a t interval at `level` lies wholly between two bounds, for each n.

    Exact for normal values: given the estimated standard deviation, the interval's half-width h is
    known and the mean is normal, so the chance is that of a mean between low + h and high - h. It
    is averaged over the estimate's chi distribution.

    Args:
        effect: the true mean of the values.
        sd: their true standard deviation.
        n: one or many numbers of seeds, 3 or more.
        level: of the two-sided interval.
        low: its lower end must be above this.
        high: its upper end must be below this.
    """
    n = np.atleast_1d(np.asarray(n, float))[:, None]
    nodes, weights = np.polynomial.legendre.leggauss(200)
    error = max(sd, 1e-12) / np.sqrt(n)
    estimate = np.sqrt(stats.chi2.ppf((nodes + 1) / 2, n - 1) / (n - 1))
    half = stats.t.ppf((1 + level) / 2, n - 1) * error * estimate
    above = stats.norm.cdf((high - half - effect) / error)
    below = stats.norm.cdf((low + half - effect) / error)
    return np.asarray(np.maximum(above - below, 0) @ weights / 2)


def cautious_sd(sd: float, n: int, confidence: float = 0.8) -> float:
    """An upper confidence limit of the standard deviation: few seeds may flatter it."""
    return float(sd * np.sqrt((n - 1) / stats.chi2.ppf(1 - confidence, n - 1)))


def lr_sensitivity(losses: Array, loss_initial: float) -> float:
    """Wortsman et al. 2023: mean over the grid of min(loss, loss at init), minus the best loss.

    A run without a finite loss counts as the loss at init. 0 would mean that the rate is of no
    consequence.
    """
    capped = np.minimum(np.where(np.isfinite(losses), losses, loss_initial), loss_initial)
    return float(capped.mean() - capped.min())


def basin_width(rates: Array, losses: Array, within: float = 0.02) -> float:
    """log10 span of the rates around the best whose loss is within `within` nats of the best.

    Only of the unbroken stretch around the best rate; 0 if no neighbour is that close.
    """
    order = np.argsort(rates)
    rates, losses = np.asarray(rates)[order], np.asarray(losses)[order]
    losses = np.where(np.isfinite(losses), losses, np.inf)
    good = losses <= losses.min() + within
    low = high = int(losses.argmin())
    while low > 0 and good[low - 1]:
        low -= 1
    while high < len(good) - 1 and good[high + 1]:
        high += 1
    return float(np.log10(rates[high] / rates[low]))


def steps_to_target(budgets: Array, losses: Array, target: float) -> float:
    """The smallest budget whose own complete schedule ends at or below the target.

    Infinite (censored) if none does. A run cut short does not count as one of that length,
    because its learning rate has not come down.
    """
    reached = np.asarray(budgets, float)[np.asarray(losses) <= target]
    return float(reached.min()) if len(reached) else float("inf")


def log_shifts(losses: Array, weights: Array, steps: Array) -> Array:
    """Per seed, how far a contrast of losses lies along the axis of log steps.

    A norm that needs r times the steps has its curve of loss against log steps moved by log r. The
    shift is the contrast's mean loss over the budgets, divided by the slope of the curves: the
    slope at the middle of the budgets of a quadratic through each curve, averaged over conditions
    and seeds. The mean over seeds is the mean contrast over the mean slope, and the seeds scatter
    around it by their contrast and by their slope, so that an interval counts both (Fieller's
    ratio, linearized).

    Args:
        losses: final losses of complete schedules, (..., conditions, seeds, budgets).
        weights: of the conditions; they sum to 0.
        steps: the budgets, three or more.

    Returns:
        (..., seeds), natural logarithms; NaN where the losses do not fall with more steps.
    """
    x = np.log(steps)
    gradient = np.linalg.pinv(np.vander(x - x.mean(), 3))[1]
    falls = -(losses @ gradient).mean(-2)
    contrasts = np.einsum("...csb,c->...s", losses, weights) / len(x)
    slope = falls.mean(-1, keepdims=True)
    slope = np.where(slope > 0, slope, np.nan)
    shift = contrasts.mean(-1, keepdims=True) / slope
    return np.asarray(shift + (contrasts - shift * falls) / slope)
