"""Runs are grouped into conditions: what is compared with what, and which runs speak for it.

A condition is a configuration without its learning rate and its length: those are chosen for a
condition, not compared. Runs on tuning seeds choose the rate and are reported nowhere else.
"""

from dataclasses import dataclass
from functools import cached_property

import pandas as pd

from report.conditions import NAME, Flat, label, swept_keys, without_chosen
from report.failures import FALLEN
from report.optimum import Optimum, choose, fallen, scatter
from report.read import Runs

TUNING_SEEDS = 101  # seeds from here on choose a learning rate and are never reported
METRIC, WITHOUT_TEST = "test_best", "val_best"
SEARCHED = {"tuning seeds": ["tuning"], "reported seeds": ["reported", "other rate"]}


@dataclass(frozen=True)
class Study:
    """Runs in order, and what every later stage has to know about them.

    Attributes:
        runs: as they were read.
        table: the table of runs with `condition`, `setting` (what nuisance settings were) and
            `role`: `reported`, `tuning` (on a tuning seed), `other rate` or `other length` (the
            condition is reported at a better rate or a greater length), `repeat` (of a condition
            and a seed that already have a run).
        keys: what tells the conditions apart, the norm first.
        conditions: the names of those that are reported, the first baseline first.
        settings: for each condition the values of `keys`.
        wanted: the baseline that was asked for.
        bases: the conditions that others are compared with.
        baselines: for each condition the one that it is compared with, None where there is none.
        metric: the column that conditions are compared by: the test loss at the step that
            validation chose, or the best validation loss where there is no test split. Nats per
            character.
    """

    runs: Runs
    table: pd.DataFrame
    keys: list[str]
    conditions: list[str]
    settings: dict[str, Flat]
    wanted: str
    bases: list[str]
    baselines: dict[str, str | None]
    metric: str

    @cached_property
    def reported(self) -> pd.DataFrame:
        """The runs that the tables are made of."""
        return self.table[self.table.role == "reported"]

    @cached_property
    def failed(self) -> dict[str, int]:
        """For each condition the number of its reported runs that failed."""
        broken = self.reported[self.reported.failure != ""].condition
        return {condition: int((broken == condition).sum()) for condition in self.conditions}

    @cached_property
    def doubts(self) -> dict[str, str]:
        """The conditions that are not at their best, and why: no difference to them is given."""
        searched = {condition: self.searched(condition)[1] for condition in self.conditions}
        optima = {name: optimum(rows) for name, rows in searched.items() if len(rows)}
        return {name: found.doubt for name, found in optima.items() if found.doubt}

    @cached_property
    def leaking(self) -> list[str]:
        """The conditions whose training sees later text."""
        leaks = set(self.reported[self.reported.causal_in_training.eq(False)].condition)
        return [condition for condition in self.conditions if condition in leaks]

    @cached_property
    def norms(self) -> list[str]:
        """The different norms of the conditions that have reported runs."""
        of_conditions = self.reported.drop_duplicates("condition").set_index("condition").norm
        return list(dict.fromkeys(of_conditions.reindex(self.conditions).dropna()))

    @property
    def metric_name(self) -> str:
        """What conditions are compared by, in words."""
        return "test loss" if self.metric == METRIC else "best validation loss"

    @property
    def entropy(self) -> float:
        """Entropy of single characters in nats: the mean over runs, which differ if texts do."""
        return float(self.reported.unigram_entropy.mean())

    def of(self, condition: str) -> pd.DataFrame:
        """A condition's reported runs; the index is the seed."""
        rows = self.reported[self.reported.condition == condition]
        return rows.assign(run=rows.index).set_index("seed").sort_index()

    def searched(self, condition: str) -> tuple[str, pd.DataFrame]:
        """On which seeds a condition's rate was chosen, and by which runs; of the chosen setting.

        None where there are not two rates.
        """
        runs = self.table[self.table.condition == condition]
        for on, roles in SEARCHED.items():
            rows = runs[runs.role.isin(roles)]
            rows = rows[rows.max_steps == rows.max_steps.max()]
            final = runs.setting[runs.role == "reported"]
            if on == "tuning seeds" and len(final):
                rows = rows[rows.setting.isin(final)]
            if rows.lr.nunique() > 1:
                return on, rows
        return "", runs.iloc[:0]

    def trained(self, condition: str) -> pd.DataFrame:
        """A condition's reported runs that did not fail; the index is the seed."""
        rows = self.of(condition)
        return rows[rows.failure == ""]


def build_study(runs: Runs, baseline: str) -> Study:
    """Group runs into conditions.

    Raises:
        ValueError: no condition is called `baseline` (only the default may be absent).
    """
    flat = without_chosen(runs.flat, runs.nuisance)
    keys = swept_keys(flat, runs.typed)
    names = {run: config.get(NAME) for run, config in runs.flat.items()}
    condition = {run: names[run] or label(config, keys) for run, config in flat.items()}
    settings = {condition[run]: {k: config.get(k) for k in keys} for run, config in flat.items()}
    chosen = {run: {k: c[k] for k in runs.nuisance if k in c} for run, c in runs.flat.items()}
    setting = pd.Series({run: label(one, [*one]) if one else "" for run, one in chosen.items()})
    table = with_roles(runs.table.assign(condition=pd.Series(condition), setting=setting))
    reported = table[table.role == "reported"]
    present = list(dict.fromkeys(reported.condition if len(reported) else table.condition))
    bases = find_bases(present, settings, keys, baseline)
    baselines = find_baselines(present, settings, bases)
    known = reported[reported.failure == ""][METRIC].notna().all()
    return Study(
        runs=runs,
        table=table,
        keys=keys,
        conditions=sorted(present, key=lambda name: name not in bases),
        settings=settings,
        wanted=baseline,
        bases=bases,
        baselines=baselines,
        metric=METRIC if known else WITHOUT_TEST,
    )


