"""Training speed of train.py beside a bare loop over the same model and batches.

python benchmarks/throughput.py --rounds 3 --steps 400 [overrides, as for train.py]

The two run in alternating processes, since machines are noisy. Each gives the median over windows
of ten steps, without the first hundred steps. Trust the ratio, and run it on an idle machine.
"""

import argparse
import csv
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
WINDOW, SKIPPED = 10, 100


def bare_loop(steps: int, overrides: list[str]) -> None:
    """Train without Lightning, evaluation or logging; prints tokens/s."""
    sys.path.insert(0, str(ROOT))
    import torch
    from hydra import compose, initialize_config_dir
    from hydra.utils import instantiate
    from torch.nn import functional as F

    with initialize_config_dir(str(ROOT / "configs"), version_base="1.3"):
        cfg = compose("train", overrides)
    data = instantiate(cfg.data, _convert_="all")
    net = instantiate(cfg.model, vocab_size=data.vocab_size, _convert_="all")
    optimizer = instantiate(cfg.optimizer, _convert_="all")(net.parameters())
    scheduler = instantiate(cfg.scheduler)(optimizer)
    windows, speeds, start = data.windows(), [], time.perf_counter()
    for k in range(steps):
        batch = windows[k]
        loss = F.cross_entropy(net(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), cfg.trainer.gradient_clip_val)
        optimizer.step()
        scheduler.step()
        if (k + 1) % WINDOW == 0:
            now = time.perf_counter()
            if k >= SKIPPED:
                speeds.append(WINDOW * batch[:, 1:].numel() / (now - start))
            start = now
    print(statistics.median(speeds))


def bare(steps: int, overrides: list[str]) -> float:
    """Tokens/s of the bare loop, in a process of its own."""
    command = [sys.executable, __file__, "--bare", "--steps", str(steps), *overrides]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def trained(steps: int, overrides: list[str]) -> float:
    """Tokens/s of train.py, read from its metrics.csv."""
    with tempfile.TemporaryDirectory() as folder:
        more = [f"trainer.max_steps={steps}", f"log_every={WINDOW}", f"hydra.run.dir={folder}/run"]
        command = [sys.executable, str(ROOT / "train.py"), *overrides, *more]
        subprocess.run(command, check=True, capture_output=True)
        with (Path(folder) / "run" / "metrics.csv").open() as file:
            rows = list(csv.DictReader(file))
    speeds = [r for r in rows if r["name"] == "speed/tokens_per_second"]
    return statistics.median(float(r["value"]) for r in speeds if int(r["step"]) > SKIPPED)


def main() -> None:
    """Alternate the two and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--bare", action="store_true", help="one bare loop only")
    parser.add_argument("overrides", nargs="*")
    arguments = parser.parse_args()
    if arguments.bare:
        return bare_loop(arguments.steps, arguments.overrides)
    pairs = []
    for _ in range(arguments.rounds):
        pairs.append([f(arguments.steps, arguments.overrides) for f in (bare, trained)])
        print(f"bare loop {pairs[-1][0]:8,.0f} tokens/s   train.py {pairs[-1][1]:8,.0f} tokens/s")
    loop, ours = (statistics.median(column) for column in zip(*pairs, strict=True))
    print(f"median    {loop:8,.0f} tokens/s            {ours:8,.0f} tokens/s")
    print(f"time of train.py / time of the bare loop: {loop / ours:.3f}")


if __name__ == "__main__":
    main()
