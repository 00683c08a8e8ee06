"""What counts as a failed run, and of which kind."""

import numpy as np
import pandas as pd
import pytest

from report.failures import LEARNED, SHARE, bad_evaluations, failure, spiked
from tests.report.conftest import ENTROPY, START


def result_of(final: float | None = 2.0, status: str = "finished") -> dict[str, object]:
    losses = {"val_final": final, "loss_initial": START, "unigram_entropy": ENTROPY}
    return {"status": status, **losses}


def curves_of(train: list[float], every: int = 2) -> pd.DataFrame:
    """Training losses at steps 1, 2, ...; an evaluation after each `every`."""
    steps = np.arange(1, len(train) + 1)
    frame = pd.DataFrame({"loss/train": train, "loss/val": np.nan}, index=steps)
    frame.loc[frame.index % every == 0, "loss/val"] = 1.0
    return frame


@pytest.mark.parametrize(
    ("result", "train", "kind"),
    [
        (result_of(), [3.0, 2.5] * 6, ""),
        (result_of(status="failed"), [3.0], "error"),
        (result_of(None, "diverged"), [3.0], "non-finite"),
        (result_of(3.19), [3.3] * 12, ""),
        (result_of(3.21), [3.3] * 12, "failed to learn"),
        (result_of(2.0), [2.0] * 2 + [4.1] * 10, "blown up"),
        (result_of(2.0), [1.0] * 2 + [2.1] * 10, "blown up"),
        (result_of(2.0), [1.0] * 2 + [2.1] * 8 + [1.9] * 2, ""),
        (result_of(2.0), [2.0] * 2 + [4.1] * 8, ""),
    ],
)
def test_a_failure_has_the_kind_that_the_design_gives_it(
    result: dict[str, object], train: list[float], kind: str
) -> None:
    """START 4.0, ENTROPY 3.3; blown up takes five evaluations in a row at the end."""
    assert failure(result, curves_of(train)) == kind


def test_a_spike_that_came_down_is_a_spike_and_no_failure() -> None:
    train = [3.0] * 4 + [4.5] + [2.0] * 15
    assert spiked(curves_of(train), START)
    assert failure(result_of(), curves_of(train)) == ""
    assert not spiked(curves_of([4.5] + [3.0] * 19), START)  # the start is no spike
    assert not spiked(curves_of([3.0] * 20), START)


def test_evaluations_are_judged_by_the_training_loss_before_them() -> None:
    assert bad_evaluations(curves_of([1, 1, 1, 4, 1, 1]), START).tolist() == [False, True, False]
    assert len(bad_evaluations(pd.DataFrame(), START)) == 0


def test_a_text_of_low_entropy_is_judged_by_a_share_of_it() -> None:
    """At an entropy of 0.08 a loss of 0.01 has learned; at 3.3 both rules want 0.1 nats."""
    low = result_of(0.01) | {"unigram_entropy": 0.08}
    assert failure(low, curves_of([0.05] * 12)) == ""
    assert failure(low | {"val_final": 0.0777}, curves_of([0.05] * 12)) == "failed to learn"
    assert SHARE * 3.3 == pytest.approx(LEARNED, abs=0.002)
    high = result_of(4.89) | {"unigram_entropy": 5.0}
    assert failure(high, curves_of([3.3] * 12)) == ""
