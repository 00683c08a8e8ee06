"""Where metrics go: TensorBoard and metrics.csv, both in the run folder."""

import csv
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch.loggers import Logger, TensorBoardLogger

from run import tensorboard
from run.folder import replace_file


class Events(TensorBoardLogger):
    """TensorBoard's events in the run folder, one file a leg.

    It begins with what is there once: the charts' layout and the configuration. Stays open when
    training ends well: the sample comes after, and closes it. Writes no hparams.yaml: the
    configuration has a file of its own.
    """

    def __init__(self, folder: Path, *, start: int) -> None:
        # points are on disk after 10 s at the latest, also when the program is killed
        purge = start + 1 if start else None
        super().__init__(folder, name="", version="", purge_step=purge, flush_secs=10)
        self.folder, self.start = folder, start

    def log_graph(self, *args: Any, **kwargs: Any) -> None:
        """Begin a leg; Lightning calls this once, before training."""
        self.experiment.add_custom_scalars(tensorboard.LAYOUT)
        config = (self.folder / ".hydra" / "config.yaml").read_text("utf-8")
        self.log_text("configuration", config, self.start)

    def log_text(self, name: str, text: str, step: int) -> None:
        """Show a text as it is."""
        self.experiment.add_text(name, tensorboard.verbatim(text), step)

    def save(self) -> None:
        """Write what waits."""
        self.experiment.flush()

    def finalize(self, status: str) -> None:
        """Close after an exception only."""
        self.experiment.flush()
        if status != "success":
            self.experiment.close()


class MetricsCSV(Logger):
    """`metrics.csv`: append-only rows `step,name,value`, on disk after each group.

    Lightning's CSVLogger deletes the file when a run resumes in place. This one cuts the rows after
    `start`, the checkpoint's step, and goes on; nothing is touched before the first value comes.
    """

    def __init__(self, path: Path, *, start: int) -> None:
        super().__init__()
        self.path = path
        self.start: int | None = start  # None: cut already

    @property
    def name(self) -> str:
        """Lightning asks."""
        return "metrics"

    @property
    def version(self) -> str:
        """Lightning asks."""
        return ""

    def log_hyperparams(self, *args: Any, **kwargs: Any) -> None:
        """The configuration has a file of its own."""

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        """Write one group; the file is not left open, a sweep has many."""
        if self.start is not None:
            self._cut(self.start)
            self.start = None
        with self.path.open("a", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerows([step, name, repr(float(value))] for name, value in metrics.items())

    def _cut(self, start: int) -> None:
        rows = [["step", "name", "value"]]
        if self.path.exists():
            old = csv.reader(self.path.read_text("utf-8").splitlines()[1:])
            rows += [row for row in old if len(row) == 3 and int(row[0]) <= start]
        with replace_file(self.path, "w") as file:
            csv.writer(file, lineterminator="\n").writerows(rows)


def loggers(folder: Path, resume: str | None) -> list[Logger]:
    """TensorBoard and metrics.csv; a resumed leg drops what came after its checkpoint."""
    start = 0
    if resume:
        start = torch.load(resume, map_location="cpu", weights_only=True)["global_step"]
    return [Events(folder, start=start), MetricsCSV(folder / "metrics.csv", start=start)]