def with_roles(table: pd.DataFrame) -> pd.DataFrame:
    """Say for each run which part it takes."""
    table = table.assign(role="reported")
    mark_repeats(table, ["condition", "setting", "lr", "max_steps", "seed"])
    mark_tuning(table)
    mark_lengths(table)
    mark_rates(table)
    mark_repeats(table, ["condition", "seed"])  # runs whose rate or length is not known
    mark_fallen(table)
    return table


def mark_repeats(table: pd.DataFrame, same: list[str]) -> None:
    """One run speaks for a seed: the first that ended otherwise than by an error."""
    order = table[table.role == "reported"].assign(broke=lambda rows: rows.failure == "error")
    repeat = order.sort_values(["broke", "started"], kind="stable").duplicated(same)
    table.loc[repeat.index[repeat], "role"] = "repeat"


def mark_tuning(table: pd.DataFrame) -> None:
    """Seeds from 101 on are tuning seeds where the learning rate was swept on them."""
    high = table[(table.seed.fillna(0) >= TUNING_SEEDS) & (table.role == "reported")]
    if (high.groupby("condition").lr.nunique() > 1).any():
        table.loc[high.index, "role"] = "tuning"


def mark_lengths(table: pd.DataFrame) -> None:
    """A condition is reported at its greatest length."""
    longest = table[table.role == "reported"].groupby("condition").max_steps.transform("max")
    shorter = longest.index[table.max_steps[longest.index] < longest]
    table.loc[shorter, "role"] = "other length"


def mark_rates(table: pd.DataFrame) -> None:
    """A condition with several rates on reported seeds is reported at the best on validation."""
    for _, rows in table[table.role == "reported"].groupby("condition"):
        if rows.lr.nunique() > 1:
            best = loss_by_rate(rows).capped.idxmin()
            table.loc[rows.index[rows.lr != best], "role"] = "other rate"


def mark_fallen(table: pd.DataFrame) -> None:
    """A reported run whose loss lies far above the other seeds' has fallen, which is a failure."""
    same = ["condition", "setting", "lr", "max_steps"]
    trained = table[table.failure == ""].dropna(subset=["val_best"])
    sd = scatter(rows.val_best.tolist() for _, rows in trained.groupby(same))
    for _, rows in trained[trained.role == "reported"].groupby(same):
        table.loc[rows.index[fallen(rows.val_best.tolist(), sd)], "failure"] = FALLEN


def optimum(rows: pd.DataFrame) -> Optimum:
    """A condition's best rate, from its runs at several."""
    rows = rows.assign(capped=capped(rows))
    losses = {float(rate): of.capped.tolist() for rate, of in rows.groupby("lr")}
    return choose(losses, set(rows.lr[rows.failure != ""]))


def capped(rows: pd.DataFrame) -> "pd.Series[float]":
    """Best validation losses, where a failed run has its last loss and none is above the start's.

    So a failure is a bad rate, not a missing one.
    """
    start = rows.loss_initial.fillna(rows.loss_initial.mean())
    loss = rows.val_best.where(rows.failure == "")
    return loss.fillna(rows.val_final).fillna(start).clip(upper=start)


def loss_by_rate(rows: pd.DataFrame) -> pd.DataFrame:
    """Per learning rate: n, failed, the mean and sd of the best validation loss, and `capped`.

    `mean` is over the seeds that trained, `capped` over all.
    """
    loss = rows.val_best.where(rows.failure == "")
    frame = rows.assign(loss=loss, capped=capped(rows), failed=rows.failure != "")
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


def find_bases(
    conditions: list[str], settings: dict[str, Flat], keys: list[str], wanted: str
) -> list[str]:
    """The conditions of the wanted norm or name; the first condition where there is none.

    Raises:
        ValueError: there is none, and it is not the default's that is missing.
    """
    if len(conditions) == 1 or ("norm" not in keys and wanted not in conditions):
        return conditions[:1]
    bases = [name for name in conditions if wanted in (name, settings[name].get("norm"))]
    if not bases and wanted != "layernorm":
        raise ValueError(f"no run of --baseline {wanted}; there are: {', '.join(conditions)}")
    return bases or conditions[:1]


def find_baselines(
    conditions: list[str], settings: dict[str, Flat], bases: list[str]
) -> dict[str, str | None]:
    """Each condition's baseline: the one with the same other settings, or the only one."""

    def others(condition: str) -> Flat:
        own = ("norm", "model.norm")
        return {k: v for k, v in settings[condition].items() if not k.startswith(own)}

    found: dict[str, str | None] = dict.fromkeys(conditions)
    for condition in conditions:
        if condition not in bases:
            alike = [base for base in bases if others(base) == others(condition)]
            candidates = alike or bases
            found[condition] = candidates[0] if alike or len(bases) == 1 else None
    return found
