"""Which keys of the configurations make conditions, and how conditions are named."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd

from report.compare import compare
from report.conditions import flat_config, label, swept_keys
from report.read import Runs, read_runs
from tests.report.conftest import config_of, judged_of

Write = Callable[..., Path]


def keys_of(runs: Runs) -> list[str]:
    return swept_keys(runs.flat, runs.typed)


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


def test_an_option_that_a_norm_does_not_have_is_no_part_of_its_name(
    tmp_path: Path, write_run: Write
) -> None:
    for seed in (1, 2):
        for momentum in (0.1, None):
            folder = write_run(tmp_path / f"b{momentum}-{seed}", "batchnorm", seed)
            for path in (folder / ".hydra/config.yaml", folder / "result.json"):
                text = path.read_text()
                path.write_text(text.replace("momentum: 0.1", "momentum: null"))
            result = json.loads((folder / "result.json").read_text())
            result["config"]["norm"]["momentum"] = momentum
            (folder / "result.json").write_text(json.dumps(result))
        write_run(tmp_path / f"l{seed}", "layernorm", seed)
    assert set(judged_of(tmp_path).study.conditions) == {
        "layernorm",
        "batchnorm momentum=0.1",
        "batchnorm momentum=None",
    }


def test_values_are_compared_typed_however_they_were_written(
    tmp_path: Path, write_run: Write
) -> None:
    """Sweep A leaves dropout at 0.0, sweep B sets it to 0: two conditions of six, not four."""
    for i, norm in enumerate(("layernorm", "none")):
        for seed in range(1, 7):
            sweep, zero = ("A", 0.0) if seed < 4 else ("B", 0)
            how: dict[str, Any] = dict(model__dropout=zero, optimizer__eps="1e-8" if i else 1e-8)
            write_run(tmp_path / sweep / f"{norm}{seed}", norm, seed, **how)
    compare([tmp_path / "A", tmp_path / "B"], out=tmp_path / "out")
    summary = pd.read_csv(tmp_path / "out/summary.csv", index_col="condition")
    assert summary.n.to_dict() == {"layernorm": 6, "none": 6}
