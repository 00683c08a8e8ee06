"""Each condition gets its own learning rate, all on one budget; studies say what they expect."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from hydra import compose
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, OmegaConf

from report.conditions import flat_config, label, swept_keys
from report.content import gather
from report.study import without_chosen
from run.overrides import key_of
from run.result import read_result
from sweep.tuning import Tune, plan
from tests.conftest import EXPERIMENTS, ROOT, here
from tests.report.conftest import write_run  # noqa: F401  run folders without training

BEST = {"layernorm": 3.2e-3, "batchnorm": 1.1e-3}  # where the made-up losses are lowest
STUDIES = [  # the experiments that claim something
    name
    for name in EXPERIMENTS
    if "claims" in yaml.safe_load((ROOT / "configs" / "experiment" / f"{name}.yaml").read_text())
]
GIVEN = {"norm": "layernorm,batchnorm", "optimizer.lr": "1e-3,2e-3,4e-3,8e-3", "seed": "1,2,3"}


def parsed(**given: str) -> list[Any]:
    overrides = [f"{key}={value}" for key, value in (GIVEN | given).items()]
    return OverridesParser.create().parse_overrides(overrides)


class MadeUp:
    """A launcher whose jobs end at once, on a parabola in the rate's logarithm."""

    def __init__(self, folder: Path, write: Callable[..., Path], broken: str = "") -> None:
        self.folder, self.write, self.broken = folder, write, broken
        self.jobs: list[dict[str, str]] = []

    def launch(self, batch: Sequence[Sequence[str]], initial_job_idx: int) -> list[Any]:
        assert initial_job_idx == len(self.jobs)
        returns = []
        for overrides in batch:
            job = dict(o.split("=") for o in overrides)
            norm, rate, seed = job["norm"], float(job["optimizer.lr"]), int(job["seed"])
            loss = 2 + 0.1 * math.log2(rate / BEST[norm]) ** 2 + 0.001 * (seed % 10)
            folder = self.folder / f"{norm}-s{seed}-{len(self.jobs)}"
            broken = {"status": "failed", "error": "no"} if norm == self.broken else None
            self.write(folder, norm, seed, loss, optimizer__lr=rate, result=broken)
            self.jobs.append(job)
            config = OmegaConf.create({"hydra": {"runtime": {"output_dir": str(folder)}}})
            returns.append(SimpleNamespace(return_value=loss, hydra_cfg=config))
        return returns


@pytest.fixture
def tuned(tmp_path: Path, write_run: Callable[..., Path]) -> Callable[..., MadeUp]:  # noqa: F811
    """Tune two norms on made-up losses."""

    def sweep(**options: str) -> MadeUp:
        launcher = MadeUp(tmp_path, write_run, **options)
        sweeper = Tune(params=GIVEN, tuning_seeds=[101, 102])
        sweeper.launcher = launcher  # type: ignore[assignment]
        sweeper.hydra_context = SimpleNamespace(config_loader=None)  # type: ignore[assignment]
        sweeper.config = OmegaConf.create({"hydra": {"sweep": {"dir": str(tmp_path)}}})
        sweeper.validate_batch_is_legal = lambda batch: None  # type: ignore[method-assign]
        sweeper.sweep([])
        return launcher

    return sweep


def test_each_norm_ends_at_its_own_best_rate_on_the_same_budget(
    tuned: Callable[..., MadeUp], tmp_path: Path
) -> None:
    """Of the grid 1, 2, 4, 8 e-3 and sqrt 2 on both sides, those nearest to the true optima."""
    jobs = tuned().jobs
    assert len(jobs) == plan(parsed(), [101, 102]).total == 2 * (4 * 2 + 2 * 2 + 3)
    final = {(j["norm"], float(j["optimizer.lr"]), j["seed"]) for j in jobs[-6:]}
    rates = {"layernorm": 2.83e-3, "batchnorm": 1e-3}  # 4e-3 / sqrt 2; 1.41e-3 is farther
    assert final == {(norm, rate, seed) for norm, rate in rates.items() for seed in "123"}
    for norm in BEST:
        tuning = [j for j in jobs[:-6] if j["norm"] == norm]
        assert len(tuning) == 12
        assert {j["seed"] for j in tuning} == {"101", "102"}
    refined = {j["optimizer.lr"] for j in jobs[16:24] if j["norm"] == "layernorm"}
    assert refined == {"0.00283", "0.00566"}
    content = gather([tmp_path])
    assert {entry.condition: entry.best for entry in content.tuned} == rates
    assert not content.headline.unjudged
    assert set(content.study.reported.seed) == {1, 2, 3}


