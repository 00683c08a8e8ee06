"""Everything that a report says, worked out once; the console, the files and the page show it."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from report.claims import Verdict, family_level, judge, parse_claims, plan
from report.intervals import Interval
from report.notes import Headline, Note, footnotes, headline
from report.rates import Tuned, steps_table, tuned_conditions
from report.read import read_runs
from report.study import Study, build_study
from report.summary import floor_of, summarize


@dataclass(frozen=True)
class Content:
    """The report's parts, in the order in which they are shown.

    `level` is that of the differences' intervals; `planned` is for `margin`, if one was asked for.
    """

    study: Study
    headline: Headline
    summary: pd.DataFrame
    level: float
    floor: tuple[str, float, Interval] | None
    tuned: list[Tuned]
    steps: pd.DataFrame | None
    verdicts: list[Verdict]
    margin: float | None
    planned: pd.DataFrame | None
    notes: list[Note]


def gather(
    folders: Iterable[str | Path], baseline: str = "layernorm", margin: float | None = None
) -> Content:
    """Read the folders and work out the report.

    Raises:
        ValueError: no run has ended, the baseline is not there, or a claim cannot be judged.
    """
    study = build_study(read_runs(folders), baseline)
    claims = parse_claims(study.runs.claims)
    tuned = tuned_conditions(study)
    first = headline(study, tuned)
    level = family_level(len(claims))
    summary = summarize(study, level)
    return Content(
        study=study,
        headline=first,
        summary=summary,
        level=level,
        floor=floor_of(study),
        tuned=tuned,
        steps=steps_table(study),
        verdicts=judge(study, claims, first.unjudged),
        margin=margin,
        planned=None if margin is None else plan(study, margin, level),
        notes=footnotes(study, summary, tuned),
    )
