"""Updates: the gradient of a step, what the step does to the weights, and the gains of the norms.

Every series is defined in docs/probes.md. On a step that is not due only one comparison is made,
which counts the clipped steps.
"""

import math
from collections.abc import Callable
from typing import Any

import lightning.pytorch as pl
import torch
from torch import nn
from torch.optim.optimizer import Optimizer

from model.lit import LitGPT
from model.probes.probe import Probe, series, wide
from model.sites import kind_of, matrices_of, parameters_of, sites
from model.steps import due


class Updates(Probe):
    """Logs the gradients, the update and the weights of each due step."""

    def __init__(self, every: int) -> None:
        self.every = every
        self.steps = 0  # since the last multiple of `every`
        self.clipped = torch.tensor(0)  # of these
        self.gradients: dict[str, float] = {}
        self.changes: Changes | None = None  # between the two halves of a due step

    def on_before_optimizer_step(self, trainer: pl.Trainer, lit: Any, optimizer: Optimizer) -> None:
        """Measure a due step's gradients: accumulated, unscaled, and not clipped yet."""
        if due(trainer.global_step + 1, self.every, trainer.max_steps):
            self.gradients = gradient_norms(lit.net)
            self.changes = Changes(lit.net)

    def after_step(self, trainer: pl.Trainer, lit: LitGPT) -> None:
        """Count the step; log it if it is due."""
        self.steps += 1
        if trainer.gradient_clip_val:
            self.clipped = self.clipped + (lit.grad_norm > trainer.gradient_clip_val)
        if self.changes is not None:
            values = self.gradients | self.changes.measure() | gains(lit.net)
            self.changes = None
            lit.log_now(values | {"probe/clipped_share": int(self.clipped) / self.steps})
        if trainer.global_step % self.every == 0:
            self.steps = 0
            self.clipped = torch.tensor(0)

    def on_save_checkpoint(self, trainer: pl.Trainer, lit: Any, checkpoint: dict[str, Any]) -> None:
        """Store the count; Lightning would warn about a callback's state in a run without it."""
        checkpoint["clipped"] = {"steps": self.steps, "clipped": int(self.clipped)}

    def on_load_checkpoint(self, trainer: pl.Trainer, lit: Any, checkpoint: dict[str, Any]) -> None:
        """Restore the count, if the checkpoint has one."""
        count = checkpoint.get("clipped", {"steps": 0, "clipped": 0})
        self.steps = count["steps"]
        self.clipped = torch.tensor(count["clipped"])


class Changes:
    """How the weights of a net change between now and the call of `measure`."""

    def __init__(self, net: nn.Module) -> None:
        self.net = net
        self.before = {name: value.clone() for name, value in parameters_of(net).items()}

    def measure(self) -> dict[str, float]:
        """Measure update over weight by kind, and each matrix's norm and angle turned, in degrees.

        The angle between W and W + dW is atan2(|the part of dW across W|, |W| + the part along W);
        the arc cosine of their cosine would lose all digits of a small angle.
        """
        after = parameters_of(self.net)
        moved = {name: after[name] - before for name, before in self.before.items()}
        update, weight = norm_by(kind_of, moved), norm_by(kind_of, self.before)
        values = {
            f"probe/update_ratio/{kind}": update[kind] / norm
            for kind, norm in weight.items()
            if norm > 0  # gates may start at 0
        }
        names = list(matrices_of(self.net))
        old, new, step = ({n: z[f"{n}.weight"] for n in names} for z in (self.before, after, moved))
        ww, dw, dd = dot(old, old), dot(step, old), dot(step, step)
        for name, square in dot(new, new).items():
            values[series("weight_norm", name)] = math.sqrt(square)
            length = math.sqrt(ww[name])
            along = dw[name] / length if length else 0.0
            across = math.sqrt(max(0.0, dd[name] - along * along))
            values[series("angle", name)] = math.degrees(math.atan2(across, length + along))
        return values


def gradient_norms(net: nn.Module) -> dict[str, float]:
    """The norm of the gradient of each block, and of each kind of parameter."""
    named = net.named_parameters()
    gradients = {name: p.grad for name, p in named if p.grad is not None}
    blocks = {name: z for name, z in gradients.items() if name.startswith("blocks.")}
    norms = norm_by(lambda name: name.split(".")[1], blocks) | norm_by(kind_of, gradients)
    return {f"probe/grad_norm/{group}": norm for group, norm in norms.items()}


def gains(net: nn.Module) -> dict[str, float]:
    """Mean, minimum, maximum and share of negative gains, over all blocks for each kind of site.

    A gain is a norm's parameter that is called `weight`.
    """
    families: dict[str, list[torch.Tensor]] = {}
    for name, norm in sites(net).items():
        family = series("", name).removeprefix("probe/_").split("/")[0]
        for parameter, value in norm.named_parameters():
            if parameter.split(".")[-1] == "weight":
                families.setdefault(family, []).append(value.detach().flatten())
    values: dict[str, float] = {}
    for family, parts in families.items():
        gain = wide(torch.cat(parts))
        of = {"mean": gain.mean(), "min": gain.amin(), "max": gain.amax()}
        of["negative"] = (gain < 0).to(gain.dtype).mean()
        values |= {f"probe/gain_{what}/{family}": float(value) for what, value in of.items()}
    return values


def norm_by(group: Callable[[str], str], tensors: dict[str, torch.Tensor]) -> dict[str, float]:
    """The norm of all tensors of a group together, each in float32 or better."""
    squares: dict[str, float] = {}
    for name, square in dot(tensors, tensors).items():
        squares[group(name)] = squares.get(group(name), 0.0) + square
    return {name: math.sqrt(square) for name, square in squares.items()}


def dot(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> dict[str, float]:
    """Inner products, name by name, in float32 or better."""
    products = [(wide(x) * wide(y)).sum() for x, y in zip(a.values(), b.values(), strict=True)]
    return dict(zip(a, torch.stack(products).tolist(), strict=True)) if products else {}
