"""The layout's rules, read off the syntax trees: who may import what, how long files may be.

Five floors, every import pointing down, imports inside functions too:
programs > sweep > report > run > model, data. Rules are for folders; the few for files say why.
"""

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from tests.conftest import ROOT

TORCH, LIGHTNING = {"torch"}, {"lightning"}
HYDRA, TEXT = {"hydra", "omegaconf"}, {"datasets", "tokenizers"}
TABLES = {"pandas", "scipy", "matplotlib"}
HEAVY = TORCH | LIGHTNING | HYDRA | TEXT | TABLES
PROGRAMS = {"train.py", "sample.py", "compare.py", "at_init.py"}

# A folder or file: which of the heavy packages, and which of our own folders, it may import.
RULES: dict[str, tuple[set[str], set[str]]] = {
    "model/norms": (TORCH, set()),  # a norm file is read alone
    "model/gpt.py": (TORCH, set()),  # norms come in as arguments
    "model": (TORCH | LIGHTNING, {"model"}),
    "data": (TORCH | LIGHTNING | TEXT, {"data"}),
    "run": (TORCH | LIGHTNING | HYDRA, {"run", "model", "data"}),
    "report": (TABLES, {"report", "run"}),
    "sweep": (HYDRA, {"sweep", "report", "run"}),
    "hydra_plugins": (set(), {"sweep"}),  # Hydra takes sweepers from this folder only
    "train.py": (TORCH | LIGHTNING | HYDRA, {"sweep", "run", "model", "data"}),
    "at_init.py": (TORCH | LIGHTNING | HYDRA, {"sweep", "report", "run", "model", "data"}),
    "sample.py": (TORCH | HYDRA | TEXT, {"run", "model", "data"}),
    "compare.py": (set(), {"report", "run"}),
}
FOLDERS = {"model", "data", "run", "report", "sweep", "hydra_plugins"}
# Two files with one name: a program and its work.
TWINS = {"compare"}
# Tests of several files together, or of what no single file does.
TOGETHER = {
    "model/norms": {"batch_statistics", "contract", "in_gpt", "properties", "reference"},
    "model/probes": {"leak", "training"},
    "report": {"browser"},
    "run": {"damage"},
}
FILES = sorted(p for p in ROOT.glob("**/*.py") if ".venv" not in p.parts)
CODE = {
    str(p.relative_to(ROOT)): ast.parse(p.read_text())
    for p in FILES
    if p.relative_to(ROOT).parts[0] in FOLDERS | PROGRAMS
}


