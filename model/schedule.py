"""The learning rate of each optimizer step: a linear warm-up, then half a cosine."""

import math

from torch.optim.lr_scheduler import LambdaLR
from torch.optim.optimizer import Optimizer


def warmup_cosine(
    optimizer: Optimizer, *, warmup: float, total_steps: int, floor: float
) -> LambdaLR:
    """A linear warm-up to the optimizer's rate, then half a cosine down to `floor` times that rate.

    During the warm-up of w = warmup * total_steps updates, update n (the first is 1) uses n / w of
    the peak rate; update w uses all of it, and from n = total_steps on the rate is `floor` of it.

    Raises:
        ValueError: a fraction outside 0 to 1, or no steps.
    """
    if not (0 <= warmup < 1 and 0 <= floor <= 1 and total_steps > 0):
        raise ValueError(
            "scheduler needs 0 <= warmup < 1, 0 <= floor <= 1 and total_steps > 0, "
            f"got {warmup=} {floor=} {total_steps=}"
        )
    rising = min(round(warmup * total_steps), total_steps - 1)  # the last update has the floor

    def factor(done: int) -> float:
        update = done + 1
        if update <= rising:
            return update / rising
        progress = min(1.0, (update - rising) / (total_steps - rising))
        return floor + (1 - floor) * (1 + math.cos(math.pi * progress)) / 2

    # A plain function is not stored in a checkpoint: the horizon is always the configuration's.
    return LambdaLR(optimizer, factor)
