"""A user's mistake is one clear line and exit code 1, before any training.

The program runs in this process, as `python train.py ...` would, in an empty folder.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from run.result import read_result
from tests.conftest import NORMS, here

Program = Callable[..., str]


@pytest.fixture
def program(tmp_path: Path) -> Program:
    """Run train.py with these arguments in an empty folder; returns what it exits with."""
    return lambda *arguments: str(here(*arguments, cwd=tmp_path))


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (["sed=1"], "Key 'sed' is not in struct"),
        (["norm=layernorm,batchnorm"], "add --multirun"),
        (["norm=layrnorm"], "Could not find 'norm/layrnorm' Available options in 'norm': "),
        (["model=huge"], "Could not find 'model/huge'"),
        (["-m", "norm=layernorm,layrnorm"], "Could not find 'norm/layrnorm'"),
        (["norm=null"], "give one of the group's names, for instance norm=none"),
        (["-m", "norm=layernorm,none", "norm.eps=1e-3"], "norm.eps is not an option of norm=none"),
        (["resume=nowhere"], "resume=nowhere is not a run folder"),
    ],
)
def test_a_wrong_command_line_makes_nothing(
    arguments: list[str], wanted: str, program: Program, tmp_path: Path
) -> None:
    message = program(*arguments)
    assert message.startswith("error: ")
    assert wanted in message
    assert "\n" not in message
    assert not list(tmp_path.rglob("result.json"))
    assert not list(tmp_path.rglob("*.ckpt"))


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (["~norm"], "norm must be one name; use norm=none"),
        (["norm=[layernorm,none]"], "norm must be one name; use norm=none"),
        (["norm=[]"], "norm must be one name; use norm=none"),
        (["+norm.eps=1e-3", "norm=none"], "norm.eps is not an option of NoNorm; it has none"),
        (["norm.eps=-1"], "error: norm.eps must be a number of at least 0, got -1"),
        (
            ["+norm@model.final_norm=layernorm", "model.final_norm.eps=-1"],
            "error: model.final_norm.eps must be a number of at least 0, got -1",
        ),
        (
            ["+norm@model.qk_norm=groupnorm", "model.qk_norm.groups=5"],
            "error: model.qk_norm.groups=5 must divide the 32 features",
        ),
        (["norm.eps=abc"], "norm.eps must be a number, got abc"),
        (["norm.eps=true"], "norm.eps must be a number, got True"),
        (["norm.eps=inf"], "norm.eps must be a finite number, got inf"),
        (["+norm.gain=2"], "norm.gain is not an option of LayerNorm; the options of LayerNorm are"),
        (["+norm@model.qk_norm=rmsnorm", "model.qk_norm.p=x"], "model.qk_norm.p must be a number"),
        (["norm=batchnorm", "norm.momentum=5"], "norm.momentum must be a number from 0 to 1"),
        (["norm=batchnorm", "norm.ghost=0"], "norm.ghost must be a whole number of at least 1"),
        (
            ["norm=batchnorm", "norm.ghost=2.5"],
            "norm.ghost must be a whole number or null",
        ),
        (["norm=batchnorm", "norm.use_mask=no"], "norm.use_mask must be true or false, got no"),
        (["norm.eps=null"], "norm.eps must be a number, got None"),
        (["norm=dyt", "norm.alpha=abc"], "norm.alpha must be a number, got abc"),
        (["norm=powernorm", "norm.warmup=null"], "norm.warmup must be a number, got None"),
        (["+norm@model.foo_norm=rmsnorm"], "model.foo_norm is no site of a norm; use attention"),
        (["model.norm=layernorm"], "model.norm=layernorm is a name only; use norm=layernorm"),
        (["norm=groupnorm", "norm.groups=5"], "norm.groups=5 must divide the 128 features"),
        (["norm=detachnorm", "norm.detach=all"], "norm.detach=all is not known"),
        (["+norm@model.qk_norm=batchnorm"], "model.qk_norm must take each token alone"),
        (["+model.final_norm=none"], "use +norm@model.final_norm=none"),
        (["model.residual_gate=open"], "model.residual_gate=open is not known"),
        (["model.bias=no"], "model.bias must be true or false, got no"),
        (["norm._target_=model.norms.LayerNrm"], "Error locating target 'model.norms.LayerNrm'"),
        (
            ["model.placement=middle"],
            "model.placement=middle is not known; use pre | post | sandwich",
        ),
        (["model.n_head=3"], "n_embd divisible by n_head"),
        (["data=text"], "give data.path=FILE"),
        (["data.path=missing.txt"], "missing.txt; give an existing file"),
        (["data.path=latin.txt"], "latin.txt is not utf-8 (byte 3: "),
        (["data.path=short.txt", "data.split=[0.9,0.1]"], "the validation split of "),
        (["data.path=empty.txt"], "has 0 of 0 characters, but one window needs 65"),
        (["data.path=long.txt", "data.batch_size=100000"], "data.batch_size=100000 is more than"),
        (["data.path=long.txt", "trainer.accelerator=abacus"], "abacus"),
        (["data.path=long.txt", "trainer.devices=2"], "trainer.devices must stay 1, got 2"),
        (["data.path=long.txt", "trainer.precision=16-mixed"], "needs optimizer.fused=false"),
        (
            ["data.path=long.txt", "sample.top_k=0"],
            "sample.top_k must be a number of at least 1, got 0",
        ),
        (
            ["data.path=long.txt", "eval_every=0"],
            "eval_every must be a whole number of at least 1, got 0",
        ),
        (
            ["data.path=long.txt", "trainer.max_steps=abc"],
            "trainer.max_steps must be a whole number",
        ),
        (["data.path=long.txt", "seed=null"], "seed must be a whole number, got None"),
        (["data.path=long.txt", "model.embed_scale=nan"], "model.embed_scale must be a number"),
        (["data.path=long.txt", "trainer.gradient_clip_val=-1"], "must be a number of at least 0"),
        (["data.path=long.txt", "+trainer.logger=false"], "trainer.logger cannot be set here"),
        (["data.path=long.txt", "optimizer.lr=abc"], "optimizer.lr must be a number of at least 0"),
        (["data.path=long.txt", "scheduler.warmup=10"], "0 <= warmup < 1"),
        (
            ["data.path=long.txt", "norm=batchnorm", "data.batch_size=1", "data.block_size=1"],
            "at least 2 tokens, got 1",
        ),
    ],
)
def test_an_invalid_configuration_stops_before_training_and_leaves_a_trace(
    arguments: list[str], wanted: str, program: Program, tmp_path: Path
) -> None:
    (tmp_path / "latin.txt").write_bytes("café".encode("latin-1") * 100)
    (tmp_path / "short.txt").write_text("to be or not\n" * 23)
    (tmp_path / "empty.txt").touch()
    (tmp_path / "long.txt").write_text("to be or not to be\n" * 200)
    message = program(*arguments)
    assert message.startswith("error: ")
    assert wanted in message
    assert "\n" not in message
    (folder,) = tmp_path.glob("runs/*")
    assert read_result(folder)["status"] == "failed"
    assert "Traceback" in (folder / "train.log").read_text()
    left = {path.name for path in folder.iterdir() if path.suffix != ".hparams"}
    assert left == {".lock", "train.log", "result.json"}


def test_available_norms_are_listed(program: Program) -> None:
    message = program("norm=layrnorm")
    assert all(norm in message for norm in NORMS)


def test_each_failed_job_of_a_sweep_has_its_error_in_its_own_log(
    program: Program, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert program("-m", "seed=1,2", "data.path=/does/not/exist", "hydra.sweep.dir=sw") == "1"
    folders = sorted(tmp_path.glob("sw/*/"))
    assert [folder.name for folder in folders] == ["layernorm-s1-0", "layernorm-s2-1"]
    printed = capfd.readouterr().out
    for seed, folder in enumerate(folders, start=1):
        assert "no file /does/not/exist" in (folder / "train.log").read_text()
        assert f"failed: seed={seed} data.path=/does/not/exist: " in printed
