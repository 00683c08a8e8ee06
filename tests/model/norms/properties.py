"""Properties of a norm, measured from outside, for tests, tables and pictures.

Norms are found by listing configs/norm and measured in float64, with an eps of 1e-30 where they
have one. "Start" is a norm as constructed, "later" is one after `STEPS` training steps, when a
warm-up is over and running statistics have moved.

The changes are those of table 1 of Ba, Kiros, Hinton 2016 (https://arxiv.org/abs/1607.06450).
Legend: B batch, T time, C channels, D inputs of the weight W (C, D) before a norm or after it.
"""

import copy
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any

import torch
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate
from omegaconf import DictConfig
from torch import nn
from torch.func import functional_call

CONFIGS = Path(__file__).resolve().parents[3] / "configs"
B, T, C, D, STEPS = 6, 8, 16, 12, 20
CUTS = (1, 3, 7)
SAME = 1e-9  # relative to the output's size: far above float64 rounding, far below any change
Tensor = torch.Tensor
Make = Callable[..., nn.Module]
Map = Callable[[Tensor, Tensor], Tensor]


@cache
def configs() -> dict[str, DictConfig]:
    """The resolved yaml of every norm, for blocks of T and runs of STEPS."""
    sizes = [f"data.block_size={T}", f"scheduler.total_steps={STEPS}"]
    with initialize_config_dir(str(CONFIGS), version_base="1.3"):
        return {
            path.stem: compose("train", [f"norm={path.stem}", *sizes]).norm
            for path in sorted((CONFIGS / "norm").glob("*.yaml"))
        }


def make_norm(name: str, **options: Any) -> Make:
    """The class of a yaml with its options, as GPT gets it: called with a width."""
    make: Make = instantiate(configs()[name], _convert_="all", **options)
    return make


def exact(name: str, **options: Any) -> Make:
    """The same with an eps lost in rounding: invariances hold to the last digits."""
    tiny = {"eps": 1e-30} if "eps" in configs()[name] else {}  # PyTorch's batch_norm refuses 0
    return make_norm(name, **options, **tiny)


class InstanceNorm(nn.Module):
    """Normalize each feature of each row over T (Ulyanov et al. 2016); only a row of the tables."""

    def __init__(self, dim: int) -> None:
        super().__init__()

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Normalize x, (B, T, C)."""
        centred = x - x.mean(1, keepdim=True)
        return centred / centred.square().mean(1, keepdim=True).sqrt()


def weight_norm(w: Tensor, x: Tensor) -> Tensor:
    """Return W x, W with rows of length 1 (Salimans, Kingma 2016); only a row of the tables."""
    rows = w / torch.linalg.vector_norm(w, dim=1, keepdim=True)
    y: Tensor = x @ rows.T
    return y


OTHERS: dict[str, Callable[[], Make]] = {  # rows of the tables that have no yaml
    "PowerNorm-V": lambda: exact("powernorm", groups=None),
    "InstanceNorm over T": lambda: InstanceNorm,
}


def rows() -> dict[str, Make]:
    """What the tables have a row for: every yaml, and what only the papers' tables have."""
    return {name: row(name) for name in (*configs(), *OTHERS)}


def row(name: str) -> Make:
    """The norm of one row, with an eps lost in rounding."""
    return OTHERS[name]() if name in OTHERS else exact(name)


def drawn(*shape: int, seed: int = 0) -> Tensor:
    """Random numbers off centre, every feature with its own scale, in float64."""
    noise = torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return 1 + noise * torch.linspace(0.5, 2, shape[-1], dtype=torch.float64)


def started(make: Make, dim: int = C) -> nn.Module:
    """A new norm in float64 and train mode, its parameters moved a little from their start."""
    torch.manual_seed(0)
    norm = make(dim).double()
    with torch.no_grad():
        for parameter in norm.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return norm


