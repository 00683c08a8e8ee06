"""The LightningDataModule: from a text to ids, splits and loaders."""

import hashlib
import itertools
import sys
from collections.abc import Callable, Sequence
from typing import Any

import lightning.pytorch as pl
import torch
from tokenizers import Tokenizer
from torch import nn
from torch.utils.data import DataLoader

from data.tokenizer import build_tokenizer, continue_text, encode
from data.windows import RandomRows, evenly_spaced, whole

EVAL_CHARACTERS = 16_384  # per evaluation batch, whatever batch_size and block_size are
SPLITS = ("training", "validation", "test")


class CharDataModule(pl.LightningDataModule):
    """Characters of one text, split contiguously into training, validation and test.

    Batches are (B, T + 1) int64: inputs `[:, :-1]`, targets `[:, 1:]`.

    Args:
        corpus: `(path, encoding) -> str`, one of the functions of `data/corpus.py`.
        seed: of the random draw of training windows.
        block_size: T, the characters of a window.
        batch_size: B, the windows of a training micro-batch.
        split: fractions for training, validation and (optional) test.
        eval_batches: batches of 16,384 characters that are read at each evaluation.

    Raises:
        ValueError: a value is invalid, a split is too short for one window, or there are fewer
            windows than a batch has rows.
    """

    continue_text = staticmethod(continue_text)  # how a net writes that was trained on this data

    def __init__(
        self,
        corpus: Callable[..., str],
        *,
        seed: int,
        block_size: int,
        batch_size: int,
        path: str | Sequence[str] | None = None,
        encoding: str = "utf-8",
        split: Sequence[float] = (0.9, 0.05, 0.05),
        num_workers: int = 0,
        eval_batches: int = 4,
    ) -> None:
        super().__init__()
        self.seed = seed
        self.block_size = block_size
        self.batch_size = batch_size
        self.num_workers = num_workers
        self.eval_batches = eval_batches
        least = {"block_size": 1, "batch_size": 1, "eval_batches": 1, "num_workers": 0}
        for name, limit in least.items():
            if (value := getattr(self, name)) < limit:
                raise ValueError(f"data.{name} must be at least {limit}, got {value}")
        text = corpus(path, encoding)
        self.sha256 = hashlib.sha256(text.encode()).hexdigest()
        name = getattr(getattr(corpus, "func", corpus), "__name__", "the text")  # of a partial
        self.source = name if path is None else str(path)
        self.tokenizer, ids = self._encode(text)
        self.vocab_size = self.tokenizer.get_vocab_size()
        self.train, self.val, self.test = self._split(ids, split)
        self._check(len(ids))

    def _encode(self, text: str) -> tuple[Tokenizer, torch.Tensor]:
        """The tokenizer and the text's ids (N,)."""
        tokenizer = build_tokenizer(text)
        return tokenizer, encode(tokenizer, text)

    def _split(self, ids: torch.Tensor, split: Sequence[float]) -> Sequence[torch.Tensor]:
        """Cut the ids into training, validation and test, one after the other."""
        if len(split) not in (2, 3) or min(split) < 0 or not abs(sum(split) - 1) <= 1e-6:
            raise ValueError(
                f"data.split={list(split)} must be two or three fractions that sum to 1, "
                "for training, validation and test"
            )
        cuts = [round(len(ids) * end) for end in itertools.accumulate(split[:-1])]
        return ids.tensor_split([*cuts, len(ids)][:2])

    def _check(self, total: int) -> None:
        """Refuse splits that are too short."""
        for name, part in zip(SPLITS, (self.train, self.val, self.test), strict=True):
            wanted = self.block_size + 1
            if len(part) < wanted and not (name == "test" and len(part) == 0):
                raise ValueError(
                    f"the {name} split of {self.source} has {len(part)} of {total} characters, "
                    f"but one window needs {wanted} (data.block_size + 1): give more text, "
                    "a smaller data.block_size or another data.split"
                )
        if (windows := len(self.train) - self.block_size) < self.batch_size:
            raise ValueError(
                f"data.batch_size={self.batch_size} is more than the {windows} different windows "
                f"of {self.block_size} in {len(self.train)} training characters: "
                "give more text or a smaller batch"
            )

    def characters(self, part: torch.Tensor) -> torch.Tensor:
        """The ids of all characters of a split, (N,)."""
        return part

    @property
    def unigram_entropy(self) -> float:
        """The training split's entropy in nats: the loss of a model that knows only frequencies."""
        counts = torch.bincount(self.characters(self.train)).double()
        return float(torch.special.entr(counts / counts.sum()).sum())

    @property
    def eval_batch_size(self) -> int:
        """How many windows an evaluation batch has."""
        return max(1, EVAL_CHARACTERS // self.block_size)

    def spaced(self, ids: torch.Tensor) -> list[torch.Tensor]:
        """Evaluation batches of fixed, evenly spaced windows of a split."""
        return evenly_spaced(ids, self.block_size, self.eval_batch_size, self.eval_batches)

    def sample(self, net: nn.Module, max_new_tokens: int, **how: Any) -> str:
        """A text that the net writes from an empty prompt."""
        return self.continue_text(net, self.tokenizer, "", max_new_tokens, **how)

    def describe(self) -> str:
        """One line for the console: how much text of which source."""
        characters = len(self.train) + len(self.val) + len(self.test)
        return f"on {characters:,} characters ({self.vocab_size} different) of {self.source}"

    def whole(self, ids: torch.Tensor) -> list[torch.Tensor]:
        """Evaluation batches that hold a split once, without overlap."""
        return whole(ids, self.block_size, self.eval_batch_size)

    def windows(self, rank: int = 0) -> RandomRows:
        """The training micro-batches, by their numbers."""
        rows = self.train.unfold(0, self.block_size + 1, 1)  # (N - T, T + 1), a view
        return RandomRows(rows, batch_size=self.batch_size, seed=self.seed, rank=rank)

    def train_dataloader(self) -> DataLoader[torch.Tensor]:
        """A loader of the micro-batches that are not processed yet; it has no state."""
        assert self.trainer is not None
        start: int = self.trainer.fit_loop.epoch_loop.batch_progress.total.processed  # type: ignore[attr-defined]
        windows = self.windows(self.trainer.global_rank)
        options: dict[str, Any] = {"num_workers": self.num_workers}
        if self.num_workers and sys.platform == "linux":
            # in a worker of joblib, which runs jobs of a sweep, only forking works
            options["multiprocessing_context"] = "fork"
        return self._loader(windows, sampler=itertools.count(start), **options)

    def val_dataloader(self) -> DataLoader[torch.Tensor]:
        """A loader of the evaluation windows, the same at each evaluation."""
        return self._loader(self.spaced(self.val))

    def _loader(self, batches: object, **options: object) -> DataLoader[torch.Tensor]:
        """A loader of items that are whole batches."""
        return DataLoader(batches, batch_size=None, pin_memory=torch.cuda.is_available(), **options)  # type: ignore[arg-type]
