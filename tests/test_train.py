"""One run in this process: what it leaves behind, for each norm and experiment that is listed."""

import argparse
import json
import math
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from omegaconf import DictConfig, OmegaConf
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import data.corpus
from report.read import read_outcome
from run.result import read_result
from run.tensorboard import verbatim
from sample import sample
from tests.conftest import EXPERIMENTS, LOSSES, NORMS

FIELDS = """status error norm placement seed overrides config steps tokens loss_initial val_best
    val_best_step val_final test_final test_best train_final seconds legs tokens_per_second params
    norm_params tokens_per_statistic unigram_entropy causal_in_training causal_at_end python torch
    lightning device threads commit dirty no_commit corpus_sha256 started ended""".split()
READINGS = ["leak", "val_batch", "val_reestimated"]  # null without running statistics


@pytest.mark.parametrize("norm", NORMS)
def test_a_run_leaves_every_file_and_every_field_and_can_be_sampled_from(
    norm: str, tmp_path: Path, run: Callable[..., Path]
) -> None:
    folder = run(tmp_path / "run", f"norm={norm}", "trainer.max_steps=9", "probes=default")
    files = {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()}
    assert files >= {
        ".hydra/config.yaml",
        ".hydra/overrides.yaml",
        "checkpoints/best.ckpt",
        "checkpoints/last.ckpt",
        "metrics.csv",
        "result.json",
        "sample.txt",
        "tokenizer.json",
    }
    result = json.loads((folder / "result.json").read_text())
    assert sorted(result) == sorted(FIELDS + READINGS)
    assert (result["status"], result["norm"], result["steps"]) == ("finished", norm, 9)
    assert result["config"] == OmegaConf.to_container(OmegaConf.load(folder / ".hydra/config.yaml"))
    assert "${" not in (folder / ".hydra/config.yaml").read_text()
    for name in ("val_best", "val_final", "test_final", "train_final"):
        assert 0 < result[name] < result["loss_initial"]
    assert abs(result["loss_initial"] - math.log(26)) < 0.3
    assert result["tokens"] == 9 * 4 * 16
    state = torch.load(folder / "checkpoints/last.ckpt", weights_only=True)["state_dict"]
    statistics = any(name.endswith("num_batches_tracked") for name in state)
    assert all((result[name] is not None) == statistics for name in READINGS)
    lines = (folder / "metrics.csv").read_text().splitlines()
    probed = [line.rpartition(",")[2] for line in lines if re.search("probe/(tid|loss|leak)", line)]
    assert (len(probed) > 0) == statistics and all(map(math.isfinite, map(float, probed)))
    for prompt in ("The", ""):  # an empty one is one token, too few for batch statistics
        options = {"max_new_tokens": 32, "temperature": 1.0, "top_k": None, "seed": 1}
        asked = argparse.Namespace(folder=folder, prompt=prompt, **options)
        text = sample(asked)
        assert len(text) == len(prompt) + 32 and text.startswith(prompt)
        assert text == sample(asked)


@pytest.mark.parametrize(
    ("norm", "in_training", "at_end"),
    [("layernorm", True, True), ("batchnorm", False, False), ("powernorm", False, True)],
)
def test_causality_is_measured_at_the_start_and_at_the_end(
    norm: str, in_training: bool, at_end: bool, tmp_path: Path, run: Callable[..., Path]
) -> None:
    """PowerNorm leaks in its warm-up only; each norm's outcome is tests/model/norms' business."""
    result = read_result(run(tmp_path / "run", f"norm={norm}", "trainer.max_steps=10"))
    assert (result["causal_in_training"], result["causal_at_end"]) == (in_training, at_end)


def test_a_gate_that_starts_at_zero_hides_no_leak(tmp_path: Path, run: Callable[..., Path]) -> None:
    gated = ["norm=batchnorm", "model.residual_gate=rezero", "+norm@model.final_norm=none"]
    result = read_result(run(tmp_path / "run", *gated, "trainer.max_steps=1"))
    assert result["causal_in_training"] is False


