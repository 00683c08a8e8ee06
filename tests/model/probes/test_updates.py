"""Updates: each number that is logged of a step, and which steps are counted as clipped.

Reference: the same steps of SGD by hand, gradients from torch.autograd, an angle by its cosine.
"""

import copy
import math
from functools import partial
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from torch.utils.data import DataLoader

from model.gpt import GPT
from model.lit import LitGPT
from model.norms.layernorm import LayerNorm
from model.norms.rmsnorm import RMSNorm
from model.probes import updates
from model.probes.updates import Changes, Updates
from model.schedule import warmup_cosine

V, B, T, C, RATE = 11, 4, 8, 12, 0.5
OF_BLOCK = ("attention.proj", "mlp.fc", "mlp.proj")


class Batches(pl.LightningDataModule):
    """The same twenty batches each time."""

    def train_dataloader(self) -> DataLoader[torch.Tensor]:
        draw = torch.Generator().manual_seed(0)
        batches = [torch.randint(V, (B, T + 1), generator=draw) for _ in range(20)]
        return DataLoader(batches, batch_size=None)  # type: ignore[arg-type]

    def val_dataloader(self) -> list[torch.Tensor]:
        return []


def lit() -> LitGPT:
    """In float64, every parameter random; SGD at a constant rate."""
    net = GPT(V, T, 2, 2, C, LayerNorm, qk_norm=RMSNorm, bias=True, residual_gate="rezero").double()
    draw = torch.Generator().manual_seed(1)
    for name, parameter in net.named_parameters():
        parameter.data.normal_(mean=0.3 * ("norm" in name), std=0.3, generator=draw)
    optimizer = partial(torch.optim.SGD, lr=RATE)
    scheduler = partial(warmup_cosine, warmup=0, total_steps=1, floor=1.0)
    return LitGPT(net, optimizer, scheduler, seed=1, log_every=1)


def fit(
    trained: LitGPT, *callbacks: pl.Callback, ckpt_path: Path | None = None, **options: Any
) -> dict[int, dict[str, float]]:
    """Train on the CPU; returns what was logged, by step."""
    logged: dict[int, dict[str, float]] = {}

    def log_now(values: dict[str, float]) -> None:
        logged.setdefault(trained.global_step, {}).update(values)

    trained.log_now = log_now  # type: ignore[method-assign]
    off = ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary")
    options = {"max_epochs": -1, "limit_val_batches": 0, **dict.fromkeys(off, False), **options}
    trainer = pl.Trainer(accelerator="cpu", devices=1, callbacks=list(callbacks), **options)
    trainer.fit(trained, datamodule=Batches(), ckpt_path=ckpt_path, weights_only=True)
    return logged


def norm(*tensors: torch.Tensor) -> float:
    return math.sqrt(sum(tensor.square().sum().item() for tensor in tensors))


def step_by_hand(
    at: LitGPT, batches: list[torch.Tensor], limit: float | None
) -> dict[str, torch.Tensor]:
    """One clipped step of SGD on the mean loss of some batches; returns the gradients before."""
    parameters = dict(at.net.named_parameters())
    losses = [at.cross_entropy(batch) for batch in batches]
    found = torch.autograd.grad(sum(losses) / len(losses), list(parameters.values()))  # type: ignore[arg-type]
    gradients = dict(zip(parameters, found, strict=True))
    factor = min(1.0, limit / norm(*found)) if limit else 1.0
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter -= RATE * factor * gradients[name]
    return gradients


def kinds(names: Any) -> dict[str, list[str]]:
    """The parameters of each kind, by the layers of GPT."""
    found: dict[str, list[str]] = {}
    for name in names:
        which = {"_norm": "norm", ".gates": "gates", "embedding": "embedding", ".mlp.": "mlp"}
        kind = next((kind for part, kind in which.items() if part in name), "attention")
        found.setdefault(kind, []).append(name)
    return found


def matrices(net: Any) -> dict[str, torch.Tensor]:
    found = {
        "token_embedding": net.token_embedding.weight,
        "position_embedding": net.position_embedding.weight,
    }
    for n, block in enumerate(net.blocks):
        for part, rows in zip("qkv", block.attention.qkv.weight.split(C), strict=True):
            found[f"attention_{part}/{n}"] = rows
        for name in OF_BLOCK:
            found[f"{name.replace('.', '_')}/{n}"] = block.get_submodule(name).weight
    return found


