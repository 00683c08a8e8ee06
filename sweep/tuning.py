"""The sweeper that gives each condition its own settings: python train.py experiment=tune.

Hydra imports this at every start, by way of hydra_plugins/: nothing heavy at the top. What is swept
makes the conditions, except seed, learning rate and the other *nuisance* settings: those are chosen
for each condition, on tuning seeds. In one sweep folder:

    coarse    every rate given, a factor of 2 apart, nuisance settings at their first values; while
              the best is at the edge, a rate beyond it is added for all, at most three times
    nuisance  each other value of one setting after the other, at the best rate; then, at the
              chosen values, the rates a factor of 2 away, and beyond them likewise
    refined   the best rate times and over sqrt 2
    final     the rate chosen from all of them, on the seeds that are reported

report/optimum.py chooses; the page calls it on the same runs. Every condition gets the same number
of runs: one with less to try spends the rest on further tuning seeds at its best rate. A job that
has ended gives its stored loss, so a sweep that was stopped makes the same choices when resumed.
"""

import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.core.plugins import Plugins
from hydra.core.utils import JobReturn
from hydra.plugins.launcher import Launcher
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf

from run.overrides import quoted

RATE, SEED = "optimizer.lr", "seed"
EXTENSIONS = 3  # of the grid, each by a factor of 2
STEP = math.sqrt(2)
Jobs = list[list[str]]  # the overrides of each


@dataclass
class Search:
    """One condition's search for its best settings.

    Attributes:
        condition: its overrides.
        nuisance: the values that each setting may take; the first is where the search starts.
        chosen: the value of each so far.
        folders: of its jobs so far, by their overrides.
        trains: has any of its jobs trained?
    """

    condition: list[str]
    nuisance: dict[str, list[str]] = field(default_factory=dict)
    chosen: dict[str, str] = field(default_factory=dict)
    folders: dict[tuple[str, ...], str] = field(default_factory=dict)
    trains: bool = True

    def __post_init__(self) -> None:
        self.chosen = {key: values[0] for key, values in self.nuisance.items()}

    def jobs(self, rates: Sequence[float], seeds: Sequence[int], **changed: str) -> Jobs:
        """Each rate on every seed, with some settings changed.

        >>> Search(["norm=none"]).jobs([0.003 * 2**0.5], [101])
        [['norm=none', 'optimizer.lr=0.00424', 'seed=101']]
        """
        start = self.start(changed)
        return [
            [*start, f"{RATE}={rate:.3g}", f"{SEED}={seed}"] for rate in rates for seed in seeds
        ]

    def start(self, changed: dict[str, str]) -> list[str]:
        """The overrides of its jobs but rate and seed."""
        return [*self.condition, *(f"{k}={v}" for k, v in (self.chosen | changed).items())]

    def runs(self, **changed: str) -> list[str]:
        """The names of its runs so far, with some settings changed."""
        start = self.start(changed)
        return [Path(at).name for job, at in self.folders.items() if [*job[:-2]] == start]


@dataclass(frozen=True)
class Plan:
    """What a tuning sweep does, before it knows any loss.

    Attributes:
        searches: one per condition.
        rates: peak learning rates of the coarse grid, ascending.
        tuning_seeds: of the runs that choose; these are never reported.
        seeds: of the final runs.
    """

    searches: list[Search]
    rates: list[float]
    tuning_seeds: list[int]
    seeds: list[int]

    @property
    def nuisance(self) -> list[str]:
        """The nuisance settings that any condition has."""
        return list(dict.fromkeys(chain(*(search.nuisance for search in self.searches))))

    @property
    def total(self) -> int:
        """Jobs of all phases, if the grid need not be extended."""
        most = [max(len(s.nuisance.get(k, [0])) for s in self.searches) for k in self.nuisance]
        tuning = len(self.rates) + 2 + sum(most) - len(most) + 2 * bool(most)
        return len(self.searches) * (tuning * len(self.tuning_seeds) + len(self.seeds))

    def coarse(self) -> Jobs:
        """The jobs of the first phase."""
        jobs = (search.jobs(self.rates, self.tuning_seeds) for search in self.searches)
        return list(chain(*jobs))


def overrides_of(params: Any, arguments: Sequence[str], config_loader: Any) -> list[Override]:
    """A sweeper's own overrides, then those of the command line, which replace them."""
    given = [f"{key}={value}" for key, value in (params or {}).items()]
    return OverridesParser.create(config_loader=config_loader).parse_overrides([*given, *arguments])


