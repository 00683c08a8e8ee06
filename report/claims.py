"""Claims as contrasts: what a study said beforehand, judged by the runs.

In a study's yaml:

    claims:
      - name: BatchNorm ends above LayerNorm
        source: https://arxiv.org/abs/2003.07845
        weights: {layernorm: 1, batchnorm: -1}    # over conditions, by their names in the table; sum 0
        expect: less                              # less | equal | fails
        margin: 0.02                              # nats a character; of the logarithm with log
        metric: test_best                         # any loss, or steps_to_target
        scale: linear                             # linear | log: a ratio

An interaction is one with four conditions: `{a: 1, b: -1, a placement=post: -1, b placement=post: 1}`.
Times are no metric: those of jobs say more of the machine than of the norm.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from report.intervals import (
    Interval,
    cautious_sd,
    fisher,
    interval,
    seeds_for_power,
    seeds_for_width,
)
from report.rates import steps_needed
from report.study import Study
from report.summary import LOSSES, training_failures

STEPS = "steps_to_target"
SUPPORTED, REFUTED, UNDECIDED = "supported", "refuted", "undecided"
KEYS = {"name", "source", "weights", "expect", "margin", "metric", "scale"}
MARGIN = 0.02
METRICS = (*LOSSES, STEPS)


@dataclass(frozen=True)
class Claim:
    """A contrast with what it should come to.

    Attributes:
        name: the sentence.
        source: who says so.
        weights: over conditions; they sum to 0.
        expect: `less` (than 0 by more than the margin), `equal` (within the margin), or `fails`
            (the condition of weight 1 fails more often than that of weight -1).
        margin: nats a character; on the log scale of the logarithm.
        metric: column of the runs' table.
        scale: `linear`, or `log` for ratios.
    """

    name: str
    source: str
    weights: dict[str, float]
    expect: str = "less"
    margin: float = MARGIN
    metric: str = ""
    scale: str = "linear"


@dataclass(frozen=True)
class Verdict:
    """A claim, what the runs say (on the claim's scale), at which level, and why."""

    claim: Claim
    found: Interval
    level: float
    verdict: str
    reason: str


def parse_claims(stated: list[dict[str, Any]]) -> list[Claim]:
    """Claims from a configuration.

    Raises:
        ValueError: a claim that cannot be judged whatever the runs say.
    """
    claims = []
    for entry in stated:
        name = entry.get("name", "?")
        if unknown := set(entry) - KEYS:
            raise ValueError(f"claim {name!r}: unknown {sorted(unknown)}; there are {sorted(KEYS)}")
        claim = Claim(**{"name": name, "source": "", "weights": {}, **entry})
        weights = list(claim.weights.values())
        if not weights or abs(sum(weights)) > 1e-9 or not any(weights):
            raise ValueError(f"claim {name!r}: the weights {weights} must sum to 0")
        if claim.expect not in ("less", "equal", "fails") or claim.scale not in ("linear", "log"):
            raise ValueError(f"claim {name!r}: expect less, equal or fails; scale linear or log")
        if claim.expect == "fails" and sorted(weights) != [-1, 1]:
            raise ValueError(
                f"claim {name!r}: a claim about failing compares two conditions, 1 and -1"
            )
        if claim.metric and claim.metric not in METRICS:
            raise ValueError(f"claim {name!r}: metric {claim.metric}; there are {METRICS}")
        if claim.margin < 0:
            raise ValueError(f"claim {name!r}: the margin {claim.margin} must not be negative")
        claims.append(claim)
    return claims


def family_level(k: int) -> float:
    """The level of each interval of k that are judged together: 1 - 0.05 / k."""
    return 1 - 0.05 / max(k, 1)


def judge(study: Study, claims: list[Claim], unjudged: str = "") -> list[Verdict]:
    """Each claim's verdict; without one where `unjudged` says why these runs cannot give any."""
    level = family_level(len(claims))
    verdicts = []
    for claim in claims:
        if claim.expect == "fails":
            verdict = judge_failing(study, claim, level)
        else:
            found, reason = contrast(study, claim, level)
            verdict = Verdict(claim, found, level, UNDECIDED, reason)
            if not reason:
                verdict = Verdict(claim, found, level, decide(found, claim), "")
        if unjudged:
            verdict = Verdict(claim, verdict.found, level, "", f"not judged: {unjudged}")
        verdicts.append(verdict)
    return verdicts


def contrast(study: Study, claim: Claim, level: float) -> tuple[Interval, str]:
    """The weighted sum seed by seed, over the seeds that every condition has; or why there is none."""
    missing = [condition for condition in claim.weights if condition not in study.conditions]
    if missing:
        return interval([]), f"no runs of {', '.join(missing)}"
    for condition in claim.weights:
        runs = study.of(condition)
        failed = int((runs.failure != "").sum())
        if failed:
            return interval([]), f"{failed} of {len(runs)} of {condition} failed"
    metric = claim.metric or study.metric
    columns = {
        condition: steps_needed(study, condition)
        if metric == STEPS
        else study.of(condition)[metric]
        for condition in claim.weights
    }
    seeds = pd.DataFrame(columns).dropna()
    if np.isinf(seeds).any(axis=None):
        return interval([]), "a seed does not reach the target at the lengths that were run"
    values = np.log(seeds) if claim.scale == "log" else seeds
    found = interval(
        values.to_numpy() @ np.array([claim.weights[condition] for condition in columns]), level
    )
    few = f"{found.n} shared seeds; an interval takes 3" if found.n < 3 else ""
    return found, few


def decide(found: Interval, claim: Claim) -> str:
    """Supported, refuted or undecided, from the interval alone."""
    low, high, margin = found.low, found.high, claim.margin
    if claim.expect == "less":
        return SUPPORTED if high < -margin else REFUTED if low > -margin else UNDECIDED
    if -margin < low and high < margin:
        return SUPPORTED
    return REFUTED if low > margin or high < -margin else UNDECIDED


def judge_failing(study: Study, claim: Claim, level: float) -> Verdict:
    """More failures, by Fisher's exact test, one-sided either way at half of 1 - level."""
    ordered = sorted(claim.weights, key=lambda condition: -claim.weights[condition])
    missing = [condition for condition in ordered if condition not in study.conditions]
    if missing:
        return Verdict(claim, interval([]), level, UNDECIDED, f"no runs of {', '.join(missing)}")
    (a, n_a), (b, n_b) = (training_failures(study, condition) for condition in ordered)
    more, less = (fisher(a, n_a, b, n_b, side) for side in ("greater", "less"))
    limit = (1 - level) / 2
    verdict = SUPPORTED if more < limit else REFUTED if less < limit else UNDECIDED
    said = f"{a} of {n_a} failed against {b} of {n_b}; Fisher's exact p = {min(more, less):.3g}"
    return Verdict(claim, interval([]), level, verdict, said)


def plan(study: Study, margin: float, level: float) -> pd.DataFrame:
    """How many seeds tell a true contrast of `margin` from 0, by the scatter of those there are.

    A ratio has its claim's own margin: nats a character are none of the logarithm.

    The contrasts are the study's claims, or else each condition against its baseline. Columns: n, sd
    (of the seed-wise contrast), reach (the interval's half-width now), `width` (seeds until it
    is at most the margin), `power` (seeds that call a true difference of the margin in 4 of 5
    studies), `cautious` (the same with the sd at its upper 80 % limit). NaN: more than 1000. All
    for intervals at `level`, the table's.

    Raises:
        ValueError: the margin is not positive, or there is nothing to compare.
    """
    if not margin > 0:
        raise ValueError(f"--plan takes a margin above 0 in nats a character, not {margin}")
    claims = [c for c in parse_claims(study.runs.claims) if c.expect != "fails"]
    if not claims:
        pairs = [(condition, study.baselines[condition]) for condition in study.conditions]
        claims = [
            Claim(f"{condition} - {b}", "", {condition: 1.0, b: -1.0})
            for condition, b in pairs
            if b
        ]
    if not claims:
        raise ValueError("--plan needs at least two conditions to compare")
    rows = {
        claim.name: planned(study, claim, claim.margin if claim.scale == "log" else margin, level)
        for claim in claims
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
