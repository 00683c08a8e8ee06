"""The figures of the report."""

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from report.compare import compare
from report.curves import Curve, curve_of
from report.figures import draw_all, looks_of, loss_range
from report.layers import last_values
from report.style import Drawn, looks, spread
from tests.report.conftest import diverge, every_curve, judged_of

Write = Callable[..., Path]


def test_probes_are_drawn_by_name_by_layer_or_over_steps(tmp_path: Path, write_run: Write) -> None:
    """Those that say most; where there is none of these, whatever else was logged."""
    rows = [(s, f"probe/residual_rms/{i}", s + i) for s in (10, 20) for i in range(3)]
    other = [(s, f"probe/{n}", 1 / s) for s in (10, 20, 30) for n in ("leak", "batchnorm_gap")]
    for seed in (1, 2):
        write_run(tmp_path / f"a/{seed}", seed=seed, curves=rows + other)
        write_run(tmp_path / f"b/{seed}", seed=seed, curves=[r for r in other if "gap" in r[1]])
    for folder, names in (("a", ["leak", "residual_rms"]), ("b", ["batchnorm_gap"])):
        compare(tmp_path / folder)
        place = tmp_path / folder / "comparison"
        assert sorted(p.stem for p in place.glob("probe*.svg")) == [f"probe_{n}" for n in names]
    figure = (tmp_path / "a/comparison/probe_residual_rms.svg").read_text()
    assert "layer" in figure and "RMS of the residual stream" in figure


@pytest.mark.parametrize("norms", [1, 12])
def test_figures_name_their_units_and_tell_conditions_apart(
    norms: int, tmp_path: Path, write_sweep: Write
) -> None:
    names = [f"norm{i:02}" for i in range(norms)]
    compare(write_sweep(tmp_path, {name: [2.0, 2.1, 2.2] for name in names}), baseline="norm00")
    figure = (tmp_path / "comparison/loss_val_steps.svg").read_text()
    assert "validation loss (nats per character)" in figure
    assert "optimizer steps" in figure
    assert all(f">{name}<" in figure for name in names)


def test_looks_differ_between_conditions_and_not_between_figures() -> None:
    conditions = [f"a{i}" for i in range(28)]
    assert len(set(looks(conditions).values())) == 28


def test_curves_on_a_log_axis_are_averaged_there(tmp_path: Path, write_run: Write) -> None:
    """Geometric means and intervals: exp of those of the logarithms, never below 0."""
    values = np.array([[1.0, 4.0], [2.0, 9.0], [8.0, 0.5]])
    for seed, (a, b) in enumerate(values, 1):
        rows = [(1, "optim/grad_norm", a), (2, "optim/grad_norm", b), (2, "loss/val", 2.0)]
        write_run(tmp_path / f"l{seed}", "layernorm", seed, curves=rows)
    curve = curve_of(judged_of(tmp_path).study, "layernorm", "optim/grad_norm", log=True)
    assert curve is not None
    ((_, mean),), (low, high) = curve.lines, curve.band
    assert mean == pytest.approx(np.exp(np.log(values).mean(0)))
    half = 4.302652729911275 * np.log(values).std(0, ddof=1) / np.sqrt(3)  # t at 0.975, 2 degrees
    assert low == pytest.approx(mean / np.exp(half))
    assert high == pytest.approx(mean * np.exp(half))


def words_of(figure: Drawn) -> list[str]:
    """The texts in a figure, a line each."""
    return re.findall(r"<text[^>]*>([^<]*)</text>", figure.svg)


def test_with_fewer_than_five_evaluations_the_training_loss_is_the_curve(
    tmp_path: Path, write_run: Write
) -> None:
    rows = every_curve(2.0)
    few = [row for row in rows if row[1] != "loss/val" or row[0] in (80, 200)]
    for folder, curves in (("many", rows), ("few", few)):
        write_run(tmp_path / folder / "l", seed=1, curves=curves)
        write_run(tmp_path / folder / "n", "none", 1, curves=curves)
    many, few_drawn = (draw_all(judged_of(tmp_path / name)) for name in ("many", "few"))
    assert {"loss_val_steps", "loss_train_steps"} <= set(many)
    assert "loss_val_steps" not in few_drawn and "loss_train_steps" in few_drawn


def test_a_wide_interval_does_not_set_the_axis() -> None:
    """Seen: an axis from -8 under losses of 2, since three seeds gave an interval that wide."""
    steps, mean = np.arange(1.0, 21), np.linspace(4, 2, 20)
    curve = Curve("a", [(steps, mean)], (mean - 10, mean + 10), [])
    low, high = loss_range([curve])
    assert 1.5 < low < 2
    assert 3.5 < high < 4.5


