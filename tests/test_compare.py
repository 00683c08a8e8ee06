"""compare.py as it is typed."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter

import pytest

from compare import main
from run.program import start
from tests.conftest import ROOT
from tests.report.conftest import write_run, write_sweep  # noqa: F401

Write = Callable[..., Path]
LOSSES = {"layernorm": [2.0, 2.1, 2.05], "none": [2.5, 2.6, 2.45]}


def typed(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> None:
    monkeypatch.setattr(sys, "argv", ["compare.py", *map(str, arguments)])
    start(main)


def process(*arguments: object) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, str(ROOT / "compare.py"), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT)


def test_help_answers_at_once() -> None:
    """Asked for is 1.5 s; nothing heavy is imported on the way."""
    times = []
    for _ in range(3):
        start = perf_counter()
        assert "--plan MARGIN" in process("--help").stdout
        times.append(perf_counter() - start)
    assert min(times) < 1.5


def test_a_report_imports_neither_torch_nor_hydra() -> None:
    code = "import sys, report.compare; print({'torch', 'hydra', 'lightning'} & set(sys.modules))"
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert (done.stdout.strip(), done.stderr) == ("set()", "")


def test_several_sweeps_make_one_table(
    tmp_path: Path,
    write_sweep: Write,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for norm, losses in LOSSES.items():
        write_sweep(tmp_path / norm, {norm: losses})
    typed(monkeypatch, tmp_path / "none", tmp_path / "layernorm", "--baseline", "none")
    out = capsys.readouterr().out
    assert "−0.467" in out
    assert (tmp_path / "none/comparison/report.html").exists()


def test_the_report_can_be_written_elsewhere(
    tmp_path: Path,
    write_sweep: Write,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    write_sweep(tmp_path / "sweep", LOSSES)
    monkeypatch.chdir(tmp_path)
    typed(monkeypatch, "sweep", "--out", "elsewhere/here")
    assert capsys.readouterr().out.rstrip().endswith("page     elsewhere/here/report.html")
    assert (tmp_path / "elsewhere/here/report.html").exists()
    assert not (tmp_path / "sweep/comparison").exists()


def test_a_margin_asks_for_the_seeds(
    tmp_path: Path,
    write_sweep: Write,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    typed(monkeypatch, write_sweep(tmp_path, LOSSES), "--plan", "0.02")
    assert "Seeds for a verdict" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "error: .*nowhere is not a folder; give the folder of a sweep or of a run$"),
        (["."], r"error: no run in .* has ended"),
        (
            ["sweep", "--baseline", "dyt"],
            "error: no run of --baseline dyt; there are: layernorm, none",
        ),
        (["sweep", "--plan", "0"], "error: --plan needs a margin above 0"),
        (
            ["sweep", "--out", "sweep/layernorm-s1-0/result.json"],
            "error: --out .* is a file; give a",
        ),
        (["sweep", "--plan", "nan"], "error: --plan needs a margin above 0"),
    ],
)
def test_a_mistake_is_one_line(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    write_sweep: Write,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write_sweep(tmp_path / "sweep", LOSSES)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit, match=message) as stopped:
        typed(monkeypatch, *arguments)
    assert "\n" not in str(stopped.value)
    assert not (tmp_path / "sweep/comparison").exists()


def test_a_reader_that_closes_early_sees_no_traceback(
    tmp_path: Path,
    write_sweep: Write,  # noqa: F811
) -> None:
    write_sweep(tmp_path, LOSSES)
    command = f"{sys.executable} {ROOT / 'compare.py'} {tmp_path} | true"
    done = subprocess.run(command, shell=True, capture_output=True, text=True)
    assert done.stderr == ""
