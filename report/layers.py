"""Whatever probes have logged, found by name: `probe/WHAT` or `probe/WHAT/LAYER`."""

import re

import numpy as np
from matplotlib.ticker import MaxNLocator

from report.curves import curve_of
from report.draw import Drawn, Look, add_legend, canvas, finish
from report.group import Study

MOST, FEWEST_POINTS = 8, 2  # figures: a page is no archive; and points of a curve
FIRST = {  # what says most about a norm, in words; others are drawn where there is none of these
    "residual_rms": "RMS of the residual stream",
    "grad_norm": "gradient norm of the block",
    "input_std_attention_norm": "SD of the attention norm's input",
    "tid_mean_attention_norm": "batch mean from running mean (SDs)",
    "loss_running": "loss, running statistics (nats)",
    "loss_batch": "loss, batch statistics (nats)",
    "leak": "leak (nats per character)",
    "attention_entropy": "attention entropy / ln t",
}


def draw_probes(study: Study, colours: dict[str, Look]) -> dict[str, Drawn]:
    """One figure a probe: its last values by layer where it has layers, else over training."""
    found = {name for curves in study.runs.curves.values() for name in curves.columns}
    probes = sorted(name for name in found if name.startswith("probe/"))
    families: dict[str, list[str]] = {}
    for name in probes:
        stem = re.sub(r"[/._-]?\d+$", "", name)
        families.setdefault(stem, []).append(name)
    drawn: dict[str, Drawn] = {}
    known = [f"probe/{what}" for what in FIRST if f"probe/{what}" in families]
    for stem in known or families:
        names = families[stem]
        if len(names) == 1 and points(study, names[0]) < FEWEST_POINTS:
            continue
        if len(drawn) == MOST:
            break
        file = re.sub(r"\W+", "_", stem)
        figure = by_layer(file, study, colours, stem, names)
        drawn[file] = figure if len(names) > 1 else over_steps(file, study, colours, names[0])
    return drawn


def points(study: Study, name: str) -> int:
    """How often a probe was logged in the run that has most of it."""
    return max(int(c[name].count()) if name in c else 0 for c in study.runs.curves.values())


def by_layer(
    file: str, study: Study, colours: dict[str, Look], stem: str, names: list[str]
) -> Drawn:
    """The last value logged, mean over seeds, against the layer's number."""
    layers = {
        int(re.sub(r".*?(\d+)$", r"\1", name)) if name[-1].isdigit() else 0: name for name in names
    }
    figure, axes = canvas()
    for condition in study.conditions:
        points = []
        for layer, name in sorted(layers.items()):
            ends = [
                study.runs.curves[run][name].dropna().iloc[-1:]
                for run in study.of(condition).run
                if name in study.runs.curves[run]
            ]
            values = np.concatenate([end.to_numpy() for end in ends]) if ends else np.array([])
            if len(values):
                points.append((layer, values.mean()))
        if points:
            look = colours[condition]
            x, y = zip(*points, strict=True)
            axes.plot(
                x, y, label=condition, color=look.color, ls=look.linestyle, marker=look.marker
            )
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("layer")
    axes.set_ylabel(words(stem))
    add_legend(figure, axes)
    return finish(figure, file, words(stem), "At the last step that was logged, means over seeds.")


def over_steps(file: str, study: Study, colours: dict[str, Look], name: str) -> Drawn:
    """Mean over seeds against steps."""
    figure, axes = canvas()
    for condition in study.conditions:
        curve, look = curve_of(study, condition, name), colours[condition]
        if curve is None:
            continue
        lines = curve.single or [(curve.steps, curve.mean)]
        for i, (steps, values) in enumerate(lines):
            label = None if i else condition
            axes.plot(steps, values, label=label, color=look.color, ls=look.linestyle)
    axes.set_xlabel("optimizer steps")
    axes.set_ylabel(words(name))
    add_legend(figure, axes)
    return finish(figure, file, words(name), "Means over seeds; where a run failed, each run.")


def words(name: str) -> str:
    """`probe/residual_rms` in words: `Residual rms`."""
    what = name.removeprefix("probe/")
    plain = FIRST.get(what, what.replace("_", " ").replace("/", ", "))
    return plain[:1].upper() + plain[1:]
