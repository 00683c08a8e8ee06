"""The loggers of a run: TensorBoard's events and metrics.csv, both in the run folder."""

import csv
from pathlib import Path
from typing import Any

from lightning.pytorch.loggers import Logger, TensorBoardLogger

from run import tensorboard
from run.files import replace_file
from run.state import read_state


class Events(TensorBoardLogger):
    """Writes TensorBoard's events to the run folder, one file per leg.

    A file begins with the layout of the charts and the configuration. It stays open when training
    ends well, since the sample comes after, and closes it. There is no hparams.yaml: the
    configuration has a file of its own.
    """

    def __init__(self, folder: Path, *, start: int) -> None:
        # points are on disk after 10 s at the latest, also when the program is killed
        purge = start + 1 if start else None
        super().__init__(folder, name="", version="", purge_step=purge, flush_secs=10)
        self.folder = folder
        self.start = start

    def log_graph(self, *args: Any, **kwargs: Any) -> None:
        """Begin a leg; Lightning calls this once, before training."""
        self.experiment.add_custom_scalars(tensorboard.LAYOUT)
        config = (self.folder / ".hydra" / "config.yaml").read_text("utf-8")
        self.log_text("configuration", config, self.start)

    def log_text(self, name: str, text: str, step: int) -> None:
        """Show a text as it is."""
        self.experiment.add_text(name, tensorboard.verbatim(text), step)

    def save(self) -> None:
        """Write what is waiting to disk."""
        self.experiment.flush()

    def finalize(self, status: str) -> None:
        """Close after an exception only."""
        self.experiment.flush()
        if status != "success":
            self.experiment.close()


class MetricsCSV(Logger):
    """Appends rows `step,name,value` to metrics.csv, on disk after each group.

    Lightning's CSVLogger deletes the file when a run is resumed in place. This one removes the rows
    after `start`, the checkpoint's step, and appends; it touches nothing before the first value.
    """

    name = "metrics"  # Lightning asks for both
    version = ""

    def __init__(self, path: Path, *, start: int) -> None:
        super().__init__()
        self.path = path
        self.start: int | None = start  # None: the rows are removed already

    def log_hyperparams(self, *args: Any, **kwargs: Any) -> None:
        """Write nothing: the configuration has a file of its own."""

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
            old = csv.reader(self.path.read_text("utf-8", "replace").splitlines()[1:])
            rows += [
                row for row in old if len(row) == 3 and row[0].isdecimal() and int(row[0]) <= start
            ]
        with replace_file(self.path, "w") as file:
            csv.writer(file, lineterminator="\n").writerows(rows)


def loggers(folder: Path, resume: str | None) -> list[Logger]:
    """Both loggers; a resumed leg removes the points after its checkpoint."""
    start = 0
    if resume:
        start = read_state(Path(resume))["global_step"]
    return [Events(folder, start=start), MetricsCSV(folder / "metrics.csv", start=start)]