def plan(overrides: list[Override], sweeper: Mapping[str, Any], config: Any = None) -> Plan:
    """Find in the overrides of a sweep what is to be compared, and what is to be tuned.

    Args:
        overrides: of the whole sweep.
        sweeper: `tuning_seeds`, `nuisance` and `conditions` of the tuning sweeper.
        config: of the sweep, to ask which norms have an option.

    Raises:
        ValueError: fewer than two rates, a nuisance setting without values to choose from, or seeds
            for tuning among those for reporting.
    """
    nuisance, tuning_seeds = list(sweeper.get("nuisance") or []), [*sweeper["tuning_seeds"]]
    values: dict[str, list[str]] = {key: [] for key in [RATE, SEED, *nuisance]}
    for override in overrides:
        if (key := override.key_or_group) in values:
            jobs = BasicSweeper.split_arguments([override], None)[0]
            values[key] = [job[0].partition("=")[2] for job in jobs]
    rates = sorted({float(rate) for rate in values[RATE]})
    if len(rates) < 2 or rates[0] <= 0:
        raise ValueError(
            f"{RATE} must be two rates or more to choose from, above 0, a factor of 2 apart, "
            f"got {rates}"
        )
    if short := [key for key in nuisance if len(set(values[key])) < 2 or key in (RATE, SEED)]:
        raise ValueError(
            f"hydra.sweeper.nuisance: {short[0]} needs two values or more to choose from; give "
            f"{short[0]}=A,B, or leave it out of the list"
        )
    seeds = sorted({int(seed) for seed in values[SEED]})
    if set(seeds) & set(tuning_seeds):
        raise ValueError(
            f"seed={','.join(map(str, seeds))} and hydra.sweeper.tuning_seeds={tuning_seeds} must "
            "not share a seed: a run that chose a rate cannot be reported"
        )
    swept = [override for override in overrides if override.key_or_group not in values]
    product = BasicSweeper.split_arguments(swept, None)[0]
    if len(product) > 1 and isinstance(sweeper.get("conditions"), Mapping | DictConfig):
        raise ValueError(
            "hydra.sweeper.conditions has names, and a name is one condition; give each value of "
            f"{swept[0].key_or_group} in a condition of its own, or leave the names out"
        )
    conditions = [[*job, *own] for job in product for own in listed(sweeper.get("conditions"))]
    searches = [
        Search(one, {key: values[key] for key in nuisance if has(config, one, key)})
        for one in conditions
    ]
    return Plan(searches, rates, tuning_seeds, seeds)


def listed(conditions: Any) -> Jobs:
    """Conditions that are no product, as overrides: a list, or a mapping from their names.

    >>> listed({"scaled": "norm=none model.embed_scale=8"})
    [['norm=none', 'model.embed_scale=8', "condition='scaled'"]]

    Raises:
        ValueError: one is not made of overrides.
    """
    if not conditions:
        return [[]]
    named = (
        conditions if isinstance(conditions, Mapping | DictConfig) else dict.fromkeys(conditions)
    )
    given = named.items() if named is conditions else ((None, one) for one in conditions)
    jobs = []
    for name, one in given:
        words = shlex.split(one) if isinstance(one, str) else list(one)
        if not words or not all("=" in str(word) for word in words):
            raise ValueError(
                "hydra.sweeper.conditions must be overrides, as in ['norm=layernorm',"
                f"'norm=none model.embed_scale=8'], got {one}"
            )
        jobs.append([*map(str, words), *([f"condition={quoted(str(name))}"] if name else [])])
    return jobs


def has(config: Any, condition: list[str], key: str) -> bool:
    """Does a condition have this setting? Not every norm has every option."""
    if config is None or not key.startswith("norm."):
        return True
    loader = GlobalHydra.instance().config_loader()
    return key.split(".")[1] in loader.load_sweep_config(config, condition).norm