@pytest.mark.parametrize(
    ("overrides", "tokens"),
    [
        (["norm=layernorm"], None),
        (["norm=batchnorm"], 4 * 16),
        (["norm=torch_batchnorm"], 4 * 16),
        (["norm=batchnorm", "trainer.accumulate_grad_batches=2"], 4 * 16),
        (["norm=batchnorm_ghost", "norm.ghost=2"], 2 * 16),
        (["norm=batchnorm_position"], 4),
        (["norm=layernorm", "+norm@model.final_norm=batchnorm"], 4 * 16),
    ],
)
def test_tokens_per_statistic_are_those_of_a_micro_batch(
    overrides: list[str], tokens: int | None, tmp_path: Path, run: Callable[..., Path]
) -> None:
    result = read_result(run(tmp_path / "run", *overrides, "trainer.max_steps=1"))
    assert result["tokens_per_statistic"] == tokens


@pytest.mark.parametrize("precision", ["bf16-mixed", "bf16-true"])
@pytest.mark.parametrize("norm", NORMS)
def test_half_precision_trains_to_a_finite_loss(
    norm: str, precision: str, tmp_path: Path, run: Callable[..., Path]
) -> None:
    folder = run(
        tmp_path / "r", f"norm={norm}", f"trainer.precision={precision}", "trainer.max_steps=4"
    )
    result = read_result(folder)
    assert result["status"] == "finished"
    assert result["val_final"] < result["loss_initial"]


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_every_experiment_runs(
    experiment: str,
    tmp_path: Path,
    tiny_text: Path,
    run: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With its own sizes and data, but on a small text, few steps and narrow layers."""
    monkeypatch.setattr(data.corpus, "checked", lambda text, *_: text)
    few = ["data.batch_size=2", "data.block_size=16", "trainer.max_steps=2", "model.n_embd=48"]
    folder = run(tmp_path / "run", f"experiment={experiment}", "model=baby", *few)
    result = read_result(folder)
    assert result["status"] == "finished"
    assert result["test_final"] is None or result["test_final"] > 0


@pytest.mark.parametrize(
    ("experiment", "expected"),
    [
        ("nanogpt_cpu", dict(n_layer=4, n_head=4, n_embd=128, block_size=64, dropout=0.0)),
        ("nanogpt_gpu", dict(n_layer=6, n_head=6, n_embd=384, block_size=256, dropout=0.2)),
    ],
)
def test_nanogpts_set_ups_have_its_numbers(
    experiment: str, expected: dict[str, float], compose_config: Callable[..., DictConfig]
) -> None:
    cfg = compose_config(f"experiment={experiment}")
    assert {key: cfg.model[key] for key in expected} == expected
    steps = {"nanogpt_cpu": (12, 2000), "nanogpt_gpu": (64, 5000)}[experiment]
    assert (cfg.data.batch_size, cfg.trainer.max_steps) == steps
    assert (cfg.optimizer.lr, cfg.optimizer.weight_decay, cfg.scheduler.floor) == (1e-3, 0.1, 0.1)
    assert cfg.scheduler.warmup * cfg.scheduler.total_steps == 100
    assert list(cfg.data.split) == [0.9, 0.1]


def test_a_text_split_in_two_has_no_test_loss(tmp_path: Path, run: Callable[..., Path]) -> None:
    folder = run(tmp_path / "run", "data.split=[0.9,0.1]", "trainer.max_steps=2")
    result = read_result(folder)
    assert result["test_final"] is result["test_best"] is None
    assert result["val_final"] > 0


def test_test_best_is_the_test_loss_of_the_best_checkpoint(
    tmp_path: Path, run: Callable[..., Path]
) -> None:
    """A rate that spoils the last steps makes the best step an early one."""
    spoiled = ["optimizer.lr=0.3", "scheduler.warmup=0.9", "eval_every=2", "norm=none"]
    folder = run(tmp_path / "run", *spoiled, "trainer.max_steps=20")
    result = read_result(folder)
    assert result["val_best_step"] < result["steps"]
    assert result["test_best"] < result["test_final"]


def test_where_the_last_step_is_the_best_its_test_loss_is_that_of_its_checkpoint(
    tmp_path: Path, run: Callable[..., Path]
) -> None:
    folder = run(tmp_path / "run", "norm=batchnorm", "trainer.max_steps=10")
    result = read_result(folder)
    assert result["val_best_step"] == result["steps"] == 10
    assert result["test_best"] == result["test_final"]
    states = [
        torch.load(folder / "checkpoints" / f"{name}.ckpt", weights_only=True)["state_dict"]
        for name in ("best", "last")
    ]
    assert all(torch.equal(value, states[1][name]) for name, value in states[0].items())


def test_tensorboard_holds_the_curves_and_the_sample_in_one_run(
    tmp_path: Path, run: Callable[..., Path]
) -> None:
    folder = run(tmp_path / "run", "trainer.max_steps=10", "sample.max_new_tokens=50")
    assert {path.parent for path in tmp_path.rglob("events.out*")} == {folder}
    events = EventAccumulator(str(folder)).Reload()
    scalars = set(events.Tags()["scalars"])
    assert scalars >= {"loss/train", "loss/val", "optim/lr", "optim/grad_norm", "tokens"}
    assert "speed/tokens_per_second" in scalars
    assert "hp_metric" not in scalars
    assert [event.step for event in events.Scalars("loss/val")] == [0, 8, 10]
    (text,) = events.Tensors("sample/text_summary")
    written = (folder / "sample.txt").read_text()
    assert len(written) == 50
    assert text.tensor_proto.string_val[0].decode() == verbatim(written)


def test_no_clipping_is_what_null_and_zero_mean(tmp_path: Path, run: Callable[..., Path]) -> None:
    null, zero, huge = (
        read_result(
            run(tmp_path / value, f"trainer.gradient_clip_val={value}", "trainer.max_steps=10")
        )
        for value in ("null", "0", "1e9")
    )
    assert null["val_final"] == zero["val_final"] == huge["val_final"] < null["loss_initial"]


def test_a_run_that_a_callback_ends_is_not_finished(
    tmp_path: Path, run: Callable[..., Path]
) -> None:
    timer = "+probes.callbacks.timer"
    limit = [f"{timer}._target_=lightning.pytorch.callbacks.Timer", f"{timer}.duration=00:00:00:01"]
    folder = run(tmp_path / "run", *limit, "trainer.max_steps=100000", "eval_every=100000")
    result = read_result(folder)
    assert result["status"] == "stopped_early"
    assert 0 < result["steps"] < 100000
    assert result["val_final"] is None
    assert "unfinished (stopped early)" in read_outcome(folder)[1]


def test_finished_means_that_the_final_losses_are_finite(
    tmp_path: Path, run: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("data.datamodule.CharDataModule.whole", lambda self, split: [])
    result = read_result(run(tmp_path / "run", "trainer.max_steps=2"))
    assert (result["status"], result["error"]) == ("diverged", "validation loss is nan")


# where Lightning's Trainer would change what a step, an evaluation or the end of a run is
OPTIONS = [
    *("limit_train_batches=6", "limit_train_batches=0", "limit_val_batches=1", "max_time=00:00:01"),
    *("fast_dev_run=true", "overfit_batches=1", "min_steps=3", "strategy=ddp", "num_nodes=2"),
    *("inference_mode=false", "enable_progress_bar=false", "reload_dataloaders_every_n_epochs=1"),
]


@pytest.mark.parametrize("option", OPTIONS)
def test_an_option_of_the_trainer_that_would_bend_a_run_is_refused(
    option: str, tmp_path: Path, run: Callable[..., Path]
) -> None:
    with pytest.raises(ValueError, match=rf"^trainer.{option.partition('=')[0]} cannot be set"):
        run(tmp_path / "run", f"+trainer.{option}")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("option", ["max_epochs=1", "num_sanity_val_steps=2", "devices=2"])
def test_a_key_of_the_trainer_that_a_run_relies_on_stays(
    option: str, tmp_path: Path, run: Callable[..., Path]
) -> None:
    with pytest.raises(ValueError, match=rf"^trainer.{option.partition('=')[0]} must stay"):
        run(tmp_path / "run", f"trainer.{option}")


def test_options_of_the_trainer_that_are_allowed_change_no_loss(
    tmp_path: Path, run: Callable[..., Path]
) -> None:
    plain = read_result(run(tmp_path / "plain", "trainer.max_steps=4"))
    options = ["+trainer.detect_anomaly=true", "+trainer.deterministic=true"]
    options.append("+trainer.benchmark=false")
    try:
        other = read_result(run(tmp_path / "other", "trainer.max_steps=4", *options))
    finally:
        torch.use_deterministic_algorithms(False)
        torch.autograd.set_detect_anomaly(False)
        os.environ.pop("CUBLAS_WORKSPACE_CONFIG", None)
    assert {key: other[key] for key in LOSSES} == {key: plain[key] for key in LOSSES}
