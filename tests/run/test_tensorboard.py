"""What a real TensorBoard server says over HTTP about runs that ended in every way.

The server is TensorBoard's own, in a thread of this process. Reference: result.json and the files
of the run folders.
"""

import html
import json
import logging
import re
import time
import urllib.parse
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hydra.errors import HydraException
from tensorboard import default, program
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import model.lit
from run.loggers import Events
from run.result import close_failed, read_result
from run.tensorboard import HPARAMS, LAYOUT, METRICS, in_words
from tests.conftest import NORMS, ROOT, composing
from train import train

SMALL = ["model=mini", "data.batch_size=4", "data.block_size=16", "trainer.max_steps=4"]
SMALL += ["eval_every=2", "log_every=1", "sample.max_new_tokens=30", "data.eval_batches=1"]
RUNS = {  # how each job of a sweep differs; the values of a norm's options have other types
    "layernorm-s1-0": ["norm=layernorm"],
    "batchnorm-s1-1": ["norm=batchnorm", "norm.momentum=null"],
    "batchnorm-s1-2": ["norm=batchnorm", "norm.momentum=0.1"],  # a bug in training
    "none-s2-3": ["norm=none", "seed=2", "+norm@model.qk_norm=rmsnorm"],
    "none-s1-4": ["norm=none", "optimizer.lr=1e30", "trainer.gradient_clip_val=null"],
    "dyt-s1-5": ["norm=dyt", "data.path=nowhere.txt"],
}
STATUS = dict.fromkeys(RUNS, "finished")
STATUS |= {"none-s1-4": "diverged", "dyt-s1-5": "failed", "batchnorm-s1-2": "failed"}
HOSTILE = "\n\n# not a title\n* no *stars* \n\n\n    <b>&lt;\t|a|\n```\n1. \r_x_</pre><script>  \n"
Ask = Callable[..., Any]


def bug(self: object) -> None:
    raise RuntimeError("a bug")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, tiny_text: Path) -> Path:
    """The folder of the runs, made as train.py makes them, and of one that holds a text only."""
    place = tmp_path_factory.mktemp("runs")
    for name, differing in RUNS.items():
        (place / name).mkdir()
        overrides = [*SMALL, f"data.path={tiny_text}", *differing]
        with composing() as composed, pytest.MonkeyPatch.context() as patch:
            if name == "batchnorm-s1-2":
                patch.setattr(model.lit.LitGPT, "on_validation_epoch_end", bug)
            cfg = composed(*overrides)
            try:
                train(cfg, place / name, overrides)
            except (RuntimeError, HydraException) as error:
                close_failed(place / name, cfg, overrides, error)
    events = Events(place / "hostile", start=0)
    events.log_text("text", HOSTILE, 0)
    events.experiment.close()
    return place


@pytest.fixture(scope="module")
def ask(runs: Path) -> Ask:
    """Ask the server for a page's JSON; with a body, by POST."""
    # its thread outlives the test, and would write between the lines of other tests' programs
    logging.getLogger("tensorboard").setLevel(logging.WARNING)
    board = program.TensorBoard(default.get_plugins())
    board.configure(argv=["", "--logdir", str(runs), "--port", "0", "--load_fast", "false"])
    address = board.launch() + "data/"

    def answer(path: str, body: Any = None, **query: str) -> Any:
        url = f"{address}{path}?{urllib.parse.urlencode(query)}"
        data = None if body is None else json.dumps(body).encode()
        kind = {"Content-Type": "application/json"}
        with urllib.request.urlopen(urllib.request.Request(url, data, kind)) as reply:
            return json.load(reply)

    for _ in range(100):  # it reads the folders in the background, a row's file last
        if len(rows(answer)) == len(RUNS) and "hostile" in answer("plugin/text/tags"):
            break
        time.sleep(0.1)
    return answer


def rows(ask: Ask) -> dict[str, Any]:
    """The rows of HPARAMS, by run."""
    statuses = [f"STATUS_{name}" for name in ("UNKNOWN", "SUCCESS", "FAILURE", "RUNNING")]
    what = {"experimentName": "", "allowedStatuses": statuses, "colParams": []}
    found = ask("plugin/hparams/session_groups", {**what, "startIndex": 0, "sliceSize": 100})
    return {row["name"]: row for row in found["sessionGroups"]}


