"""The planner: how many seeds it takes to decide a study's contrasts."""

import numpy as np
import pandas as pd

from report.claims import Claim
from report.group import Study
from report.intervals import cautious_sd, seeds_for_power, seeds_for_width
from report.verdicts import contrast


def plan(study: Study, claims: list[Claim], margin: float, level: float) -> pd.DataFrame:
    """How many seeds tell a true contrast of `margin` from 0, given the scatter between seeds.

    The contrasts are the study's claims, or else each condition against its baseline. A ratio keeps
    its claim's own margin: nats per character mean nothing for a logarithm.

    Returns:
        One row per contrast: n, sd (of the seed-wise contrast), reach (the interval's half-width
        now), `width` (seeds until it is at most the margin), `power` (seeds that call a true
        difference of the margin in 4 of 5 studies), `cautious` (the same with the sd at its upper
        80 % limit). NaN means more than 1000 seeds. All for intervals at `level`, the table's.

    Raises:
        ValueError: the margin is not positive, or there is nothing to compare.
    """
    if not margin > 0:
        raise ValueError(f"--plan needs a margin above 0 in nats per character, got {margin}")
    sizes = [claim for claim in claims if claim.expect != "fails"]
    if not sizes:
        sizes = [
            Claim(f"{condition} - {base}", "", {condition: 1.0, base: -1.0})
            for condition in study.conditions
            if (base := study.baselines[condition])
        ]
    if not sizes:
        raise ValueError("--plan needs at least two conditions to compare, and there is only one")
    rows = {
        claim.name: planned(study, claim, claim.margin if claim.scale == "log" else margin, level)
        for claim in sizes
    }
    return pd.DataFrame.from_dict(rows, orient="index")


def planned(study: Study, claim: Claim, margin: float, level: float) -> dict[str, object]:
    """One row of the plan."""
    found, reason = contrast(study, claim, level)
    row = {"n": found.n, "mean": found.mean, "sd": found.sd, "reach": found.half}
    if found.n < 2 or np.isnan(found.sd):
        return row | {"width": None, "power": None, "cautious": None, "reason": reason}
    careful = cautious_sd(found.sd, found.n)
    return row | {
        "width": seeds_for_width(found.sd, margin, level),
        "power": seeds_for_power(found.sd, margin, level),
        "cautious": seeds_for_power(careful, margin, level),
        "reason": reason,
    }
