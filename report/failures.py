"""A failed run is a result: its kind is read from its losses."""

from typing import Any

import numpy as np
import pandas as pd

NON_FINITE, BLOWN_UP = "non-finite", "blown up"
FAILED_TO_LEARN, ERROR = "failed to learn", "error"
FALLEN = "fallen"  # far above the other seeds' losses, which report/group.py finds: it did train
OF_TRAINING = (NON_FINITE, BLOWN_UP, FAILED_TO_LEARN)  # an error says nothing about a norm's losses
LONG = 5  # evaluations in a row
LEARNED, SHARE = 0.1, 0.03  # below the entropy of single characters: in nats, and as a share


def failure(result: dict[str, Any], curves: pd.DataFrame) -> str:
    """The kind of failure; "" for a run that trained.

    - error: the job raised an exception, so it has no losses to judge;
    - non-finite: the loss became NaN or infinite;
    - blown up: at the end and for at least 5 evaluations, the mean training loss between two
      evaluations was above the loss at the start, or above twice its own running minimum;
    - failed to learn: the final validation loss is not 0.1 nats (of an entropy under 3.3: 3 %)
      below the entropy of single characters (of the training split).
    """
    if result["status"] == "failed":
        return ERROR
    if result["status"] == "diverged" or result.get("val_final") is None:
        return NON_FINITE
    bad = bad_evaluations(curves, result["loss_initial"])
    if len(bad) >= LONG and bad[-LONG:].all():
        return BLOWN_UP
    entropy = result.get("unigram_entropy")
    if entropy is not None and result["val_final"] > entropy - min(LEARNED, SHARE * entropy):
        return FAILED_TO_LEARN
    return ""


def bad_evaluations(curves: pd.DataFrame, loss_initial: float) -> np.ndarray[Any, np.dtype[Any]]:
    """For each evaluation after the start: was the training loss before it too high?"""
    if not {"loss/train", "loss/val"} <= set(curves.columns):
        return np.zeros(0, bool)
    evaluations = curves["loss/val"].dropna().index
    evaluations = evaluations[evaluations > 0]
    train = curves["loss/train"].dropna()
    which = np.searchsorted(evaluations, train.index)
    means = train.groupby(which).mean().reindex(range(len(evaluations))).to_numpy()
    lowest = np.minimum.accumulate(np.where(np.isnan(means), np.inf, means))
    return np.asarray((means > loss_initial) | (means > 2 * lowest))


def spiked(curves: pd.DataFrame, loss_initial: float) -> bool:
    """Did a run that trained have a spike: a logged loss above its start, or twice its minimum?

    The first tenth of the run is left out: there the loss is still near its start.
    """
    if "loss/train" not in curves:
        return False
    train = curves["loss/train"].dropna()
    late = train.index > 0.1 * train.index.max() if len(train) else []
    high = (train > loss_initial) | (train > 2 * train.cummin())
    return bool(high[late].any())