def test_a_norm_of_which_no_job_trained_gets_no_final_runs(tuned: Callable[..., MadeUp]) -> None:
    jobs = tuned(broken="batchnorm").jobs
    assert len(jobs) == 16 + 4 + 3
    assert {j["norm"] for j in jobs[16:]} == {"layernorm"}


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({"optimizer.lr": "1e-3"}, "two rates or more"),
        ({"optimizer.lr": "0,1e-3"}, "above 0"),
        ({"seed": "1,102"}, "not share a seed"),
    ],
)
def test_what_cannot_be_tuned_is_refused(given: dict[str, str], wanted: str) -> None:
    with pytest.raises(ValueError, match=wanted):
        plan(parsed(**given), [101, 102])


def test_a_tuning_sweep_that_was_stopped_is_resumed_with_the_same_choices(
    tmp_path: Path,
    tiny_text: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    command = ["experiment=tune", "model=mini", "data.batch_size=4", "data.block_size=16"]
    command += ["sample.max_new_tokens=1", "trainer.max_steps=3", f"data.path={tiny_text}"]
    command += ["optimizer.lr=1e-3,2e-3", "seed=1", "hydra.sweeper.tuning_seeds=[101]"]
    command += ["hydra.sweep.dir=sw", "probes=none"]
    assert here(*command, cwd=tmp_path) == 0
    out = capfd.readouterr().out
    assert "5/5  layernorm-s1-4 " in out
    results = {
        path.parent.name: read_result(path.parent) for path in tmp_path.glob("sw/*/result.json")
    }
    rates = {name: result["config"]["optimizer"]["lr"] for name, result in results.items()}
    assert sorted(results) == sorted(f"layernorm-s{s}-{n}" for n, s in enumerate([101] * 4 + [1]))
    tuning = [name for name in rates if "-s101-" in name]
    best = min(tuning, key=lambda name: results[name]["val_best"])
    assert rates["layernorm-s1-4"] == rates[best]
    assert [rates[f"layernorm-s101-{n}"] for n in range(4)] == [1e-3, 2e-3, 1.41e-3, 2.83e-3]

    for number in (1, 4):  # killed before their ends
        next(tmp_path.glob(f"sw/*-{number}/result.json")).unlink()
    assert here(*command, cwd=tmp_path) == 0
    out = capfd.readouterr().out
    assert "5 jobs in sw, 3 of them have ended already" in out
    assert "5/5  layernorm-s1-4 " in out
    again = read_result(tmp_path / "sw" / "layernorm-s1-4")
    assert again["test_best"] == results["layernorm-s1-4"]["test_best"]


@pytest.mark.parametrize("experiment", STUDIES)
def test_the_claims_of_a_study_are_about_conditions_that_it_runs(
    experiment: str, compose_config: Callable[..., DictConfig]
) -> None:
    claims = compose_config(f"experiment={experiment}").claims
    sweeper = compose("train", [f"experiment={experiment}"], return_hydra_config=True).hydra.sweeper
    given = [f"{key}={value}" for key, value in sweeper.params.items()]
    flat = {}
    for condition in plan(
        OverridesParser.create().parse_overrides(given), sweeper.tuning_seeds
    ).conditions:
        config: Any = OmegaConf.to_container(
            compose_config(f"experiment={experiment}", *condition), resolve=True
        )
        flat[" ".join(condition)] = flat_config(config, condition)
    alike = without_chosen(flat)
    keys = swept_keys(alike, map(key_of, " ".join(flat).split()))
    labels = {label(config, keys) for config in alike.values()}
    assert {condition for claim in claims for condition in claim["weights"]} <= labels
