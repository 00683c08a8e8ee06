"""Random numbers that depend on a text alone."""

import random

import torch


def generator_from(text: str) -> torch.Generator:
    """A generator seeded by a text, the same in every process and version; `hash` is not."""
    seed = random.Random(text).getrandbits(63)  # it hashes the text with SHA-512
    return torch.Generator().manual_seed(seed)
