"""The layout's rules, read off the syntax trees: who may import what, and how long files may be."""

import ast
from pathlib import Path

import pytest

from tests.conftest import ROOT

OURS = {"model", "data", "run", "report", "sweep", "hydra_plugins", "train", "sample", "compare"}
TORCH, LIGHTNING = {"torch"}, {"lightning"}
HYDRA, TEXT = {"hydra", "omegaconf"}, {"datasets", "tokenizers"}
HEAVY = TORCH | LIGHTNING | HYDRA | TEXT

# A file or folder: which of the heavy packages, and which of our own, it may import.
RULES: dict[str, tuple[set[str], set[str]]] = {
    "model/norms": (TORCH, set()),
    "model/gpt.py": (TORCH, set()),
    "model/running_statistics.py": (TORCH, set()),
    "model/properties.py": (TORCH | HYDRA, {"model"}),
    "model/__init__.py": (set(), set()),
    "model/sites.py": (TORCH, set()),
    "model/steps.py": (LIGHTNING, set()),
    "model/causality.py": (TORCH, {"model"}),
    "model/scale_invariance.py": (TORCH, {"model"}),
    "model/probes": (TORCH | LIGHTNING, {"model"}),
    "model/lit.py": (TORCH | LIGHTNING, {"model"}),
    "data": (TORCH | LIGHTNING | TEXT, {"data"}),
    "run/tensorboard.py": (set(), set()),
    "run/folder.py": (set(), {"run"}),
    "run/checks.py": (set(), {"run"}),
    "run/resume.py": (set(), {"run"}),
    "run/callbacks.py": (TORCH | LIGHTNING, {"run"}),
    "run/loggers.py": (TORCH | LIGHTNING, {"run"}),
    "run/outcome.py": (TORCH | LIGHTNING, {"run", "model"}),
    "run/__init__.py": (set(), set()),
    "sweep": (HYDRA, {"sweep", "run", "report"}),
    "hydra_plugins": (set(), {"sweep"}),  # the one folder that Hydra takes sweepers from
    "run/at_init.py": (TORCH | HYDRA, {"model", "run", "report"}),
    "report": (set(), {"report", "run"}),
    "compare.py": (set(), {"report"}),
    "train.py": (TORCH | LIGHTNING | HYDRA, {"model", "data", "run", "sweep"}),
    "sample.py": (TORCH | LIGHTNING | HYDRA | TEXT, {"model", "data", "run"}),
}
FILES = sorted(p for p in ROOT.glob("**/*.py") if ".venv" not in p.parts)
CODE = [p for p in FILES if p.relative_to(ROOT).parts[0] not in ("tests", "benchmarks", "tools")]


def imports(tree: ast.AST) -> set[str]:
    """The packages that a syntax tree imports."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {name.name.split(".")[0] for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            found.add(str(node.module).split(".")[0])
    return found


def rule_for(path: str) -> str:
    """The one rule that covers a file."""
    covering = [rule for rule in RULES if path == rule or path.startswith(f"{rule}/")]
    assert len(covering) == 1, f"{path} needs a rule"
    return covering[0]


@pytest.mark.parametrize("path", [str(p.relative_to(ROOT)) for p in CODE])
def test_a_file_imports_only_what_its_place_allows(path: str) -> None:
    heavy, ours = RULES[rule_for(path)]
    found = imports(ast.parse((ROOT / path).read_text()))
    assert found & HEAVY <= heavy
    assert found & OURS <= ours


@pytest.mark.parametrize("path", ["train.py", "sample.py"])
def test_the_programs_import_torch_late(path: str) -> None:
    tree = ast.parse((ROOT / path).read_text())
    at_start = ast.Module([node for node in tree.body if not isinstance(node, ast.FunctionDef)], [])
    assert not imports(at_start) & (TORCH | LIGHTNING | TEXT | {"model", "data"})


def test_files_are_short() -> None:
    lines = {p.relative_to(ROOT): len(p.read_text().splitlines()) for p in FILES}
    assert {path: n for path, n in lines.items() if n > 400} == {}
    assert lines[Path("train.py")] <= 100


def test_no_package_is_shadowed_by_a_file_of_ours() -> None:
    assert not {p.stem for p in ROOT.glob("*.py")} & {"datasets", "tokenizers", "torch", "hydra"}
