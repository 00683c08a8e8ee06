"""Which micro-batches complete a step, which steps and evaluations are due. Reference: by hand."""

from types import SimpleNamespace
from typing import Any

import pytest

from model.steps import completes_step, due, evaluation_due


def evaluations(every: int, accumulate: int, last: int, times: int, steps: int) -> list[int]:
    """Of the evaluations of a run, at each `every` steps and at the last, those that are due."""
    trainer: Any = SimpleNamespace(
        max_steps=last,
        val_check_interval=every * accumulate,
        accumulate_grad_batches=accumulate,
    )
    found = []
    for trainer.global_step in range(1, last + 1):
        evaluated = trainer.global_step % every == 0 or trainer.global_step == last
        if evaluated and evaluation_due(trainer, times, steps):
            found.append(trainer.global_step)
    return found


@pytest.mark.parametrize(
    ("accumulate", "complete"),
    [(1, [0, 1, 2, 3, 4, 5, 6]), (2, [1, 3, 5]), (3, [2, 5]), (7, [6]), (8, [])],
)
def test_the_last_micro_batch_of_each_accumulation_completes_a_step(
    accumulate: int, complete: list[int]
) -> None:
    trainer: Any = SimpleNamespace(accumulate_grad_batches=accumulate)
    assert [k for k in range(7) if completes_step(trainer, k)] == complete


def test_the_first_and_the_last_step_and_all_multiples_are_due() -> None:
    assert [step for step in range(1, 13) if due(step, 5, 12)] == [1, 5, 10, 12]
    assert [step for step in range(1, 13) if due(step, 4, 12)] == [1, 4, 8, 12]


@pytest.mark.parametrize(
    ("every", "accumulate", "last", "expected"),
    [
        (250, 1, 2000, [250, 500, 750, 1000, 1250, 1500, 1750, 2000]),
        (100, 3, 250, [100, 200, 250]),
        (1, 1, 100, [*range(5, 101, 5)]),
        (
            3,
            1,
            100,
            [6, 12, 15, 21, 27, 30, 36, 42, 45, 51, 57, 60, 66, 72, 75, 81, 87, 90, 96, 100],
        ),
    ],
)
def test_of_many_evaluations_about_twenty_are_due(
    every: int, accumulate: int, last: int, expected: list[int]
) -> None:
    assert evaluations(every, accumulate, last, times=20, steps=last) == expected


@pytest.mark.parametrize("accumulate", [1, 2])
def test_the_first_evaluation_at_or_after_each_multiple_is_due_and_the_last(
    accumulate: int,
) -> None:
    assert evaluations(4, accumulate, 9, times=1, steps=5) == [8, 9]
    assert evaluations(4, accumulate, 30, times=1, steps=10) == [12, 20, 30]
