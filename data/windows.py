"""Windows of text. Batch k is a pure function of (seed, k, rank), so a run resumes exactly.

`data/lines.py` uses the same random draw of rows, which it has padded, and the same even spacing.

Legend: N characters of text, B windows per batch, T = block_size. A window has T + 1 ids:
`window[:-1]` is the input, `window[1:]` the targets.
"""

import torch
from torch.utils.data import Dataset

from data.seed import generator_from

PADDING = -1  # an id that no character has


class RandomRows(Dataset[torch.Tensor]):
    """Item k is micro-batch k: B rows of a matrix (n, T + 1) drawn at random, int64, `trimmed`."""

    def __init__(self, rows: torch.Tensor, *, batch_size: int, seed: int, rank: int = 0) -> None:
        self.rows = rows
        self.batch_size = batch_size
        self.seed = seed
        self.rank = rank

    def __getitem__(self, k: int) -> torch.Tensor:
        generator = generator_from(f"windows {self.seed} {k} {self.rank}")
        drawn = torch.randint(len(self.rows), (self.batch_size,), generator=generator)
        return trimmed(self.rows[drawn].long())


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
    """At most `batches` batches of whole windows, evenly spread and without overlap."""
    windows = ids.unfold(0, block_size + 1, block_size)
    return list(torch.split(spread(windows, batches * batch_size).long(), batch_size))


def spread(rows: torch.Tensor, n: int) -> torch.Tensor:
    """At most n of the rows, evenly spread from the first to the last.

    >>> spread(torch.arange(10), 4).tolist()
    [0, 3, 6, 9]
    """
    n = min(n, len(rows))
    return rows[torch.arange(n) * (len(rows) - 1) // max(1, n - 1)]


def trimmed(rows: torch.Tensor) -> torch.Tensor:
    """The rows without the columns that are padding in every row.

    >>> trimmed(torch.tensor([[0, 3, 0, -1, -1], [0, 5, 6, 0, -1]])).tolist()
    [[0, 3, 0, -1], [0, 5, 6, 0]]
    """
    return rows[:, : int((rows != PADDING).sum(1).max())]
