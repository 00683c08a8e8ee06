"""What every norm keeps, one case for each file of configs/norm; nothing is declared for any norm.

Reference: the contract of a norm (`Norm(dim, *, ...)`, `forward(x, mask=None)`), the same norm in
float64, and the same net or batch with one thing changed. Legend: B batch, T time, C channels.
"""

import io
import math
from collections.abc import Callable

import pytest
import torch
from hydra.utils import get_object, instantiate
from omegaconf import DictConfig, OmegaConf
from torch import nn
from torch.nn import functional as F

from model.lit import LitGPT
from tests.conftest import NORMS, ROOT

B, T, C, VOCAB = 4, 8, 16, 20
INPUTS: dict[str, Callable[..., torch.Tensor]] = {
    "random": torch.randn,
    "constant": lambda *shape: torch.full(shape, 3.7),
    "zero": torch.zeros,
    "huge": lambda *shape: 1e4 * torch.randn(shape),
    "far off centre": lambda *shape: 1e3 + torch.randn(shape),
}
Make = Callable[..., nn.Module]


@pytest.fixture(params=NORMS)
def config(request: pytest.FixtureRequest, compose_config: Callable[..., DictConfig]) -> DictConfig:
    torch.manual_seed(0)
    return compose_config(f"norm={request.param}", "model=mini", f"data.block_size={T}")


@pytest.fixture
def make_norm(config: DictConfig) -> Make:
    return instantiate(config.norm, _convert_="all")


@pytest.fixture
def make_net(config: DictConfig) -> Make:
    def make(**changes: object) -> nn.Module:
        return instantiate(config.model, vocab_size=VOCAB, _convert_="all", **changes)

    return make


def used(module: nn.Module, *inputs: torch.Tensor) -> nn.Module:
    """The module in eval mode, its parameters off their start, its buffers moved by training."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
        for x in inputs:
            module.train()(x)
    return module.eval()


def close(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Equal but for float64 rounding."""
    assert a.dtype == b.dtype == torch.float64
    return torch.allclose(a, b, rtol=0, atol=1e-12)


def right_padded() -> torch.Tensor:
    """(B, T) mask, True = a real token: rows of 8, 6, 4 and 2 tokens."""
    return torch.arange(T) < torch.tensor([8, 6, 4, 2])[:, None]


