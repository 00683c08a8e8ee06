"""What TensorBoard shows beside curves: charts of several tags, text, and one HPARAMS row per run.

TensorBoard is imported late, and torch not at all, so that a program starts quickly.

TensorBoard takes the columns of HPARAMS from whichever run it reads first, and a value whose type
differs from its column's hides a run. So every run states the same columns, those of `HPARAMS` and
`METRICS`; the options of a norm, which differ from norm to norm, are one string. A value that a run
lacks, such as the final loss of a diverged one, stays blank.
"""

import html
import math
import re
import time
from datetime import datetime
from functools import reduce
from pathlib import Path
from typing import Any

LAYOUT = {  # CUSTOM SCALARS: category, chart, tags as regular expressions
    "overview": {
        "loss, training and validation": ["Multiline", [r"loss/(train|val)$"]],
        "RMS of the residual stream after each block": ["Multiline", [r"probe/residual_rms/\d+$"]],
        "gradient norm of each block": ["Multiline", [r"probe/grad_norm/\d+$"]],
    }
}
HPARAMS: dict[str, tuple[type, str]] = {  # column: its type, the key in the configuration
    "norm": (str, "norm_name"),
    "norm_options": (str, "norm"),
    "site_norms": (str, "model"),  # of sites that have another norm
    "placement": (str, "model.placement"),
    "residual_gate": (str, "model.residual_gate"),
    "init": (str, "model.init"),
    "embed_scale": (float, "model.embed_scale"),
    "seed": (float, "seed"),
    "lr": (float, "optimizer.lr"),
    "weight_decay": (float, "optimizer.weight_decay"),
    "clip": (float, "trainer.gradient_clip_val"),
    "max_steps": (float, "trainer.max_steps"),
    "warmup": (float, "scheduler.warmup"),
    "batch_size": (float, "data.batch_size"),
    "accumulate": (float, "trainer.accumulate_grad_batches"),
    "block_size": (float, "data.block_size"),
    "n_layer": (float, "model.n_layer"),
    "n_head": (float, "model.n_head"),
    "n_embd": (float, "model.n_embd"),
    "dropout": (float, "model.dropout"),
    "precision": (str, "trainer.precision"),
}
METRICS = {  # tag: the field of result.json, or the status that it counts; shown: the first five
    "result/val_best": "val_best",
    "result/val_final": "val_final",
    "result/test_final": "test_final",
    "result/tokens_per_second": "tokens_per_second",
    "result/diverged": "diverged",
    "result/failed": "failed",
    "result/test_best": "test_best",
    "result/train_final": "train_final",
    "result/seconds": "seconds",
    "result/steps": "steps",
}
SHOWN = ("norm", "norm_options", "placement", "lr", "seed")  # the rest by a tick in TensorBoard
SUFFIX = ".hparams"  # of the event file with the row; a later leg replaces it


def verbatim(text: str) -> str:
    r"""Markdown that TensorBoard shows as exactly this text: line ends, blanks, tabs, `#`, `<`.

    >>> verbatim("# a\n<b> ")
    '<pre><code># a\n&lt;b&gt;&#32;</code></pre>'
    """
    escaped = html.escape(text, quote=False)
    # Markdown expands tabs and drops blanks at the end of a line
    escaped = re.sub(r"[\t\r\f]| (?=\n|$)", lambda found: f"&#{ord(found[0])};", escaped)
    return f"<pre><code>{escaped}</code></pre>"


def in_words(norm: Any) -> str:
    """The options of a norm, in one string, the same whatever the order.

    >>> in_words({"_target_": "model.norms.x.X", "_partial_": True, "momentum": None, "eps": 1e-5})
    'eps=1e-05 momentum=null'
    """
    words = {"None": "null", "True": "true", "False": "false"}
    options = {key: str(norm[key]) for key in sorted(norm) if not key.startswith("_")}
    return " ".join(f"{key}={words.get(value, value)}" for key, value in options.items())


