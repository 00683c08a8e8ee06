"""Each condition gets its own learning rate, all on one budget; studies say what they expect."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import yaml
from hydra import compose
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, OmegaConf

from report.claims import Claim
from report.conditions import flat_config, label, swept_keys, without_chosen
from report.group import build_study
from report.judge import judge
from report.read import read_runs
from report.settings import settings
from report.tables import rates
from report.verdicts import judge_claims
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
SWEEPER: dict[str, Any] = {"tuning_seeds": [101, 102]}
GIVEN = {"norm": "layernorm,batchnorm", "optimizer.lr": "1e-3,2e-3,4e-3,8e-3", "seed": "1,2,3"}


def parsed(**given: str) -> list[Any]:
    overrides = [f"{key}={value}" for key, value in (GIVEN | given).items()]
    return OverridesParser.create().parse_overrides(overrides)


class MadeUp:
    """A launcher whose jobs end at once, on a parabola in the rate's logarithm."""

    def __init__(
        self,
        folder: Path,
        write: Callable[..., Path],
        broken: str = "",
        best: dict[str, float] = BEST,
        scaled: float = 0.0,
    ) -> None:
        self.folder, self.write, self.broken = folder, write, broken
        self.best, self.scaled = best, scaled
        self.jobs: list[dict[str, str]] = []

    def launch(self, batch: Sequence[Sequence[str]], initial_job_idx: int) -> list[Any]:
        assert initial_job_idx == len(self.jobs)
        returns = []
        for overrides in batch:
            job = dict(o.split("=") for o in overrides)
            norm, rate, seed = job["norm"], float(job["optimizer.lr"]), int(job["seed"])
            scale = float(job.get("model.embed_scale", 1))
            gain = self.scaled if norm == "batchnorm" and scale == 8 else 0
            shift = math.log2(rate / self.best[norm]) - 5 * gain
            loss = 2 + 0.1 * shift**2 + 0.001 * (seed % 10) - gain
            momentum = float(job.get("norm.momentum", 0.1))
            loss += 0.3 * (momentum - 0.1)
            folder = self.folder / f"{norm}-s{seed}-{len(self.jobs)}"
            broken = {"status": "failed", "error": "no"} if norm == self.broken else None
            how: dict[str, Any] = {"optimizer__lr": rate, "result": broken}
            if "model.embed_scale" in job:
                how["model__embed_scale"] = scale
            if "norm.momentum" in job:
                how["norm__momentum"] = momentum
            self.write(folder, norm, seed, loss, **how)
            self.jobs.append(job)
            config = OmegaConf.create({"hydra": {"runtime": {"output_dir": str(folder)}}})
            returns.append(SimpleNamespace(return_value=loss, hydra_cfg=config))
        return returns


@pytest.fixture
def tuned(tmp_path: Path, write_run: Callable[..., Path]) -> Callable[..., MadeUp]:  # noqa: F811
    """Tune two norms on made-up losses."""

    def sweep(nuisance: Sequence[str] = (), given: Any = (), **options: Any) -> MadeUp:
        launcher = MadeUp(tmp_path, write_run, **options)
        how = {"tuning_seeds": [101, 102], "nuisance": list(nuisance)}
        sweeper = Tune(params=GIVEN | dict(given), **how)  # type: ignore[arg-type]
        sweeper.launcher = launcher  # type: ignore[assignment]
        sweeper.hydra_context = SimpleNamespace(config_loader=None)  # type: ignore[assignment]
        hydra = {"sweep": {"dir": str(tmp_path)}, "sweeper": how}
        sweeper.config = OmegaConf.create({"hydra": hydra})
        sweeper.validate_batch_is_legal = lambda batch: None  # type: ignore[method-assign]
        sweeper.sweep([])
        return launcher

    return sweep


def test_each_norm_ends_at_its_own_best_rate_on_the_same_budget(
    tuned: Callable[..., MadeUp], tmp_path: Path
) -> None:
    """Losses on a parabola: the quadratic finds its lowest point, between the rates tried."""
    jobs = tuned(best={"layernorm": 3.2e-3, "batchnorm": 2.5e-3}).jobs
    total = plan(parsed(), SWEEPER).total
    assert len(jobs) == total == 2 * (4 * 2 + 2 * 2 + 3)
    final = {(j["norm"], float(j["optimizer.lr"]), j["seed"]) for j in jobs[-6:]}
    best = {"layernorm": 3.2e-3, "batchnorm": 2.5e-3}
    assert final == {(norm, rate, seed) for norm, rate in best.items() for seed in "123"}
    for norm in BEST:
        tuning = [j for j in jobs[:-6] if j["norm"] == norm]
        assert len(tuning) == 12
        assert {j["seed"] for j in tuning} == {"101", "102"}
    refined = {j["optimizer.lr"] for j in jobs[16:24] if j["norm"] == "layernorm"}
    assert refined == {"0.00283", "0.00566"}
    content = judge(build_study(read_runs([tmp_path]), "layernorm"))
    assert {entry.condition: entry.best for entry in content.tuned} == best
    assert not content.unjudged
    assert set(content.study.reported.seed) == {1, 2, 3}


