"""The power of depth that a gradient goes with."""

import pandas as pd
import pytest

from report.initialization import exponent, power


def test_the_power_of_depth_is_found_seed_by_seed() -> None:
    depths = [2, 6, 12, 24]
    rows = [(n, seed, seed * n**p) for n in depths for seed, p in ((1, -0.5), (2, -0.2))]
    part = pd.DataFrame(rows, columns=["n_layer", "seed", "value"])
    assert list(power(part)) == pytest.approx([-0.5, -0.2])
    assert exponent(power(part)) == "-0.35 ±0.15"
    assert exponent(power(part[part.n_layer == 2])) == exponent(power(part.assign(value=0))) == "–"
