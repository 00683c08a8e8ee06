"""Run folders in, one row a run out; what is no finished run is named and left."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from report.conditions import flat_config, label, swept_keys
from report.failures import bad_evaluations, failure, spiked
from report.read import Runs, read_runs
from tests.report.conftest import ENTROPY, START, config_of

Write = Callable[..., Path]


def keys_of(runs: Runs) -> list[str]:
    return swept_keys(runs.flat, runs.typed)


def test_every_run_of_several_sweeps_is_read_once(tmp_path: Path, write_sweep: Write) -> None:
    one = write_sweep(tmp_path / "one", {"layernorm": [2.0, 2.1]})
    two = write_sweep(tmp_path / "two", {"none": [2.3]})
    runs = read_runs([one, two, one, one / "layernorm-s1-0"])
    assert sorted(runs.table.index) == ["layernorm-s1-0", "layernorm-s2-1", "none-s1-0"]
    assert runs.table.test_best["none-s1-0"] == 2.3
    assert runs.place == one


def test_runs_of_one_name_in_two_sweeps_are_kept_apart(tmp_path: Path, write_sweep: Write) -> None:
    folders = [write_sweep(tmp_path / name, {"none": [2.0]}) for name in ("a", "b")]
    assert list(read_runs(folders).table.index) == ["a/none-s1-0", "b/none-s1-0"]


def test_unfinished_and_foreign_folders_are_skipped_with_a_line(
    tmp_path: Path, write_sweep: Write, write_run: Write
) -> None:
    sweep = write_sweep(tmp_path / "s", {"layernorm": [2.0]})
    (write_run(sweep / "killed") / "result.json").unlink()
    (write_run(sweep / "torn") / "result.json").write_text('{"status": "fin')
    write_run(sweep / "stopped", result={"status": "interrupted"})
    for other in ("notes", "comparison", ".hydra_old"):
        (sweep / other).mkdir()
    runs = read_runs([sweep])
    assert len(runs.table) == 1
    assert sorted(runs.skipped) == [
        "killed: unfinished (running, or killed)",
        "notes: no run folder",
        "stopped: unfinished (interrupted)",
        "torn: result.json cannot be read",
    ]


def test_nothing_to_read_is_a_mistake_on_one_line(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="nowhere is no folder; give a sweep's"):
        read_runs([tmp_path / "nowhere"])
    with pytest.raises(ValueError, match=r"no run in .* has ended"):
        read_runs([tmp_path])


def test_curves_are_read_and_a_row_cut_short_by_a_kill_is_not(
    tmp_path: Path, write_run: Write
) -> None:
    folder = write_run(tmp_path / "s/run")
    text = (
        "step,name,value\n0,loss/val,4.0\n10,loss/train,3.5\n10,loss/train,3.25\n20,loss/train,2."
    )
    (folder / "metrics.csv").write_text(text)
    curves = read_runs([tmp_path / "s"]).curves["run"]
    assert curves["loss/train"].dropna().to_dict() == {10: 3.25}
    (folder / "metrics.csv").unlink()
    assert read_runs([tmp_path / "s"]).curves["run"].empty


def test_a_condition_is_what_was_swept_without_what_follows_from_it(
    tmp_path: Path, write_run: Write
) -> None:
    """A norm's own options, copies of keys, seeds and the length's copy are named once or not."""
    for i, (norm, batch, steps) in enumerate([("none", 4, 100), ("batchnorm", 8, 200)] * 2):
        how = dict(data__batch_size=batch if i < 2 else 12 - batch, trainer__max_steps=steps)
        write_run(tmp_path / "s" / str(i), norm, seed=i, **how)
    runs = read_runs([tmp_path / "s"])
    assert keys_of(runs) == ["norm", "data.batch_size"]
    assert label(runs.flat["0"], keys_of(runs)) == "none batch_size=4"


def test_a_norms_option_is_a_condition_where_it_alone_differs() -> None:
    flat = {}
    for eps in (1e-5, 1e-3):
        config = config_of("layernorm", 1)
        config["norm"]["eps"] = config["model"]["norm"]["eps"] = eps
        flat[str(eps)] = flat_config(config)
    assert swept_keys(flat) == ["norm.eps"]


def test_a_group_of_the_command_line_names_its_condition() -> None:
    """`model=mini,baby` reads `model=mini`, not one number of the many it stands for."""
    flat = {}
    for size, layers in (("mini", 2), ("baby", 4)):
        config = config_of("layernorm", 1, model__n_layer=layers, model__n_embd=32 * layers)
        flat[size] = flat_config(config, ["norm=layernorm", f"model={size}"])
    assert swept_keys(flat, {"model"}) == ["model"]
    flat["typed by no one"] = flat_config(config_of("layernorm", 1))
    assert swept_keys(flat, {"model"})[0] == "model.n_layer"


def test_a_job_that_failed_at_once_stands_in_its_own_condition(
    tmp_path: Path, write_run: Write
) -> None:
    """It has stored no configuration: the other jobs of its sweep lend theirs."""
    sweep = tmp_path / "s"
    for batch in (1, 8):
        write_run(sweep / f"ln{batch}", "layernorm", data__batch_size=batch)
    for batch in (1, 8):
        (sweep / f"bn{batch}").mkdir()
        overrides = ["experiment=x", "norm=batchnorm", "seed=1", f"data.batch_size={batch}"]
        overrides.append("optimizer.lr=3e-3")
        fields = {"status": "failed", "error": "one value", "norm": "batchnorm", "seed": 1}
        (sweep / f"bn{batch}/result.json").write_text(json.dumps(fields | {"overrides": overrides}))
    runs = read_runs([sweep])
    labels = {run: label(runs.flat[run], keys_of(runs)) for run in runs.flat}
    assert labels["bn1"] == "batchnorm batch_size=1"
    assert labels["bn8"] == "batchnorm batch_size=8"
    assert set(runs.table.failure) == {"", "error"}
    assert runs.table.lr.nunique() == runs.table.max_steps.nunique() == 1


def result_of(final: float | None = 2.0, status: str = "finished") -> dict[str, object]:
    return {
        "status": status, "val_final": final, "loss_initial": START, "unigram_entropy": ENTROPY
    }  # fmt: skip


def curves_of(train: list[float], every: int = 2) -> pd.DataFrame:
    """Training losses at steps 1, 2, ...; an evaluation after each `every`."""
    steps = np.arange(1, len(train) + 1)
    frame = pd.DataFrame({"loss/train": train, "loss/val": np.nan}, index=steps)
    frame.loc[frame.index % every == 0, "loss/val"] = 1.0
    return frame


@pytest.mark.parametrize(
    ("result", "train", "kind"),
    [
        (result_of(), [3.0, 2.5] * 6, ""),
        (result_of(status="failed"), [3.0], "error"),
        (result_of(None, "diverged"), [3.0], "non-finite"),
        (result_of(3.19), [3.3] * 12, ""),
        (result_of(3.21), [3.3] * 12, "failed to learn"),
        (result_of(2.0), [2.0] * 2 + [4.1] * 10, "blown up"),
        (result_of(2.0), [1.0] * 2 + [2.1] * 10, "blown up"),
        (result_of(2.0), [1.0] * 2 + [2.1] * 8 + [1.9] * 2, ""),
        (result_of(2.0), [2.0] * 2 + [4.1] * 8, ""),
    ],
)
def test_a_failure_has_the_kind_that_the_design_gives_it(
    result: dict[str, object], train: list[float], kind: str
) -> None:
    """START 4.0, ENTROPY 3.3; blown up takes five evaluations in a row at the end."""
    assert failure(result, curves_of(train)) == kind


def test_a_spike_that_came_down_is_a_spike_and_no_failure() -> None:
    train = [3.0] * 4 + [4.5] + [2.0] * 15
    assert spiked(curves_of(train), START)
    assert failure(result_of(), curves_of(train)) == ""
    assert not spiked(curves_of([4.5] + [3.0] * 19), START)  # the start is no spike
    assert not spiked(curves_of([3.0] * 20), START)


def test_evaluations_are_judged_by_the_training_loss_before_them() -> None:
    assert bad_evaluations(curves_of([1, 1, 1, 4, 1, 1]), START).tolist() == [False, True, False]
    assert len(bad_evaluations(pd.DataFrame(), START)) == 0
