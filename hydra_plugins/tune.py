"""Hydra accepts sweepers from this package only; the code is in sweep/tuning.py."""

from sweep import tuning


class Tune(tuning.Tune):
    """`_target_` of configs/hydra/sweeper/tune.yaml."""
