"""How activations and gradients pass through a net at initialization, on one batch.

    gradient_norm_mlp_proj  Frobenius norm of dloss / dW, W the last block's second MLP matrix:
                            W^{2,L} of Xiong et al. 2020 (https://arxiv.org/abs/2002.04745), whose
                            theorem 1 bounds it by O(d sqrt(ln d)) for post-norm at any depth L and
                            by that over sqrt(L) for pre-norm
    gradient_norm_block     the same of all the last block's parameters together
    residual_rms            root mean square of the residual stream after `layer` blocks
    loss                    mean cross-entropy, nats per character; the gradients are of this

`layer` counts blocks: 0 is what enters the first one, n_layer what leaves the last one.
Legend: B batch, T time, C channels, V vocabulary.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch.nn import functional as F

from model.lit import PADDING, logits_of


def quantities(net: Any, batch: torch.Tensor) -> Iterator[tuple[int, str, float]]:
    """Measure a GPT in train mode on a batch of ids (B, T + 1), where -1 is padding.

    It yields (layer, quantity, value), as listed above. The net must not be used afterwards.
    """
    blocks: Any = net.train().requires_grad_(False).blocks
    last = blocks[-1].requires_grad_(True)  # backward goes no deeper
    stream: list[float] = []  # RMS

    def see(x: torch.Tensor, mask: torch.Tensor | None = None) -> None:
        real = x if mask is None else x[mask]  # (..., C)
        stream.append(real.detach().double().square().mean().sqrt().item())

    blocks[0].register_forward_pre_hook(lambda _, inputs: see(*inputs))
    for block in blocks:
        block.register_forward_hook(lambda _, inputs, x: see(x, *inputs[1:]))
    targets = batch[:, 1:]
    logits = logits_of(net, batch[:, :-1], targets != PADDING)  # (B, T, V)
    loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=PADDING)
    loss.backward()
    gradients = [p.grad for p in last.parameters() if p.grad is not None]
    depth = len(blocks)
    yield depth, "loss", loss.item()
    yield depth, "gradient_norm_mlp_proj", last.mlp.proj.weight.grad.norm().item()
    yield depth, "gradient_norm_block", torch.nn.utils.get_total_norm(gradients).item()
    for layer, rms in enumerate(stream):
        yield layer, "residual_rms", rms