def expected(before: LitGPT, after: LitGPT, gradients: dict[str, torch.Tensor]) -> dict[str, float]:
    old, new = (dict(at.net.named_parameters()) for at in (before, after))
    values = {}
    for n in range(2):
        of_block = [z for name, z in gradients.items() if name.startswith(f"blocks.{n}.")]
        values[f"probe/grad_norm/{n}"] = norm(*of_block)
    for kind, names in kinds(gradients).items():
        values[f"probe/grad_norm/{kind}"] = norm(*(gradients[name] for name in names))
        change = norm(*(new[name] - old[name] for name in names))
        values[f"probe/update_ratio/{kind}"] = change / norm(*(old[name] for name in names))
    old_matrices = matrices(before.net)
    for name, w in matrices(after.net).items():
        v = old_matrices[name]
        values[f"probe/weight_norm_{name}"] = norm(w)
        cosine = ((v * w).sum() / (v.norm() * w.norm())).item()
        values[f"probe/angle_{name}"] = math.degrees(math.acos(min(1.0, cosine)))
    families = {name.split(".")[-2] for name in new if "norm" in name}
    for family in families:
        site = f"attention_{family}" if family in ("q_norm", "k_norm") else family
        gain = torch.cat([new[name] for name in new if name.endswith(f"{family}.weight")])
        values[f"probe/gain_mean/{site}"] = gain.mean().item()
        values[f"probe/gain_min/{site}"] = gain.min().item()
        values[f"probe/gain_max/{site}"] = gain.max().item()
        values[f"probe/gain_negative/{site}"] = (gain < 0).sum().item() / len(gain)
    return values


@pytest.mark.parametrize(("accumulate", "limit"), [(1, 0.5), (2, None), (3, 0.01)])
def test_each_value_is_that_of_the_same_steps_by_hand(accumulate: int, limit: float | None) -> None:
    trained, by_hand, wanted = lit(), lit(), {}
    batches = list(Batches().train_dataloader())
    for step in range(1, 4):
        before = copy.deepcopy(by_hand)
        micro = batches[(step - 1) * accumulate : step * accumulate]
        gradients = step_by_hand(by_hand, micro, limit)
        wanted[step] = expected(before, by_hand, gradients)
    options = {"accumulate_grad_batches": accumulate, "gradient_clip_val": limit, "max_steps": 3}
    found = fit(trained, Updates(every=2), **options)
    for step in (1, 2, 3):
        values = {name: value for name, value in found[step].items() if "probe/" in name}
        assert values.pop("probe/clipped_share") == (0.0 if limit is None else 1.0)
        assert values.keys() == wanted[step].keys()
        assert values == pytest.approx(wanted[step], rel=1e-5, abs=1e-7)
        assert any(0 < values[f"probe/gain_negative/{site}_norm"] < 1 for site in ("mlp", "final"))


class Norms(pl.Callback):
    """Notes each step's gradient norm."""

    def __init__(self) -> None:
        self.noted: list[float] = []

    def on_train_batch_end(self, trainer: pl.Trainer, lit: Any, *_: object) -> None:
        if trainer.global_step > len(self.noted):
            self.noted.append(float(lit.grad_norm))


def test_the_share_of_clipped_steps_is_of_those_since_the_last_multiple_of_every() -> None:
    free, limited = Norms(), Norms()
    fit(lit(), free, max_steps=7)
    limit = sorted(free.noted)[3]
    found = fit(lit(), limited, Updates(every=3), max_steps=7, gradient_clip_val=limit)
    clipped = [value > limit for value in limited.noted]
    assert 0 < sum(clipped) < 7
    shares = {step: values.get("probe/clipped_share") for step, values in found.items()}
    groups = {1: clipped[:1], 3: clipped[:3], 6: clipped[3:6], 7: clipped[6:]}
    for step in range(1, 8):
        share = sum(groups[step]) / len(groups[step]) if step in groups else None
        assert shares[step] == share


@pytest.mark.filterwarnings("ignore:.*not resumable")  # Lightning's, of the loader
def test_a_run_is_resumed_with_these_probes_or_without_and_nothing_warns(tmp_path: Path) -> None:
    for before, after in (([], [Updates(every=1)]), ([Updates(every=1)], [])):
        first = lit()
        fit(first, *before, max_steps=2)
        first.trainer.save_checkpoint(tmp_path / "last.ckpt")
        found = fit(lit(), *after, max_steps=3, ckpt_path=tmp_path / "last.ckpt")
        assert ("probe/clipped_share" in found[3]) is bool(after)


def test_nothing_is_copied_or_measured_on_a_step_that_is_not_due(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked: list[int] = []
    trained = lit()
    for name in ("gradient_norms", "gains", "Changes"):

        def noted(real: Any, net: Any) -> Any:
            looked.append(trained.global_step)
            return real(net)

        monkeypatch.setattr(updates, name, partial(noted, getattr(updates, name)))
    fit(trained, Updates(every=4), max_steps=6)
    assert looked == [0, 0, 1, 3, 3, 4, 5, 5, 6]  # before and after steps 1, 4 and 6


def test_a_weight_that_does_not_move_turns_by_nothing_and_a_small_angle_keeps_its_digits() -> None:
    net: Any = lit().net.float()
    w = net.blocks[0].mlp.fc.weight
    across = torch.randn(w.shape)
    across -= (across * w).sum() / (w * w).sum() * w.detach()
    changes = Changes(net)
    with torch.no_grad():
        w += 1e-4 * across * w.norm() / across.norm()
        net.blocks[0].mlp.proj.weight *= 3
    values = changes.measure()
    assert values["probe/angle_mlp_fc/0"] == pytest.approx(math.degrees(math.atan(1e-4)), rel=2e-3)
    assert values["probe/angle_mlp_proj/0"] == pytest.approx(0, abs=0.1)
    assert values["probe/angle_attention_q/1"] == values["probe/update_ratio/norm"] == 0
