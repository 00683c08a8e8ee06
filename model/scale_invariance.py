"""Scale-invariant weights: those whose length has no effect on the net, only their direction.

The gradient of such a weight is at right angles to it, so every step makes the weight longer, and
the longer it is the less the next step turns it: the LayerNorm paper's implicit decay of the
learning rate (Ba et al. 2016, https://arxiv.org/abs/1607.06450, section 5.2.2; van Laarhoven 2017,
https://arxiv.org/abs/1706.05350). `probe/weight_norm_*` and `probe/angle_*` show it.
"""

import copy
from typing import Any

import torch

from model.reestimation import batch_mode
from model.sites import matrices_of


@torch.no_grad()
def scale_invariant(net: Any) -> list[str]:
    """The matrices of a GPT that can be doubled without a change of its logits in training.

    These are names such as `blocks.0.attention.proj`, those of q, k and v apart. They are measured,
    so the answer is right for any norm, placement and site: in float64 on a copy, without dropout
    and eps, with batch statistics where a norm has them. It is a property of the architecture: the
    matrices are drawn anew, and so is what starts at zero, such as biases and gates, which could
    hide a dependence. Neither the net nor the global random generator changes.
    """
    net = copy.deepcopy(net).cpu().double()
    batch_mode(net)
    draw = torch.Generator().manual_seed(0)
    redraw(net, draw)
    start = copy.deepcopy(net.state_dict())
    rows, length = 4, min(16, net.block_size)
    idx = torch.randint(len(net.token_embedding.weight), (rows, length), generator=draw)

    def logits(doubled: str | None) -> torch.Tensor:
        net.load_state_dict(start)  # running statistics have moved, too
        if doubled is not None:
            matrices_of(net)[doubled].mul_(2)
        return net(idx)  # type: ignore[no-any-return]

    before = logits(None)
    limit = 1e-12 * before.square().mean().sqrt()
    return [name for name in matrices_of(net) if (logits(name) - before).abs().max() <= limit]


def redraw(net: Any, draw: torch.Generator) -> None:
    """Give a net random matrices, nothing that is all zero, and norms without eps."""
    for module in net.modules():
        if hasattr(module, "eps"):
            module.eps = 1e-30  # torch's BatchNorm refuses 0
    for name, matrix in matrices_of(net).items():
        size = 1.0 if "embedding" in name else 0.5 * matrix.shape[1] ** -0.5
        matrix.normal_(std=size, generator=draw)
    for parameter in net.parameters():
        if not parameter.any():
            parameter.normal_(generator=draw)
