r"""One sample per line, such as names or verses: rows of different lengths, padded on the right.

A line `abc` is the row of ids of `"\nabc\n"`: inputs `"\nabc"`, targets `"abc\n"`. So there are no
special tokens: the line end starts and ends a line, and the mean loss is over all characters of the
lines and their line ends. The rest of a row is padding; a position is real where its target is not
padding. Blank lines are left out.

Legend: n lines, B of them in a batch, T + 1 ids in the longest row.
"""

from itertools import pairwise

import torch
from tokenizers import Tokenizer
from torch.nn.utils.rnn import pad_sequence

from data.datamodule import EVAL_CHARACTERS, SPLITS, CharDataModule
from data.seed import generator_from
from data.tokenizer import build_tokenizer, continue_lines, encode
from data.windows import PADDING, RandomRows, spread, trimmed


class LineDataModule(CharDataModule):
    """The lines of a text in a fixed random order, split into training, validation and test.

    The order depends on the number of lines alone, not on `seed`: files are often sorted, and all
    seeds must be measured on the same lines. `split` holds fractions of lines; a split is a matrix
    (lines, T + 1). Batches are (B, t + 1) int64 with t real positions in the batch's longest row.

    Raises:
        ValueError: a line too long for `block_size`, no lines, a split without one, or fewer
            training lines than a batch has rows.
    """

    continue_text = staticmethod(continue_lines)

    def _encode(self, text: str) -> tuple[Tokenizer, torch.Tensor]:
        """The tokenizer, and the lines' ids as a padded matrix (n, T + 1) in the fixed order."""
        lines = [line for line in text.split("\n") if line.strip()]
        if not lines:
            raise ValueError(f"{self.source} has no lines; give a file with one sample per line")
        longest = max(lines, key=len)
        if len(longest) + 1 > self.block_size:
            raise ValueError(
                f"data.block_size={self.block_size} holds lines of up to {self.block_size - 1} "
                f"characters, but {self.source} has one of {len(longest)} ({longest[:9]!r}...): "
                f"give data.block_size={len(longest) + 1} or shorter lines"
            )
        joined = "\n".join(["", *lines, ""])
        tokenizer = build_tokenizer(joined)
        ids = encode(tokenizer, joined)
        ends = ids.eq(tokenizer.get_vocab()["\n"]).nonzero().flatten().tolist()
        rows = [ids[start : end + 1] for start, end in pairwise(ends)]  # neighbours share an end
        order = torch.randperm(len(rows), generator=generator_from("lines"))
        return tokenizer, pad_sequence(rows, batch_first=True, padding_value=PADDING)[order]

    def _check(self, total: int) -> None:
        """Refuse splits with too few lines."""
        for name, part in zip(SPLITS[:2], (self.train, self.val), strict=True):
            if len(part) == 0:
                raise ValueError(
                    f"the {name} split of {self.source} has 0 of {total} lines, but needs at "
                    "least 1: give more lines or another data.split"
                )
        if len(self.train) < self.batch_size:
            raise ValueError(
                f"data.batch_size={self.batch_size} is more than the {len(self.train)} training "
                f"lines of {self.source}: give more lines or a smaller batch"
            )

    def characters(self, part: torch.Tensor) -> torch.Tensor:
        """The targets of all lines of a split, joined: their characters and line ends."""
        targets = part[:, 1:]
        return targets[targets != PADDING]

    def describe(self) -> str:
        """One line for the console: how many lines of which source."""
        parts = (self.train, self.val, self.test)
        lines = f"{sum(map(len, parts)):,} lines of {self.source}"
        characters = sum(len(self.characters(part)) for part in parts)
        return f"on {lines}, {characters:,} characters ({self.vocab_size} different)"

    @property
    def eval_batch_size(self) -> int:
        """How many lines an evaluation batch has: at most 16,384 positions, padding included."""
        return max(1, EVAL_CHARACTERS // (self.train.shape[1] - 1))

    def spaced(self, ids: torch.Tensor) -> list[torch.Tensor]:
        """Batches of fixed, evenly spaced lines of a split: `eval_batches` * 16,384 characters."""
        length = len(self.characters(ids)) / len(ids)  # of a line, on average
        return self.whole(spread(ids, round(self.eval_batches * EVAL_CHARACTERS / length)))

    def whole(self, ids: torch.Tensor) -> list[torch.Tensor]:
        """Evaluation batches that hold each line of a split once."""
        batches = torch.split(ids.long(), self.eval_batch_size) if len(ids) else ()
        return [trimmed(batch) for batch in batches]

    def windows(self, rank: int = 0) -> RandomRows:
        """The training micro-batches, by their numbers."""
        return RandomRows(self.train, batch_size=self.batch_size, seed=self.seed, rank=rank)
