"""The jobs of a sweep before any of them runs: which there are, and what is refused."""

from pathlib import Path
from typing import Any

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf, open_dict, read_write

from run.configuration import make_path_absolute
from run.overrides import key_of
from sweep.starts import same_settings
from sweep.tuning import overrides_of, plan


def jobs_of(config: DictConfig) -> tuple[list[list[str]], int]:
    """The overrides of the jobs that are known, in order, and how many jobs there will be.

    No jobs and 0 if the sweeper chooses them while it runs.

    Raises:
        ValueError: there is nothing to tune.
    """
    sweeper = config.hydra.sweeper
    name = sweeper._target_.rpartition(".")[2]
    if name not in ("BasicSweeper", "Tune"):
        return [], 0
    loader = GlobalHydra.instance().config_loader()
    # as typed: an interpolation is of each job, not of the sweep
    task: Any = OmegaConf.to_container(config.hydra.overrides.task, resolve=False)
    overrides = overrides_of(sweeper.params, task, loader)
    if name == "Tune":
        planned = plan(overrides, sweeper, config)
        return planned.coarse(), planned.total
    (jobs,) = BasicSweeper.split_arguments(overrides, None)
    return jobs, len(jobs)


def name_placements(config: DictConfig, jobs: list[list[str]]) -> None:
    """Put the placement into the folders' names if it is swept, as if that had been typed."""
    placements = {o for job in jobs for o in job if key_of(o) == "model.placement"}
    if len(placements) > 1 and "hydra.sweep.subdir" not in typed_for_hydra(config):
        subdir = "${norm_name}-${model.placement}-s${seed}-${hydra:job.num}"
        with read_write(config):
            config.hydra.overrides.hydra.append(f"hydra.sweep.subdir='{subdir}'")


def typed_for_hydra(config: DictConfig) -> set[str]:
    """The keys of Hydra's own configuration that the user typed, or `name_placements` added."""
    typed = OmegaConf.to_container(config.hydra.overrides.hydra, resolve=False)  # names of jobs
    assert isinstance(typed, list)
    return {key_of(str(override)) for override in typed}


def refuse_other_jobs(folder: Path, config: DictConfig, jobs: list[list[str]]) -> None:
    """Compare each job with the folder that has its number, before any job is trained.

    Raises:
        Refused: the folder holds a run of another configuration.
    """
    runs = [path.parent.parent for path in folder.glob("*/.hydra/overrides.yaml")]
    stored = {run.name.rpartition("-")[2]: run for run in runs}
    before = HydraConfig.instance().cfg
    for number, overrides in enumerate(jobs):
        if str(number) not in stored:
            continue
        job = GlobalHydra.instance().config_loader().load_sweep_config(config, overrides)
        HydraConfig.instance().set_config(job)  # the job's values use its choices
        with open_dict(job):
            del job["hydra"]
        make_path_absolute(job, config.hydra.runtime.cwd)
        same_settings(stored[str(number)], OmegaConf.to_container(job, resolve=True))
    HydraConfig.instance().cfg = before


def refuse_settings_of_hydra(jobs: list[list[str]]) -> None:
    """Refuse to sweep files that set something of Hydra's own, which holds for a whole sweep.

    Raises:
        ValueError: Hydra would ignore such settings, for instance what each experiment sweeps.
    """
    loader: Any = GlobalHydra.instance().config_loader()
    repository = loader.repository
    swept = {key: {o for job in jobs for o in job if key_of(o) == key} for key in keys_of(jobs)}
    for key, choices in swept.items():
        if len(choices) < 2 or not repository.group_exists(key):
            continue
        for choice in sorted(choices):
            name = choice.partition("=")[2]
            source = repository.load_config(f"{key}/{name}")
            if source is None:  # Hydra names it itself
                continue
            groups = [str(getattr(entry, "group", "")) for entry in source.defaults_list or []]
            if "hydra" in source.config or any(g.startswith("hydra/") for g in groups):
                raise ValueError(
                    f"{key}={name} sets what Hydra does with a whole sweep, so it cannot be one of "
                    f"several; start one sweep per {key}"
                )


def keys_of(jobs: list[list[str]]) -> set[str]:
    """Everything that the jobs set."""
    return {key_of(override) for job in jobs for override in job}


def refuse_unknown_options(config: DictConfig, jobs: list[list[str]]) -> None:
    """Name the norms that lack an option which is given for all of them.

    Raises:
        ValueError: there is such an option. Hydra would name it without the norms.
    """
    given = {key_of(o) for job in jobs for o in job if o.startswith("norm.")}
    norms = dict.fromkeys(o for job in jobs for o in job if key_of(o) == "norm") if given else {}
    loader = GlobalHydra.instance().config_loader()
    for key in given:
        option = key.removeprefix("norm.").partition(".")[0]
        lacking = [
            norm.partition("=")[2]
            for norm in norms
            if option not in loader.load_sweep_config(config, [norm]).norm
        ]
        if lacking:
            raise ValueError(
                f"{key} is not an option of norm={', '.join(lacking)}; sweep the others with it, "
                "or all without it"
            )
