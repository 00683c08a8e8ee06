"""Damaged files of a run folder: one line that names the file, and a sweep gets past them."""

import shutil
from pathlib import Path

import pytest

from run.result import read_result
from tests.conftest import LOSSES, here
from tests.sweep.conftest import SMALL

FILES = ["checkpoints/last.ckpt", "checkpoints/best.ckpt", "tokenizer.json", "result.json"]
FILES += [".hydra/config.yaml", ".hydra/overrides.yaml", "metrics.csv"]
SLOW = [pytest.param(kind, marks=pytest.mark.slow) for kind in ("empty", "number", "gone")]
SLOW += [pytest.param(kind, marks=pytest.mark.slow) for kind in ("random", "folder", "flipped")]


def damage(path: Path, kind: str) -> None:
    """Damage a file; `flipped` changes one byte in its middle."""
    content = path.read_bytes()
    middle = len(content) // 2
    if kind == "folder" or kind == "gone":
        path.unlink()
        if kind == "folder":
            path.mkdir()
        return
    flipped = content[:middle] + bytes([content[middle] ^ 16]) + content[middle + 1 :]
    kinds = {"cut": content[:middle], "empty": b"", "random": bytes(range(128, 256)) * 9}
    path.write_bytes((kinds | {"number": b"3", "flipped": flipped})[kind])


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, tiny_text: Path) -> Path:
    """A sweep `sw` of one finished job, on a text beside it."""
    place = tmp_path_factory.mktemp("damage")
    (place / "text.txt").write_bytes(tiny_text.read_bytes())
    assert here("-m", *COMMAND, "data.path=text.txt", cwd=place) in (0, 1)
    return place


COMMAND = [*SMALL, "trainer.max_steps=4", "eval_every=2"]
COMMAND += ["model.dropout=0.2", "hydra.sweep.dir=sw"]


@pytest.mark.parametrize("kind", ["cut", *SLOW])
@pytest.mark.parametrize("name", FILES)
def test_a_damaged_file_is_one_line_in_every_program_and_a_sweep_gets_past_it(
    name: str,
    kind: str,
    place: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("sweep.callback.Sweep.compare", lambda self, norms: True)
    shutil.copytree(place, tmp_path, dirs_exist_ok=True)
    folder = tmp_path / "sw" / "layernorm-s1-0"
    straight = read_result(folder)
    damage(folder / name, kind)
    if name != "result.json":
        (folder / "result.json").unlink()  # else the sweep has nothing to do
    for program, arguments in (
        ("sample.py", [str(folder), "--max-new-tokens", "1"]),
        ("compare.py", ["sw"]),
        ("train.py", [f"resume={folder}", "trainer.max_steps=4"]),
    ):
        if kind == "folder" and program == "train.py":
            continue
        left = here(*arguments, cwd=tmp_path, program=program)
        if left != 0:
            assert str(left).startswith("error: ") and "\n" not in str(left)
            assert Path(name).name in str(left) or program == "compare.py", left
        shutil.rmtree(tmp_path / "sw" / "comparison", ignore_errors=True)
    if name != "result.json":
        (folder / "result.json").unlink(missing_ok=True)
    text = f"data.path={place / 'text.txt'}"
    assert here("-m", *COMMAND, text, cwd=tmp_path) == 0
    again = read_result(folder)
    assert {key: again[key] for key in LOSSES} == {key: straight[key] for key in LOSSES}
    assert "Traceback" not in capfd.readouterr().err


def test_a_checkpoint_of_another_net_is_refused_by_name(place: Path, tmp_path: Path) -> None:
    shutil.copytree(place, tmp_path, dirs_exist_ok=True)
    wide = ["model.n_layer=1", "hydra.sweep.dir=other"]
    assert here("-m", *COMMAND, *wide, "data.path=text.txt", cwd=tmp_path) in (0, 1)
    folder, other = (tmp_path / name / "layernorm-s1-0" for name in ("sw", "other"))
    for name in ("last", "best"):
        shutil.copy(other / "checkpoints" / f"{name}.ckpt", folder / "checkpoints")
    for program, arguments in (
        ("sample.py", [str(folder)]),
        ("train.py", [f"resume={folder}", "trainer.max_steps=6"]),
    ):
        message = str(here(*arguments, cwd=tmp_path, program=program))
        assert "ckpt is of another net: " in message and "\n" not in message
