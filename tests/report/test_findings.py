"""What the first sentences say, and the command that tunes."""

import json
import math
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from report.compare import compare
from report.findings import findings, tuning_command
from tests.report.conftest import diverge, judged_of, tune, write_tuning

Write = Callable[..., Path]


def test_norms_that_ran_beside_their_best_rate_are_not_shown_as_at_their_own(
    tmp_path: Path, write_run: Write
) -> None:
    tune(tmp_path, write_run, "layernorm", ran_at=2e-3)
    tune(tmp_path, write_run, "none", ran_at=4e-3)
    judged = judged_of(tmp_path)
    assert "none did not run at the best rate that was found" in " ".join(findings(judged))
    assert "not every condition ran at the best" in judged.unjudged
    assert tuning_command(judged).startswith("python train.py experiment=tune")


# Losses of `none` on three seeds, where LayerNorm's are 2.00, 2.01, 2.02; None: the run diverged.
TRUTHS: dict[str, tuple[list[float | None], str]] = {
    "win": ([1.90, 1.911, 1.92], "is lower than that of layernorm by more than 0.02 nats"),
    "loss": ([2.10, 2.111, 2.12], "is higher than that of layernorm by more than 0.02 nats"),
    "equal": ([2.001, 2.01, 2.02], "is within 0.02 nats per character of that of layernorm."),
    "undecided": ([1.94, 2.01, 2.05], "nobody can tell whether the test loss of none is lower or"),
    "failed": ([2.0, None, 2.0], "1 of 3 runs of none failed, so it has no difference."),
    "edge": ([1.90, 1.911, 1.92], "The best learning rate of none is the lowest or the highest"),
}


@pytest.mark.parametrize("truth", TRUTHS)
def test_the_first_sentence_of_the_page_is_the_conclusion(
    truth: str, tmp_path: Path, write_run: Write
) -> None:
    losses, wanted = TRUTHS[truth]
    rates = {rate: [2.0 + abs(math.log2(rate / 2e-3))] * 3 for rate in (1e-3, 2e-3, 4e-3)}
    for norm, row in (("layernorm", [2.00, 2.01, 2.02]), ("none", losses)):
        edge = truth == "edge" and norm == "none"
        tried: dict[float, list[float | None]] = {r: [*x] for r, x in rates.items()}
        if edge:
            tried = {2e-3: [2.0] * 3, 4e-3: [2.5] * 3, 8e-3: [3.0] * 3}
        write_tuning(tmp_path / "s", write_run, tried, norm)
        for seed, loss in enumerate(row, 1):
            run = tmp_path / "s" / f"{norm}-{seed}"
            write_run(run, norm, seed, loss or 2.0, optimizer__lr=2e-3)
            if loss is None:
                diverge(run)
    text = " ".join(compare(tmp_path / "s").split())
    first, _, _ = text.partition(" Each condition is shown")
    assert wanted in first
    page = (tmp_path / "s/comparison/report.html").read_text()
    assert wanted in page[page.index('class="findings"') :].split("</li>")[0]


def test_conditions_with_one_answer_share_a_sentence_and_the_level_is_named(
    claims_sweep: Path,
) -> None:
    first, *others = findings(judged_of(claims_sweep))
    assert first.startswith("The test loss of batchnorm placement=p")
    assert " and " in first or len(others) > 1
    assert "98.3 % intervals" in others[-1]


def test_a_norm_whose_rate_was_not_searched_is_named(tmp_path: Path, write_run: Write) -> None:
    tune(tmp_path, write_run, "layernorm", ran_at=2e-3)
    write_run(tmp_path / "n", "none", optimizer__lr=2e-3)
    (sentence,) = findings(judged_of(tmp_path))
    assert "not for none: those may look worse than they are." in sentence


def test_different_rates_without_the_runs_that_chose_them_prove_nothing(
    tmp_path: Path, write_run: Write
) -> None:
    write_run(tmp_path / "l", "layernorm", optimizer__lr=1e-3)
    write_run(tmp_path / "n", "none", optimizer__lr=2e-3)
    judged = judged_of(tmp_path)
    assert "nothing here shows that each norm is at its best" in findings(judged)[-1]
    assert judged.unjudged


def test_placements_of_one_norm_at_one_rate_are_no_more_ranked_than_norms(
    tmp_path: Path, write_run: Write
) -> None:
    for placement in ("pre", "post"):
        write_run(tmp_path / placement, model__placement=placement)
    judged = judged_of(tmp_path)
    assert findings(judged)[0] == "Both conditions ran at one learning rate, 0.003."
    assert tuning_command(judged)


def test_tuning_runs_alone_compare_nothing(tmp_path: Path, write_run: Write) -> None:
    """As after the first stage of a tuning sweep, whose report comes by itself."""
    for norm in ("layernorm", "none"):
        write_tuning(tmp_path / norm, write_run, {1e-3: [2.4], 2e-3: [1.9], 4e-3: [None]}, norm)
    text = compare([tmp_path / "layernorm", tmp_path / "none"])
    assert text.startswith("These are tuning runs only")
    assert "Comparison" not in text
    assert "Learning rates, on tuning seeds" in text


def test_the_tuning_command_is_the_sweeps_own_with_the_rates_left_to_it(
    tmp_path: Path, write_run: Write
) -> None:
    """Every other setting is in it, quoted for a shell, on lines that a terminal shows whole."""
    for norm, placement in (("layernorm", "pre"), ("none", "post")):
        config = {"model__placement": placement, "trainer__max_steps": 100}
        folder = write_run(tmp_path / norm, norm, seed=3, optimizer__lr=1e-3, **config)
        overrides = yaml.safe_load((folder / ".hydra/overrides.yaml").read_text())
        overrides += ["data.path='my file.txt'", "~probes.callbacks.updates", "experiment=x"]
        result = json.loads((folder / "result.json").read_text()) | {"overrides": overrides}
        (folder / "result.json").write_text(json.dumps(result))
    command = tuning_command(judged_of(tmp_path))
    assert max(map(len, command.splitlines())) <= 80
    assert shlex.split(command.replace("\\\n", "")) == [
        *("python", "train.py", "experiment=tune", "norm=layernorm,none", "seed=3"),
        *("model.placement=pre,post", "trainer.max_steps=100"),
        *("data.path='my file.txt'", "~probes.callbacks.updates"),
    ]
