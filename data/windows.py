"""Windows of text. Batch k is a pure function of (seed, k, rank), so a run resumes exactly.

The draw of rows from a matrix and their even spacing serve `data/lines.py` too.

Legend: N characters of text, B windows a batch, T = block_size. A window has T + 1 ids:
`window[:-1]` is the input, `window[1:]` the targets.
"""

import random

import torch
from torch.utils.data import Dataset


class RandomRows(Dataset[torch.Tensor]):
    """Item k is micro-batch k: B rows of a matrix (n, T + 1) drawn at random, (B, T + 1), int64.

    No state: any k at any time, by any worker, in any order, gives the same rows.
    """

    def __init__(self, rows: torch.Tensor, *, batch_size: int, seed: int, rank: int = 0) -> None:
        self.rows, self.batch_size, self.seed, self.rank = rows, batch_size, seed, rank

    def __getitem__(self, k: int) -> torch.Tensor:
        # random.Random hashes a string with SHA-512: stable over processes and versions, unlike
        # hash()
        key = random.Random(f"windows {self.seed} {k} {self.rank}").getrandbits(63)
        generator = torch.Generator().manual_seed(key)
        drawn = torch.randint(len(self.rows), (self.batch_size,), generator=generator)
        return self.rows[drawn].long()


class RandomWindows(RandomRows):
    """Micro-batches of windows at random offsets of a text's ids (N,)."""

    def __init__(
        self, ids: torch.Tensor, *, block_size: int, batch_size: int, seed: int, rank: int = 0
    ) -> None:
        windows = ids.unfold(0, block_size + 1, 1)  # (N - T, T + 1), a view
        super().__init__(windows, batch_size=batch_size, seed=seed, rank=rank)


def whole(ids: torch.Tensor, block_size: int, batch_size: int) -> list[torch.Tensor]:
    """Batches that predict every character but the first once; the last window may be short.

    >>> [batch.tolist() for batch in whole(torch.arange(8), block_size=3, batch_size=2)]
    [[[0, 1, 2, 3], [3, 4, 5, 6]], [[6, 7]]]
    """
    full = max(0, (len(ids) - 1) // block_size)
    batches: list[torch.Tensor] = []
    if full:  # neighbouring windows share one id: the last target is the next input
        batches += torch.split(ids.unfold(0, block_size + 1, block_size).long(), batch_size)
    tail = ids[full * block_size :]
    return [*batches, tail[None].long()] if len(tail) > 1 else batches


def evenly_spaced(
    ids: torch.Tensor, block_size: int, batch_size: int, batches: int
) -> list[torch.Tensor]:
    """At most `batches` batches of whole windows, evenly spread and not overlapping."""
    windows = ids.unfold(0, block_size + 1, block_size)
    return list(torch.split(spread(windows, batches * batch_size).long(), batch_size))


def spread(rows: torch.Tensor, n: int) -> torch.Tensor:
    """At most n of the rows, evenly spread from the first to the last.

    >>> spread(torch.arange(10), 4).tolist()
    [0, 3, 6, 9]
    """
    n = min(n, len(rows))
    return rows[torch.arange(n) * (len(rows) - 1) // max(1, n - 1)]