def test_runs_that_stopped_early_are_in_no_value_by_layer(
    tmp_path: Path, write_full: Write
) -> None:
    write_full(tmp_path, {"layernorm": [2.0, 2.1, 2.2], "none": [2.4, 2.5, 2.6]})
    diverge(tmp_path / "none-s2")
    judged = judged_of(tmp_path)
    names = [f"probe/residual_rms/{i}" for i in range(4)]
    table = last_values(judged.study, "none", names)
    assert sorted(table.index) == ["none-s1", "none-s3"]
    assert table.columns.tolist() == [0, 1, 2, 3]
    assert table.loc["none-s3"].to_numpy() == pytest.approx([2.6, 5.2, 7.8, 10.4], rel=0.01)
    drawn = draw_all(judged)["probe_residual_rms"]
    assert "means over seeds with their 95 % intervals" in drawn.caption
    assert "Runs that stopped early are left out: 1 of none." in drawn.caption


def test_two_layers_are_not_joined_by_a_line_and_four_are(
    tmp_path: Path, write_full: Write
) -> None:
    """A path with an L goes on from its start: markers are used, not drawn as paths of a line."""
    drawn = draw_all(judged_of(write_full(tmp_path, {"layernorm": [2.0, 2.1], "none": [2.4, 2.5]})))

    def joined(name: str) -> int:
        lines = re.findall(r'<g id="[^"]*line2d_\d+">\s*<path d="([^"]+)" clip', drawn[name].svg)
        return sum("L" in line for line in lines) - grid(name)

    def grid(name: str) -> int:
        return len(re.findall(r'<g id="[^"]*[xy]tick_\d+">', drawn[name].svg))

    assert joined("probe_residual_rms") == 4  # two conditions, two seeds: each run by itself
    assert joined("probe_grad_norm") == 0
    assert "each run by itself" in drawn["probe_grad_norm"].caption


def test_up_to_three_lines_are_named_at_their_ends_in_the_order_in_which_they_end(
    tmp_path: Path, write_full: Write
) -> None:
    three = {"layernorm": [2.0], "batchnorm": [2.5], "none": [2.3]}
    write_full(tmp_path / "three", three)
    write_full(tmp_path / "four", three | {"rmsnorm": [2.1]})
    direct = draw_all(judged_of(tmp_path / "three"))["loss_val_steps"].svg
    legend = draw_all(judged_of(tmp_path / "four"))["loss_val_steps"].svg
    assert "legend_1" in legend and "legend_1" not in direct
    places = {
        name: float(found[1])
        for name in three
        if (found := re.search(rf"translate\([\d.]+ ([\d.]+)\)[^>]*>{name}<", direct))
        or (found := re.search(rf'y="([\d.]+)"[^>]*>{name}<', direct))
    }
    assert sorted(places, key=places.__getitem__) == ["batchnorm", "none", "layernorm"]


def test_labels_keep_their_distance_inside_the_axes() -> None:
    rng = np.random.default_rng(1)
    for _ in range(200):
        wanted = list(rng.random(3))
        places = sorted(spread(wanted, 0.2))
        assert np.diff(places).min() > 0.2 - 1e-12
        assert places[-1] <= 1
    apart = [0.1, 0.9, 0.5]
    assert spread(apart, 0.2) == apart


def test_a_condition_has_one_colour_in_all_figures(tmp_path: Path, write_full: Write) -> None:
    losses = {"layernorm": [2.0, 2.1, 2.2], "none": [2.4, 2.5, 2.6], "batchnorm": [2.3, 2.4, 2.5]}
    judged = judged_of(write_full(tmp_path, losses))
    colours = {look.color.lower() for look in looks_of(judged).values()}
    for name, figure in draw_all(judged).items():
        used = set(re.findall(r"#[0-9a-f]{6}", figure.inline)) - {"#818283"}  # the grid
        baseline = looks_of(judged)["layernorm"].color.lower()
        assert used == (colours - {baseline} if name == "differences" else colours), name


def test_a_label_counts_all_failed_runs_though_one_logged_nothing(
    tmp_path: Path, write_full: Write
) -> None:
    write_full(tmp_path, {"layernorm": [2.0, 2.1], "none": [2.4, 2.5, 2.6]})
    for seed in (1, 2, 3):
        diverge(tmp_path / f"none-s{seed}")
    (tmp_path / "none-s1/metrics.csv").write_text("step,name,value\n")
    assert "(3 of 3 failed)" in words_of(draw_all(judged_of(tmp_path))["loss_val_steps"])