def modules(tree: ast.AST) -> set[str]:
    """The dotted names that a syntax tree imports; of `from a import b` both a and a.b."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            found |= {str(node.module), *(f"{node.module}.{name.name}" for name in node.names)}
    return found


def packages(tree: ast.AST) -> set[str]:
    return {name.split(".")[0] for name in modules(tree)}


def files(tree: ast.AST) -> set[str]:
    """Our own files that a syntax tree imports."""
    names = {name.replace(".", "/") + ".py" for name in modules(tree)}
    return names & CODE.keys()


def at_start(tree: ast.Module) -> ast.Module:
    """What is run when a file is imported: all but the bodies of its functions."""

    class Strip(ast.NodeTransformer):
        def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
            return None

    return Strip().visit(ast.parse(ast.unparse(tree)))


def reached(start: set[str], *, late: bool) -> set[str]:
    """The files that importing some files leads to; with `late` also from inside functions."""
    found: set[str] = set()
    waiting = set(start)
    while waiting:
        path = waiting.pop()
        found.add(path)
        waiting |= files(CODE[path] if late else at_start(CODE[path])) - found
    return found


def rule_for(path: str) -> tuple[set[str], set[str]]:
    """The rule for a file, or else that of the nearest folder above it."""
    for place in (path, *map(str, Path(path).parents)):
        if place in RULES:
            return RULES[place]
    raise AssertionError(f"{path} needs a rule")


def acyclic(graph: dict[str, set[str]]) -> bool:
    """Whether there is an order in which nothing comes before what it imports."""
    without_itself = {node: before - {node} for node, before in graph.items()}
    return len(list(TopologicalSorter(without_itself).static_order())) > 0  # raises CycleError


@pytest.mark.parametrize("path", CODE)
def test_a_file_imports_only_what_its_folder_allows(path: str) -> None:
    heavy, ours = rule_for(path)
    found = packages(CODE[path])
    assert found & HEAVY <= heavy
    programs = {Path(program).stem for program in PROGRAMS}
    assert found & (FOLDERS | programs) <= ours


def test_every_floor_imports_only_floors_below_it() -> None:
    """By file, by folder (model and model/probes are two) and by floor there is no circle."""
    imports = {path: files(tree) for path, tree in CODE.items()}
    assert acyclic(imports)
    for level in (lambda path: str(Path(path).parent), lambda path: Path(path).parts[0]):
        graph: dict[str, set[str]] = {}
        for path, imported in imports.items():
            graph.setdefault(level(path), set()).update(map(level, imported))
        assert acyclic(graph)


def test_no_module_of_ours_is_imported_by_its_name_in_a_string() -> None:
    """That would hide an import from these tests; `importlib.metadata` reads versions only."""
    for path, tree in CODE.items():
        hidden = {name for name in modules(tree) if name.split(".")[0] in ("importlib", "runpy")}
        assert hidden <= {"importlib", "importlib.metadata"}, path
        words = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        words |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
        assert not words & {"import_module", "__import__"}, path


def test_what_the_report_reads_of_a_run_needs_no_torch() -> None:
    starts = {path for path in CODE if path.startswith("report/")} | {"compare.py"}
    for path in reached(starts, late=True):
        assert not packages(CODE[path]) & (TORCH | LIGHTNING), path


def test_programs_start_without_anything_that_takes_seconds_to_import() -> None:
    """Hydra imports the sweeper and the callback at every start."""
    starts = PROGRAMS | {"hydra_plugins/tune.py", "sweep/callback.py"}
    for path in reached(starts, late=False):
        slow = TORCH | LIGHTNING | TEXT | TABLES
        assert not packages(at_start(CODE[path])) & slow, path


def test_no_file_of_run_is_the_knot_of_the_house() -> None:
    importers = {
        path: {other for other, tree in CODE.items() if path in files(tree)}
        for path in CODE
        if path.startswith("run/")
    }
    assert {path: found for path, found in importers.items() if len(found) > 8} == {}


def test_files_are_short() -> None:
    lines = {str(p.relative_to(ROOT)): len(p.read_text().splitlines()) for p in FILES}
    assert {path: n for path, n in lines.items() if n > 400} == {}
    assert {path: lines[path] for path in PROGRAMS if lines[path] > 100} == {}


def test_no_two_files_have_the_same_name() -> None:
    stems = [Path(path).stem for path in CODE if not path.endswith("__init__.py")]
    assert {stem for stem in stems if stems.count(stem) > 1} <= TWINS


def test_each_folder_is_a_package_of_its_own() -> None:
    """Else a package of the same name anywhere on PYTHONPATH would win over it."""
    for folder in {(ROOT / path).parent for path in CODE} - {ROOT, ROOT / "hydra_plugins"}:
        assert (folder / "__init__.py").read_text() == "", folder
    assert not (ROOT / "hydra_plugins" / "__init__.py").exists()  # others may add sweepers


def test_tests_mirror_the_tree() -> None:
    """`tests/run/test_result.py` is of `run/result.py`; `test_gpt_sites.py` is of `gpt.py`."""
    tests = [path for path in (ROOT / "tests").glob("*/**/test_*.py")]
    assert len(tests) > 20
    lost = []
    for path in tests:
        folder = path.parent.relative_to(ROOT / "tests")
        name = path.stem.removeprefix("test_")
        there = {file.stem for file in (ROOT / folder).glob("*.py")}
        begins = any(name == stem or name.startswith(f"{stem}_") for stem in there)
        if not begins and name not in TOGETHER.get(str(folder), set()):
            lost.append(f"{folder}/{path.name}")
    assert lost == []


def test_no_package_is_shadowed_by_a_file_of_ours() -> None:
    assert not {p.stem for p in ROOT.glob("*.py")} & {"datasets", "tokenizers", "torch", "hydra"}
