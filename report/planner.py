"""The planner: how many seeds it takes until a study's own verdicts are likely."""

from typing import Any

import numpy as np
import pandas as pd

from report.claims import Claim
from report.group import Study
from report.intervals import FEWEST, Array, cautious_sd, power_of
from report.verdicts import contrast

ENOUGH, MOST = 0.8, 1000  # power; seeds
CANNOT = "cannot be decided at this margin"


def plan(
    study: Study, claims: list[Claim], margin: float | None, level: float
) -> pd.DataFrame | None:
    """How likely each claim's own verdict is, with the seeds there are and with more.

    With `margin` also how likely it is that each condition is told from its baseline if they truly
    are that far apart.

    Returns:
        One row per contrast: n, mean, sd and reach (of the seed-wise contrast; the half-width of
        the interval at `level`), effect (the true one that is assumed) and where it is `from`,
        power (of the verdict that is right then, with n seeds), seeds (for a power of 80 %),
        cautious (the same with the sd at its upper 80 % limit), and the reason why there is none.
        None without contrasts.

    Raises:
        ValueError: the margin is not positive, or there is nothing to compare.
    """
    if margin is not None and not margin > 0:
        raise ValueError(f"--plan needs a margin above 0 in nats per character, got {margin}")
    sizes = [claim for claim in claims if claim.expect != "fails"]
    if margin is not None:
        pairs = [(c, base) for c in study.conditions if (base := study.baselines[c])]
        sizes += [
            Claim(f"{c} is not {base}", "", {c: 1.0, base: -1.0}, margin=0, truth=-margin)
            for c, base in pairs
        ]
        if not sizes:
            raise ValueError("--plan needs two conditions or more to compare, and there is one")
    rows = {claim.name: planned(study, claim, level) for claim in sizes}
    return pd.DataFrame.from_dict(rows, orient="index") if rows else None


def planned(study: Study, claim: Claim, level: float) -> dict[str, object]:
    """One row of the plan."""
    found, reason = contrast(study, claim, level)
    effect, origin = assumed(claim, found.mean)
    row = {
        **{"n": found.n, "mean": found.mean, "sd": found.sd, "reach": found.half},
        **{"effect": effect, "from": origin, "power": np.nan, "seeds": None, "cautious": None},
    }
    if found.n < 2 or np.isnan(found.sd):
        return row | {"reason": reason}
    row["seeds"] = seeds_for(claim, effect, found.sd, level)
    row["cautious"] = seeds_for(claim, effect, cautious_sd(found.sd, found.n), level)
    if found.n >= FEWEST:
        row["power"] = float(verdict_power(claim, effect, found.sd, found.n, level)[0])
    return row | {"reason": reason or ("" if row["seeds"] else CANNOT)}


def assumed(claim: Claim, estimate: float) -> tuple[float, str]:
    """The true contrast that is assumed: what the source reports, or else what was found."""
    if claim.truth is not None:
        return claim.truth, "stated"
    return (0.0, "equal") if claim.expect == "equal" else (float(estimate), "found")


def verdict_power(claim: Claim, effect: float, sd: float, n: Any, level: float) -> Array:
    """For each n, how often the verdict is the one that is right if `effect` is the truth."""
    m = claim.margin
    if claim.expect == "less":
        bounds = (-np.inf, -m) if effect < -m else (-m, np.inf)
    elif abs(effect) < m:
        bounds = (-m, m)
    else:
        bounds = (m, np.inf) if effect > 0 else (-np.inf, -m)
    return power_of(effect, sd, n, level, *bounds)


def seeds_for(claim: Claim, effect: float, sd: float, level: float) -> int | None:
    """The fewest seeds with a power of 80 %; None where 1000 have less."""
    n = np.arange(FEWEST, MOST + 1)
    enough = verdict_power(claim, effect, sd, n, level) >= ENOUGH
    return int(n[enough.argmax()]) if enough.any() else None