def trained(module: nn.Module, batches: Iterable[Tensor]) -> nn.Module:
    """A copy that has gone through the batches, forward and backward; its parameters stay."""
    module = copy.deepcopy(module).train()
    for x in batches:
        y = module(x.clone().requires_grad_() if x.is_floating_point() else x)
        y.backward(drawn(*y.shape, seed=9).to(y.dtype))
    module.zero_grad()
    return module


def phases(make: Make, dim: int = C) -> dict[str, nn.Module]:
    """The norm at the start, and later: running statistics moved, a warm-up over."""
    norm = started(make, dim)
    batches = (drawn(B, T, dim, seed=k) for k in range(1, STEPS + 1))
    return {"start": norm, "later": trained(norm, batches)}


def output(module: nn.Module, x: Tensor) -> Tensor:
    """What the module makes of x; it is a copy that runs, so its buffers stay."""
    with torch.no_grad():
        y: Tensor = copy.deepcopy(module)(x)
    return y


def change(before: Tensor, after: Tensor) -> float:
    """The largest difference over the root mean square before; nan counts as infinite."""
    difference = (after - before).abs().max() / before.square().mean().sqrt()
    return difference.nan_to_num(nan=torch.inf).item()


def norm_of_linear(norm: nn.Module) -> Map:
    """The map Norm(W x), the paper's arrangement."""
    return lambda w, x: output(norm, x @ w.T)


def linear_of_norm(norm: nn.Module) -> Map:
    """The map W Norm(x), the arrangement of a pre-norm transformer."""
    return lambda w, x: output(norm, x) @ w.T


def changed(a: Tensor, *index: int, times: float = 1.0, plus: float = 0.0) -> Tensor:
    """A copy of a, changed at the index."""
    a = a.clone()
    a[index] = times * a[index] + plus
    return a


Changes = dict[str, Callable[[Tensor, Tensor], list[tuple[Tensor, Tensor]]]]
ENDS = ((0, 0), (B - 1, T - 1))  # two tokens: a norm may treat the first or the last differently
CHANGES: Changes = {
    "W scaled": lambda w, x: [(3 * w, x)],
    "W recentred": lambda w, x: [(w + drawn(D, seed=5), x)],  # W + 1 g^T: g added to every row
    "one row of W scaled": lambda w, x: [(changed(w, c, times=3), x) for c in (0, C - 1)],
    "data scaled": lambda w, x: [(w, 3 * x)],
    "data recentred": lambda w, x: [(w, x + drawn(D, seed=6))],
    "one token scaled": lambda w, x: [(w, changed(x, *at, times=3)) for at in ENDS],
}
TOKEN_SHIFTED: Changes = {  # the same number added to all its features
    "one token shifted": lambda w, x: [(w, changed(x, *at, plus=3)) for at in ENDS]
}


def effects(f: Map, changes: Changes = CHANGES) -> dict[str, float]:
    """How far each change of W (C, D) or x (B, T, D) moves f(W, x), relative to its size."""
    w = drawn(C, D, seed=3) - 1
    x = drawn(B, T, D, seed=4)
    before = f(w, x)
    return {
        name: max(change(before, f(*changed)) for changed in make(w, x))
        for name, make in changes.items()
    }


def invariances(f: Map, changes: Changes = CHANGES) -> dict[str, bool]:
    """Which changes leave f(W, x) as it is."""
    return {name: effect < SAME for name, effect in effects(f, changes).items()}


def batches_of_tokens() -> tuple[Tensor, Tensor]:
    """A batch (B, T, C), and another that is a hundred times as large: a leak of it shows."""
    return drawn(B, T, C, seed=7), 100 * drawn(B, T, C, seed=8)


def is_causal(module: nn.Module, *batches: Tensor) -> bool:
    """Whether other tokens from a cut on leave the outputs before it, in the module's mode.

    Args:
        module: a norm or a net.
        batches: for a net two batches of ids (B, T), the second with the other tokens.
    """
    x, other = batches or batches_of_tokens()
    before = output(module, x)
    for cut in CUTS:
        after = output(module, torch.cat([x[:, :cut], other[:, cut:]], 1))
        if change(before[:, :cut], after[:, :cut]) >= SAME:
            return False
    return True


