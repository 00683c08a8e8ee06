"""Measure nets at initialization: `python at_init.py norms=[layernorm,none] depths=[2,6]`.

Each cell of the grid is the net that `python train.py norm=X model.placement=P model.n_layer=L
model.init=I seed=S` would start from, on the first micro-batch that it would see, in train mode.
model/propagation.py says what is measured. Other overrides of train.py hold for every net.
"""

import csv
import logging
import re
import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))  # before any other package `data`

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.utils import instantiate
from omegaconf import DictConfig

from run.configuration import make_path_absolute
from run.errors import MISTAKES, one_line
from run.files import replace_file
from run.program import start
from sweep.initial_nets import ANY, configurations, placements_of

CONFIGS = str(Path(__file__).resolve().parent / "configs")
COLUMNS = ("init", "placement", "norm", "n_layer", "seed", "layer", "quantity", "value")
log = logging.getLogger("normlab")


def measure(cfg: DictConfig, folder: Path, overrides: list[str]) -> None:
    """Measure every net of the grid on the CPU, unless one is invalid; write the files."""
    from report.initialization import report  # late, as torch is: pandas takes a second
    from run.checks import check

    configs = configurations(cfg, overrides)
    for config in configs.values():
        check(config, folder)
    data = instantiate(cfg.data, _convert_="all")
    invariant = [line for norm, config in configs.items() for line in matrices(norm, config, data)]
    log.info(f"{', '.join(configs)} at initialization {data.describe()}")
    found = [row for norm, config in configs.items() for row in rows(norm, config, data)]
    with replace_file(folder / "at_init.csv", "w") as file:
        csv.writer(file, lineterminator="\n").writerows([COLUMNS, *found])
    log.info("\n".join([report(folder), "scale-invariant matrices", *invariant]))


def nets(config: DictConfig, data: Any, depths: list[int]) -> Iterator[tuple[str, str, int, Any]]:
    """Every net of one norm and seed, with its init, placement and depth."""
    make = instantiate(config.model, vocab_size=data.vocab_size, _convert_="all", _partial_=True)
    placements = placements_of(config, config.placements)
    for init, placement, depth in product(config.inits, placements, depths):
        at = "pre" if placement == ANY else placement
        yield init, placement, depth, make(init=init, placement=at, n_layer=depth)


def matrices(norm: str, config: DictConfig, data: Any) -> Iterator[str]:
    """One line per placement: its scale-invariant matrices. Builds each kind of net once."""
    from model.scale_invariance import scale_invariant

    for init, placement, _, net in nets(config, data, [min(config.depths)]):
        if init == config.inits[0]:  # they are the same for all
            names = [re.sub(r"^blocks\.\d+\.", "", name) for name in scale_invariant(net)]
            yield f"  {norm:<18} {placement:<9} {', '.join(dict.fromkeys(names)) or 'none'}"


def rows(norm: str, config: DictConfig, data: Any) -> Iterator[tuple[Any, ...]]:
    """The rows of one norm in at_init.csv; sets the seed of `config` and `data`."""
    from model.propagation import quantities

    for seed in config.seeds:
        config.seed = seed
        data.seed = config.data.seed  # only draws the windows: the text is not read again
        batch = data.windows()[0]
        for init, placement, depth, net in nets(config, data, config.depths):
            for seen in quantities(net, batch):
                yield init, placement, norm, depth, seed, *seen


@hydra.main(version_base="1.3", config_path=CONFIGS, config_name="at_init")
def main(cfg: DictConfig) -> None:
    """Measure in the folder that Hydra made; a mistake is one line."""
    at = HydraConfig.get()
    make_path_absolute(cfg, at.runtime.cwd)
    try:
        measure(cfg, Path(at.runtime.output_dir), list(at.overrides.task))
    except MISTAKES as error:
        logging.getLogger("file").error("failed", exc_info=error)
        sys.exit(f"error: {one_line(error)}")


if __name__ == "__main__":
    if {"-m", "--multirun"} & set(sys.argv):
        sys.exit("error: at_init.py measures a grid in one job, norms=[a,b]; leave -m out")
    start(main)
