"""Everything that the report says about a study, worked out once: its statistics together."""

from dataclasses import dataclass

import pandas as pd

from report.budgets import steps_table
from report.claims import parse_claims
from report.group import Study
from report.intervals import Interval, family_level
from report.planner import plan
from report.rates import Tuned, tuned_conditions, why_unjudged
from report.summary import floor_of, summarize
from report.verdicts import Verdict, judge_claims


@dataclass(frozen=True)
class Judged:
    """A study with its statistics.

    Attributes:
        study: the runs by condition.
        tuned: where the learning rate was searched, each condition's optimum.
        unjudged: why no claim may be judged and no norm ranked; "" if they may.
        level: of the differences' and the claims' intervals.
        summary: one row per condition (report/summary.py).
        floor: the first baseline, how far two of its runs lie apart, and half of its seeds against
            the other half; None with too few.
        steps: steps to the baseline's loss; None without runs of several lengths.
        verdicts: on the study's claims.
        planned: how likely the verdicts are with these seeds and with more; None without claims
            and without a margin.
    """

    study: Study
    tuned: list[Tuned]
    unjudged: str
    level: float
    summary: pd.DataFrame
    floor: tuple[str, float, Interval] | None
    steps: pd.DataFrame | None
    verdicts: list[Verdict]
    planned: pd.DataFrame | None


def judge(study: Study, margin: float | None = None) -> Judged:
    """Work out the statistics.

    Raises:
        ValueError: a claim is invalid, or the margin is not positive.
    """
    claims = parse_claims(study.runs.claims)
    level = family_level(len(claims))
    tuned = tuned_conditions(study)
    unjudged = why_unjudged(study, tuned)
    return Judged(
        study=study,
        tuned=tuned,
        unjudged=unjudged,
        level=level,
        summary=summarize(study, level),
        floor=floor_of(study),
        steps=steps_table(study),
        verdicts=judge_claims(study, claims, unjudged),
        planned=plan(study, claims, margin, level),
    )
