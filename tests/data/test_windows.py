"""Windows of text, on ids that are their own positions: `ids[i] == i`, so a slice names its place.

References: slices of the positions, uniform counts (chi-square), and one golden batch that holds
the draw fixed over processes and versions (batch k depends on (seed, k, rank) alone).
"""

import itertools
import math

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from data.windows import RandomRows, evenly_spaced, whole

PATIENT = settings(deadline=None)  # another process may have the machine
SIZES = st.integers(1, 12)


def positions(n: int) -> torch.Tensor:
    return torch.arange(n, dtype=torch.int32)


def windows(n: int = 1000, T: int = 8, B: int = 16, *, seed: int = 1, rank: int = 0) -> RandomRows:
    rows = positions(n).unfold(0, T + 1, 1)  # as CharDataModule.windows does
    return RandomRows(rows, batch_size=B, seed=seed, rank=rank)


def test_a_new_object_and_any_order_give_the_same_batches() -> None:
    one, other = windows(), windows()
    forward = {k: one[k] for k in range(6)}
    torch.manual_seed(7)  # nothing global counts
    for k in (5, 0, 3, 3, 1):
        assert torch.equal(other[k], forward[k])


@pytest.mark.parametrize("num_workers", [0, 2])
def test_another_process_gives_the_same_batches(num_workers: int) -> None:
    loader = DataLoader(
        windows(), batch_size=None, sampler=itertools.count(3), num_workers=num_workers
    )
    batches = list(itertools.islice(loader, 5))
    assert torch.equal(torch.stack(batches), torch.stack([windows()[k] for k in range(3, 8)]))


def test_the_draw_of_one_seed_and_number_stays_what_it_was() -> None:
    offsets = {
        (1, 0, 0): [825, 352, 227, 355, 530, 183, 931, 993],
        (1, 1, 0): [99, 32, 577, 99, 157, 660, 865, 127],
        (2, 0, 0): [428, 101, 438, 904, 96, 945, 474, 708],
        (1, 0, 1): [635, 630, 521, 166, 38, 622, 206, 178],
    }
    for (seed, k, rank), wanted in offsets.items():
        assert windows(T=1, B=8, seed=seed, rank=rank)[k][:, 0].tolist() == wanted


@pytest.mark.parametrize(
    "others",
    [
        [(seed, 0, 0) for seed in range(100)],
        [(1, k, 0) for k in range(100)],
        [(1, 0, rank) for rank in range(100)],
        [(1, 11, 0), (11, 1, 0), (1, 1, 1), (111, 0, 0), (0, 1, 11), (0, 11, 1)],  # digits glued
    ],
    ids=["seed", "number", "rank", "all"],
)
def test_batches_of_other_seeds_numbers_and_ranks_differ(
    others: list[tuple[int, int, int]],
) -> None:
    drawn = {tuple(windows(seed=s, rank=r)[k][:, 0].tolist()) for s, k, r in others}
    assert len(drawn) == len(others)


@PATIENT
@given(n=st.integers(2, 60), T=SIZES, B=SIZES, seed=st.integers(), k=st.integers(0, 10**9))
def test_windows_are_true_slices_with_targets_one_further(
    n: int, T: int, B: int, seed: int, k: int
) -> None:
    n = max(n, T + 1)
    batch = windows(n, T, B, seed=seed)[k]
    assert batch.shape == (B, T + 1) and batch.dtype == torch.int64
    assert batch.min() >= 0 and batch.max() < n
    assert torch.equal(batch, batch[:, :1] + torch.arange(T + 1))
    assert torch.equal(batch[:, 1:], batch[:, :-1] + 1)


@pytest.mark.parametrize("T", [1, 8, 64])
def test_a_text_of_one_more_than_the_block_is_exactly_one_window(T: int) -> None:
    assert torch.equal(windows(T + 1, T, 3)[5], torch.arange(T + 1).expand(3, -1))
    assert set(windows(T + 2, T, 50)[0][:, 0].tolist()) == {0, 1}


@pytest.mark.parametrize(("B", "batches"), [(10_000, 1), (1, 10_000)])
def test_offsets_are_uniform_from_the_first_window_to_the_last(B: int, batches: int) -> None:
    data = windows(n=57, T=8, B=B)  # 49 offsets
    drawn = torch.cat([data[k][:, 0] for k in range(batches)])
    counts = torch.bincount(drawn, minlength=49).double()
    assert len(counts) == 49
    expected = 10_000 / 49
    assert ((counts - expected) ** 2 / expected).sum() < 94  # 48 degrees of freedom, p = 1e-4


@PATIENT
@given(n=st.integers(2, 300), T=st.integers(1, 40), B=SIZES)
@example(n=65, T=64, B=1)
@example(n=66, T=64, B=1)
@example(n=129, T=64, B=1)
@example(n=130, T=64, B=2)
def test_whole_predicts_each_character_but_the_first_exactly_once(n: int, T: int, B: int) -> None:
    n = max(n, T + 1)
    batches = whole(positions(n), T, B)
    assert all(b.dtype == torch.int64 and len(b) <= B and 2 <= b.shape[1] <= T + 1 for b in batches)
    assert torch.cat([b[:, 1:].flatten() for b in batches]).tolist() == list(range(1, n))
    assert torch.cat([b[:, :-1].flatten() for b in batches]).tolist() == list(range(n - 1))


def test_whole_of_no_text_is_no_batch() -> None:
    """data.split=[0.9,0.1], that of data=tiny_shakespeare, leaves the test split empty."""
    assert whole(positions(0), 64, 256) == []


@PATIENT
@given(n=st.integers(2, 2000), T=SIZES, B=SIZES, batches=SIZES)
@example(n=65, T=64, B=256, batches=4)
def test_evenly_spaced_windows_are_whole_do_not_overlap_and_span_the_split(
    n: int, T: int, B: int, batches: int
) -> None:
    n = max(n, T + 1)
    found = evenly_spaced(positions(n), T, B, batches)
    rows = torch.cat(found)
    possible = (n - 1) // T
    assert len(rows) == min(possible, B * batches)
    assert [len(batch) for batch in found[:-1]] == [B] * (len(found) - 1) and len(found[-1]) <= B
    assert torch.equal(rows, rows[:, :1] + torch.arange(T + 1))
    gaps = rows[1:, 0] - rows[:-1, 0]
    assert rows[0, 0] == 0 and rows[-1, -1] < n
    last = possible - 1 if len(rows) > 1 else 0
    assert rows[-1, 0] == last * T
    widest = T * math.ceil(last / max(1, len(rows) - 1))
    assert all(T <= gap <= widest for gap in gaps.tolist())


def test_evenly_spaced_windows_are_the_same_each_time() -> None:
    torch.manual_seed(1)
    first = evenly_spaced(positions(5000), 7, 10, 3)
    torch.manual_seed(2)
    assert all(map(torch.equal, first, evenly_spaced(positions(5000), 7, 10, 3)))


def test_evenly_spaced_windows_are_within_a_text_of_more_than_2_to_the_24_windows() -> None:
    """Float32 has no odd numbers up there. One id, seen many times: no memory."""
    ids = torch.zeros(1, dtype=torch.int32).expand(2**24 + 5)
    assert torch.cat(evenly_spaced(ids, 1, 1024, 1)).shape == (1024, 2)
