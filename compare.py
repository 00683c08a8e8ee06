"""Compare the runs of one or more sweeps: python compare.py sweeps/FOLDER [more...].

A table on the console; a page, its figures and its numbers in the first folder's `comparison/`.
The same is made by itself at a sweep's end. Nothing heavy is imported before it is needed.
"""

import argparse
import os
import sys


def main() -> None:
    """Parse, compare, print; a mistake is one line and exit code 1."""
    parser = argparse.ArgumentParser(
        description="Tables, figures and verdicts from run folders, in FOLDER/comparison/."
    )
    parser.add_argument(
        "folders", nargs="+", metavar="FOLDER", help="a sweep's folder, or a run's; several at once"
    )
    parser.add_argument(
        "--baseline",
        default="layernorm",
        metavar="NAME",
        help="norm, or condition as the table names it, that all are compared with (layernorm)",
    )
    parser.add_argument(
        "--plan",
        type=float,
        metavar="MARGIN",
        help="also say how many seeds tell a true difference of MARGIN nats a character from 0",
    )
    arguments = parser.parse_args()
    from report.compare import compare

    try:
        text = compare(arguments.folders, arguments.baseline, arguments.plan)
    except (ValueError, OSError) as error:
        sys.exit(f"error: {error}")
    try:
        print(text, flush=True)
    except BrokenPipeError:  # `| head` has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    main()
