"""Claims as contrasts: what a study said beforehand, judged by the runs.

In a study's yaml:

    claims:
      - name: BatchNorm ends above LayerNorm
        source: https://arxiv.org/abs/2003.07845
        weights: {layernorm: 1, batchnorm: -1}    # conditions as the table names them; sum 0
        expect: less                              # less | equal | fails
        margin: 0.02                              # nats per character; of the logarithm with log
        metric: test_best                         # any loss, or steps_to_target
        scale: linear                             # linear | log: a ratio

`less` means less than 0 by more than the margin, `equal` within the margin, `fails` that the
condition of weight 1 fails more often than that of weight -1. An interaction has four conditions:
`{a: 1, b: -1, a placement=post: -1, b placement=post: 1}`. Times are not a metric: those of
jobs say more about the machine than about the norm.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from report.group import Study
from report.intervals import (
    Interval,
    cautious_sd,
    fisher,
    interval,
    seeds_for_power,
    seeds_for_width,
)
from report.rates import steps_needed
from report.summary import LOSSES, training_failures

STEPS = "steps_to_target"
SUPPORTED, REFUTED, UNDECIDED = "supported", "refuted", "undecided"
KEYS = {"name", "source", "weights", "expect", "margin", "metric", "scale"}
MARGIN = 0.02
METRICS = (*LOSSES, STEPS)


@dataclass(frozen=True)
class Claim:
    """A contrast and what it is expected to be, with the keys of a study's yaml as above."""

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
        ValueError: a claim is invalid whatever the runs say.
    """
    claims = []
    for entry in stated:
        name = entry.get("name", "?")
        if unknown := set(entry) - KEYS:
            raise ValueError(
                f"claim {name!r}: unknown key {sorted(unknown)}; use only {sorted(KEYS)}"
            )
        claim = Claim(**{"name": name, "source": "", "weights": {}, **entry})
        if wrong := mistake(claim):
            raise ValueError(f"claim {name!r}: {wrong}")
        claims.append(claim)
    return claims


def mistake(claim: Claim) -> str:
    """What is wrong with a claim, "" if nothing is."""
    weights = list(claim.weights.values())
    if not weights or abs(sum(weights)) > 1e-9 or not any(weights):
        return f"the weights must sum to 0 and not all be 0, got {weights}"
    if claim.expect not in ("less", "equal", "fails"):
        return f"expect must be less, equal or fails, got {claim.expect}"
    if claim.scale not in ("linear", "log"):
        return f"scale must be linear or log, got {claim.scale}"
    if claim.expect == "fails" and sorted(weights) != [-1, 1]:
        return f"a claim about failing needs two conditions with weights 1 and -1, got {weights}"
    if claim.metric and claim.metric not in METRICS:
        return f"metric must be one of {', '.join(METRICS)}, got {claim.metric}"
    if claim.margin < 0:
        return f"the margin must not be negative, got {claim.margin}"
    return ""


def family_level(k: int) -> float:
    """The level of each interval of k that are judged together: 1 - 0.05 / k."""
    return 1 - 0.05 / max(k, 1)


def judge_claims(study: Study, claims: list[Claim], unjudged: str = "") -> list[Verdict]:
    """Each claim's verdict; there is none where `unjudged` says why these runs cannot give one."""
    level = family_level(len(claims))
    verdicts = []
    for claim in claims:
        by_kind = judge_failing if claim.expect == "fails" else judge_size
        verdict = by_kind(study, claim, level)
        if unjudged:
            verdict = replace(verdict, verdict="", reason=f"not judged, because {unjudged}")
        verdicts.append(verdict)
    return verdicts


def judge_size(study: Study, claim: Claim, level: float) -> Verdict:
    """How large the contrast is, by its interval."""
    found, reason = contrast(study, claim, level)
    return Verdict(claim, found, level, UNDECIDED if reason else decide(found, claim), reason)


def missing_runs(study: Study, claim: Claim) -> str:
    """Which of a claim's conditions have no runs, in words; "" if all have some."""
    missing = [condition for condition in claim.weights if condition not in study.conditions]
    return f"there are no runs of {', '.join(missing)}" if missing else ""


def contrast(study: Study, claim: Claim, level: float) -> tuple[Interval, str]:
    """The weighted sum, seed by seed over the seeds that all conditions have; or why not."""
    if missing := missing_runs(study, claim):
        return interval([]), missing
    for condition in claim.weights:
        if failed := study.failed[condition]:
            runs = len(study.of(condition))
            return interval([]), f"{failed} of {runs} runs of {condition} failed"
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
    weights = np.array([claim.weights[condition] for condition in columns])
    found = interval(values.to_numpy() @ weights, level)
    few = f"an interval needs 3 shared seeds, got {found.n}" if found.n < 3 else ""
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
    if missing := missing_runs(study, claim):
        return Verdict(claim, interval([]), level, UNDECIDED, missing)
    ordered = sorted(claim.weights, key=lambda condition: -claim.weights[condition])
    (a, n_a), (b, n_b) = (training_failures(study, condition) for condition in ordered)
    more, less = (fisher(a, n_a, b, n_b, side) for side in ("greater", "less"))
    limit = (1 - level) / 2
    verdict = SUPPORTED if more < limit else REFUTED if less < limit else UNDECIDED
    said = f"{a} of {n_a} failed against {b} of {n_b}; Fisher's exact p = {min(more, less):.3g}"
    return Verdict(claim, interval([]), level, verdict, said)


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
