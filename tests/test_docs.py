"""What README.md and docs/ say holds: commands run, the new norm passes, links lead somewhere.

Every line of an `sh` block is run, page by page and in order, the first time that it occurs; only
sizes, steps, seeds and texts are small.
"""

import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

import data.corpus
import model.norms
from run.overrides import key_of
from tests.conftest import ROOT, here

README, *OTHERS = PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
NEW_NORM = ROOT / "docs" / "add_a_norm.md"
FOLDERS = ["benchmarks", "configs", "data", "docs", "hydra_plugins", "model", "report", "run"]
FOLDERS += ["sweep", "tests", "tools"]
TEXT = "data.path=play.txt"
BATCH = ["data.batch_size=4", "data.block_size=16"]
RUN = ["model=mini", *BATCH, "trainer.max_steps=3", TEXT, "sample.max_new_tokens=5"]
RUN.append("probes=none")  # they change nothing, and have tests of their own
TUNING = ["optimizer.lr=2e-2,4e-2,8e-2", "seed=1", "hydra.sweeper.tuning_seeds=[101]"]
ONE_CONDITION = ["norm=none", "model.placement=pre", "scheduler.warmup=0.05"]


SWEEPS: dict[str, str] = {}  # the folder that each `-m` command has made


def commands(page: Path) -> list[str]:
    """The lines of a page's `sh` blocks, without their comments."""
    shell = "\n".join(re.findall(r"```sh\n(.*?)```", page.read_text(), re.DOTALL))
    return [line.split("  #")[0].strip() for line in shell.splitlines() if line.strip()]


ALL = [(page, command) for page in PAGES for command in commands(page)]
FIRST = {command: page for page, command in reversed(ALL)}
PYTHON = [(p, c) for p, c in ALL if c.startswith("python ") and FIRST[c] == p]
OTHER = [command for page, command in ALL if not command.startswith("python ")]


def write_new_norm(root: Path) -> list[Path]:
    """Add the norm of docs/add_a_norm.md to a copy of the repository; returns its files."""
    text, files = NEW_NORM.read_text(), []
    for path, kind in (
        ("model/norms/halfnorm.py", "python"),
        ("configs/norm/halfnorm.yaml", "yaml"),
    ):
        (code,) = re.findall(rf"`{path}`:\n\n```{kind}\n(.*?)```", text, re.DOTALL)
        (root / path).write_text(code)
        files.append(root / path)
    return files


def copy_repository(to: Path) -> None:
    """Copy the programs and folders, without caches."""
    for name in FOLDERS:
        shutil.copytree(ROOT / name, to / name, ignore=shutil.ignore_patterns("__pycache__"))
    for path in [*ROOT.glob("*.py"), ROOT / "pyproject.toml", README]:
        shutil.copy(path, to)


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory, tiny_text: Path) -> Path:
    """A copy of the repository with the new norm, a small text, and what the commands leave."""
    folder = tmp_path_factory.mktemp("copy")
    copy_repository(folder)
    write_new_norm(folder)
    (folder / "play.txt").write_text(f"ROMEO:\n{tiny_text.read_text()}")
    return folder


