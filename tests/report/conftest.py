"""Run folders without training: what train.py would leave, with losses made to order."""

import csv
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from report.group import Study, build_study
from report.judge import Judged, judge
from report.read import read_runs

Write = Callable[..., Path]
START, ENTROPY = 4.0, 3.3  # loss at the start, entropy of single characters

DIFFERENCE = {
    "name": "BatchNorm ends above LayerNorm",
    "source": "arXiv:2003.07845",
    "weights": {"layernorm placement=pre": 1, "batchnorm placement=pre": -1},
}
RATIO = {
    "name": "BatchNorm's loss is a tenth higher",
    "weights": {"layernorm placement=pre": 1, "batchnorm placement=pre": -1},
    "scale": "log",
    "margin": math.log(1.1),
}
INTERACTION = {
    "name": "BatchNorm loses more by post-norm than LayerNorm does",
    "weights": {
        "layernorm placement=post": 1,
        "layernorm placement=pre": -1,
        "batchnorm placement=post": -1,
        "batchnorm placement=pre": 1,
    },
}
LOSSES_BY_PLACEMENT = {
    ("layernorm", "pre"): [2.00, 2.10, 2.20, 2.05],
    ("layernorm", "post"): [2.05, 2.16, 2.24, 2.10],
    ("batchnorm", "pre"): [2.30, 2.41, 2.52, 2.36],
    ("batchnorm", "post"): [2.60, 2.70, 2.80, 2.65],
}


def study_of(*folders: Path, baseline: str = "layernorm") -> Study:
    """The runs of some folders by condition."""
    return build_study(read_runs(folders), baseline)


def judged_of(*folders: Path, baseline: str = "layernorm", margin: float | None = None) -> Judged:
    """The same with their statistics."""
    return judge(study_of(*folders, baseline=baseline), margin)


def config_of(norm: str, seed: int, **dotted: Any) -> dict[str, Any]:
    """A resolved configuration in small; `optimizer__lr=1` sets optimizer.lr."""
    config: dict[str, Any] = {
        "seed": seed,
        "norm_name": norm,
        "norm": {"_target_": f"model.norms.{norm}", "_partial_": True, "eps": 1e-5},
        "data": {"batch_size": 12, "block_size": 64, "seed": seed},
        "model": {"placement": "pre", "n_layer": 2, "block_size": 64, "seed": seed},
        "optimizer": {"lr": 3e-3},
        "scheduler": {"total_steps": 200},
        "trainer": {"max_steps": 200},
        "corpus_sha256": "0",
    }
    if norm == "batchnorm":
        config["norm"]["momentum"] = 0.1
    for key, value in dotted.items():
        group, _, leaf = key.rpartition("__")
        (config[group] if group else config)[leaf] = value
    config["scheduler"]["total_steps"] = config["trainer"]["max_steps"]
    config["model"]["norm"] = dict(config["norm"])
    return config


def losses_of(final: float, steps: int, points: int) -> tuple[np.ndarray, np.ndarray]:
    """A curve from START down to `final`."""
    at = np.unique(np.linspace(0, steps, points + 1).astype(int))[1:]
    return at, final + (START - final) * np.exp(-6 * at / steps)