def site_norms(model: Any) -> str:
    """The norms of sites that have their own: `final_norm=RMSNorm(eps=1e-05 p=1.0)`."""
    return " ".join(
        f"{site}={norm['_target_'].rpartition('.')[2]}({in_words(norm)})"
        for site, norm in sorted(model.items())
        if site.endswith("_norm") and norm is not None
    )


def hparams(config: Any) -> dict[str, str | float]:
    """The cells of the row: strings and finite numbers, of the column's type; others are left out.

    The configuration of a run that failed early need not make sense.
    """
    words: dict[str, Any] = {"norm_options": in_words, "site_norms": site_norms}
    words["clip"] = lambda clip: clip or 0  # null is no clipping too
    cells: dict[str, str | float] = {}
    for column, (kind, key) in HPARAMS.items():
        try:
            value = reduce(lambda node, name: node[name], key.split("."), config)
            value = words[column](value) if column in words else value
            cell = kind(value)
        except (KeyError, AttributeError, TypeError, ValueError):
            continue
        if value is not None and (kind is str or math.isfinite(cell)):
            cells[column] = cell
    return cells


def metrics(result: dict[str, Any]) -> dict[str, float]:
    """What the run came to: its finite numbers, and its status as 0 or 1."""
    counted = {status: float(result["status"] == status) for status in ("diverged", "failed")}
    numbers = {tag: (result | counted).get(field) for tag, field in METRICS.items()}
    return {
        tag: float(number)
        for tag, number in numbers.items()
        if number is not None and math.isfinite(number)
    }


def write_row(folder: Path, config: Any, result: dict[str, Any]) -> None:
    """Write the run's row of HPARAMS, and remove that of an earlier leg."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    for earlier in folder.glob(f"events.out.*{SUFFIX}"):
        earlier.unlink()
    writer = EventFileWriter(str(folder), filename_suffix=SUFFIX)
    step = int(result.get("steps", 0))
    writer.add_event(Event(summary=summary(config, result), step=step, wall_time=time.time()))
    writer.close()


def summary(config: Any, result: dict[str, Any]) -> Any:
    """The columns, the row's start and end, and its metrics, as TensorBoard's message."""
    from google.protobuf.json_format import ParseDict
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.plugins.hparams import metadata
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

    kinds = {str: "DATA_TYPE_STRING", float: "DATA_TYPE_FLOAT64"}
    columns = {
        "hparam_infos": [  # `differs`: those come first, and the first five are shown
            {"name": name, "type": kinds[kind], "differs": name in SHOWN}
            for name, (kind, _) in HPARAMS.items()
        ],
        "metric_infos": [
            {"name": {"tag": tag}, "display_name": tag.partition("/")[2]} for tag in METRICS
        ],
    }
    statuses = {"failed": "STATUS_FAILURE", "interrupted": "STATUS_UNKNOWN"}
    status = statuses.get(result["status"], "STATUS_SUCCESS")  # a divergence is a result
    start = {"start_time_secs": seconds(result.get("started")), "hparams": hparams(config)}
    end = {"end_time_secs": seconds(result.get("ended")), "status": status}
    values = [Summary.Value(tag=tag, simple_value=n) for tag, n in metrics(result).items()]
    for tag, content in (
        (metadata.EXPERIMENT_TAG, {"experiment": columns}),
        (metadata.SESSION_START_INFO_TAG, {"session_start_info": start}),
        (metadata.SESSION_END_INFO_TAG, {"session_end_info": end}),
    ):
        message = metadata.create_summary_metadata(ParseDict(content, HParamsPluginData()))
        values.append(Summary.Value(tag=tag, metadata=message))
    return Summary(value=values)


def seconds(moment: str | None) -> float:
    """A time in ISO format, in seconds since the epoch; now, if there is none."""
    return datetime.fromisoformat(moment).timestamp() if moment else time.time()
