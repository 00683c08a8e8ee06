"""Claims: what a study said before it ran, as weighted sums over conditions.

In a study's yaml:

    claims:
      - name: BatchNorm ends above LayerNorm
        source: https://arxiv.org/abs/2003.07845
        weights: {layernorm: 1, batchnorm: -1}    # conditions as the table names them; sum 0
        expect: less                              # less | equal | fails
        margin: 0.02                              # in the metric's unit; of the logarithm with log
        truth: -0.05                              # the weighted sum that the source reports
        metric: test_best                         # what is compared (report/measures.py)
        scale: linear                             # linear | log: a ratio
        at: own                                   # own | common: each condition's learning rate

`less` means less than 0 by more than the margin, `equal` within the margin, `fails` that the
condition of weight 1 fails more often than that of weight -1. An interaction has four conditions:
`{a: 1, b: -1, a placement=post: -1, b placement=post: 1}`. `at: common` is for a claim about one
fixed rate. Times are not a metric: those of jobs say more about the machine than about the norm.
"""

from dataclasses import dataclass
from typing import Any

from report.conditions import plain_label
from report.measures import STEPS, unknown_metric

KEYS = {"name", "source", "weights", "expect", "margin", "truth", "metric", "scale", "at"}


@dataclass(frozen=True)
class Claim:
    """A contrast and what it is expected to be, with the keys of a study's yaml as above."""

    name: str
    source: str
    weights: dict[str, float]
    expect: str = "less"
    margin: float = 0.02
    metric: str = ""
    scale: str = "linear"
    at: str = "own"
    truth: float | None = None


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
        weights = {plain_label(str(k)): w for k, w in (entry.get("weights") or {}).items()}
        claim = Claim(**{"name": name, "source": "", **entry, "weights": weights})
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
    if claim.at not in ("own", "common"):
        return f"at must be own or common, got {claim.at}"
    if wrong := unknown_metric(claim.metric):
        return wrong
    if claim.metric == STEPS and claim.scale != "log":
        return "metric: steps is a ratio and needs scale: log"
    if claim.margin < 0:
        return f"the margin must not be negative, got {claim.margin}"
    return ""
