"""Seeds made from texts. Reference: Python's rule for them, written out with SHA-512."""

import random
from hashlib import sha512

import pytest

from data.seed import generator_from
from model.gpt import seed_from


@pytest.mark.parametrize("text", ["", "lines", "windows 1 0 0", "init 1 blocks.0.mlp.fc.weight"])
def test_data_and_model_make_the_same_seed_of_a_text_from_its_hash(text: str) -> None:
    data = text.encode()
    wanted = random.Random(int.from_bytes(data + sha512(data).digest(), "big")).getrandbits(63)
    assert generator_from(text).initial_seed() == seed_from(text) == wanted


def test_other_texts_give_other_seeds() -> None:
    assert len({seed_from(f"dropout {seed} {k} 0") for seed in range(20) for k in range(20)}) == 400
