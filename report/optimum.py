"""The choice of a learning rate from the losses of runs at several: numbers in, a rate out.

The tuning sweep (sweep/tuning.py) and the page (report/rates.py) choose by this one rule:

1. A seed has *fallen* where its loss lies more than 6 standard deviations above the median of its
   rate, as happens at a cliff: just past the best rate some seeds end well and others do not.
2. A rate with a failed or fallen seed is dropped, and so is every rate above it; likewise a rate
   above the lowest mean whose own mean lies so far above it: there every seed fell.
3. A quadratic in log2(rate) is fitted to the means within an octave of the lowest mean; its vertex,
   between the rates fitted, is chosen. The lowest of several noisy means alone would be luck.
4. Where the rate sqrt 2 above the lowest mean was dropped, a cliff is near, and the choice is
   sqrt 2 lower.

tests/report/test_optimum.py simulates what this does to the intervals.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

STEP = math.sqrt(2)  # between the best rate and those tried around it
FAR = 6  # standard deviations; of three seeds none is so far from their median by chance
LEAST_FALL = 0.05  # nats per character: runs that are as good as equal have no standard deviation
TYPICAL = 0.954  # the median difference of two normal values, in standard deviations
NEAR = 1.01  # rates are rounded to three digits


@dataclass(frozen=True)
class Optimum:
    """The best learning rate of a condition.

    Attributes:
        rate: what is chosen, to three digits; as a rule between the rates that were tried.
        lowest: the rate, of those tried, whose mean loss is lowest.
        edge: `lowest` or `highest`, if `lowest` is that of all rates tried; else "".
        spoiled: a seed failed or fell at every rate.
        unsound: the rates with a failed or fallen seed.
        cliff: the rate sqrt 2 above was dropped.
    """

    rate: float
    lowest: float
    edge: str
    spoiled: bool
    unsound: list[float]
    cliff: bool

    @property
    def doubt(self) -> str:
        """Why the condition is not at its best; "" if it is."""
        if self.spoiled:
            return "a run failed or fell at every learning rate that was tried"
        if self.edge:
            return (
                f"the best learning rate is the {self.edge} that was tried, so the optimum may lie "
                "beyond"
            )
        return ""


def scatter(groups: Iterable[Sequence[float]]) -> float:
    """The standard deviation between seeds, over groups of losses that differ by the seed alone.

    From the median difference of two seeds, so that some fallen ones change little; 0 without two.
    """
    apart = sorted(
        abs(one - other)
        for group in groups
        for i, one in enumerate(group)
        for other in group[:i]
        if math.isfinite(one) and math.isfinite(other)
    )
    return apart[len(apart) // 2] / TYPICAL if apart else 0.0


def fallen(losses: Sequence[float], sd: float) -> list[bool]:
    """For each seed of a group: is its loss far above the group's median? A failed one is not."""
    known = sorted(filter(math.isfinite, losses))
    if len(known) < 2:
        return [False] * len(losses)
    limit = known[(len(known) - 1) // 2] + max(FAR * sd, LEAST_FALL)
    return [limit < loss < math.inf for loss in losses]


def choose(losses: Mapping[float, Sequence[float]], failed: Collection[float] = ()) -> Optimum:
    """The best rate, from the seeds' losses at each, and the rates at which a seed failed.

    A failed seed counts with its last loss, which matters only where every rate is unsound.
    """
    rates = sorted(losses)
    means = {rate: sum(losses[rate]) / len(losses[rate]) for rate in rates}
    sd = scatter(losses[rate] for rate in rates if rate not in failed)
    unsound = [rate for rate in rates if rate in failed or any(fallen(losses[rate], sd))]
    sound = [rate for rate in rates if rate not in unsound] or rates
    # below the first sound rate runs may be too slow to learn, which is no cliff
    ceiling = min((rate for rate in unsound if rate > sound[0]), default=math.inf)
    kept = [rate for rate in sound if rate < ceiling or len(unsound) == len(rates)]
    lowest = min(kept, key=lambda rate: means[rate])
    limit = means[lowest] + max(FAR * sd, LEAST_FALL)
    ceiling = min((r for r in kept if r > lowest and means[r] > limit), default=math.inf)
    kept = [rate for rate in kept if rate < ceiling]
    cliff = any(rate not in kept for rate in rates if lowest < rate < lowest * STEP * NEAR)
    near = {r: means[r] for r in kept if max(r, lowest) < 2 * NEAR * min(r, lowest)}
    return Optimum(
        rate=round_rate((vertex(near) or lowest) / (STEP if cliff else 1)),
        lowest=lowest,
        edge={rates[0]: "lowest", rates[-1]: "highest"}.get(lowest, "") if rates[1:] else "",
        spoiled=len(unsound) == len(rates),
        unsound=unsound,
        cliff=cliff,
    )


def vertex(means: Mapping[float, float]) -> float | None:
    """Where a quadratic in log2(rate) through the means is lowest, between the rates.

    None where it has no lowest point, or there are fewer than three rates.
    """
    if len(means) < 3:
        return None
    x, y = np.log2(list(means)), np.array(list(means.values()))
    centre = x.mean()
    curve, slope, _ = np.linalg.lstsq(np.vander(x - centre, 3), y, rcond=None)[0]
    if not curve > 0:
        return None
    return float(2 ** np.clip(centre - slope / (2 * curve), x.min(), x.max()))


def round_rate(rate: float) -> float:
    """To three digits: what the job is given, and what the page compares it with.

    >>> round_rate(0.003 * 2**0.5)
    0.00424
    """
    return float(f"{rate:.3g}")
