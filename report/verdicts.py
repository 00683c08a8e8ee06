"""Verdicts: whether the runs support a claim, refute it, or leave it undecided."""

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from report.budgets import step_shifts
from report.claims import Claim
from report.group import Study
from report.intervals import Interval, family_level, fewest_failures, fisher, interval
from report.measures import SENSITIVITY, STEPS, at_common_rates, measure, sensitivities
from report.rates import FEWEST_RATES
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
    """Each claim's verdict.

    Where `unjudged` says why the conditions are not at their own best rates, only claims about
    that are left without one: not those at a common rate, about failing or over rates.
    """
    level = family_level(len(claims))
    verdicts = []
    for claim in claims:
        if claim.expect == "fails":
            verdict = judge_failing(study, claim, level)
        else:
            found, reason = contrast(study, claim, level)
            decided = UNDECIDED if reason else decide(found, claim)
            verdict = Verdict(claim, found, level, decided, reason)
        of_rates = claim.at == "common" or claim.expect == "fails" or claim.metric == SENSITIVITY
        if unjudged and not of_rates:
            verdict = replace(verdict, verdict="", reason=f"not judged, because {unjudged}")
        verdicts.append(verdict)
    return verdicts


def missing_runs(study: Study, claim: Claim) -> str:
    """Which of a claim's conditions have no runs, in words; "" if all have some."""
    known = {*study.conditions, *study.table.condition}
    missing = [condition for condition in claim.weights if condition not in known]
    return f"there are no runs of {', '.join(missing)}" if missing else ""


def contrast(study: Study, claim: Claim, level: float) -> tuple[Interval, str]:
    """The weighted sum, seed by seed over the seeds that all conditions have; or why not."""
    values, reason = seed_values(study, claim)
    found = interval([] if reason else values, level)
    few = f"an interval needs 3 shared seeds, got {found.n}" if found.n < 3 else ""
    return found, reason or few


def seed_values(study: Study, claim: Claim) -> tuple["pd.Series[float]", str]:
    """A claim's weighted sum for each seed, on its scale; or why there is none."""
    nothing = pd.Series(dtype=float)
    if missing := missing_runs(study, claim):
        return nothing, missing
    if claim.metric == SENSITIVITY:
        runs = at_common_rates(study, list(claim.weights), tuning=True)
        if next(iter(runs.values())).lr.nunique() < FEWEST_RATES:
            return nothing, f"a sensitivity needs {FEWEST_RATES} learning rates that all have"
        return weighted({name: sensitivities(rows) for name, rows in runs.items()}, claim)
    runs = {condition: study.of(condition) for condition in claim.weights}
    if claim.at == "common":
        runs = at_common_rates(study, list(claim.weights), tuning=False)
        if (rates := next(iter(runs.values())).lr.nunique()) != 1:
            return nothing, f"at: common needs one learning rate that all ran at, got {rates}"
    for condition, rows in runs.items():
        if failed := (rows.failure != "").sum():
            return nothing, f"{failed} of {len(rows)} runs of {condition} failed"
        if claim.at != "common" and (doubt := study.doubts.get(condition)):
            return nothing, f"{condition}: {doubt}"
    if claim.metric == STEPS:
        return step_shifts(study, claim.weights)
    metric = claim.metric or study.metric
    columns = {name: measure(study, rows, metric) for name, rows in runs.items()}
    unknown = [name for name, values in columns.items() if values.isna().all()]
    if unknown:
        return nothing, f"{metric} is not known of {', '.join(unknown)}"
    return weighted(columns, claim)


def weighted(
    columns: dict[str, "pd.Series[float]"], claim: Claim
) -> tuple["pd.Series[float]", str]:
    """The weighted sum of the conditions' values, or of their logarithms."""
    seeds = pd.DataFrame(columns).dropna()
    if claim.scale == "log" and (seeds <= 0).any(axis=None):
        return pd.Series(dtype=float), "a ratio needs values above 0"
    return (np.log(seeds) if claim.scale == "log" else seeds) @ pd.Series(claim.weights), ""


def decide(found: Interval, claim: Claim) -> str:
    """Supported, refuted or undecided, from the interval alone."""
    low, high, margin = found.low, found.high, claim.margin
    if claim.expect == "less":
        return SUPPORTED if high < -margin else REFUTED if low > -margin else UNDECIDED
    if -margin < low and high < margin:
        return SUPPORTED
    return REFUTED if low > margin or high < -margin else UNDECIDED


def judge_failing(study: Study, claim: Claim, level: float) -> Verdict:
    """More failures, by Fisher's exact test, one-sided either way at half of 1 - level.

    Runs at all the learning rates that both conditions have count, or those at one common rate.
    """
    if missing := missing_runs(study, claim):
        return Verdict(claim, interval([]), level, UNDECIDED, missing)
    ordered = sorted(claim.weights, key=lambda condition: -claim.weights[condition])
    runs = at_common_rates(study, ordered, tuning=claim.at == "own")
    rates = runs[ordered[0]].lr.nunique()
    if rates == 0 or (claim.at == "common" and rates > 1):
        reason = f"failures are counted at learning rates that both ran at, got {rates}"
        return Verdict(claim, interval([]), level, UNDECIDED, reason)
    (a, n_a), (b, n_b) = (training_failures(rows) for rows in runs.values())
    more, less = (fisher(a, n_a, b, n_b, side) for side in ("greater", "less"))
    limit = (1 - level) / 2
    verdict = SUPPORTED if more < limit else REFUTED if less < limit else UNDECIDED
    said = f"{a} of {n_a} failed against {b} of {n_b}; Fisher's exact p = {min(more, less):.3g}"
    fewest = fewest_failures(n_a, n_b, limit)
    could = f"the fewest that could decide are {fewest} of {n_a} against 0 of {n_b}"
    never = "no number of failures could decide with so few runs"
    return Verdict(claim, interval([]), level, verdict, f"{said}; {could if fewest else never}")
