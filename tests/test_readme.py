"""Every command of the README is run, in its order; only sizes, steps and texts are made small."""

import logging
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hydra.core.global_hydra import GlobalHydra

import data.corpus
from run.overrides import key_of
from run.result import read_result
from tests.conftest import ROOT

README = (ROOT / "README.md").read_text()
SHELL = "\n".join(re.findall(r"```sh\n(.*?)```", README, re.DOTALL))
COMMANDS = [line.split("  #")[0].strip() for line in SHELL.splitlines() if line.strip()]
PYTHON = [c for c in COMMANDS if c.startswith("python")]
SMALL = ["model=mini", "data.batch_size=4", "data.block_size=16", "trainer.max_steps=3"]
SMALL.append("probes=none")  # they change nothing, and have tests of their own


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, tiny_text: Path) -> Iterator[Path]:
    """A copy of the repository, where README's new norm can be added, with a small text."""
    folder = tmp_path_factory.mktemp("copy")
    for part in (
        "train.py",
        "sample.py",
        "compare.py",
        "benchmarks",
        "configs",
        "model",
        "data",
        "run",
        "sweep",
        "report",
        "hydra_plugins",
    ):
        copy = shutil.copytree if (ROOT / part).is_dir() else shutil.copy
        copy(ROOT / part, folder / part)
    for path, kind in (
        ("model/norms/halfnorm.py", "python"),
        ("configs/norm/halfnorm.yaml", "yaml"),
    ):
        (code,) = re.findall(rf"`{path}`:\n\n```{kind}\n(.*?)```", README, re.DOTALL)
        (folder / path).write_text(code)
    (folder / "play.txt").write_text(f"ROMEO:\n{tiny_text.read_text()}")
    yield folder


@pytest.fixture
def program(place: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """Programs run in this process, on a small text."""
    monkeypatch.chdir(place)
    monkeypatch.setattr(data.corpus, "shakespeare", data.corpus.read_files)
    monkeypatch.setattr(data.corpus, "checked", lambda text, *_: text)
    import model.norms

    monkeypatch.setattr(model.norms, "__path__", [str(place / "model" / "norms")])
    handlers = list(logging.getLogger().handlers)
    yield monkeypatch
    logging.getLogger().handlers = handlers
    GlobalHydra.instance().clear()


def small(words: list[str]) -> list[str]:
    """A script's words with what makes it a matter of a second, where they do not say so."""
    more = [*SMALL, "data.path=play.txt", "sample.max_new_tokens=5"]
    if any(word.startswith("resume=") for word in words):
        more = ["trainer.max_steps=5"]
    given = {key_of(word) for word in words}
    if "experiment=at_init" in words:
        more += ["at_init.depths=[1,2]", "at_init.seeds=[1]"]
    if "data=lines" in words:
        given.add("data.block_size")  # its own holds the longest line
    if "benchmarks/norms.py" in words:
        return ["--rounds", "1", "--norms", "layernorm", "halfnorm"]
    if "--rounds" in words:
        return ["--rounds", "1", "--steps", "130", *SMALL[:3], "data.path=play.txt"]
    if "experiment=tune" in words or "experiment=norms" in words:
        more += ["optimizer.lr=1e-3,2e-3", "seed=1", "hydra.sweeper.tuning_seeds=[101]"]
        given -= {"norm"}
        more.append("norm=none")
        words = [word for word in words if key_of(word) != "norm"]
    smaller = [re.sub(r"(max_steps=)\d{3,}", r"\g<1>8", word) for word in words[1:]]
    return smaller + [word for word in more if key_of(word) not in given]


@pytest.mark.parametrize("command", PYTHON)
def test_a_python_command_does_what_the_readme_says(
    command: str,
    place: Path,
    program: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    runs = sorted((place / "runs").glob("*/result.json"), key=lambda path: path.stat().st_mtime)
    latest = str(runs[-1].parent) if runs else ""
    sweeps = sorted(path for path in (place / "sweeps").glob("*") if path.name != "all")
    command = command.replace("runs/<folder>", shlex.quote(latest)).replace("FILE", "play.txt")
    command = command.replace("sweeps/<time>", shlex.quote(str(sweeps[-1])) if sweeps else "")
    _, script, *words = shlex.split(command)
    if script not in ("sample.py", "compare.py"):
        words = small([script, *words])
    program.setattr(sys, "argv", [str(place / script), *words])
    before = set(place.rglob("result.json"))
    try:
        runpy.run_path(str(place / script), run_name="__main__")
    except SystemExit as left:
        assert not left.code, left.code
    made = set(place.rglob("result.json")) - before
    printed = capsys.readouterr().out
    if script == "sample.py":
        assert printed.startswith("ROMEO:") and len(printed) == len("ROMEO:") + 300 + 1
    elif script == "compare.py":
        assert "report.html" in printed and (sweeps[-1] / "comparison" / "report.html").exists()
    elif script == "benchmarks/norms.py":
        assert printed.count("| halfnorm | ") == 2  # one a shape
    elif script != "train.py":
        assert re.search(r"time of the bare loop: \d+\.\d{3}\n$", printed)
    elif "experiment=at_init" in words:
        (csv,) = (place / "runs").glob("at_init-*/at_init.csv")
        assert f"{csv.parent.relative_to(place)}: at_init.csv, gradient.svg" in printed and not made
    elif words[0].startswith("--"):
        assert "block_size: 16" in printed and not made
    else:
        ended = made or {Path(latest) / "result.json"}
        assert {read_result(path.parent)["status"] for path in ended} == {"finished"}


def test_the_other_commands_exist() -> None:
    others = [c for c in COMMANDS if c not in PYTHON]
    assert {c.split()[0] for c in others} == {"make", "tensorboard"}
    for command in others:
        if command.startswith("make"):
            subprocess.run(
                [*command.split(), "--dry-run"], cwd=ROOT, check=True, capture_output=True
            )
        else:
            assert shutil.which("tensorboard", path=str(Path(sys.executable).parent))


PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_file_that_a_page_links_to_is_there(page: Path) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]+)\)", page.read_text())
    assert [link for link in links if not page.parent.joinpath(link).exists()] == []
