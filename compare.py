"""Compare the runs of one or more sweeps.

python compare.py sweeps/FOLDER [more...]

Tables go to the console; a page, its figures and its numbers go into `comparison/` in the first
folder, or into the folder that --out names. A sweep makes the same report by itself at its end.
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))  # before any other package `report`

from run.program import start


def main() -> None:
    """Parse, compare, print."""
    parser = argparse.ArgumentParser(description="Compare the runs of one or more sweeps.")
    parser.add_argument("folders", nargs="+", metavar="FOLDER", help="the folder of a sweep or run")
    parser.add_argument(
        "--baseline",
        default="layernorm",
        metavar="NAME",
        help="what all are compared with: a norm, or a condition as the table names it (layernorm)",
    )
    parser.add_argument(
        "--plan",
        type=float,
        metavar="MARGIN",
        help="also say how many seeds tell a condition from its baseline if they truly are MARGIN "
        "nats per character apart",
    )
    parser.add_argument("--out", metavar="DIR", help="write into DIR instead of FOLDER/comparison/")
    arguments = parser.parse_args()
    from report.compare import compare  # after --help: pandas and matplotlib take a second

    text = compare(arguments.folders, arguments.baseline, arguments.plan, arguments.out)
    print(text, flush=True)


if __name__ == "__main__":
    start(main)
