"""Cost of each norm beside `nn.LayerNorm`: forward + backward, memory, a training step; precision.

python benchmarks/norms.py --rounds 200 [--compile | --step | --precision] [--norms layernorm dyt]

Norms are found by listing configs/norm. All are timed in turn, round by round, in this process,
since machines are noisy. Trust the ratio of the medians to that of `nn.LayerNorm`, and run it on
an idle machine.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate
from torch import nn
from torch.nn import functional as F
from torch.profiler import ProfilerActivity, profile

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))  # the configuration names model.norms...

SHAPES = ((12, 64, 128), (64, 256, 384))  # (B, T, C) of model=baby and of nanoGPT's GPU set-up
Work = Callable[[], None]


def composed(norm: str, *overrides: str) -> Any:
    """The full configuration with this norm."""
    with initialize_config_dir(str(ROOT / "configs"), version_base="1.3"):
        return compose("train", [f"norm={norm}", "norm_name=null", *overrides])


def forward_backward(norm: Any, x: torch.Tensor, dy: torch.Tensor) -> Work:
    """One pass through a norm and back, from fresh gradients."""

    def work() -> None:
        x.grad = None
        for parameter in norm.parameters():
            parameter.grad = None
        norm(x).backward(dy)

    return work


def medians(works: dict[str, Work], rounds: int) -> dict[str, float]:
    """Median seconds of each, all in turn in each round."""
    for work in works.values():
        for _ in range(3):
            work()
    times: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(rounds):
        for name, work in works.items():
            start = time.perf_counter()
            work()
            times[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in times.items()}


def peak_bytes(work: Work) -> int:
    """The most memory that the work has allocated at once, without what was there before."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        work()
    kineto: Any = profiled.profiler
    events = [e for e in kineto.kineto_results.events() if e.name() == "[memory]"]
    live = least = peak = 0
    for event in sorted(events, key=lambda e: e.start_ns()):
        live += event.nbytes()
        least = min(least, live)  # the last pass's gradients are freed first
        peak = max(peak, live - least)
    return peak


def alone(names: list[str], shape: tuple[int, int, int], rounds: int, compiled: bool) -> None:
    """Print the table of forward + backward at one shape."""
    norms: dict[str, nn.Module] = {"nn.LayerNorm": nn.LayerNorm(shape[-1])}
    for name in names:
        norms[name] = instantiate(composed(name, f"data.block_size={shape[1]}").norm)(shape[-1])
    x, dy = torch.randn(shape, requires_grad=True), torch.randn(shape)
    works = {name: forward_backward(norm, x, dy) for name, norm in norms.items()}
    memory = {name: peak_bytes(work) for name, work in works.items()}
    if compiled:
        for name, norm in norms.items():
            torch.compiler.reset()
            work = forward_backward(torch.compile(norm), x, dy)
            try:
                work()
            except Exception as error:
                print(f"{name} does not compile: {str(error).splitlines()[0]}", file=sys.stderr)
            else:
                works[f"{name}, compiled"] = work
    seconds = medians(works, rounds if shape == SHAPES[0] else max(3, rounds // 20))
    unit, size = seconds["nn.LayerNorm"], 4 * torch.Size(shape).numel()
    print(f"\n(B, T, C) = {shape}, nn.LayerNorm takes {unit * 1e6:,.0f} us\n")
    print("| norm | eager | compiled | peak memory, in inputs |\n|---|---|---|---|")
    for name in norms:
        fast = seconds.get(f"{name}, compiled")
        ratio = "" if fast is None else f"{fast / unit:.2f}"
        print(f"| {name} | {seconds[name] / unit:.2f} | {ratio} | {memory[name] / size:.1f} |")


def training_step(name: str) -> Work:
    """One optimizer step of model=baby with this norm at every site, on random ids."""
    cfg = composed(name)
    net = instantiate(cfg.model, vocab_size=71, _convert_="all")
    optimizer = instantiate(cfg.optimizer, _convert_="all")(net.parameters())
    batch = torch.randint(71, (cfg.data.batch_size, cfg.data.block_size + 1))

    def work() -> None:
        loss = F.cross_entropy(net(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), cfg.trainer.gradient_clip_val)
        optimizer.step()

    return work


def steps(names: list[str], rounds: int) -> None:
    """Print the table of whole training steps."""
    works = {name: training_step(name) for name in {"torch_layernorm": 0} | dict.fromkeys(names)}
    seconds = medians(works, rounds)
    unit = seconds["torch_layernorm"]
    print(f"\nA training step of model=baby, {unit * 1e3:.1f} ms with torch_layernorm\n")
    print("| norm | time |\n|---|---|")
    for name in names:
        print(f"| {name} | {seconds[name] / unit:.3f} |")


def precision(names: list[str]) -> None:
    """Print the error of each norm's output against float64 of the same (rounded) input."""
    means = {torch.float32: (0, 10, 1e3, 1e4), torch.bfloat16: (0, 1, 10, 100)}
    head = [f"{str(dtype)[6:]}, mean {mean:g}" for dtype in means for mean in means[dtype]]
    print(f"\nRoot mean square error, (B, T, C) = {SHAPES[0]}, spread 1\n")
    print(f"| norm | {' | '.join(head)} |\n|{'---|' * (len(head) + 1)}")
    for name in names:
        make, errors = instantiate(composed(name).norm), []
        for dtype in means:
            for mean in means[dtype]:
                torch.manual_seed(0)
                x = (mean + torch.randn(SHAPES[0])).to(dtype)
                exact = make(x.shape[-1]).double()(x.double())
                errors.append((make(x.shape[-1])(x).double() - exact).square().mean().sqrt())
        print(f"| {name} | {' | '.join(f'{error:.1e}' for error in errors)} |")


def main() -> None:
    """Time what was asked for."""
    listed = sorted(path.stem for path in (ROOT / "configs" / "norm").glob("*.yaml"))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--compile", action="store_true", help="compiled too: minutes")
    parser.add_argument("--step", action="store_true", help="whole training steps instead")
    parser.add_argument("--precision", action="store_true", help="errors instead of times")
    parser.add_argument("--norms", nargs="+", choices=listed, default=listed, metavar="NORM")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads")
    if arguments.precision:
        return precision(arguments.norms)
    if arguments.step:
        return steps(arguments.norms, arguments.rounds)
    for shape in SHAPES:
        alone(arguments.norms, shape, arguments.rounds, arguments.compile)


if __name__ == "__main__":
    main()
