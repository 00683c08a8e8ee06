"""The CSV files beside the page, every number in full; docs/numbers.md explains each column."""

import csv
from dataclasses import asdict

import pandas as pd

from report.curves import curves_of
from report.group import Study
from report.judge import Judged

CURVES = {"loss/val": False, "loss/train": False, "optim/grad_norm": True}  # which are geometric


def csv_files(judged: Judged) -> dict[str, str]:
    """The files that there are numbers for, by name."""
    tables = {
        "summary": (judged.summary, "condition"),
        "runs": (runs(judged.study), "run"),
        "verdicts": (verdicts(judged), "claim"),
        "rates": (rates(judged), "condition"),
        "planner": (judged.planned, "contrast"),
        "curves": (curves(judged.study), "condition"),
    }
    return {
        f"{name}.csv": as_csv(table, index)
        for name, (table, index) in tables.items()
        if table is not None and len(table)
    }


def as_csv(table: pd.DataFrame, index: str) -> str:
    """Full precision, the same line end on every system."""
    return str(table.to_csv(index_label=index, lineterminator="\n", quoting=csv.QUOTE_MINIMAL))


def runs(study: Study) -> pd.DataFrame:
    """Every run that was read, whatever its part in the tables."""
    swept = [key for key in study.keys if key != "norm"]
    values = pd.DataFrame.from_dict(study.runs.flat, orient="index", dtype=object)
    return study.table.join(values.reindex(columns=swept))


def verdicts(judged: Judged) -> pd.DataFrame:
    """One row per claim: what it says, what was found, and the verdict."""
    rows = []
    for verdict in judged.verdicts:
        claim = {k: v for k, v in asdict(verdict.claim).items() if k not in ("name", "weights")}
        weights = " ".join(f"{weight:+g}*({c})" for c, weight in verdict.claim.weights.items())
        claim["metric"] = claim["metric"] or judged.study.metric
        found = {"verdict": verdict.verdict, "reason": verdict.reason, "level": verdict.level}
        rows.append(claim | {"weights": weights} | found | asdict(verdict.found))
    return pd.DataFrame(rows, index=[verdict.claim.name for verdict in judged.verdicts])


def rates(judged: Judged) -> pd.DataFrame:
    """One row per condition and learning rate that was searched."""
    parts = [
        entry.rates.reset_index().assign(
            condition=entry.condition, on=entry.on, best=entry.best, steps=entry.steps
        )
        for entry in judged.tuned
    ]
    return pd.concat(parts).set_index("condition") if parts else pd.DataFrame()


def curves(study: Study) -> pd.DataFrame:
    """The points of the figures over training: means with intervals, or single runs."""
    parts = []
    for metric, log in CURVES.items():
        for condition, curve in curves_of(study, metric, log).items():
            for line, (steps, values) in enumerate(curve.lines, 1):
                part = pd.DataFrame(
                    {"metric": metric, "line": line, "step": steps, "value": values}
                )
                if curve.band is not None:
                    part["low"], part["high"] = curve.band
                parts.append(part.assign(condition=condition))
    return pd.concat(parts).set_index("condition") if parts else pd.DataFrame()
