"""Write text with a trained run.

python sample.py runs/<folder> --prompt "ROMEO:" --max-new-tokens 500 --temperature 0.8 --top-k 20

Only the run folder is read: its configuration, its vocabulary and checkpoints/best.ckpt.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))  # before any other package `data`

from run.program import start
from run.resume import vocabulary_size
from run.stored import read_stored
from run.trust import known_targets, refuse_foreign_config


def parse_arguments() -> argparse.Namespace:
    """The command line, with its limits."""
    parser = argparse.ArgumentParser(description="Write text with a trained run.")
    parser.add_argument("folder", type=Path, help="a run folder, as train.py printed it")
    parser.add_argument(
        "--prompt", default="", help="the text to continue (default: the start of a line)"
    )
    parser.add_argument("--max-new-tokens", type=int, default=500, metavar="N")
    parser.add_argument(
        "--temperature",
        type=float,
        default=0.8,
        help="below 1: likelier characters; 0: the likeliest",
    )
    parser.add_argument(
        "--top-k", type=int, metavar="K", help="draw from the K likeliest characters only"
    )
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    for name, least in (("max_new_tokens", 0), ("temperature", 0), ("top_k", 1)):
        value = getattr(arguments, name)
        if value is not None and not value >= least:
            parser.error(f"--{name.replace('_', '-')} must be at least {least}, got {value}")
    return arguments


def sample(arguments: argparse.Namespace) -> str:
    """The prompt, whole, and exactly max_new_tokens characters after it.

    Raises:
        ValueError: it is not a run folder, or the prompt has characters that the run never saw.
    """
    folder = arguments.folder
    for part in (".hydra/config.yaml", "tokenizer.json", "checkpoints/best.ckpt"):
        if not (folder / part).exists():
            raise ValueError(
                f"{folder} has no {part}; give a run folder that train.py has evaluated in"
            )

    from hydra.utils import get_class, instantiate
    from omegaconf import OmegaConf
    from tokenizers import Tokenizer

    from run.state import read_state, refuse_other_net, weights

    vocabulary_size(folder / "tokenizer.json")  # refuses a damaged one
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    stored = read_stored(folder, "config")
    refuse_foreign_config(folder, stored, known_targets())
    config = OmegaConf.create(stored)
    net = instantiate(config.model, vocab_size=tokenizer.get_vocab_size(), _convert_="all").eval()
    best = folder / "checkpoints" / "best.ckpt"
    refuse_other_net(best, net)
    net.load_state_dict(weights(read_state(best)))
    options = {key: getattr(arguments, key) for key in ("temperature", "top_k", "seed")}
    prompt, length = arguments.prompt, arguments.max_new_tokens
    data: Any = get_class(config.data._target_)  # knows how to continue a text; reads no data
    return str(prompt + data.continue_text(net, tokenizer, prompt, length, **options))


if __name__ == "__main__":
    start(lambda: print(sample(parse_arguments()), flush=True))
