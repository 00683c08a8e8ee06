"""Write the generated tables into docs/norms.md, between their marker comments.

python tools/write_tables.py            # writes them
python tools/write_tables.py --check    # writes nothing; exit code 1 if one is out of date

Every cell of these tables is measured (tests/model/norms/properties.py). A table is written between
`<!-- table: NAME -->` and `<!-- end -->`; where that is, is up to the text around it.
"""

import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))  # a script sees only its own folder

import torch
from torch import nn
from torch.nn.utils import parametrizations

from tests.model.norms import properties as p

PAGE = Path(__file__).parent.parent / "docs" / "norms.md"
TABLES = ("norms", "norm of linear", "linear of norm", "causality")
YES_NO = {True: "yes", False: "**no**"}
LATER = " (later)"


def markdown(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table with a row of dashes under its head."""
    lines = [list(head), *map(list, rows)]
    lines.insert(1, ["---"] * len(lines[0]))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def grouped(cells: dict[str, list[str]]) -> list[list[str]]:
    """One row for all names with the same cells; a `(later)` that equals its start is left out."""
    together: dict[tuple[str, ...], list[str]] = {}
    for name, row in cells.items():
        names = together.setdefault(tuple(row), [])
        if name.removesuffix(LATER) not in names:
            names.append(name)
    return [[", ".join(names), *row] for row, names in together.items()]


def invariance(arrangement: str) -> str:
    """The markdown of table 1 of the LayerNorm paper with a row for each norm, in training."""
    map_of, dim, changes = {
        "norm of linear": (p.norm_of_linear, p.C, p.CHANGES),
        "linear of norm": (p.linear_of_norm, p.D, p.CHANGES | p.TOKEN_SHIFTED),
    }[arrangement]
    cells = {}
    for name, make in p.rows().items():
        for phase, norm in p.phases(make, dim).items():
            cells[name + LATER * (phase == "later")] = p.invariances(map_of(norm), changes)
    if arrangement == "norm of linear":
        cells["WeightNorm"] = p.invariances(p.weight_norm)
    marks = {name: ["I" if kept else "-" for kept in row.values()] for name, row in cells.items()}
    return markdown(["norm", *changes], grouped(marks))


def causality() -> str:
    """The markdown of what a later token and another row change, in training and evaluation."""
    cells = {}
    weight_norm = {"WeightNorm": lambda dim: parametrizations.weight_norm(nn.Linear(dim, dim))}
    for name, make in {**p.rows(), **weight_norm}.items():
        for phase, norm in p.phases(make).items():
            answers = []
            for mode in (True, False):
                norm.train(mode)
                answers += [p.is_causal(norm), p.is_batch_independent(norm)]
            cells[name + LATER * (phase == "later")] = [YES_NO[answer] for answer in answers]
    head = [
        f"{what} in {mode}"
        for mode in ("training", "evaluation")
        for what in ("causal", "independent of other rows")
    ]
    return markdown(["norm", *head], grouped(cells))


def over_time(answers: list[str]) -> str:
    """The answer at the start, and the one after a warm-up if it differs."""
    start, later = answers
    return start if start == later else f"{start}; later {later}"


def short() -> str:
    """The markdown of the overview; of yamls of one class with the same row it has the first."""
    rows, seen = [], set()
    for name in p.configs():
        phases = list(p.phases(p.exact(name)).values())
        axes = over_time([", ".join(p.averages_over(norm)) or "nothing" for norm in phases])
        same = YES_NO[all(p.train_equals_eval(norm) for norm in phases)]
        causal = over_time([YES_NO[p.is_causal(norm)] for norm in phases])
        state = p.shapes(phases[0].buffers())
        key = (p.configs()[name]._target_, axes, state, same, causal)
        if key not in seen:
            seen.add(key)
            parameters = p.shapes(phases[0].parameters())
            rows.append([name, axes, parameters, state, same, causal])
    head = "norm, averages over, parameters, state, train = eval?, causal in training?".split(", ")
    return markdown(head, rows)


@cache
def table(name: str) -> str:
    """The markdown of one of `TABLES`."""
    torch.set_num_threads(1)
    if name == "norms":
        return short()
    return causality() if name == "causality" else invariance(name)


def regenerated(text: str) -> str:
    """A page's text with its tables measured again.

    Raises:
        ValueError: the page has no place for one of `TABLES`, or several.
    """
    for name in TABLES:
        before, *after = text.split(f"<!-- table: {name} -->\n")
        if len(after) != 1:
            raise ValueError(f"the page needs one `<!-- table: {name} -->`, it has {len(after)}")
        rest = after[0][after[0].index("<!-- end -->") :]
        text = f"{before}<!-- table: {name} -->\n{table(name)}\n{rest}"
    return text


def main() -> None:
    """Write the page, or with --check only say whether it is out of date."""
    before = PAGE.read_text()
    after = regenerated(before)
    if "--check" in sys.argv[1:]:
        stale = before != after
        sys.exit("docs/norms.md is out of date: run python tools/write_tables.py" if stale else 0)
    PAGE.write_text(after)


if __name__ == "__main__":
    main()