def shown(page: str) -> str:
    """The text that a browser would show of a text page's HTML, whose only markup is its frame."""
    found = re.search(r"<td>\s*<pre><code>(.*)</code></pre>\s*</td>", page, re.DOTALL)
    assert found is not None and "<" not in found[1]
    return html.unescape(found[1])


def test_a_job_is_one_run_with_scalars_grouped_by_noun(ask: Ask) -> None:
    assert set(ask("runs")) == {*RUNS, "hostile"}
    tags = ask("plugin/scalars/tags")
    groups = {tag.partition("/")[0] for tag in tags["layernorm-s1-0"]}
    assert groups - {"probe"} == {"loss", "optim", "result", "speed", "tokens"}
    assert not any("hp_metric" in tag for run in tags.values() for tag in run)
    points = ask("plugin/scalars/scalars", run="none-s2-3", tag="tokens")
    assert [(step, value) for _, step, value in points] == [(n, n * 64) for n in (1, 2, 3, 4)]
    points = ask("plugin/scalars/scalars", run="layernorm-s1-0", tag="loss/val")
    assert [step for _, step, _ in points] == [0, 2, 4]


def test_hparams_has_the_same_typed_columns_for_all_runs(ask: Ask) -> None:
    columns = ask("plugin/hparams/experiment", {"experimentName": "", "includeMetrics": True})
    kinds = {"DATA_TYPE_STRING": str, "DATA_TYPE_FLOAT64": float}
    declared = {column["name"]: kinds[column["type"]] for column in columns["hparamInfos"]}
    assert declared == {name: kind for name, (kind, _) in HPARAMS.items()}
    first = [column["name"] for column in columns["hparamInfos"]][:5]  # those that are shown
    assert sorted(first) == ["lr", "norm", "norm_options", "placement", "seed"]
    assert [metric["name"]["tag"] for metric in columns["metricInfos"]] == list(METRICS)
    for row in rows(ask).values():
        assert {name: type(cell) for name, cell in row["hparams"].items()} == declared


def test_hparams_has_one_row_a_run_with_the_values_of_its_result(ask: Ask, runs: Path) -> None:
    found = rows(ask)
    assert found.keys() == RUNS.keys()
    for name, row in found.items():
        result = read_result(runs / name)
        (session,) = row["sessions"]
        assert result["status"] == STATUS[name]
        assert (session["status"] == "STATUS_FAILURE") == (STATUS[name] == "failed")
        assert (row["hparams"]["norm"], row["hparams"]["seed"]) == (result["norm"], result["seed"])
        values = {metric["name"]["tag"]: metric["value"] for metric in row["metricValues"]}
        assert values.pop("result/diverged") == (STATUS[name] == "diverged")
        assert values.pop("result/failed") == (STATUS[name] == "failed")
        expected = {tag: result.get(field) for tag, field in METRICS.items()}
        known = {tag: value for tag, value in expected.items() if value is not None}
        assert values == pytest.approx(known, rel=1e-6)  # float32
        assert {"result/val_final", "result/steps"} <= known.keys() or STATUS[name] != "finished"
    cells = {name: row["hparams"] for name, row in found.items()}
    assert cells["batchnorm-s1-1"]["norm_options"] == (
        "affine=true eps=1e-05 ghost=null momentum=null use_mask=true"
    )
    assert cells["none-s2-3"]["site_norms"] == "qk_norm=RMSNorm(eps=1e-05 p=1.0 weight=true)"
    assert (cells["none-s1-4"]["clip"], cells["none-s1-4"]["lr"]) == (0, 1e30)


