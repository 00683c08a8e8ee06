"""The run folder: the unit of reloading, comparing and resuming.

    .hydra/config.yaml      the resolved configuration, with the SHA-256 of the text
    .hydra/overrides.yaml   the command line that made it; both are written once, after all checks
    tokenizer.json          the vocabulary
    metrics.csv             every logged value: step, name, value
    events.out.tfevents.*   the same and more for TensorBoard, one file per leg
    events.out.*.hparams    the run's row in TensorBoard's table of hyperparameters
    checkpoints/last.ckpt   the state at the last evaluation or stop: resume= continues from it
    checkpoints/best.ckpt   the state at the lowest validation loss: sample.py writes with it
    sample.txt              text of the trained net
    result.json             what the run came to; a folder without it is unfinished
    .lock                   held by the program that trains here
    train.log               the console's lines with their times, and the traceback of a failure

One start of a run is a leg; a run that was resumed has several.
"""

import os
import shutil
from pathlib import Path
from typing import Any

import yaml

from run.files import remove_temporary, replace_file
from run.overrides import key_of, quoted
from run.stored import checksum

FILES = [  # that resuming reads or replaces
    *("result.json", "metrics.csv", "tokenizer.json", ".hydra/config.yaml"),
    *(".hydra/overrides.yaml", "checkpoints/last.ckpt", "checkpoints/best.ckpt"),
]


def write_start(folder: Path, config: dict[str, Any], overrides: list[str], tokenizer: str) -> None:
    """Store what the run is; from here until its result is written it counts as unfinished.

    A relative data.path is stored as the absolute one, so that resuming works from anywhere.
    """
    path = config["data"]["path"]
    if path:
        overrides = [
            f"data.path={quoted(path)}" if key_of(override) == "data.path" else override
            for override in overrides
        ]
    (folder / ".hydra").mkdir(parents=True, exist_ok=True)
    with replace_file(folder / "tokenizer.json", "w") as file:
        file.write(tokenizer)
    for name, content in (("config", config), ("overrides", overrides)):
        with replace_file(folder / ".hydra" / f"{name}.yaml", "w") as file:
            text = yaml.safe_dump(content, sort_keys=False, allow_unicode=True)
            file.write(f"{checksum(text)}\n{text}")
    (folder / "result.json").unlink(missing_ok=True)


def tidy(folder: Path, *, anew: bool) -> None:
    """Remove what a killed or failed start left; with `anew` everything but train.log."""
    remove_temporary(folder)
    for part in FILES:
        if (folder / part).is_dir():  # in the place of a file that a run writes
            shutil.rmtree(folder / part)
    made = ["result.json"]
    if anew:
        made += ["metrics.csv", "sample.txt", "tokenizer.json", "events.out.*"]
        for part in (".hydra", "checkpoints"):
            shutil.rmtree(folder / part, ignore_errors=True)
    for name in made:
        for path in folder.glob(name):
            path.unlink()


def shown(folder: Path) -> Path:
    """The folder as a message names it: relative where that is short and clear."""
    near = Path(os.path.relpath(folder))
    return near if near.parts and near.parts[0] != ".." else folder