@pytest.fixture
def small_corpus(copy: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Programs of the copy see its text and its norms."""
    monkeypatch.setattr(data.corpus, "shakespeare", data.corpus.read_files)
    monkeypatch.setattr(data.corpus, "checked", lambda text, *_: text)
    monkeypatch.setattr(model.norms, "__path__", [str(copy / "model" / "norms")])
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield


def small(script: str, words: list[str]) -> list[str]:
    """A command's words with what makes it a matter of a second, unless they say it themselves."""
    if script == "benchmarks/norms.py":
        return ["--rounds", "1", "--norms", "layernorm", "halfnorm"]
    if script == "benchmarks/throughput.py":
        return ["--rounds", "1", "--steps", "130", "model=mini", *BATCH, TEXT]
    if script == "at_init.py":
        words, more = [], [*words, *BATCH, TEXT, "depths=[1,2]", "seeds=[1]"]
    elif script != "train.py":
        return words
    elif any(word.startswith("resume=") for word in words):
        words = [word.replace("max_steps=3000", "max_steps=16") for word in words]
        more = ["trainer.max_steps=12"]  # more than any run before
    else:
        more = RUN
    shrunk = [re.sub(r"(max_steps=)\d{3,}", r"\g<1>8", word) for word in words]
    shrunk = [re.sub(r"^(seed=1),2,3$", r"\1", word) for word in shrunk]
    shrunk = [word.replace("data.batch_size=1,4,16,64", "data.batch_size=4,8") for word in shrunk]
    shrunk = [word.replace("glob(*)", "glob(*layernorm)") for word in shrunk]
    if {"experiment=tune", "experiment=norms"} & set(words):
        more = [*more, *TUNING, *ONE_CONDITION]
        shrunk = [word for word in shrunk if key_of(word) != "norm"]
    given = {key_of(word) for word in shrunk}
    if "data=lines" in words:
        given.add("data.block_size")  # its own holds the longest line
    if any(key.startswith("probes.") for key in given):
        given.add("probes")
    return shrunk + [word for word in more if key_of(word) not in given]


def results(root: Path) -> set[Path]:
    """Of all runs, in sweeps or not, that have ended."""
    return {*root.glob("runs/*/result.json"), *root.glob("sweeps/*/*/result.json")}


def newest(files: set[Path]) -> str:
    """The folder of the newest of some files; empty if there are none."""
    found = sorted(files, key=lambda path: path.stat().st_mtime)
    return str(found[-1].parent) if found else ""


def filled_in(page: Path, command: str, root: Path) -> list[str]:
    """The words of a command, with the newest run, its page's sweep and a text for a user's own.

    What was left out of this test session, and is needed before, is run now.
    """
    filled = command.replace("FILE", "play.txt")
    if "runs/<folder>" in command:
        if not results(root):
            carry_out("python train.py", ["train.py"], root)
        filled = filled.replace("runs/<folder>", shlex.quote(newest(results(root))))
    if "sweeps/<time>" in command:
        above = commands(page)[: commands(page).index(command)]
        *_, making = [line for line in above if " -m " in line and "sweep.dir" not in line]
        if making not in SWEEPS:
            carry_out(making, filled_in(page, making, root), root)
        filled = filled.replace("sweeps/<time>", shlex.quote(SWEEPS[making]))
    return shlex.split(filled)[1:]


def carry_out(command: str, words: list[str], root: Path) -> None:
    """Run a program, small."""
    script, *others = words
    code = here(*small(script, others), cwd=root, program=script, root=root)
    assert code == 0, code
    if " -m " in command:
        SWEEPS[command] = newest(set(root.glob("sweeps/*/multirun.yaml")))


def case(page: Path, command: str) -> object:
    """A command as a test; a measurement with processes of its own, 15 s long, is `slow`."""
    slow = [pytest.mark.slow] if "throughput.py" in command else []
    return pytest.param(page, command, id=f"{page.stem}: {command}", marks=slow)


@pytest.mark.usefixtures("small_corpus")
@pytest.mark.parametrize(("page", "command"), [case(*each) for each in PYTHON])
def test_a_command_does_what_its_page_says(
    page: Path, command: str, copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script, *words = filled_in(page, command, copy)
    capsys.readouterr()
    before = results(copy)
    carry_out(command, [script, *words], copy)
    check_outcome(script, words, capsys.readouterr().out, results(copy) - before, copy)


def check_outcome(script: str, words: list[str], printed: str, made: set[Path], copy: Path) -> None:
    """What a program has printed and written."""
    if script == "sample.py":
        prompt = words[words.index("--prompt") + 1] if "--prompt" in words else ""
        length = int(words[words.index("--max-new-tokens") + 1]) if prompt else 500
        assert printed.startswith(prompt) and len(printed) == len(prompt) + length + 1
    elif script == "compare.py":
        place = words[words.index("--out") + 1] if "--out" in words else f"{words[0]}/comparison"
        assert "report.html" in printed and (copy / place / "report.html").exists()
    elif script == "at_init.py":
        assert "at_init.csv" in printed and list(copy.glob("runs/at_init-*/at_init.csv"))
    elif script == "benchmarks/norms.py":
        assert printed.count("| halfnorm | ") == 2  # one per shape
    elif script == "benchmarks/throughput.py":
        assert re.search(r"time of the bare loop: \d+\.\d{3}\n$", printed)
    elif script.startswith("tools/"):
        drawn = {
            "tools/draw_curves.py": "curves.png",
            "tools/draw_readings.py": "probes_readings.svg",
        }
        picture = Path("docs", drawn[script])
        assert (copy / picture).stat().st_mtime > (ROOT / picture).stat().st_mtime
    elif words[0].startswith("--"):
        assert "block_size: 16" in printed and not made
    else:
        resumed = [word.partition("=")[2] for word in words if word.startswith("resume=")]
        ended = made or {Path(folder) / "result.json" for folder in resumed}
        found = [json.loads(path.read_text()) for path in ended]
        assert {result["status"] for result in found} == {"finished"}
        assert not resumed or found[0]["legs"] > 1


def test_the_other_commands_exist() -> None:
    assert {command.split()[0] for command in OTHER} == {"make", "source", "tensorboard"}
    for command in OTHER:
        program, *words = shlex.split(command)
        if program == "make":
            dry = [program, *words, "--dry-run"]
            subprocess.run(dry, cwd=ROOT, check=True, capture_output=True)
        elif program == "tensorboard":
            assert shutil.which(program, path=str(Path(sys.executable).parent))
        else:
            assert words == [".venv/bin/activate"]  # as the Makefile names it


def test_every_command_within_the_text_of_the_readme_is_run_on_some_page() -> None:
    within = set(re.findall(r"`(python [^`]+)`", README.read_text()))
    assert within - {command for _, command in PYTHON} == set()


def test_the_new_norm_of_the_docs_passes_the_linter(tmp_path: Path) -> None:
    """In place, as `make check` would: formatted, and with every docstring."""
    folder = tmp_path / "model" / "norms"
    folder.mkdir(parents=True)
    (tmp_path / "configs" / "norm").mkdir(parents=True)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    write_new_norm(tmp_path)
    ruff = Path(sys.executable).parent / "ruff"
    for check in (["format", "--check"], ["check"]):
        done = subprocess.run([ruff, *check, "."], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout


@pytest.mark.slow
def test_the_new_norm_of_the_docs_passes_all_that_its_page_asks_for(tmp_path: Path) -> None:
    """`make docs check` and its tests, in a copy that had none of it before."""
    copy_repository(tmp_path)
    write_new_norm(tmp_path)
    programs = Path(sys.executable).parent
    for command in (
        [sys.executable, "tools/write_tables.py"],
        [sys.executable, "tools/draw_axes.py"],
        [programs / "ruff", "format", "--check", "."],
        [programs / "ruff", "check", "."],
        [programs / "mypy"],
        [sys.executable, "-m", "pytest", "-q", "-n", "0", "tests/model", "-k", "halfnorm"],
        [sys.executable, "-m", "pytest", "-q", "-n", "0", "tests/tools"],
    ):
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, f"{command}\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
    assert (
        "| halfnorm | nothing | C | none | yes | yes |"
        in (tmp_path / "docs" / "norms.md").read_text()
    )


def anchors(page: Path) -> set[str]:
    """The names that GitHub gives to a page's headings."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    plain = [re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower() for heading in headings]
    return {re.sub(r"[^\w\- ]", "", heading).replace(" ", "-") for heading in plain}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_to_a_file_and_a_heading_that_is_there(page: Path) -> None:
    for link in re.findall(r"\]\((?!https?:)([^)]+)\)", page.read_text()):
        path, _, heading = link.partition("#")
        target = page.parent / path if path else page
        assert target.exists(), link
        assert not heading or heading in anchors(target), link


def test_the_readme_links_to_every_page_and_is_short() -> None:
    text = README.read_text()
    assert [page.name for page in OTHERS if f"(docs/{page.name}" not in text] == []
    assert len(text.splitlines()) <= 180


def test_the_citation_names_the_version_of_the_project() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert citation["version"] == project["version"]
    assert {"cff-version", "message", "title", "authors"} <= citation.keys()
