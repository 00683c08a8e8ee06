"""comparison/report.html: one file that opens anywhere, offline, light and dark."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from report.conditions import Flat
from report.content import Content
from report.draw import Drawn
from report.tables import all_tables


def page(content: Content, figures: dict[str, Drawn]) -> str:
    """The whole page. Whatever comes from a run is escaped; only our own SVG is not."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
    )
    environment.filters["footnotes"] = footnotes
    return environment.get_template("page.html.j2").render(
        title=title(content),
        subtitle=subtitle(content),
        circumstances=circumstances(content),
        headline=content.headline,
        tables=all_tables(content),
        figures=figures,
        notes=content.notes,
    )


def title(content: Content) -> str:
    """The first conditions' names."""
    conditions = content.study.conditions
    more = f" and {len(conditions) - 4} more" if len(conditions) > 4 else ""
    return f"normlab: {', '.join(conditions[:4])}{more}"


def subtitle(content: Content) -> str:
    """How many runs, of what, from where."""
    study = content.study
    runs, seeds = study.reported, study.reported.seed.nunique()
    sweeps = ", ".join(dict.fromkeys(study.table.sweep))
    words = f"{len(runs)} runs in the tables, {len(study.table)} read, {seeds} seeds; from {sweeps}"
    if runs.max_steps.nunique() == 1:
        words += f"; {runs.max_steps.iloc[0]:.0f} steps"
    return f"{words}."


def circumstances(content: Content) -> str:
    """On what, when, by which code: a page that is passed on carries it."""
    runs, flat = content.study.reported, content.study.runs.flat
    of_runs = [flat[run] for run in runs.index]

    def said(name: str, values: Iterable[Any], shorten: int = 40) -> str:
        known = list(dict.fromkeys(str(v)[:shorten] for v in values if not pd.isna(v)))
        return f"{name} {', '.join(known[:3])}{' ...' * (len(known) > 3)}" if known else ""

    corpus = [str(c.get("data.corpus._target_", "")).rpartition(".")[2] for c in of_runs]
    parts = [
        said("model", (size_of(config) for config in of_runs)),
        said("text", corpus),
        said("characters seen", (f"{n:,.0f}" for n in runs.tokens.dropna())),
        said("on", runs.device),
        said("torch", runs.torch),
        said("threads", runs.threads),
        said("commit", runs.commit, 10),
        said("started", (str(s)[:10] for s in runs.started.dropna())),
    ]
    text = "; ".join(part for part in parts if part)
    return f"{text[:1].upper()}{text[1:]}."


def size_of(config: Flat) -> str:
    """`4L 4H 128d, 12 x 64 characters a step`."""
    size = "L ".join(str(config.get(f"model.{key}", "?")) for key in ("n_layer", "n_head"))
    batch = " x ".join(str(config.get(f"data.{key}", "?")) for key in ("batch_size", "block_size"))
    return f"{size}H {config.get('model.n_embd', '?')}d, {batch} characters a step"


def footnotes(cell: str) -> Markup:
    """A condition with its footnotes' numbers as links."""
    found = re.fullmatch(r"(.*) \[([\d,]+)\]", cell)
    if not found:
        return escape(cell)
    links = ", ".join(f'<a href="#note-{n}">{n}</a>' for n in found[2].split(","))
    return escape(found[1]) + Markup(f" <sup>{links}</sup>")