def is_batch_independent(module: nn.Module, *batches: Tensor) -> bool:
    """Whether other rows leave the outputs of the first row; arguments as in `is_causal`."""
    x, other = batches or batches_of_tokens()
    after = output(module, torch.cat([x[:1], other[1:]]))
    return change(output(module, x)[0], after[0]) < SAME


def averages_over(norm: nn.Module) -> list[str]:
    """Which other numbers an output number depends on, in train mode; empty for none."""
    x = drawn(B, T // 2, C, seed=7)  # few tokens: each is changed in its turn
    before = output(norm, x)

    def moved(*index: int) -> Tensor:
        """Which outputs (B, T / 2, C) a change of an input moves."""
        return (output(norm, changed(x, *index, times=-0.5, plus=1)) - before).abs() > SAME

    features = torch.stack([moved(0, 0, c)[0, 0] for c in range(C)])
    features = features[~torch.eye(C, dtype=torch.bool)]
    tokens = torch.stack([moved(*divmod(k, T // 2)).any(2) for k in range(B * T // 2)])
    tokens = tokens.view(B, T // 2, B, T // 2)  # [b, t, i, j]: token (b, t) moves token (i, j)
    time = tokens.any(2).any(0)  # (t, j)
    other = tokens.any(3).any(1)[~torch.eye(B, dtype=torch.bool)]
    found = []
    if features.any():
        found.append("features" if features.all() else "some features")
    if not torch.equal(time, time & torch.eye(T // 2, dtype=torch.bool)):
        found.append("tokens" if time.tril(-1).any() else "tokens so far")
    if other.any():
        found.append("rows" if other.all() else "some rows")
    if change(before, output(trained(norm, [2 * x]), x)) > SAME:
        found.append("earlier batches")
    return found


def shapes(tensors: Iterable[Tensor]) -> str:
    """The shapes of tensors of a norm in letters: `C + C`, `T x C + 1`, or `none`."""
    letters = {C: "C", T: "T"}
    texts = [" x ".join(letters.get(n, str(n)) for n in t.shape) or "1" for t in tensors]
    return " + ".join(texts) or "none"


def train_equals_eval(norm: nn.Module) -> bool:
    """Whether the two modes give the same bits, in float32 and float64."""
    for dtype in (torch.float32, torch.float64):
        x = drawn(B, T, C, seed=7).to(dtype)
        copied = copy.deepcopy(norm).to(dtype)
        if not torch.equal(output(copied.train(), x), output(copied.eval(), x)):
            return False
    return True


def gradient_is_derivative(norm: nn.Module, rows: int = 3) -> bool:
    """Whether gradcheck passes, in an input of some rows and in every parameter.

    Buffers are frozen: each evaluation has a fresh copy.
    """
    names = [name for name, _ in norm.named_parameters()]

    def called(x: torch.Tensor, *parameters: torch.Tensor) -> torch.Tensor:
        given = dict(zip(names, parameters, strict=True))
        return functional_call(copy.deepcopy(norm), given, (x,))

    leaves = [drawn(rows, 4, C, seed=9), *(z.detach().clone() for z in norm.parameters())]
    inputs = tuple(leaf.requires_grad_() for leaf in leaves)
    return torch.autograd.gradcheck(
        called, inputs, fast_mode=True, raise_exception=False, check_undefined_grad=False
    )


def nan_stays(norm: nn.Module) -> bool:
    """Whether a nan in the last token of each row is in no earlier output (the NaN probe)."""
    x = drawn(B, T, C, seed=7)
    x[:, -1] = torch.nan
    return not output(norm, x)[:, :-1].isnan().any()


def works_with_one_token(norm: nn.Module) -> bool:
    """Whether a training batch of one row of one token is taken."""
    try:
        return bool(output(norm, drawn(1, 1, C)).isfinite().all())
    except ValueError:
        return False
