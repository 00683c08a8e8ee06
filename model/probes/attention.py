"""What attention does with its queries and keys: how large its logits get, how much it spreads.

Legend: B batch, T time, H heads, D head size. t counts from 1: position t sees t positions.
"""

import math

import torch

LOGITS = 2**20  # numbers held at a time: 4 MB, whatever batch and block size are


def attention_statistics(
    q: torch.Tensor, k: torch.Tensor, real: torch.Tensor
) -> dict[str, torch.Tensor]:
    """Largest logit and mean relative entropy of causal attention, as the net's own kernel has it.

    Logits are q_t k_s / sqrt(D) for s <= t; entropy is -sum_s p_ts ln p_ts with p their softmax,
    over ln t, its most: 1 looks at all of the past alike, 0 at one position. It is the mean over
    rows, heads and real positions from t = 2 on, and left out where there are none.

    Args:
        q: queries (B, T, H, D), as they enter the product.
        k: keys, likewise.
        real: (B, T) bool, no padding; padding is on the right, so real positions see none.
    """
    T, H, D = q.shape[1:]
    t = torch.arange(1, T + 1, device=q.device)
    future = t > t[:, None]  # (T, T)
    largest, entropies = [], []
    rows = max(1, LOGITS // (H * T * T))
    for q_part, k_part, real_part in zip(*(z.split(rows) for z in (q, k, real)), strict=True):
        with torch.autocast(q.device.type, enabled=False):  # in float32 if q and k are
            logits = torch.einsum("bthd,bshd->bhts", q_part, k_part) / math.sqrt(D)
        logits = logits.masked_fill(future, -math.inf).transpose(1, 2)[real_part]  # (N, H, T)
        largest.append(logits.amax())
        seen = t.expand(len(real_part), T)[real_part]  # (N,)
        entropy = torch.special.entr(logits.softmax(-1)).sum(-1)  # (N, H)
        entropies.append(entropy[seen > 1] / seen[seen > 1, None].to(q.dtype).log())
    relative = torch.cat(entropies)
    values = {"attention_logit_max": torch.stack(largest).amax()}
    return values | ({"attention_entropy": relative.mean()} if len(relative) else {})