class Tune(Sweeper):
    """Runs all phases.

    Args:
        params: overrides that the command line may replace, as for Hydra's own sweeper.
        tuning_seeds: 101 and above.
        nuisance: keys that are chosen for each condition, besides the rate, of those swept.
        conditions: those that are no product of values; see `listed`.
    """

    def __init__(
        self,
        params: dict[str, Any],
        tuning_seeds: list[int],
        nuisance: Sequence[str] = (),
        conditions: Any = None,
    ) -> None:
        self.params = params
        self.given = dict(tuning_seeds=tuning_seeds, nuisance=nuisance, conditions=conditions)
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
        """Run all phases."""
        assert self.hydra_context is not None and self.config is not None
        overrides = overrides_of(self.params, arguments, self.hydra_context.config_loader)
        self.plan = plan(overrides, self.given, self.config)
        self.returns: list[Sequence[JobReturn]] = []
        OmegaConf.save(self.config, Path(self.config.hydra.sweep.dir) / "multirun.yaml")
        self.try_rates([self.plan.rates for _ in self.plan.searches])
        self.extend()
        for key in self.plan.nuisance:
            self.choose_value(key)
        if self.plan.nuisance:
            self.try_rates([[b / 2, b * 2] for b in self.best()])
            self.extend()
        self.try_rates([[b / STEP, b * STEP] for b in self.best()])
        self.final()
        return self.returns

    def extend(self) -> None:
        """Add rates beyond the edge while the best one of a condition is there, for all alike."""
        for _ in range(EXTENSIONS):
            optima = [self.optimum(search) for search in self.plan.searches if search.trains]
            sides = {found.edge for found in optima} - {""}
            if not sides:
                return
            rates = []
            for search in self.plan.searches:
                tried = self.table(search).lr
                down = [tried.min() / 2] if "lowest" in sides else []
                rates.append(down + ([tried.max() * 2] if "highest" in sides else []))
            self.try_rates(rates)

    def choose_value(self, key: str) -> None:
        """Try each other value of a setting at the best rate, and keep that of the lowest loss."""
        searches, best = self.plan.searches, self.best()
        self.run(
            [
                [
                    job
                    for value in search.nuisance.get(key, [])[1:]
                    for job in search.jobs([rate], self.plan.tuning_seeds, **{key: value})
                ]
                for search, rate in zip(searches, best, strict=True)
            ]
        )
        from report.group import capped

        for search, rate in zip(searches, best, strict=True):
            mean = {}
            for value in search.nuisance.get(key, []):
                rows = self.table(search, **{key: value})
                mean[value] = capped(rows[abs(rows.lr / rate - 1) < 0.01]).mean()
            if mean and search.trains:
                search.chosen[key] = min(mean, key=lambda value: mean[value])

    def try_rates(self, rates: Sequence[Sequence[float]]) -> None:
        """Run each condition at rates of its own, on the tuning seeds."""
        seeds = self.plan.tuning_seeds
        self.run([s.jobs(own, seeds) for s, own in zip(self.plan.searches, rates, strict=True)])

    def final(self) -> None:
        """The runs that are reported."""
        jobs = [
            search.jobs([self.optimum(search).rate], self.plan.seeds) if search.trains else []
            for search in self.plan.searches
        ]
        self.launch(list(chain(*jobs)))

    def run(self, wanted: Sequence[Jobs]) -> None:
        """Run what each condition wants and has not run; to those that want less, give seeds."""
        searches = self.plan.searches
        new = [
            [job for job in jobs if tuple(job) not in search.folders] if search.trains else []
            for search, jobs in zip(searches, wanted, strict=True)
        ]
        most = max(map(len, new))
        for search, jobs in zip(searches, new, strict=True):
            if search.trains and len(jobs) < most:
                rate = self.optimum(search).lowest
                tried = [int(job[-1].partition("=")[2]) for job in search.folders]
                first = max(tried) + 1
                jobs += search.jobs([rate], range(first, first + most - len(jobs)))
        folders = iter(self.launch(list(chain(*new))))
        for search, jobs in zip(searches, new, strict=True):
            search.folders |= {tuple(job): next(folders) for job in jobs}
            search.trains = search.trains and bool(len(self.table(search)))

    def launch(self, batch: Jobs) -> list[str]:
        """Run jobs, numbered after those before them; returns their folders."""
        self.validate_batch_is_legal(batch)
        returns = self.launcher.launch(batch, initial_job_idx=len(self.folders))
        self.returns.append(returns)
        folders = []
        for job in returns:
            _ = job.return_value  # raises what the job raised
            assert job.hydra_cfg is not None
            folders.append(job.hydra_cfg.hydra.runtime.output_dir)
        self.folders += folders
        return folders

    def best(self) -> list[float]:
        """The rate of each condition's lowest mean; 1 if none of its jobs trained."""
        return [self.optimum(s).lowest if s.trains else 1.0 for s in self.plan.searches]

    def optimum(self, search: Search) -> Any:
        """What a condition's runs say so far."""
        from report.group import optimum

        return optimum(self.table(search))

    def table(self, search: Search, **changed: str) -> Any:
        """The runs of a condition, with some settings changed, that did not stop with an error."""
        from report.read import read_runs  # late: pandas takes a second

        table = read_runs(self.folders).table
        rows = table[table.index.isin(search.runs(**changed))]
        return rows if (rows.failure != "error").any() else rows.iloc[:0]
