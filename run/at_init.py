"""Nets at initialization: `python train.py experiment=at_init` measures this instead of training.

Each cell of the grid is the net that `python train.py norm=X model.placement=P model.n_layer=L
model.init=I seed=S` would start from, on the first micro-batch that it would see, in train mode.

    gradient_norm_mlp_proj  Frobenius norm of dloss / dW, W the last block's second MLP matrix:
                            W^{2,L} of Xiong et al. 2020 (https://arxiv.org/abs/2002.04745), whose
                            theorem 1 bounds it by O(d sqrt(ln d)) for post-norm at any depth L and
                            by that over sqrt(L) for pre-norm
    gradient_norm_block     the same of all the last block's parameters together
    residual_rms            root mean square of the residual stream after `layer` blocks
    loss                    mean cross-entropy, nats per character; the gradients are of this

In at_init.csv `layer` counts blocks: 0 is what enters the first, n_layer what leaves the last.
"""

import csv
import logging
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import torch
from hydra import compose
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from hydra.utils import instantiate
from omegaconf import DictConfig

from model.gpt import CHOICES
from model.lit import LitGPT
from run import folder as run_folder
from run.checks import SITES, check

log = logging.getLogger("normlab")
COLUMNS = ("init", "placement", "norm", "n_layer", "seed", "layer", "quantity", "value")
SWEPT = {  # what the grid sets, and from which of its lists
    "norm": "norms",
    "model.placement": "placements",
    "model.n_layer": "depths",
    "model.init": "inits",
    "seed": "seeds",
}
ANY, NO_NORM = "any", "model.norms.none.NoNorm"


def measure(cfg: DictConfig, folder: Path, overrides: list[str], **grid: list[Any]) -> None:
    """Measure every net of the grid on the CPU; at_init.csv and two figures in `folder`.

    Args:
        cfg: what holds for every net.
        folder: the job's.
        overrides: the command line.
        grid: the lists norms, placements, depths, inits, seeds.

    Raises:
        ValueError: a list or a configuration that cannot be; nothing has been measured.
        Refused: in a sweep.
    """
    check_grid(grid, overrides)
    configs = {norm: cfg.copy() for norm in grid["norms"]}
    for norm, config in configs.items():
        config.norm = compose("train", [*overrides, f"norm={norm}"]).norm
        check(config, folder)
    data = instantiate(cfg.data, _convert_="all")
    log.info(f"{', '.join(configs)} at initialization {data.describe()}")
    with run_folder.replace_file(folder / "at_init.csv", "w") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(COLUMNS)
        for norm, config in configs.items():
            table.writerows(rows(norm, config, data, grid))

    from report.initialization import report  # late: pandas and matplotlib take a second

    log.info(report(folder))


def rows(
    norm: str, config: DictConfig, data: Any, grid: dict[str, list[Any]]
) -> Iterator[tuple[Any, ...]]:
    """The table's rows of one norm; `config` and the data's seed are set as they are needed."""
    placements = placements_of(config, grid["placements"])
    for seed in grid["seeds"]:
        config.seed = seed
        data.seed = config.data.seed  # only draws the windows: the text is not read again
        batch, size = data.windows()[0], data.vocab_size
        net = instantiate(config.model, vocab_size=size, _convert_="all", _partial_=True)
        parts = (instantiate(config[part], _convert_="all") for part in ("optimizer", "scheduler"))
        lit = LitGPT(torch.nn.Identity(), *parts, seed=seed, log_every=config.log_every)
        for init, placement, depth in product(grid["inits"], placements, grid["depths"]):
            stands = "pre" if placement == ANY else placement
            lit.net = net(init=init, placement=stands, n_layer=depth)
            for seen in quantities(lit, batch):
                yield init, placement, norm, depth, seed, *seen


def check_grid(grid: dict[str, list[Any]], overrides: list[str]) -> None:
    """Refuse lists that are none, what would be set twice, and a sweep.

    Raises:
        ValueError: the first rule that is broken.
        Refused: in a sweep.
    """
    if HydraConfig.get().mode == RunMode.MULTIRUN:
        raise run_folder.Refused(
            "experiment=at_init is one job, its grid is in at_init.norms=[a,b] and the like; "
            "leave -m out"
        )
    given = {run_folder.key_of(override) for override in overrides}
    for key, name in SWEPT.items():
        if key in given:
            raise ValueError(f"{key} is set by the grid; give at_init.{name}=[...] instead")
        values, kind = grid[name], int if name in ("depths", "seeds") else str
        fine = isinstance(values, list) and values and len(set(map(str, values))) == len(values)
        fine = fine and all(type(value) is kind for value in values)
        if not fine or (name == "depths" and min(values) < 1):
            what = {"depths": "whole numbers of at least 1", "seeds": "whole numbers"}
            wanted = f"a list of different {what.get(name, 'names')}"
            raise ValueError(f"at_init.{name} must be {wanted}, got {values}")
        known = CHOICES.get(key.removeprefix("model."), values)
        if unknown := [value for value in values if value not in known]:
            raise ValueError(f"at_init.{name}: {unknown[0]} is not known; use {' | '.join(known)}")


def placements_of(config: DictConfig, placements: list[str]) -> list[str]:
    """Where the norms of a configuration can stand; without a norm most placements are one net."""
    norms = [config.norm, *(config.model.get(site) for site in SITES)]
    plain = [placement for placement in placements if placement != "deepnorm"]
    if len(plain) < 2 or any(norm and norm._target_ != NO_NORM for norm in norms):
        return placements
    return [ANY, *(placement for placement in placements if placement == "deepnorm")]


def quantities(lit: LitGPT, batch: torch.Tensor) -> Iterator[tuple[int, str, float]]:
    """(layer, quantity, value) on one batch (B, T + 1); the net is of no use afterwards."""
    blocks: Any = lit.net.train().requires_grad_(False).blocks
    last = blocks[-1].requires_grad_(True)  # backward goes no deeper
    stream: list[float] = []  # RMS

    def see(x: torch.Tensor, mask: torch.Tensor | None = None) -> None:
        real = x if mask is None else x[mask]  # (..., C)
        stream.append(real.detach().double().square().mean().sqrt().item())

    blocks[0].register_forward_pre_hook(lambda _, inputs: see(*inputs))
    for block in blocks:
        block.register_forward_hook(lambda _, inputs, x: see(x, *inputs[1:]))
    loss = lit.cross_entropy(batch)
    loss.backward()
    gradients = [p.grad for p in last.parameters() if p.grad is not None]
    depth = len(blocks)
    yield depth, "loss", loss.item()
    yield depth, "gradient_norm_mlp_proj", last.mlp.proj.weight.grad.norm().item()
    yield depth, "gradient_norm_block", torch.nn.utils.get_total_norm(gradients).item()
    yield from ((layer, "residual_rms", rms) for layer, rms in enumerate(stream))
