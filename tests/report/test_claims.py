"""Claims are judged from the interval alone: a difference, a ratio, an interaction."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from report.claims import Claim, parse_claims
from report.compare import compare
from report.intervals import Interval, family_level, interval
from report.planner import plan
from report.verdicts import contrast, decide, judge_claims
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


def planned(folder: Path, **claim: Any) -> pd.Series:
    """The plan of one claim."""
    claims = parse_claims([DIFFERENCE | claim])
    table = plan(study_of(folder), claims, None, family_level(1))
    assert table is not None
    return table.iloc[0]


def test_the_plan_is_of_the_claims_own_verdict(claims_sweep: Path) -> None:
    """Of the first claim: found 0.30, 0.31, 0.32, 0.31 below, sd 0.0081650, not against 0.

    At the margin that was found no number of seeds decides; just under it many are needed.
    """
    row = planned(claims_sweep)
    assert (row.n, row.sd) == (4, pytest.approx(0.0081650, abs=1e-6))
    assert row.reach == pytest.approx(3.182446 * row.sd / 2, rel=1e-5)
    assert (row.effect, row["from"], row.seeds) == (pytest.approx(-0.31), "found", 3)
    near = planned(claims_sweep, margin=0.305)
    assert near.seeds > 10 and near.power < 0.3 and near.cautious > near.seeds
    assert planned(claims_sweep, margin=0.31).reason == "cannot be decided at this margin"
    assert planned(claims_sweep, truth=-0.02).seeds is None


def test_a_claim_of_equality_is_planned_for_a_true_difference_of_0(claims_sweep: Path) -> None:
    """Both tests have to reach: supported in 80 % of studies by simulation at the seeds planned."""
    row = planned(claims_sweep, expect="equal", margin=0.01)
    assert (row.effect, row["from"]) == (0, "equal")
    values = np.random.default_rng(1).normal(0, row.sd, (20_000, int(row.seeds)))
    both = interval(values, 0.95)
    share = np.mean((both.low > -0.01) & (both.high < 0.01))
    assert 0.8 <= share + 0.01 and share < 0.9


def test_the_page_has_the_power_of_the_seeds_there_are(claims_sweep: Path) -> None:
    """No --plan is needed: the claims are known."""
    judged = judged_of(claims_sweep)
    assert judged.planned is not None
    assert judged.planned.power.to_list() == pytest.approx([1, 1, 1], abs=0.05)
    compare(claims_sweep)
    page = (claims_sweep / "comparison/report.html").read_text()
    assert "Seeds for a verdict" in page and "power now" in page
    with pytest.raises(ValueError, match="above 0"):
        judged_of(claims_sweep, margin=0.0)


def write_placements(folder: Path, write_run: Write, **claim: Any) -> Path:
    """One norm in two placements at one rate, 0.1 apart, with a claim."""
    weights = {"placement=post": 1, "placement=pre": -1}
    claims = [{"name": "x", "weights": weights, "expect": "less", **claim}]
    for seed in (1, 2, 3):
        for place, loss in (("pre", 2.1), ("post", 2.0)):
            run = folder / f"{place}{seed}"
            loss += 0.001 * seed * (place == "pre")
            write_run(run, seed=seed, loss=loss, model__placement=place, claims=claims)
    return folder


def test_a_contrast_at_one_rate_is_judged_only_if_it_says_so(
    tmp_path: Path, write_run: Write
) -> None:
    """Placements of one norm too: the rule is about conditions."""
    (verdict,) = judged_of(write_placements(tmp_path / "own", write_run)).verdicts
    assert (verdict.verdict, "one learning rate" in verdict.reason) == ("", True)
    folder = write_placements(tmp_path / "common", write_run, at="common")
    (verdict,) = judged_of(folder).verdicts
    assert (verdict.verdict, verdict.reason) == ("supported", "")
    compare(folder)
    assert "supported" in (folder / "comparison/report.html").read_text()


def test_a_claim_about_failing_is_decided_at_one_rate_and_over_all_rates(
    tmp_path: Path, write_run: Write
) -> None:
    """Over all rates: 6 of 12 against 0 of 12 (p = 0.0069); at one rate alone 6 of 6."""
    lost: dict[str, Any] = {"status": "diverged", "val_final": None, "test_best": None}
    weights = {"none": 1, "layernorm": -1}
    for at in ("own", "common"):
        claims = [{"name": "x", "weights": weights, "expect": "fails", "at": at}]
        for rate in (1e-3, 1e-2)[at == "common" :]:
            for seed in range(101, 107):
                how: dict[str, Any] = dict(optimizer__lr=rate, claims=claims)
                write_run(tmp_path / at / f"l{rate}-{seed}", "layernorm", seed, **how)
                result = lost if rate == 1e-2 else None
                write_run(tmp_path / at / f"n{rate}-{seed}", "none", seed, result=result, **how)
    (own,), (common,) = (judged_of(tmp_path / at).verdicts for at in ("own", "common"))
    assert own.verdict == common.verdict == "supported"
    assert "6 of 12 failed against 0 of 12" in own.reason
    assert "the fewest that could decide are 5 of 6 against 0 of 6" in common.reason


def test_a_claim_may_use_differences_of_losses_probes_and_sensitivity(
    tmp_path: Path, write_run: Write
) -> None:
    """Each with a true value that is known; claims name conditions however a number is written."""
    for norm, gain in (("layernorm", 0.1), ("none", 0.3)):
        for seed in (1, 2, 3):
            curves = [(0, "loss/val", 4.0)]
            curves += [(200, f"probe/rms/{i}", gain * (i + 1) * 2**seed) for i in range(3)]
            result = {"val_final": 2.0 + gain, "val_best": 2.0}
            for rate, loss in ((1e-3, 2.0 + gain), (2e-3, 2.0), (4e-3, 2.0 + gain)):
                folder = tmp_path / f"{norm}{rate}-{seed}"
                here = result | {"val_best": loss}
                write_run(folder, norm, seed, result=here, curves=curves, optimizer__lr=rate)

    def found(metric: str, scale: str = "linear") -> float:
        claim = {"name": "x", "weights": {"none": 1, "layernorm": -1}, "metric": metric}
        (claim_,) = parse_claims([claim | {"scale": scale}])
        return float(contrast(study_of(tmp_path), claim_, 0.95)[0].mean)

    assert found("val_final - val_best") == pytest.approx(0.2)
    assert found("probe/rms/1") == pytest.approx(0.2 * 2 * 14 / 3)
    assert found("probe/rms") == pytest.approx(0.2 * 2 * 14 / 3)  # layer 1 is the middle one
    assert found("probe/rms", "log") == pytest.approx(np.log(3))
    assert found("lr_sensitivity") == pytest.approx(0.2 * 2 / 3)
    assert np.isnan(found("probe/gone"))
