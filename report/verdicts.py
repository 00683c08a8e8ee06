"""Verdicts: whether the runs support a claim, refute it, or leave it undecided."""

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from report.budgets import step_shifts
from report.claims import STEPS, Claim, family_level
from report.group import Study
from report.intervals import Interval, fisher, interval
from report.summary import training_failures

SUPPORTED, REFUTED, UNDECIDED = "supported", "refuted", "undecided"


@dataclass(frozen=True)
class Verdict:
    """A claim, what the runs say (on the claim's scale), at which level, and why."""

    claim: Claim
    found: Interval
    level: float
    verdict: str
    reason: str


def judge_claims(study: Study, claims: list[Claim], unjudged: str = "") -> list[Verdict]:
    """Each claim's verdict; there is none where `unjudged` says why these runs cannot give one."""
    level = family_level(len(claims))
    verdicts = []
    for claim in claims:
        if claim.expect == "fails":
            verdict = judge_failing(study, claim, level)
        else:
            found, reason = contrast(study, claim, level)
            decided = UNDECIDED if reason else decide(found, claim)
            verdict = Verdict(claim, found, level, decided, reason)
        if unjudged:
            verdict = replace(verdict, verdict="", reason=f"not judged, because {unjudged}")
        verdicts.append(verdict)
    return verdicts


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
    if claim.metric == STEPS:
        values, reason = step_shifts(study, claim.weights)
        if reason:
            return interval([]), reason
    else:
        values = weighted(study, claim)
    found = interval(values, level)
    few = f"an interval needs 3 shared seeds, got {found.n}" if found.n < 3 else ""
    return found, few


def weighted(study: Study, claim: Claim) -> "pd.Series[float]":
    """The weighted sum of a claim's metric, or of its logarithm."""
    metric = claim.metric or study.metric
    columns = {condition: study.of(condition)[metric] for condition in claim.weights}
    seeds = pd.DataFrame(columns).dropna()
    return (np.log(seeds) if claim.scale == "log" else seeds) @ pd.Series(claim.weights)


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
