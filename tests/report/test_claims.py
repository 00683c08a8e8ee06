"""Claims are judged from the interval alone: a difference, a ratio, an interaction."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from report.claims import Claim, family_level, parse_claims
from report.intervals import Interval, interval
from report.planner import plan
from report.verdicts import decide, judge_claims
from tests.report.conftest import DIFFERENCE, INTERACTION, LOSSES_BY_PLACEMENT, judged_of, study_of

Write = Callable[..., Path]


def test_three_claims_are_judged_as_by_hand(claims_sweep: Path) -> None:
    """Each at level 1 - 0.05/3, each from its own seed-wise contrast."""
    verdicts = judged_of(claims_sweep).verdicts
    assert [v.verdict for v in verdicts] == ["supported", "supported", "supported"]
    table = {key: np.array(row) for key, row in LOSSES_BY_PLACEMENT.items()}
    pre, post = table["layernorm", "pre"], table["layernorm", "post"]
    batch_pre, batch_post = table["batchnorm", "pre"], table["batchnorm", "post"]
    by_hand = [pre - batch_pre, np.log(pre / batch_pre), post - pre - batch_post + batch_pre]
    for verdict, values in zip(verdicts, by_hand, strict=True):
        expected = interval(values, 1 - 0.05 / 3)
        found = verdict.found
        assert (found.mean, found.low) == pytest.approx((expected.mean, expected.low))


def test_the_table_is_at_the_claims_level(claims_sweep: Path) -> None:
    """Or a difference could be called in one place and be undecided in the other."""
    content = judged_of(claims_sweep)
    (first, *_), row = content.verdicts, content.summary.loc["batchnorm placement=pre"]
    assert content.level == pytest.approx(1 - 0.05 / 3)
    assert row.difference_high == pytest.approx(-first.found.low)


def found(low: float, high: float) -> Interval:
    return Interval(5, (low + high) / 2, low, high, 0.5, 1.0)


@pytest.mark.parametrize(
    ("expect", "low", "high", "verdict"),
    [
        ("less", -0.10, -0.03, "supported"),
        ("less", -0.10, -0.01, "undecided"),
        ("less", -0.01, 0.10, "refuted"),
        ("less", -0.03, 0.10, "undecided"),
        ("equal", -0.01, 0.019, "supported"),
        ("equal", -0.01, 0.021, "undecided"),
        ("equal", 0.021, 0.1, "refuted"),
        ("equal", -0.1, -0.021, "refuted"),
        ("equal", -0.1, 0.1, "undecided"),
    ],
)
def test_only_a_whole_interval_beyond_the_margin_decides(
    expect: str, low: float, high: float, verdict: str
) -> None:
    assert decide(found(low, high), Claim("", "", {}, expect, margin=0.02)) == verdict


def test_a_true_claim_is_refuted_and_a_false_one_supported_rarely_enough() -> None:
    """20,000 studies of one claim on its margin: wrong either way in 2.5 % (two-sided 95 %)."""
    values = np.random.default_rng(1).normal(-0.02, 0.02, (20_000, 5))
    both = interval(values, family_level(1))
    assert np.mean(both.high < -0.02) == pytest.approx(0.025, abs=0.004)
    assert np.mean(both.low > -0.02) == pytest.approx(0.025, abs=0.004)


def test_claims_are_not_judged_at_one_rate_for_all_norms(
    tmp_path: Path, write_sweep: Write
) -> None:
    claim = {"name": "x", "weights": {"layernorm": 1, "none": -1}}
    losses = {"layernorm": [2.0, 2.1, 2.2], "none": [2.5, 2.6, 2.8]}
    content = judged_of(write_sweep(tmp_path, losses, claims=[claim]))
    assert content.verdicts[0].verdict == ""
    assert "one learning rate" in content.verdicts[0].reason


def test_a_failed_or_missing_condition_leaves_a_claim_undecided(
    claims_sweep: Path, write_run: Write
) -> None:
    study = study_of(claims_sweep)
    missing = Claim("x", "", {"layernorm placement=pre": 1.0, "dyt": -1.0})
    assert judge_claims(study, [missing])[0].reason == "there are no runs of dyt"
    lost: dict[str, Any] = {"status": "diverged", "val_final": None, "test_best": None}
    write_run(claims_sweep / "bad", "batchnorm", 5, result=lost, model__placement="post")
    claims = parse_claims([INTERACTION])
    (verdict,) = judge_claims(study_of(claims_sweep), claims)
    assert (verdict.verdict, verdict.reason) == (
        "undecided",
        "1 of 5 runs of batchnorm placement=post failed",
    )


@pytest.mark.parametrize(
    ("failed", "verdict"), [(6, "supported"), (2, "undecided")]
)  # of 6 against 0 of 6: p = 1/924, p = 0.23
def test_a_claim_about_failing_uses_fishers_test(
    failed: int, verdict: str, tmp_path: Path, write_run: Write
) -> None:
    lost: dict[str, Any] = {"status": "diverged", "val_final": None, "test_best": None}
    for seed in range(6):
        write_run(tmp_path / f"l{seed}", "layernorm", seed)
        result = lost if seed < failed else None
        write_run(tmp_path / f"n{seed}", "none", seed, result=result)
    claim = Claim("x", "", {"none": 1, "layernorm": -1}, "fails")
    (found,) = judge_claims(study_of(tmp_path), [claim])
    assert found.verdict == verdict
    assert f"{failed} of 6 failed against 0 of 6" in found.reason


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"weights": {"a": 1, "b": 1}}, "must sum to 0"),
        ({"weights": {}}, "must sum to 0"),
        (
            {"weights": {"a": 1, "b": -1}, "expect": "more"},
            "expect must be less, .*, got more",
        ),
        ({"weights": {"a": 2, "b": -2}, "expect": "fails"}, "1 and -1"),
        ({"weights": {"a": 1, "b": -1}, "margin": -1}, "must not be negative"),
        (
            {"weights": {"a": 1, "b": -1}, "metric": "seconds"},
            "metric must be .*, got seconds",
        ),
        ({"weights": {"a": 1, "b": -1}, "metric": "steps"}, "needs scale: log"),
        ({"weights": {"a": 1, "b": -1}, "marign": 1}, "unknown key .'marign'.; use only"),
        ({"name": "x"}, "must sum to 0"),
    ],
)
def test_a_claim_that_cannot_be_judged_is_a_mistake(entry: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_claims([{"name": "x", **entry}])


def test_the_plan_names_seeds_for_each_contrast(claims_sweep: Path) -> None:
    """Of the first claim: 0.30, 0.31, 0.32, 0.31, sd 0.0081650."""
    claims = parse_claims([DIFFERENCE])
    table = plan(study_of(claims_sweep), claims, 0.02, 0.95)
    row = table.loc[DIFFERENCE["name"]]
    assert (row.n, row.sd) == (4, pytest.approx(0.0081650, abs=1e-6))
    assert row.reach == pytest.approx(3.182446 * row.sd / 2, rel=1e-5)
    assert row.width <= row.power <= row.cautious
    with pytest.raises(ValueError, match="above 0"):
        plan(study_of(claims_sweep), claims, 0.0, 0.95)
