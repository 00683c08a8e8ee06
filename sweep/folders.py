"""The folder of each job of a sweep: one of its own, directly in the sweep's folder."""

from collections.abc import Iterator
from pathlib import Path

from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf, open_dict

from run.overrides import key_of

OWN = "${hydra:job.num}"  # in a name, this makes it one of its own


def names(config: DictConfig, jobs: list[list[str]]) -> Iterator[str]:
    """The name of each job's folder, as Hydra will make it."""
    before = HydraConfig.instance().cfg
    for number, overrides in enumerate(jobs):
        job = GlobalHydra.instance().config_loader().load_sweep_config(config, overrides)
        with open_dict(job):
            job.hydra.job.num, job.hydra.job.id = number, f"job_id_{number}"
        HydraConfig.instance().set_config(job)
        yield str(job.hydra.sweep.subdir)
    HydraConfig.instance().cfg = before


def refuse_nested(config: DictConfig, jobs: list[list[str]]) -> None:
    """Check the names before any job runs: what lies deeper is found by no table and no page.

    Raises:
        ValueError: a job's folder would lie deeper, or belong to two jobs.
    """
    raw = str(OmegaConf.to_container(config.hydra.sweep, resolve=False)["subdir"])  # type: ignore[call-overload, index]
    if OWN in raw and "/" not in raw:
        deeper = {o for job in jobs for o in job if key_of(o) in ("norm", "experiment")}
        if not any("/" in override for override in deeper):
            return  # composing every job takes seconds
    found = list(names(config, jobs))
    if nested := [name for name in found if Path(name).name != name]:
        raise ValueError(
            f"a job's folder would be {nested[0]}; the folders of a sweep must lie directly in it, "
            "so leave slashes out of hydra.sweep.subdir and of the names of norms"
        )
    if len(set(found)) < len(found):
        raise ValueError(
            f"hydra.sweep.subdir={raw} gives one folder to several jobs; add -{OWN} to it"
        )


def without_result(folder: Path, config: DictConfig, jobs: list[list[str]]) -> list[str]:
    """The jobs that have no result.json, each by its folder and its command line."""
    return [
        f"{name}: {' '.join(overrides)}"
        for name, overrides in zip(names(config, jobs), jobs, strict=True)
        if not (folder / name / "result.json").exists()
    ]
