"""A character tokenizer on the `tokenizers` package: one token per Unicode code point.

Nothing is normalized, nothing is dropped: `decode(encode(s)) == s` for every string over the
vocabulary. The package's own encoder is slow at this (0.7 MB/s), so `encode` uses a lookup table
that gives the same ids (a test compares the two).
"""

from typing import Any

import numpy as np
import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from torch import nn

from data.seed import generator_from


def build_tokenizer(text: str) -> Tokenizer:
    r"""The tokenizer whose vocabulary is every character of `text`, in code point order.

    >>> tokenizer = build_tokenizer("hello\n")
    >>> tokenizer.encode("hole\n").ids
    [2, 4, 3, 1, 0]
    >>> tokenizer.decode([2, 4, 3, 1, 0])
    'hole\n'
    """
    vocabulary = {character: i for i, character in enumerate(sorted(set(text)))}
    tokenizer = Tokenizer(models.WordLevel(vocabulary))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    tokenizer.decoder = decoders.Fuse()  # the default decoder puts spaces between the tokens
    return tokenizer


def encode(tokenizer: Tokenizer, text: str) -> torch.Tensor:
    """The ids of `text`, shape (len(text),), int32.

    Raises:
        ValueError: characters outside the vocabulary; the message lists them.
    """
    vocabulary = tokenizer.get_vocab()
    table = np.full(0x110000, -1, dtype=np.int32)  # one entry per code point
    table[[ord(character) for character in vocabulary]] = list(vocabulary.values())
    ids = table[np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)]
    if (ids < 0).any():
        unseen = "".join(sorted(set(text) - vocabulary.keys()))
        raise ValueError(
            f"characters {unseen!r} are not in the vocabulary of {len(vocabulary)}: "
            f"use only {''.join(sorted(vocabulary))!r}"
        )
    return torch.from_numpy(ids)


def start_ids(tokenizer: Tokenizer, prompt: str) -> torch.Tensor:
    """The ids that generation starts from, (1, t), int64.

    With an empty prompt this is a line end, or the first character of a vocabulary without one.
    """
    vocabulary = tokenizer.get_vocab()
    first = "\n" if "\n" in vocabulary else min(vocabulary)
    return encode(tokenizer, prompt or first)[None].long()


def continue_text(
    net: nn.Module, tokenizer: Tokenizer, prompt: str, max_new_tokens: int, *, seed: int, **how: Any
) -> str:
    """The max_new_tokens characters that a net in eval mode writes after the prompt.

    The prompt may be empty, see `start_ids`. The seed is any integer; one seed gives one text.
    `how` is for the net's method `generate`: `temperature` and `top_k`.
    """
    start = start_ids(tokenizer, prompt).to(next(net.parameters()).device)
    generator = generator_from(f"sample {seed}")
    ids = net.generate(start, max_new_tokens, generator=generator, **how)  # type: ignore[operator]
    return tokenizer.decode(ids[0, start.shape[1] :].tolist())


def continue_lines(
    net: nn.Module, tokenizer: Tokenizer, prompt: str, max_new_tokens: int, *, seed: int, **how: Any
) -> str:
    """As `continue_text`, for a net trained on single lines: it sees its current line only.

    This is the line end before the line and what the line has so far, also for a prompt without a
    line end.
    """
    ids = start_ids(tokenizer, f"\n{prompt}").to(next(net.parameters()).device)
    before = ids.shape[1]
    generator = generator_from(f"sample {seed}")
    line_end = tokenizer.get_vocab()["\n"]
    for _ in range(max_new_tokens):
        start = int(ids[0].eq(line_end).nonzero()[-1])
        line = net.generate(ids[:, start:], 1, generator=generator, **how)  # type: ignore[operator]
        ids = torch.cat([ids, line[:, -1:]], dim=1)
    return tokenizer.decode(ids[0, before:].tolist())
