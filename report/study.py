"""What is compared with what: conditions, their baselines, and which runs speak for a condition.

A condition is a condition without its learning rate and its length: those are chosen for it, not
compared. Runs on tuning seeds choose the rate and are reported nowhere else.
"""

from dataclasses import dataclass

import pandas as pd

from report.conditions import Flat, label, swept_keys
from report.read import TUNING_SEEDS, Runs

RATE, LENGTH = "optimizer.lr", "trainer.max_steps"
CHOSEN = (RATE, LENGTH, "scheduler.total_steps")
METRIC, WITHOUT_TEST = "test_best", "val_best"


@dataclass(frozen=True)
class Study:
    """Runs in order.

    Attributes:
        table: the runs' table with `condition` and `role`: `reported`, `tuning` (on a tuning seed),
            `other rate`, `other length` (of a condition that has better ones), `repeat`.
        keys: what tells the conditions apart, the norm first.
        conditions: their labels, the first baseline first; those that are reported.
        baselines: for each condition the one that it is compared with, None for a baseline.
        settings: for each condition the values of `keys`.
        metric: the column that conditions are compared by: the test loss at the step that validation
            chose, or the best validation loss where there is no test split. Nats a character.
        skipped: one line for each folder that was left out.
        notes: what was decided on the way, one sentence each.
    """

    runs: Runs
    table: pd.DataFrame
    keys: list[str]
    conditions: list[str]
    baselines: dict[str, str | None]
    settings: dict[str, Flat]
    metric: str
    skipped: list[str]
    notes: list[str]

    @property
    def reported(self) -> pd.DataFrame:
        """The runs that the tables are made of."""
        return self.table[self.table.role == "reported"]

    @property
    def entropy(self) -> float:
        """Of single characters, nats: the mean over the runs, which differ if their texts do."""
        return float(self.reported.unigram_entropy.mean())

    def of(self, condition: str) -> pd.DataFrame:
        """A condition's reported runs, the index the seed."""
        rows = self.reported[self.reported.condition == condition]
        return rows.assign(run=rows.index).set_index("seed").sort_index()


def build_study(runs: Runs, baseline: str) -> Study:
    """Sort runs into conditions.

    Raises:
        ValueError: no condition is called `baseline` (other than the default's being absent).
    """
    conditions_flat = without_chosen(runs.flat)
    keys = swept_keys(conditions_flat, runs.typed)
    condition = {run: label(config, keys) for run, config in conditions_flat.items()}
    table = runs.table.assign(condition=pd.Series(condition), role="reported")
    notes: list[str] = []
    mark_repeats(table, ["condition", "lr", "max_steps", "seed"], notes)
    mark_tuning(table, notes)
    mark_lengths(table)
    mark_rates(table, notes)
    mark_repeats(table, ["condition", "seed"], notes)  # runs whose rate or length is not known
    settings = {
        condition[run]: {k: config.get(k) for k in keys} for run, config in conditions_flat.items()
    }
    present = list(dict.fromkeys(table[table.role == "reported"].condition))
    only_tuning = [a for a in dict.fromkeys(table.condition) if a not in present]
    if present and only_tuning:
        notes.append(f"No reported seed yet, only tuning runs: {', '.join(only_tuning)}.")
    if not present:  # a tuning sweep alone
        present = only_tuning
    baselines = find_baselines(present, settings, keys, baseline, notes)
    first = sorted(present, key=lambda a: baselines[a] is not None)
    trained = table[(table.role == "reported") & (table.failure == "")]
    metric = METRIC if trained[METRIC].notna().all() else WITHOUT_TEST
    if metric == WITHOUT_TEST:
        notes.append(
            "There is no test split: conditions are compared by their best validation loss, which "
            "is biased slightly downwards, since its step was chosen on the same text."
        )
    return Study(runs, table, keys, first, baselines, settings, metric, runs.skipped, notes)


def without_chosen(flat: dict[str, Flat]) -> dict[str, Flat]:
    """Configurations without rate and length, and without the keys that only repeat these."""
    keys = {key for config in flat.values() for key in config}
    copies = {
        key
        for key in keys
        for chosen in CHOSEN
        if len({str(config.get(chosen)) for config in flat.values()}) > 1
        and all(c[key] == c.get(chosen) for c in flat.values() if key in c)
    }
    drop = copies | set(CHOSEN)
    return {run: {k: v for k, v in c.items() if k not in drop} for run, c in flat.items()}