@pytest.fixture(scope="session")
def write_run() -> Write:
    """Write one run folder; `loss` is its final validation loss."""

    def written(
        folder: Path,
        norm: str = "layernorm",
        seed: int = 1,
        loss: float = 2.0,
        *,
        result: dict[str, Any] | None = None,
        points: int = 20,
        curves: list[tuple[int, str, float]] | None = None,
        **dotted: Any,
    ) -> Path:
        config = config_of(norm, seed, **dotted)
        overrides = [f"norm={norm}", f"seed={seed}"]
        overrides += [f"{k.replace('__', '.')}={v}" for k, v in dotted.items() if k != "claims"]
        steps = config["trainer"]["max_steps"]
        (folder / ".hydra").mkdir(parents=True)
        (folder / ".hydra/config.yaml").write_text(yaml.safe_dump(config))
        (folder / ".hydra/overrides.yaml").write_text(yaml.safe_dump(overrides))
        at, train = losses_of(loss - 0.1, steps, points)
        rows = [(0, "loss/val", START)]
        rows += [(int(s), "loss/train", float(x)) for s, x in zip(at, train, strict=True)]
        rows += [
            (int(s), "loss/val", float(x) + 0.1) for s, x in zip(at[3::4], train[3::4], strict=True)
        ]
        with (folder / "metrics.csv").open("w", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(["step", "name", "value"])
            writer.writerows(sorted(rows if curves is None else curves, key=lambda row: row[0]))
        fields: dict[str, Any] = {
            "status": "finished",
            "error": None,
            "norm": norm,
            "placement": "pre",
            "seed": seed,
            "overrides": overrides,
            "config": config,
            "steps": steps,
            "tokens": steps * 768,
            "loss_initial": START,
            "val_best": loss,
            "val_best_step": steps,
            "val_final": loss,
            "test_final": loss,
            "test_best": loss,
            "train_final": loss - 0.1,
            "seconds": steps * 0.02,
            "legs": 1,
            "tokens_per_second": 38_400.0,
            "params": 100_000,
            "norm_params": 640,
            "unigram_entropy": ENTROPY,
            "causal_in_training": norm != "batchnorm",
            "causal_at_end": norm != "batchnorm",
            "python": "3.11",
            "torch": "2.13.0",
            "lightning": "2.6.6",
            "device": "cpu",
            "threads": 1,
            "commit": "abc",
            "dirty": False,
            "started": f"2026-01-01T00:00:{seed % 60:02}+00:00",
        }
        if result is not None:
            fields |= result
        (folder / "result.json").write_text(json.dumps(fields))
        return folder

    return written


@pytest.fixture
def write_sweep(write_run: Write) -> Write:
    """Write a sweep: {norm: [loss of seed 1, of seed 2, ...]}."""

    def written(folder: Path, losses: dict[str, list[float]], **how: Any) -> Path:
        jobs = [(norm, s, x) for norm, row in losses.items() for s, x in enumerate(row, 1)]
        for number, (norm, seed, loss) in enumerate(jobs):
            write_run(folder / f"{norm}-s{seed}-{number}", norm, seed, loss, **how)
        return folder

    return written


def every_curve(loss: float, steps: int = 200) -> list[tuple[int, str, float]]:
    """Rows of metrics.csv with all that a figure is drawn of; all go to `loss` at the last step."""
    rows = [(0, "loss/val", START)]
    at, train = losses_of(loss, steps, 20)
    for step, value in zip(at.tolist(), train.tolist(), strict=True):
        rows += [(step, "loss/train", value), (step, "optim/grad_norm", value / 2)]
        if step % 40 == 0:
            rows += [(step, "loss/val", value + 0.1), (step, "probe/leak", value / 100)]
            rows += [(step, f"probe/residual_rms/{i}", value * (1 + i)) for i in range(4)]
            rows += [(step, f"probe/grad_norm/{i}", value / (1 + i)) for i in range(2)]
    return rows


@pytest.fixture(scope="session")
def write_full(write_run: Callable[..., Path]) -> Callable[..., Path]:
    """Write a sweep with curves for every kind of figure: {norm: [loss of seed 1, ...]}."""

    def written(folder: Path, losses: dict[str, list[float]]) -> Path:
        for norm, row in losses.items():
            for seed, loss in enumerate(row, 1):
                run = folder / f"{norm}-s{seed}".replace(" ", "-")
                write_run(run, norm, seed, loss, curves=every_curve(loss))
        return folder

    return written


@pytest.fixture
def claims_sweep(tmp_path: Path, write_run: Write) -> Path:
    """Two norms in two placements at tuned rates, with three claims."""
    claims = [DIFFERENCE, RATIO, INTERACTION]
    for (norm, placement), row in LOSSES_BY_PLACEMENT.items():
        how: dict[str, Any] = dict(model__placement=placement, claims=claims)
        for seed, loss in enumerate(row, 1):
            write_run(tmp_path / f"{norm}-{placement}-{seed}", norm, seed, loss, **how)
        for rate in (1e-3, 3e-3, 9e-3):
            folder = tmp_path / f"{norm}-{placement}-{rate}"
            worse = 3 * abs(math.log10(rate / 3e-3))
            write_run(folder, norm, 101, 1.5 + worse / 2, optimizer__lr=rate, **how)
    return tmp_path


def diverge(folder: Path) -> None:
    """Let a run that was written have diverged: it has no final losses."""
    result = json.loads((folder / "result.json").read_text())
    losses = dict.fromkeys(("val_final", "test_final", "test_best", "train_final"))
    (folder / "result.json").write_text(json.dumps(result | {"status": "diverged"} | losses))


def write_tuning(
    folder: Path,
    write_run: Write,
    losses: dict[float, list[float | None]],
    norm: str = "layernorm",
) -> None:
    """{rate: losses on seeds 101, 102, ...}; None: it diverged."""
    for rate, row in losses.items():
        for seed, loss in enumerate(row, 101):
            name = folder / f"{norm}-{rate}-{seed}"
            run = write_run(name, norm, seed, loss or 2.0, optimizer__lr=rate)
            if loss is None:
                diverge(run)


def tune(folder: Path, write_run: Write, norm: str, ran_at: float, steps: int = 200) -> None:
    """Tuning runs whose best rate is 2e-3, and three reported runs at a rate."""
    for rate in (1e-3, 2e-3, 4e-3):
        loss = 2 + abs(np.log2(rate / 2e-3))
        how = {"optimizer__lr": rate, "trainer__max_steps": steps}
        write_run(folder / f"{norm}-s101-{rate}", norm, 101, loss, **how)
    for seed in (1, 2, 3):
        write_run(folder / f"{norm}-s{seed}", norm, seed, 2 + 0.01 * seed, optimizer__lr=ran_at)
