"""A run folder is data: nothing foreign that it names is called, in no program that reads it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from run.result import read_result
from tests.conftest import here

# each writes a file when it is called; a prefix of ours leads to torch, and os.system is known
FOREIGN: list[Any] = [
    {"_target_": "pathlib.Path.touch", "self": "HIT"},
    {"_target_": "model.lit.torch.save", "obj": 1, "f": "HIT"},
    {"deep": [{"_target_": "shutil.copy", "src": "text.txt", "dst": "HIT"}]},
    {"_target_": "${oc.env:HOME}"},
]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, tiny_text: Path) -> Path:
    """A folder with a text and a run of two steps, named `run`."""
    place = tmp_path_factory.mktemp("trust")
    (place / "text.txt").write_bytes(tiny_text.read_bytes())
    small = ["model=mini", "data.batch_size=4", "data.block_size=16", "probes=none"]
    small += ["data.path=text.txt", "trainer.max_steps=2", "sample.max_new_tokens=1"]
    assert here(*small, "hydra.run.dir=run", cwd=place) == 0
    return place


@pytest.fixture
def changed(place: Path) -> Any:
    """Change a stored file for a while, and see that nothing was called."""
    files = {p: p.read_bytes() for p in (place / "run" / ".hydra").iterdir()}
    yield place
    for path, content in files.items():
        path.write_bytes(content)
    assert not list(place.rglob("HIT"))


@pytest.mark.parametrize("foreign", FOREIGN, ids=str)
@pytest.mark.parametrize("where", ["model", "data", "optimizer", "trainer"])
def test_a_target_in_a_stored_configuration_is_refused_before_anything_is_made(
    where: str, foreign: Any, changed: Path
) -> None:
    path = changed / "run" / ".hydra" / "config.yaml"
    config = yaml.safe_load(path.read_text())
    config[where] |= {"extra": foreign}
    path.write_text(yaml.safe_dump(config))
    for program, arguments in (
        ("sample.py", ["run", "--max-new-tokens", "1"]),
        ("train.py", ["resume=run", "trainer.max_steps=4"]),
    ):
        message = str(here(*arguments, cwd=changed, program=program))
        assert message.startswith("error: ") and "config.yaml would run" in message
        assert "\n" not in message


@pytest.mark.parametrize(
    "override",
    [
        "+x._target_=os.system",
        "+probes.callbacks.x={_target_:pathlib.Path.touch,self:HIT}",
        "+probes.callbacks.x=[{a:{_target_:pathlib.Path.touch}}]",
        "hydra/launcher=joblib",
        "+hydra.callbacks.x._target_=os.system",
        "hydra.searchpath=[file:///tmp]",
        "+norm@hydra.callbacks.x=layernorm",
        "hydra.run.dir=/tmp/elsewhere",
        "--config-dir=/tmp",
        "-m",
        "norm=../../../tmp/evil",
        "norm=/tmp/evil",
        "+foo=${oc.decode:'{_target_:os.system}'}",
    ],
)
def test_a_stored_override_that_no_run_stores_is_refused(override: str, changed: Path) -> None:
    path = changed / "run" / ".hydra" / "overrides.yaml"
    path.write_text(yaml.safe_dump([*yaml.safe_load(path.read_text()), override]))
    message = str(here("resume=run", "trainer.max_steps=4", cwd=changed))
    assert message.startswith("error: ") and "overrides.yaml" in message
    assert "\n" not in message
    assert read_result(changed / "run")["steps"] == 2


def test_a_target_of_ones_own_is_called_when_this_command_line_gives_it(
    tmp_path: Path, place: Path
) -> None:
    small = ["model=mini", "data.batch_size=4", "data.block_size=16", "probes=none"]
    small += [f"data.path={place / 'text.txt'}", "sample.max_new_tokens=1", "trainer.max_steps=2"]
    timer = "+probes.callbacks.timer={_target_:lightning.pytorch.callbacks.Timer,duration:null}"
    assert here(*small, timer, "hydra.run.dir=run", cwd=tmp_path) == 0
    more = ["resume=run", "trainer.max_steps=4"]
    assert "would run 'lightning.pytorch.callbacks.Timer'" in str(here(*more, cwd=tmp_path))
    assert here(*more, timer, cwd=tmp_path) == 0
    assert read_result(tmp_path / "run")["steps"] == 4


def test_a_result_or_checkpoint_that_is_a_pickle_runs_nothing(
    tmp_path: Path, run: Callable[..., Path]
) -> None:
    import os
    import pickle

    class Evil:
        def __reduce__(self) -> Any:
            return (os.mkdir, (str(tmp_path / "HIT"),))

    folder = run(tmp_path / "run", "trainer.max_steps=2")
    for name in ("best", "last"):
        (folder / "checkpoints" / f"{name}.ckpt").write_bytes(pickle.dumps(Evil()))
    (folder / "result.json").write_text(json.dumps({"status": "interrupted"}))
    for program, arguments in (
        ("sample.py", [str(folder)]),
        ("train.py", [f"resume={folder}", "trainer.max_steps=4"]),
    ):
        message = str(here(*arguments, cwd=tmp_path, program=program))
        assert message.startswith("error: ") and "ckpt is damaged or no checkpoint" in message
    assert not (tmp_path / "HIT").exists()