def loss_of(net: nn.Module, batch: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(net(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_keeps_shape_and_dtype(make_norm: Make, dtype: torch.dtype, training: bool) -> None:
    y = make_norm(C).train(training)(torch.randn(B, T, C, dtype=dtype))
    assert y.shape == (B, T, C) and y.dtype == dtype


def test_autocast_to_bf16_changes_nothing_for_a_float32_input(make_norm: Make) -> None:
    x = torch.randn(B, T, C)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = make_norm(C)(x)
    assert y.dtype == torch.float32 and torch.equal(y, make_norm(C)(x))


def test_a_bf16_input_gives_the_float64_result_of_that_input_rounded(make_norm: Make) -> None:
    x = (10 + torch.randn(B, T, C)).bfloat16()  # statistics in bf16 would be off by a tenth
    y, exact = make_norm(C)(x), make_norm(C).double()(x.double())
    assert torch.allclose(y.double(), exact, rtol=2**-8, atol=1e-4)


@pytest.mark.parametrize("kind", INPUTS)
def test_outputs_and_gradients_are_finite(make_norm: Make, kind: str) -> None:
    for dtype in (torch.float32, torch.bfloat16):
        for training in (True, False):
            norm = make_norm(C).train(training)
            x = INPUTS[kind](B, T, C).to(dtype).requires_grad_()
            y = norm(x)
            y.backward(torch.randn_like(y))
            for value in (y, x.grad, *(p.grad for p in norm.parameters())):
                assert value.isfinite().all(), (dtype, training)


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_the_smallest_widths_work_alone_and_in_a_net(
    make_norm: Make, make_net: Make, dim: int
) -> None:
    x = torch.randn(B, T, dim, requires_grad=True)
    y = make_norm(dim)(x)
    y.square().sum().backward()
    assert y.shape == x.shape and y.isfinite().all() and x.grad.isfinite().all()
    net = make_net(n_embd=dim, n_head=1)
    loss_of(net, torch.randint(VOCAB, (B, T + 1))).backward()
    assert all(p.grad.isfinite().all() for p in net.parameters())


def test_an_all_true_mask_is_as_no_mask_by_position_or_by_name(make_norm: Make) -> None:
    x, real = torch.randn(B, T, C), torch.ones(B, T, dtype=torch.bool)
    for training in (True, False):
        plain = make_norm(C).train(training)(x)
        assert torch.allclose(make_norm(C).train(training)(x, real), plain, rtol=0, atol=1e-6)
        assert torch.allclose(make_norm(C).train(training)(x, mask=real), plain, rtol=0, atol=1e-6)


@pytest.mark.parametrize("training", [True, False])
def test_padding_changes_no_real_token_alone_or_in_a_net(
    make_norm: Make, make_net: Make, training: bool
) -> None:
    mask = right_padded()
    x = torch.randn(B, T, C, dtype=torch.float64)
    other = torch.where(mask[..., None], x, torch.full_like(x, 99.0))
    a, b = (make_norm(C).double().train(training)(v, mask) for v in (x, other))
    assert a.shape == x.shape and close(a[mask], b[mask])
    ids = torch.randint(VOCAB, (B, T))
    a, b = (
        make_net().double().train(training)(v, mask)
        for v in (ids, ids.masked_fill(~mask, VOCAB - 1))
    )
    assert close(a[mask], b[mask]) and not torch.equal(a, b)


def test_a_saved_state_restores_the_norm(make_norm: Make) -> None:
    norm, file = used(make_norm(C), torch.randn(B, T, C)), io.BytesIO()
    torch.save(norm.state_dict(), file)
    file.seek(0)
    restored = make_norm(C).eval()
    restored.load_state_dict(torch.load(file, weights_only=True))
    x = torch.randn(B, T, C)
    assert torch.equal(restored(x), norm(x))
    assert restored.state_dict().keys() == norm.state_dict().keys()
    assert all(torch.equal(v, norm.state_dict()[k]) for k, v in restored.state_dict().items())


def test_eval_is_deterministic_and_moves_no_state(make_net: Make) -> None:
    ids = torch.randint(VOCAB, (B, T))
    net = used(make_net(dropout=0.5), ids)
    before = {name: value.clone() for name, value in net.state_dict().items()}
    assert torch.equal(net(ids), net(ids))
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())


def test_eval_is_independent_of_the_rest_of_the_batch(make_norm: Make, make_net: Make) -> None:
    x, ids = torch.randn(B, T, C, dtype=torch.float64), torch.randint(VOCAB, (B, T))
    norm, net = used(make_norm(C).double(), x), used(make_net().double(), ids)
    for row in range(B):
        assert close(norm(x)[row], norm(x[row : row + 1])[0])
        assert close(net(ids)[row], net(ids[row : row + 1])[0])


def test_eval_is_causal_in_a_net(make_net: Make) -> None:
    ids = torch.randint(VOCAB, (B, T))
    net = used(make_net().double(), ids)
    before = net(ids)
    for t in range(T):
        changed = ids.clone()
        changed[:, t] = (ids[:, t] + 1) % VOCAB
        after = net(changed)
        assert close(after[:, :t], before[:, :t])
        assert not torch.allclose(after[:, t], before[:, t], rtol=1e-6)


def test_every_parameter_gets_a_gradient_in_a_net(make_net: Make) -> None:
    net = make_net(bias=True)
    loss_of(net, torch.randint(VOCAB, (B, T + 1))).backward()
    for name, parameter in net.named_parameters():
        assert parameter.grad is not None and parameter.grad.any(), name


def test_no_two_sites_share_a_module_or_a_parameter(make_norm: Make, make_net: Make) -> None:
    sites = [m for m in make_net().modules() if type(m) is type(make_norm(C))]
    assert len(sites) == 5  # mini: two blocks with two, and the last
    pairs = list(make_net().named_parameters(remove_duplicate=False))
    assert len({id(p) for _, p in pairs}) == len(pairs)


def test_options_are_named_known_and_shown(config: DictConfig, make_norm: Make) -> None:
    with pytest.raises(TypeError):
        make_norm(C, no_such_option=1)
    with pytest.raises(TypeError):
        make_norm(C, 1e-5)  # one positional argument, the rest by name
    shown = repr(make_norm(C))
    assert shown.startswith(type(make_norm(C)).__name__)
    for name, value in config.norm.items():
        assert str(name).startswith("_") or f"{name}={value}" in shown


def test_is_a_plain_module(make_norm: Make) -> None:
    assert type(make_norm(C)).__bases__ == (nn.Module,)


def test_fifty_steps_on_one_batch_halve_the_loss_of_guessing(make_net: Make) -> None:
    net, batch = make_net(), torch.randint(VOCAB, (B, T + 1))
    optimizer = torch.optim.AdamW(net.parameters(), lr=3e-3)
    assert loss_of(net.eval(), batch) > 0.9 * math.log(VOCAB)
    net.train()
    for _ in range(50):
        loss = loss_of(net, batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss < 0.5 * math.log(VOCAB)
    assert loss_of(net.eval(), batch) < 0.5 * math.log(VOCAB)


def test_linear_and_embedding_weights_decay_and_nothing_else(
    config: DictConfig, make_net: Make
) -> None:
    net = make_net(bias=True)
    optimizer, scheduler = (
        instantiate(config.optimizer, _convert_="all"),
        instantiate(config.scheduler),
    )
    task = LitGPT(net, optimizer, scheduler, seed=1, log_every=1)
    decaying, rest = task.configure_optimizers()["optimizer"].param_groups
    assert decaying["weight_decay"] == config.optimizer.weight_decay > 0 == rest["weight_decay"]
    wanted = {id(m.weight) for m in net.modules() if isinstance(m, nn.Linear | nn.Embedding)}
    grouped = [id(p) for group in (decaying, rest) for p in group["params"]]
    assert {id(p) for p in decaying["params"]} == wanted
    assert sorted(grouped) == sorted(id(p) for p in net.parameters())


def test_shared_weights_start_bit_identical_for_one_seed_and_differ_for_another(
    compose_config: Callable[..., DictConfig],
) -> None:
    def start(norm: str, seed: int) -> dict[str, torch.Tensor]:
        torch.manual_seed(len(norm))  # the global generator has no say
        net = instantiate(
            compose_config(f"norm={norm}", "model=mini", f"seed={seed}").model, vocab_size=VOCAB
        )
        weights = {n: m for n, m in net.named_modules() if isinstance(m, nn.Linear | nn.Embedding)}
        return {name: module.weight for name, module in weights.items()}

    first, other_seed = start(NORMS[0], 1), start(NORMS[0], 2)
    assert len(first) == 10  # two embeddings, two blocks of four matrices
    assert not any(torch.equal(first[name], other_seed[name]) for name in first)
    for norm in NORMS:
        again = start(norm, 1)
        assert again.keys() == first.keys()
        assert all(torch.equal(again[name], first[name]) for name in first), norm


def test_every_norm_file_has_a_yaml_and_every_yaml_a_class() -> None:
    files = {path.stem for path in (ROOT / "model/norms").glob("*.py")} - {"__init__"}
    targets = [OmegaConf.load(ROOT / f"configs/norm/{name}.yaml")._target_ for name in NORMS]
    assert all(issubclass(get_object(target), nn.Module) for target in targets)
    assert {target.split(".")[-2] for target in targets} == files
