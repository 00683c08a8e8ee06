"""Weights: their lengths, and how far a step moves and turns them."""

import math
from collections.abc import Callable

import torch
from torch import nn

from model.probes.series import series
from model.sites import kind_of, matrices_of, parameters_of


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


def wide(x: torch.Tensor) -> torch.Tensor:
    """The same numbers in float32 or better."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


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
        names = [f"{name}.weight" for name in matrices_of(self.net)]
        old, new, step = ({n: z[n] for n in names} for z in (self.before, after, moved))
        ww = dot(old, old)
        dw = dot(step, old)
        dd = dot(step, step)
        for name, square in dot(new, new).items():
            matrix = name.removesuffix(".weight")
            values[series("weight_norm", matrix)] = math.sqrt(square)
            length = math.sqrt(ww[name])
            along = dw[name] / length if length else 0.0
            across = math.sqrt(max(0.0, dd[name] - along * along))
            values[series("angle", matrix)] = math.degrees(math.atan2(across, length + along))
        return values