def mark_repeats(table: pd.DataFrame, same: list[str], notes: list[str]) -> None:
    """One run speaks for a seed: the first that ended otherwise than by an error."""
    order = table[table.role == "reported"].assign(broke=lambda rows: rows.failure == "error")
    repeat = order.sort_values(["broke", "started"], kind="stable").duplicated(same)
    names = sorted(repeat.index[repeat])
    table.loc[names, "role"] = "repeat"
    if names:
        notes.append(f"Left out, since the same run is there already: {', '.join(names)}.")


def mark_tuning(table: pd.DataFrame, notes: list[str]) -> None:
    """Seeds from 101 on are tuning seeds where the learning rate was swept on them."""
    high = table[(table.seed.fillna(0) >= TUNING_SEEDS) & (table.role == "reported")]
    if (high.groupby("condition").lr.nunique() > 1).any():
        table.loc[high.index, "role"] = "tuning"
        notes.append(
            f"The {len(high)} runs on tuning seeds ({TUNING_SEEDS} and above) chose the learning "
            "rates and are in no other table."
        )
    elif len(high):
        notes.append(
            f"Seeds from {TUNING_SEEDS} on are for tuning; no rate was swept on them, so here they "
            "are reported as any others."
        )


def mark_lengths(table: pd.DataFrame) -> None:
    """A condition is reported at its greatest length."""
    longest = table[table.role == "reported"].groupby("condition").max_steps.transform("max")
    shorter = longest.index[table.max_steps[longest.index] < longest]
    table.loc[shorter, "role"] = "other length"


def mark_rates(table: pd.DataFrame, notes: list[str]) -> None:
    """A condition with several rates on reported seeds is reported at the one best on validation."""
    chosen = False
    for _, rows in table[table.role == "reported"].groupby("condition"):
        if rows.lr.nunique() > 1:
            best = loss_by_rate(rows).capped.idxmin()
            table.loc[rows.index[rows.lr != best], "role"] = "other rate"
            chosen = True
    if chosen:
        notes.append(
            "Each condition is shown at the learning rate whose validation loss was lowest on the "
            "seeds that are also reported: biased slightly downwards, since the same losses chose "
            "it. Seeds 101, 102, ... are for tuning."
        )


def loss_by_rate(rows: pd.DataFrame) -> pd.DataFrame:
    """Per learning rate: n, failed, the mean of the best validation loss and its sd.

    `mean` is over the seeds that trained; in `capped` a seed that failed counts with its last loss,
    and nothing is above the loss at the start, so that a failure is a bad rate, not a missing one.
    """
    loss = rows.val_best.where(rows.failure == "")
    start = rows.loss_initial.fillna(rows.loss_initial.mean())
    capped = loss.fillna(rows.val_final).fillna(start).clip(upper=start)
    frame = rows.assign(loss=loss, capped=capped, failed=rows.failure != "")
    grouped = frame.groupby("lr")
    return pd.DataFrame(
        {
            "n": grouped.size(),
            "failed": grouped.failed.sum(),
            "mean": grouped.loss.mean(),
            "sd": grouped.loss.std(),
            "capped": grouped.capped.mean(),
        }
    )


def find_baselines(
    conditions: list[str], settings: dict[str, Flat], keys: list[str], wanted: str, notes: list[str]
) -> dict[str, str | None]:
    """Each condition's baseline: the wanted norm with the condition's other settings, or the only such condition."""
    norms = {condition: str(settings[condition].get("norm", condition)) for condition in conditions}
    those = (
        [condition for condition in conditions if wanted in (condition, norms[condition])]
        if len(conditions) > 1
        else conditions[:1]
    )
    if "norm" not in keys and wanted not in conditions:
        those = conditions[:1]
    if not those:
        if wanted != "layernorm":
            raise ValueError(f"no run of --baseline {wanted}; there are: {', '.join(conditions)}")
        those = conditions[:1]
    if len(conditions) > 1 and wanted not in (*those, *(norms[a] for a in those if "norm" in keys)):
        notes.append(f"Differences are taken to {those[0]}; --baseline NAME chooses another.")

    def others(condition: str) -> dict[str, object]:
        same = ("norm", "model.norm")
        return {k: v for k, v in settings[condition].items() if not k.startswith(same)}

    found: dict[str, str | None] = {}
    for condition in conditions:
        alike = [base for base in those if others(base) == others(condition)]
        one = alike[0] if alike else those[0] if len(those) == 1 else None
        found[condition] = None if condition in those else one
        if condition not in those and one is None:
            notes.append(
                f"{condition} has no {wanted} run with the same settings to be compared with."
            )
    return found