def test_custom_scalars_has_the_losses_in_one_chart(ask: Ask) -> None:
    (category,) = ask("plugin/custom_scalars/layout")["category"]  # those of all runs, merged
    charts = {chart["title"]: chart["multiline"]["tag"] for chart in category["chart"]}
    assert charts == {title: tags for title, (_, tags) in LAYOUT["overview"].items()}
    (losses,), (residual,), (gradients,) = charts.values()
    found = ask("plugin/custom_scalars/scalars", run="layernorm-s1-0", tag=losses)
    assert found["regex_valid"] and found["tag_to_events"].keys() == {"loss/train", "loss/val"}
    assert re.match(residual, "probe/residual_rms/11") and re.match(gradients, "probe/grad_norm/0")
    assert not re.match(gradients, "probe/grad_norm_attention")


def test_text_is_shown_verbatim(ask: Ask, runs: Path) -> None:
    (page,) = ask("plugin/text/text", run="hostile", tag="text/text_summary")
    assert shown(page["text"]) == HOSTILE
    folder = runs / "layernorm-s1-0"
    (page,) = ask("plugin/text/text", run=folder.name, tag="configuration/text_summary")
    config = (folder / ".hydra/config.yaml").read_text()
    assert shown(page["text"]) == config and "${" not in config
    (page,) = ask("plugin/text/text", run=folder.name, tag="sample/text_summary")
    assert shown(page["text"]) == (folder / "sample.txt").read_text()
    pages = ask("plugin/text/text", run=folder.name, tag="sample/while_training/text_summary")
    assert [(page["step"], len(shown(page["text"]))) for page in pages] == [(2, 30), (4, 30)]
    assert not list(runs.rglob("hparams.yaml"))


def test_histograms_stand_side_by_side_before_and_after_each_norm(ask: Ask) -> None:
    tags = sorted(ask("plugin/histograms/tags")["none-s2-3"])
    sites = ["blocks.0.attention.k_norm", "blocks.0.attention.q_norm", "blocks.0.attention_norm"]
    assert tags[:7] == [
        *(f"values.{sites[0]}/{what}" for what in ("1_input", "2_output", "weight")),
        *(f"values.{sites[1]}/{what}" for what in ("1_input", "2_output", "weight")),
        f"values.{sites[2]}/1_input",
    ]
    points = ask("plugin/histograms/histograms", run="none-s2-3", tag=tags[6])
    assert [step for _, step, _ in points] == [0, 2, 4]
    for _, _, bins in points:
        assert sum(count for _, _, count in bins) == 4 * 16 * 64


@pytest.mark.parametrize("norm", NORMS)
def test_options_are_one_string_without_what_is_hydras(norm: str) -> None:
    options = yaml.safe_load((ROOT / "configs" / "norm" / f"{norm}.yaml").read_text())
    names = [word.partition("=")[0] for word in in_words(options).split()]
    assert names == sorted(options.keys() - {"_target_", "_partial_"})


def test_a_resumed_run_is_one_curve_and_one_row(
    tmp_path: Path,
    run: Callable[..., Path],
    resume: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After an exception every step is on disk; those after the checkpoint are then done again."""
    step = model.lit.LitGPT.training_step

    def stops(self: Any, batch: Any, batch_idx: int) -> Any:
        if batch_idx == 6:
            raise RuntimeError("stop")
        return step(self, batch, batch_idx)

    monkeypatch.setattr(model.lit.LitGPT, "training_step", stops)
    folder = tmp_path / "layernorm-s1"
    with pytest.raises(RuntimeError) as error:
        run(folder, "eval_every=4", "trainer.max_steps=10")
    close_failed(folder, {"norm_name": "layernorm", "seed": 1}, [], error.value)
    events = EventAccumulator(str(folder)).Reload()
    assert [event.step for event in events.Scalars("loss/train")] == [1, 2, 3, 4, 5, 6]
    assert [event.value for event in events.Scalars("result/failed")] == [1]
    monkeypatch.undo()
    resume(folder)
    events = EventAccumulator(str(folder)).Reload()
    for tag, steps in {"loss/train": range(1, 11), "loss/val": (0, 4, 8, 10)}.items():
        assert [event.step for event in events.Scalars(tag)] == list(steps)
    assert [(event.step, event.value) for event in events.Scalars("result/failed")] == [(10, 0)]
    assert len(list(folder.glob("events.out.*.hparams"))) == 1
