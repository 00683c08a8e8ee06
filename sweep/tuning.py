"""The sweeper that gives each condition its own learning rate: python train.py experiment=tune.

Hydra imports this at every start, by way of hydra_plugins/: nothing heavy at the top. A condition
is all that is swept but rate and seed. Three phases, in one sweep folder, are the same for each:

    coarse    every rate given, a factor of 2 apart, on the tuning seeds
    refined   the best of them times and over sqrt 2, on the tuning seeds
    final     the best of all of them, on the seeds that are reported

The best is the one that the report names: the lowest validation loss, where a failed run counts as
the loss at the start. A job that has ended gives its stored loss, so a sweep that was stopped makes
the same choices when it is resumed.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.core.plugins import Plugins
from hydra.core.utils import JobReturn
from hydra.plugins.launcher import Launcher
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf

RATE, SEED = "optimizer.lr", "seed"
Jobs = list[list[str]]  # the overrides of each


@dataclass(frozen=True)
class Plan:
    """What a tuning sweep does, before it knows any loss.

    Attributes:
        conditions: the overrides of each condition.
        rates: peak learning rates of the coarse grid, ascending.
        tuning_seeds: of the runs that choose the rate; these are never reported.
        seeds: of the final runs.
    """

    conditions: Jobs
    rates: list[float]
    tuning_seeds: list[int]
    seeds: list[int]

    @property
    def total(self) -> int:
        """Jobs of all three phases."""
        tuning = (len(self.rates) + 2) * len(self.tuning_seeds)
        return len(self.conditions) * (tuning + len(self.seeds))

    def coarse(self) -> Jobs:
        """The jobs of the first phase."""
        return self.jobs([self.rates] * len(self.conditions), self.tuning_seeds)

    def refined(self, best: list[float | None]) -> Jobs:
        """Both sides of each condition's best rate."""
        near = [[] if b is None else [b / math.sqrt(2), b * math.sqrt(2)] for b in best]
        return self.jobs(near, self.tuning_seeds)

    def final(self, best: list[float | None]) -> Jobs:
        """The runs that are reported."""
        return self.jobs([[] if b is None else [b] for b in best], self.seeds)

    def jobs(self, rates: list[list[float]], seeds: list[int]) -> Jobs:
        """Each condition at its own rates, each rate on every seed.

        >>> Plan([["norm=none"]], [], [], []).jobs([[0.003 * 2**0.5]], [101])
        [['norm=none', 'optimizer.lr=0.00424', 'seed=101']]
        """
        return [
            [*condition, f"{RATE}={rate:.3g}", f"{SEED}={seed}"]
            for condition, own in zip(self.conditions, rates, strict=True)
            for rate in own
            for seed in seeds
        ]


def overrides_of(params: Any, arguments: Sequence[str], config_loader: Any) -> list[Override]:
    """A sweeper's own overrides, then those of the command line, which replace them."""
    given = [f"{key}={value}" for key, value in (params or {}).items()]
    return OverridesParser.create(config_loader=config_loader).parse_overrides([*given, *arguments])


def plan(overrides: list[Override], tuning_seeds: Sequence[int]) -> Plan:
    """Find in the overrides of a sweep what is to be tuned.

    Raises:
        ValueError: fewer than two rates, or seeds for tuning among those for reporting.
    """
    values: dict[str, list[float]] = {RATE: [], SEED: []}
    for override in overrides:
        if (key := override.key_or_group) in values:
            one = BasicSweeper.split_arguments([override], None)[0]
            values[key] = sorted({float(job[0].partition("=")[2]) for job in one})
    if len(values[RATE]) < 2 or values[RATE][0] <= 0:
        raise ValueError(
            f"{RATE} must be two rates or more to choose from, above 0, a factor of 2 apart, "
            f"got {values[RATE]}"
        )
    seeds = [int(seed) for seed in values[SEED]]
    if set(seeds) & set(tuning_seeds):
        raise ValueError(
            f"seed={','.join(map(str, seeds))} and hydra.sweeper.tuning_seeds={tuning_seeds} must "
            "not share a seed: a run that chose a rate cannot be reported"
        )
    swept = [override for override in overrides if override.key_or_group not in values]
    return Plan(BasicSweeper.split_arguments(swept, None)[0], values[RATE], [*tuning_seeds], seeds)


class Tune(Sweeper):
    """Runs the three phases: coarse, refined, final.

    Args:
        params: overrides that the command line may replace, as for Hydra's own sweeper.
        tuning_seeds: 101 and above.
    """

    def __init__(self, params: dict[str, Any], tuning_seeds: list[int]) -> None:
        self.params = params
        self.tuning_seeds = tuning_seeds
        self.folders: list[str] = []  # of the jobs so far, by number

    def setup(
        self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig
    ) -> None:
        """Keep what Hydra gives, and make the launcher."""
        self.hydra_context = hydra_context
        self.config = config
        self.launcher: Launcher = Plugins.instance().instantiate_launcher(
            hydra_context=hydra_context, task_function=task_function, config=config
        )

    def sweep(self, arguments: list[str]) -> list[Sequence[JobReturn]]:
        """Run all three phases."""
        assert self.hydra_context is not None and self.config is not None
        loader = self.hydra_context.config_loader
        planned = plan(overrides_of(self.params, arguments, loader), self.tuning_seeds)
        OmegaConf.save(self.config, Path(self.config.hydra.sweep.dir) / "multirun.yaml")
        coarse = self.launch(planned.coarse())
        # one folder of each condition
        firsts = self.folders[:: len(planned.rates) * len(planned.tuning_seeds)]
        refined = self.launch(planned.refined(self.best(firsts)))
        return [coarse, refined, self.launch(planned.final(self.best(firsts)))]

    def launch(self, batch: Jobs) -> Sequence[JobReturn]:
        """Run jobs, numbered after those before them."""
        self.validate_batch_is_legal(batch)
        returns = self.launcher.launch(batch, initial_job_idx=len(self.folders))
        for job in returns:
            _ = job.return_value  # raises what the job raised
            assert job.hydra_cfg is not None
            self.folders.append(job.hydra_cfg.hydra.runtime.output_dir)
        return returns

    def best(self, firsts: list[str]) -> list[float | None]:
        """The best rate so far of each condition, by one of its folders; None if no job trained."""
        from report.group import build_study
        from report.rates import tuned_conditions  # late: pandas takes a second
        from report.read import read_runs

        table = (study := build_study(read_runs(self.folders), "layernorm")).table
        best = {entry.condition: entry.best for entry in tuned_conditions(study)}
        trained = set(table.condition[table.failure != "error"])
        conditions = [table.condition[Path(folder).name] for folder in firsts]
        return [best.get(condition) if condition in trained else None for condition in conditions]
