"""Weights: their kinds, their norms, how far a step moves and turns them."""

import math
from collections.abc import Callable

import torch
from torch import nn

from model.probes.series import series
from model.sites import kind_of


def parts_of(net: nn.Module) -> dict[str, torch.Tensor]:
    """All parameters of a net by name, those of q, k and v apart; views, not copies."""
    parts: dict[str, torch.Tensor] = {}
    for name, parameter in net.named_parameters():
        owner, _, last = name.rpartition(".")
        if owner.endswith(".qkv"):
            names = [f"{owner.removesuffix('qkv')}{letter}.{last}" for letter in "qkv"]
            parts |= dict(zip(names, parameter.detach().chunk(3), strict=True))
        else:
            parts[name] = parameter.detach()
    return parts


def matrices_of(net: nn.Module) -> dict[str, torch.Tensor]:
    """The weights of linear layers and embeddings by the layer's name: `blocks.0.attention.q`."""
    parts = parts_of(net).items()
    return {
        name.removesuffix(".weight"): value
        for name, value in parts
        if value.dim() == 2 and kind_of(name) != "norm"
    }


def norm_by(group: Callable[[str], str], tensors: dict[str, torch.Tensor]) -> dict[str, float]:
    """Norm of all tensors of a group together, each in float32 or better."""
    squares: dict[str, float] = {}
    for name, square in dot(tensors, tensors).items():
        squares[group(name)] = squares.get(group(name), 0.0) + square
    return {name: math.sqrt(square) for name, square in squares.items()}


def dot(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> dict[str, float]:
    """Inner products, name by name, in float32 or better."""
    products = [(wide(x) * wide(y)).sum() for x, y in zip(a.values(), b.values(), strict=True)]
    return dict(zip(a, torch.stack(products).tolist(), strict=True)) if products else {}


def wide(x: torch.Tensor) -> torch.Tensor:
    """In float32 or better."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


class Changes:
    """What becomes of a net's weights between now and `measure`."""

    def __init__(self, net: nn.Module) -> None:
        self.net = net
        self.before = {name: value.clone() for name, value in parts_of(net).items()}

    def measure(self) -> dict[str, float]:
        """Update over weight by kind; norm, and angle turned in degrees, of each matrix.

        The angle between W and W + dW is atan2(|the part of dW across W|, |W| + the part along W):
        the arc cosine of their cosine has no digits left for a small angle.
        """
        after = parts_of(self.net)
        moved = {name: after[name] - before for name, before in self.before.items()}
        update, weight = norm_by(kind_of, moved), norm_by(kind_of, self.before)
        values = {
            f"probe/update_ratio/{kind}": update[kind] / norm
            for kind, norm in weight.items()
            if norm > 0  # gates may start at 0
        }
        names = [f"{name}.weight" for name in matrices_of(self.net)]
        old, new, step = ({n: z[n] for n in names} for z in (self.before, after, moved))
        ww, dw, dd = dot(old, old), dot(step, old), dot(step, step)
        for name, square in dot(new, new).items():
            place = name.removesuffix(".weight")
            values[series("weight_norm", place)] = math.sqrt(square)
            length = math.sqrt(ww[name])
            along = dw[name] / length if length else 0.0
            across = math.sqrt(max(0.0, dd[name] - along * along))
            values[series("angle", place)] = math.degrees(math.atan2(across, length + along))
        return values
