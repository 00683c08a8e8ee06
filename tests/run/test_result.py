"""result.json: strict JSON that comes back, with the versions that it depends on."""

import json
import math
from pathlib import Path

from run.result import environment, read_result, write_result


def test_result_json_is_strict_json_and_comes_back(tmp_path: Path) -> None:
    write_result(tmp_path, {"val_best": math.inf, "test_final": math.nan, "steps": 3, "e": "é"})
    text = (tmp_path / "result.json").read_text("utf-8")
    assert "NaN" not in text
    assert "Infinity" not in text
    assert read_result(tmp_path) == {"val_best": None, "test_final": None, "steps": 3, "e": "é"}
    assert read_result(tmp_path / "unfinished") == {}


def test_environment_names_the_versions_and_the_commit() -> None:
    found = environment()
    assert found["torch"].startswith("2.")
    assert found.keys() == {"python", "torch", "lightning", "commit", "dirty"}
    assert json.dumps(found)
