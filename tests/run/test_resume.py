"""A run that was stopped and resumed equals an undisturbed one, the reference, to the bit."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from run.errors import Refused
from run.result import read_result
from run.resume import resume_arguments
from tests.conftest import NORMS, here


def weights(folder: Path) -> dict[str, torch.Tensor]:
    """Parameters and buffers at the end."""
    return torch.load(folder / "checkpoints" / "last.ckpt", weights_only=True)["state_dict"]


def curve(folder: Path, name: str) -> list[str]:
    """The rows of one metric."""
    rows = (folder / "metrics.csv").read_text().splitlines()
    return [row for row in rows if row.split(",")[1] == name]


@pytest.mark.parametrize(
    ("norm", "accumulate"), [(norm, 1) for norm in NORMS] + [("layernorm", 3), ("batchnorm", 3)]
)
def test_stopping_at_6_and_resuming_to_12_equals_12_straight(
    norm: str,
    accumulate: int,
    tmp_path: Path,
    run: Callable[..., Path],
    resume: Callable[..., Path],
) -> None:
    same = [f"norm={norm}", f"trainer.accumulate_grad_batches={accumulate}"]
    same += ["scheduler.total_steps=12"]
    straight = run(tmp_path / "straight", *same, "trainer.max_steps=12")
    stopped = run(tmp_path / "stopped", *same, "trainer.max_steps=6")
    resume(stopped, "trainer.max_steps=12")

    assert [row.split(",")[0] for row in curve(straight, "loss/train")] == [
        str(step) for step in range(1, 13)
    ]
    for name in ("loss/train", "optim/lr", "optim/grad_norm", "tokens"):
        assert curve(stopped, name) == curve(straight, name)
    assert set(curve(straight, "loss/val")) <= set(curve(stopped, "loss/val"))
    assert weights(straight).keys() == weights(stopped).keys()
    for name, value in weights(straight).items():
        assert torch.equal(value, weights(stopped)[name]), name
    results = read_result(straight), read_result(stopped)
    for key in ("val_final", "test_final", "train_final", "loss_initial", "steps", "tokens"):
        assert results[0][key] == results[1][key], key
    assert results[1]["legs"] == 2


def test_resuming_from_a_checkpoint_in_a_moved_folder_gives_the_same(
    tmp_path: Path, run: Callable[..., Path], resume: Callable[..., Path]
) -> None:
    straight = run(tmp_path / "straight", "trainer.max_steps=16")
    stopped = run(tmp_path / "a, b=c", "scheduler.total_steps=16", "trainer.max_steps=8")
    moved = stopped.rename(tmp_path / "it's moved")
    resume(moved / "checkpoints" / "last.ckpt", "trainer.max_steps=16")
    for name, value in weights(straight).items():
        assert torch.equal(value, weights(moved)[name]), name


def test_two_runs_with_one_seed_are_identical_and_another_seed_differs(
    tmp_path: Path, run: Callable[..., Path]
) -> None:
    a, b = (run(tmp_path / name, "trainer.max_steps=12") for name in "ab")
    other = run(tmp_path / "other", "trainer.max_steps=12", "seed=2")
    assert curve(a, "loss/train") == curve(b, "loss/train") != curve(other, "loss/train")
    assert curve(a, "loss/val") == curve(b, "loss/val")


@pytest.mark.parametrize(
    "other",
    [
        "data.num_workers=2",
        "eval_every=3",
        "data.eval_batches=1",
        "sample.max_new_tokens=40",
        "trainer.gradient_clip_val=1.0",
    ],
)
def test_what_only_watches_leaves_the_training_losses_alone(
    other: str, tmp_path: Path, run: Callable[..., Path]
) -> None:
    plain = run(tmp_path / "plain", "trainer.max_steps=12")
    watched = run(tmp_path / "watched", "trainer.max_steps=12", other)
    assert curve(plain, "loss/train") == curve(watched, "loss/train")


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("data.path={other}", "vocabulary of 26 characters, this text has 10"),
        ("data.path={same_letters}", "corpus_sha256"),
        ("trainer.max_steps=2", "has finished its 2 steps"),
        ("norm=none", "norm_name (was layernorm, now none)"),
        ("norm.eps=1e-3", "norm.eps (was 1e-05, now 0.001)"),
        ("seed=2", "seed (was 1, now 2)"),
        ("optimizer.lr=1e-2", "optimizer.lr"),
        ("model.n_layer=3", "model.n_layer"),
        ("data.batch_size=5", "data.batch_size"),
    ],
)
def test_resume_refuses_what_would_make_another_run_and_touches_nothing(
    override: str,
    message: str,
    tmp_path: Path,
    run: Callable[..., Path],
    resume: Callable[..., Path],
    tiny_text: Path,
) -> None:
    folder = run(tmp_path / "run", "trainer.max_steps=2")
    texts = {"other": tmp_path / "other.txt", "same_letters": tmp_path / "same.txt"}
    texts["other"].write_text("abcdefghi\n" * 400)
    texts["same_letters"].write_text(tiny_text.read_text()[::-1])
    before = {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    with pytest.raises(Refused) as refusal:
        resume(folder, "trainer.max_steps=4", override.format(**texts))
    assert message in str(refusal.value)
    assert "\n" not in str(refusal.value)
    assert {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()} == before


def test_resuming_to_more_steps_says_that_the_schedule_moves_and_raises_the_rate_again(
    tmp_path: Path,
    run: Callable[..., Path],
    resume: Callable[..., Path],
    caplog: pytest.LogCaptureFixture,
) -> None:
    folder = run(tmp_path / "run", "trainer.max_steps=10")
    assert curve(folder, "optim/lr")[-1].startswith("10,optim/lr,0.0003")  # the floor
    with caplog.at_level("INFO"):
        resume(folder, "trainer.max_steps=20")
    assert "schedule moves from step 10 to 20" in caplog.text
    rates = [float(row.split(",")[2]) for row in curve(folder, "optim/lr")]
    assert len(rates) == 20
    assert rates[11] > 0.001 > rates[19]


def test_resume_arguments_names_what_is_not_a_run_folder(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is not a run folder"):
        resume_arguments([f"resume={tmp_path}"])
    (tmp_path / ".hydra").mkdir()
    (tmp_path / ".hydra" / "overrides.yaml").write_text("- norm=none\n")
    with pytest.raises(ValueError, match=r"last.ckpt does not exist"):
        resume_arguments([f"resume={tmp_path}"])
    with pytest.raises(ValueError, match="leave -m out"):
        resume_arguments(["-m", f"resume={tmp_path}"])
    assert resume_arguments(["norm=none", "resume=null"]) == ["norm=none", "resume=null"]


def test_new_overrides_take_the_place_of_the_stored_ones(tmp_path: Path) -> None:
    (tmp_path / ".hydra").mkdir()
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "last.ckpt").touch()
    (tmp_path / ".hydra" / "overrides.yaml").write_text("- norm=none\n- seed=3\n- +a.b=1\n")
    (tmp_path / ".hydra" / "config.yaml").write_text("{norm: {}, seed: 3, a: {b: 1}}")
    arguments = resume_arguments(["seed=4", f"resume={tmp_path}", "++a.b=2"])
    assert arguments[:3] == ["norm=none", "seed=4", "++a.b=2"]
    assert arguments[-2:] == ["hydra.mode=RUN", f"hydra.run.dir='{tmp_path}'"]


@pytest.mark.parametrize(
    "flags", [["--config-dir", "{my}"], ["--config-dir={my}"], ["-cd", "{my}"], ["-cn", "train"]]
)
def test_options_of_hydra_may_stand_beside_resume_wherever_they_stand(
    flags: list[str], tmp_path: Path, run: Callable[..., Path]
) -> None:
    """An option and its value are no override: seen as taken for the run folder."""
    folder = run(tmp_path / "run", "trainer.max_steps=2")
    given = [flag.format(my=tmp_path) for flag in flags]
    for arguments in (
        [*given, f"resume={folder}", "trainer.max_steps=4"],
        [f"resume={folder}", *given, "trainer.max_steps=4"],
        [f"resume={folder}", "trainer.max_steps=4", *given],
    ):
        found = resume_arguments(arguments)
        assert found[: len(given)] == given
        assert found[-4:] == [
            "trainer.max_steps=4",
            f"resume='{folder / 'checkpoints' / 'last.ckpt'}'",
            "hydra.mode=RUN",
            f"hydra.run.dir='{folder}'",
        ]


def test_a_run_is_resumed_with_the_values_that_it_stored_not_with_texts_read_anew(
    tmp_path: Path, tiny_text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An interpolation would follow the new steps, and the variable is gone."""
    small = ["model=mini", "data.batch_size=4", "data.block_size=16", "probes=none"]
    small += [f"data.path={tiny_text}", "sample.max_new_tokens=1", "trainer.max_steps=2"]
    texts = ["eval_every=${trainer.max_steps}", "seed='${oc.decode:${oc.env:MY_SEED}}'"]
    monkeypatch.setenv("MY_SEED", "7")
    assert here(*small, *texts, "hydra.run.dir=run", cwd=tmp_path) == 0
    monkeypatch.delenv("MY_SEED")
    assert here("resume=run", "trainer.max_steps=4", cwd=tmp_path) == 0
    result = read_result(tmp_path / "run")
    assert (result["seed"], result["steps"], result["config"]["eval_every"]) == (7, 4, 2)


def test_an_interpolation_in_a_sweep_is_each_jobs_own_also_when_it_is_started_again(
    tmp_path: Path, tiny_text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sweep.callback.Sweep.compare", lambda self, norms: True)
    command = ["-m", "model=mini", "data.batch_size=4", "data.block_size=16", "probes=none"]
    command += [f"data.path={tiny_text}", "sample.max_new_tokens=1", "trainer.max_steps=2,3"]
    command += ["eval_every=${trainer.max_steps}", "hydra.sweep.dir=sw"]
    for _ in range(2):
        assert here(*command, cwd=tmp_path) == 0
    found = [read_result(tmp_path / "sw" / f"layernorm-s1-{n}") for n in (0, 1)]
    assert [r["config"]["eval_every"] for r in found] == [2, 3]