def test_the_grid_is_extended_for_all_until_the_best_rate_is_inside(
    tuned: Callable[..., MadeUp], tmp_path: Path
) -> None:
    """The best of one norm is two factors of 2 below the grid."""
    jobs = tuned(best={"layernorm": 3.2e-3, "batchnorm": 2.6e-4}).jobs
    for norm in BEST:
        tried = {float(j["optimizer.lr"]) for j in jobs[:-6] if j["norm"] == norm}
        assert tried >= {1.25e-4, 2.5e-4, 5e-4, 1e-3, 2e-3, 4e-3, 8e-3}
    judged = judge(build_study(read_runs([tmp_path]), "layernorm"))
    assert [entry.best for entry in judged.tuned] == [3.2e-3, 2.6e-4]
    assert np.isfinite(judged.summary.difference["batchnorm"])


def test_a_condition_whose_best_rate_stays_at_the_edge_gets_no_difference(
    tuned: Callable[..., MadeUp], tmp_path: Path
) -> None:
    """It lies more than three factors of 2 beyond."""
    jobs = tuned(best={"layernorm": 3.2e-3, "batchnorm": 3e-5}).jobs
    assert min(float(j["optimizer.lr"]) for j in jobs[:-6]) == 8.84e-5
    study = build_study(read_runs([tmp_path]), "layernorm")
    judged = judge(study)
    assert "may lie beyond" in study.doubts["batchnorm"]
    assert np.isnan(judged.summary.difference["batchnorm"])
    claim = Claim("batchnorm is better", "", {"batchnorm": 1, "layernorm": -1})
    (verdict,) = judge_claims(study, [claim])
    assert verdict.verdict == "undecided" and "may lie beyond" in verdict.reason


def test_nuisance_settings_are_chosen_with_the_rate_and_make_no_conditions(
    tuned: Callable[..., MadeUp], tmp_path: Path
) -> None:
    """BatchNorm gains by embed_scale=8, at twice the rate; LayerNorm does not care.

    Jobs: the grid, the other scale, a factor of 2 both ways, one beyond the edge, the refinement.
    """
    jobs = tuned(
        nuisance=["model.embed_scale"],
        given={"model.embed_scale": "1,8"},
        best={"layernorm": 3.2e-3, "batchnorm": 2e-3},
        scaled=0.2,
    ).jobs
    runs = {norm: [j for j in jobs if j["norm"] == norm] for norm in BEST}
    assert len(runs["layernorm"]) == len(runs["batchnorm"]) == (4 + 1 + 2 + 1 + 2) * 2 + 3
    final = {j["norm"]: (j["model.embed_scale"], float(j["optimizer.lr"])) for j in jobs[-6:]}
    assert final["layernorm"][0] == "1" and final["batchnorm"] == ("8", pytest.approx(4e-3))
    further = {j["seed"] for j in runs["layernorm"]} - {"101", "102", "1", "2", "3"}
    assert further == {"103", "104", "105", "106"}  # for the two rates that it had already run
    judged = judge(build_study(read_runs([tmp_path]), "layernorm"))
    assert judged.study.conditions == ["layernorm", "batchnorm"]
    assert not judged.unjudged and not judged.study.doubts
    table = rates(judged)
    assert table is not None and table.columns[2:4] == ["chosen with it", "runs"]
    assert [row[2:4] for row in table.rows] == [
        ["embed_scale=1", "20"],
        ["embed_scale=8", "20"],
    ]
    cells = dict(settings(judged).rows)
    assert cells["scientific (compared)"] == "norm"
    assert cells["nuisance (chosen for each condition)"] == "learning rate, model.embed_scale"


