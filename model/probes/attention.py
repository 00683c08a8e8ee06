"""Attention's queries and keys: how large their logits are, and how widely they spread attention.

Legend: B batch, T time, H heads, D head size. t counts from 1: position t sees t positions.
"""

import math

import torch

LOGITS = 2**20  # numbers in memory at a time: 4 MB, whatever batch and block size are


def attention_statistics(
    q: torch.Tensor, k: torch.Tensor, real: torch.Tensor
) -> dict[str, torch.Tensor]:
    """The largest logit and the mean relative entropy of causal attention, as GPT computes it.

    Logits are q_t k_s / sqrt(D) for s <= t. The entropy -sum_s p_ts ln p_ts, p being their softmax,
    is divided by its maximum ln t: 1 means equal attention to all of the past, 0 to one position.
    It is the mean over rows, heads and real positions from t = 2 on, left out if there are none.

    Args:
        q: queries (B, T, H, D), as they enter the product.
        k: keys, likewise.
        real: (B, T) bool, True where there is no padding; real positions see no padding, since it
            is on the right.
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