def test_named_conditions_run_and_are_called_so_in_the_report(
    tmp_path: Path, tiny_text: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Two that differ in more than one setting; the names are not the norms'."""
    command = ["experiment=tune", "model=mini", "data.batch_size=4", "data.block_size=16"]
    command += ["sample.max_new_tokens=1", "trainer.max_steps=1", f"data.path={tiny_text}"]
    command += ["optimizer.lr=2e-2,4e-2", "seed=1", "hydra.sweeper.tuning_seeds=[101]"]
    command += ["hydra.sweep.dir=sw", "probes=none", "eval_every=1"]
    named = "{plain:'norm=layernorm',scaled one:'norm=none model.embed_scale=8'}"
    assert here(*command, f"hydra.sweeper.conditions={named}", cwd=tmp_path) == 0
    study = build_study(read_runs([tmp_path / "sw"]), "layernorm")
    assert study.conditions == ["plain", "scaled one"]
    assert set(study.runs.table.failure) != {"error"}


def test_conditions_need_not_be_a_product() -> None:
    conditions = {"plain": "norm=layernorm", "scaled": "norm=none model.embed_scale=8"}
    overrides = [o for o in parsed() if o.key_or_group != "norm"]
    searches = plan(overrides, SWEEPER | {"conditions": conditions}).searches
    assert [search.condition for search in searches] == [
        ["norm=layernorm", "condition='plain'"],
        ["norm=none", "model.embed_scale=8", "condition='scaled'"],
    ]
    searches = plan(overrides, SWEEPER | {"conditions": [*conditions.values()]}).searches
    assert searches[1].condition == ["norm=none", "model.embed_scale=8"]


def test_a_norm_of_which_no_job_trained_gets_no_final_runs(tuned: Callable[..., MadeUp]) -> None:
    jobs = tuned(broken="batchnorm").jobs
    assert len(jobs) == 16 + 4 + 3
    assert {j["norm"] for j in jobs[16:]} == {"layernorm"}


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({"nuisance": ["model.init"]}, "model.init needs two values or more"),
        ({"conditions": ["layernorm"]}, "must be overrides"),
        ({"conditions": {"wide": "model.n_embd=128"}}, "a name is one condition"),
        ({"optimizer.lr": "1e-3"}, "two rates or more"),
        ({"optimizer.lr": "0,1e-3"}, "above 0"),
        ({"seed": "1,102"}, "not share a seed"),
    ],
)
def test_what_cannot_be_tuned_is_refused(given: dict[str, Any], wanted: str) -> None:
    sweeper = {key: given.pop(key) for key in ("nuisance", "conditions") if key in given}
    with pytest.raises(ValueError, match=wanted):
        plan(parsed(**given), SWEEPER | sweeper)


def test_a_tuning_sweep_that_was_stopped_is_resumed_with_the_same_choices(
    tmp_path: Path,
    tiny_text: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    command = ["experiment=tune", "model=mini", "data.batch_size=4", "data.block_size=16"]
    command += ["sample.max_new_tokens=1", "trainer.max_steps=3", f"data.path={tiny_text}"]
    command += ["optimizer.lr=2e-2,4e-2,8e-2", "seed=1", "hydra.sweeper.tuning_seeds=[101]"]
    command += ["hydra.sweep.dir=sw", "probes=none"]
    assert here(*command, cwd=tmp_path) == 0
    out = capfd.readouterr().out
    assert "6/6  layernorm-s1-5 " in out
    results = {
        path.parent.name: read_result(path.parent) for path in tmp_path.glob("sw/*/result.json")
    }
    at = {name: result["config"]["optimizer"]["lr"] for name, result in results.items()}
    assert sorted(results) == sorted(f"layernorm-s{s}-{n}" for n, s in enumerate([101] * 5 + [1]))
    (tuned,) = judge(build_study(read_runs([tmp_path / "sw"]), "layernorm")).tuned
    assert at["layernorm-s1-5"] == tuned.best
    assert [at[f"layernorm-s101-{n}"] for n in range(5)] == [0.02, 0.04, 0.08, 0.0283, 0.0566]

    for number in (1, 5):  # killed before their ends
        next(tmp_path.glob(f"sw/*-{number}/result.json")).unlink()
    assert here(*command, cwd=tmp_path) == 0
    out = capfd.readouterr().out
    assert "6 jobs in sw, 4 of them have ended already" in out
    assert "6/6  layernorm-s1-5 " in out
    again = read_result(tmp_path / "sw" / "layernorm-s1-5")
    assert again["test_best"] == results["layernorm-s1-5"]["test_best"]


@pytest.mark.parametrize("experiment", STUDIES)
def test_the_claims_of_a_study_are_about_conditions_that_it_runs(
    experiment: str, compose_config: Callable[..., DictConfig]
) -> None:
    claims = compose_config(f"experiment={experiment}").claims
    sweeper = compose("train", [f"experiment={experiment}"], return_hydra_config=True).hydra.sweeper
    given = [f"{key}={value}" for key, value in sweeper.params.items()]
    flat = {}
    for search in plan(OverridesParser.create().parse_overrides(given), sweeper).searches:
        condition = search.condition
        config: Any = OmegaConf.to_container(
            compose_config(f"experiment={experiment}", *condition), resolve=True
        )
        flat[" ".join(condition)] = flat_config(config, condition)
    alike = without_chosen(flat)
    keys = swept_keys(alike, map(key_of, " ".join(flat).split()))
    labels = {label(config, keys) for config in alike.values()}
    assert {condition for claim in claims for condition in claim["weights"]} <= labels
