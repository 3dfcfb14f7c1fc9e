"""Two organisations with files of their own: a joint model, and scores of new people for either of them.

The people of a public data set are divided: four fifths are known, of whom the bank holds the label too; the rest are
new. Each organisation fits what it can alone, without any noise; both together learn one private model, and each of
them asks for scores of the new people.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Annotated, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import typer
from numpy.typing import NDArray

from colonnade.cli.output import say
from colonnade.kinds import LogisticRegression
from colonnade.kinds.prediction.model import JointPrediction
from colonnade.models import Roster, assess_chances
from colonnade.tables import Table, read_table
from colonnade.tables.datasets import Dataset
from research.datasets import load_dataset
from research.datasets.catalog import ADULT, CREDIT_DEFAULT, Layout

PERSON = "person_id"
EPSILONS = (0.5, 1.0, 2.0, 3.0, 5.0, 8.0)
MODELS = (1.0, 3.0)
ALONE, BOOSTED = "alone, regression", "alone, boosted"
OWN, EXACT, CLEAR = "own columns, joint model", "exact", "clear weights"
LEVELS: Final = "levels"
NOISE: Final = "noise"
BESIDE = "levels beside own boosted model"
_ORDER = (ALONE, BOOSTED, OWN, LEVELS, BESIDE, NOISE, EXACT)
_EXTRA = 0.05
_FIT = """\
name = "fit"

[task]
kind = "logistic"
label = "{label}"
rows_at_most = 50000

[budget]
epsilon = 3.0
"""
_SCORES = """\
name = "scores"

[task]
kind = "prediction"
model = "runs/fit/model.json"
to = "{to}"
answers = "levels"
rows_at_most = 20000

[budget]
epsilon = {{ {to} = 3.0 }}
"""
_COMMON = """
[align]
on = "person_id"

[coordinator]
address = "127.0.0.1:7443"
"""


def _two(layout: Layout, label: str, **parties: Sequence[str]) -> Layout:
    """The columns of a layout at other parties."""
    known = {name: column for held in layout.parties.values() for name, column in held.items()}
    return Layout(
        layout.description, {party: {name: known[name] for name in names} for party, names in parties.items()}, label
    )


LAYOUTS = {
    "adult": _two(
        ADULT,
        "bank.high-income",
        bank=["age", "female", "marital-status", "relationship", "capital-gain", "capital-loss", "high-income"],
        employer=["workclass", "education-num", "occupation", "hours-per-week"],
    ),
    "credit-default": _two(
        CREDIT_DEFAULT,
        "bank.default",
        bank=["AGE", "female", "EDUCATION", "MARRIAGE", "LIMIT_BAL", *(f"BILL_AMT{k}" for k in range(1, 7)), "default"],
        bureau=[*(f"PAY_{k}" for k in (0, 2, 3, 4, 5, 6)), *(f"PAY_AMT{k}" for k in range(1, 7))],
    ),
}


@dataclass(frozen=True)
class Row:
    """How good chances of new people are for one receiver in one run: area under the curve, log-loss, and slope.

    For clear weights the first figure is their share, and there are no others.
    """

    data: str
    to: str
    model: float
    how: str
    epsilon: float
    seed: int
    auc: float
    loss: float = math.nan
    slope: float = math.nan


class People:
    """The tables of both organisations: of people who are known, and of new ones, of whom nobody has the label."""

    def __init__(self, data: Dataset, seed: int) -> None:
        self.schemas, self.label = data.schemas, data.label
        self.holder, self.column = data.label.split(".", 1)
        size = data.arrow[self.holder].num_rows
        order = np.random.default_rng(seed).permutation(size)
        self.known, self.new = np.sort(order[size // 5 :]), np.sort(order[: size // 5])
        self.arrow = data.arrow

    def tables(self, which: NDArray[np.intp]) -> dict[str, Table]:
        """The encoded tables of some people, in the same order."""
        return {
            name: read_table(table.take(pa.array(which)), self.schemas[name], id=PERSON)
            for name, table in self.arrow.items()
        }

    def truth(self, which: NDArray[np.intp]) -> NDArray[np.bool_]:
        """The label of some people."""
        return np.asarray(self.arrow[self.holder][self.column].take(pa.array(which))).astype(bool)

    def features(self, party: str) -> tuple[str, ...]:
        """A party's columns without the label."""
        return tuple(name for name in self.schemas[party].names if (party, name) != (self.holder, self.column))


def measure(name: str, data: Dataset, seeds: Iterable[int], epsilons: Sequence[float] = EPSILONS) -> Iterator[Row]:
    """The figures of one data set, run after run."""
    for seed in seeds:
        yield from _one_run(name, People(data, seed), seed, epsilons)


def _one_run(name: str, people: People, seed: int, epsilons: Sequence[float]) -> Iterator[Row]:
    from sklearn.linear_model import LogisticRegression as InOnePlace

    known, new = people.tables(people.known), people.tables(people.new)
    paid, roster = people.truth(people.known), Roster.of(people.schemas)
    truth, boosted = people.truth(people.new), {}

    def row(to: str, model: float, how: str, epsilon: float, chances: NDArray[np.float64] | None) -> Row:
        if chances is None:
            raise ValueError("the models of this story give chances [VA276]")
        told = assess_chances(truth, chances[:, 1])
        return Row(name, to, model, how, epsilon, seed, told.auc or 0.0, told.log_loss, told.slope or 0.0)

    for to in people.schemas:
        mine, hers = (tables[to].select(people.features(to)).matrix() for tables in (known, new))
        yield row(to, 0.0, ALONE, 0.0, InOnePlace(max_iter=2000).fit(mine, paid).predict_proba(hers))
        boosted[to] = boosting(seed).fit(mine, paid).predict_proba(hers)
        yield row(to, 0.0, BOOSTED, 0.0, boosted[to])
    for budget in MODELS:
        fitted = LogisticRegression(label=people.label, epsilon=budget, method="one-shot").simulate(known, roster)
        weights = [each for held in fitted.coefficients().values() for each in held.values()]
        yield Row(name, people.holder, budget, CLEAR, 0.0, seed, fmean(weight.clear for weight in weights))
        for to in people.schemas:
            exact = JointPrediction(fitted, to=to, exact=True).simulate(new, roster).joint
            yield row(to, budget, OWN, 0.0, exact.own_probabilities)
            yield row(to, budget, EXACT, 0.0, exact.probabilities)
            for epsilon in epsilons:
                for how in (LEVELS, NOISE):
                    asked = JointPrediction(fitted, to=to, epsilon=epsilon, answers=how).simulate(new, roster).joint
                    yield row(to, budget, how, epsilon, asked.probabilities)
                    if how == LEVELS and to == people.holder:
                        yield row(to, budget, BESIDE, epsilon, asked.with_own(boosted[to]).probabilities)


def boosting(seed: int) -> Any:
    """Trees for a party's own columns; few enough that they do not learn single people by heart."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    return HistGradientBoostingClassifier(max_iter=80, random_state=seed)


def means(rows: Iterable[Row], figure: str = "auc") -> dict[tuple[str, str, float, str, float], tuple[float, float]]:
    """Mean of a figure and its deviation from run to run, by everything else."""
    runs: dict[tuple[str, str, float, str, float], list[float]] = {}
    for row in rows:
        if not math.isnan(getattr(row, figure)):
            runs.setdefault((row.data, row.to, row.model, row.how, row.epsilon), []).append(getattr(row, figure))
    return {key: (fmean(found), stdev(found) if len(found) > 1 else 0.0) for key, found in runs.items()}


def gain(rows: Iterable[Row], to: str, how: str, over: str, epsilon: float, model: float) -> tuple[float, float]:
    """By how much more area one way has than another, run by run: the mean, and the deviation of that mean."""
    found = {
        (row.how, row.seed): row.auc
        for row in rows
        if row.to == to and (row.model, row.epsilon) in ((model, epsilon), (0.0, 0.0))
    }
    more = [area - found[over, seed] for (each, seed), area in found.items() if each == how]
    return fmean(more), stdev(more) / math.sqrt(len(more)) if len(more) > 1 else 0.0


def markdown(rows: Sequence[Row]) -> str:
    """The page of figures."""
    runs = len({row.seed for row in rows})
    lines = [
        "# Scores of new people: alone and together",
        "",
        'In these studies nobody checked what seats compute: `security = "semi-honest"`, which is '
        "[not the default](../README.md#in-which-mode).",
        "",
        f"Figures for new people (a fifth of each data set), each the mean over {runs} runs; in brackets the deviation",
        "of single runs, of which that of the mean is less by the root of their number. In each run people are",
        "divided, and noise is drawn, anew. `python -m research story` makes this page and `story.csv`, which has",
        "each run; [the story](../../docs/tutorials/story.md) says what it means.",
        "",
        f"- **{ALONE}** and **{BOOSTED}**: a logistic regression and boosted trees (scikit-learn, without noise) on",
        "  the receiver's own columns with the labels. Only the label's holder could fit them; the other party has no",
        "  labels and can give nothing alone, and its rows say what it would reach if it were given them.",
        f"- **{OWN}**: the joint private model by the receiver's columns and what they foretell of the others' part.",
        f"- **{LEVELS}**: the other party tells one level a person, answered at random. **{NOISE}**: the sum with",
        "  Skellam noise, delta 1e-5; both are weighed against own columns.",
        f"- **{BESIDE}**: the odds of the label's holder's own boosted model, times what the levels told (`with_own`).",
        f"- **{CLEAR}**: the share of the model's weights that can be told from zero.",
        "- **Slope**: of a logistic recalibration; 1 for chances that are right, less for those that are too sure.",
    ]
    models = sorted({row.model for row in rows if row.model})
    for data in dict.fromkeys(row.data for row in rows):
        some = [row for row in rows if row.data == data]
        for figure, title in (("auc", "area under the ROC curve"), ("loss", "log-loss"), ("slope", "slope")):
            lines += ["", f"## {data}, {title}", "", *_figures(some, figure, models)]
            if figure == "auc":
                lines += ["", *_remarks(data, some, models)]
    return "\n".join(lines) + "\n"


def _figures(rows: Sequence[Row], figure: str, models: Sequence[float]) -> Iterator[str]:
    """One data set's table of one figure."""
    data, found = rows[0].data, means(rows, figure)
    columns = [(to, model) for to in dict.fromkeys(row.to for row in rows if row.how == ALONE) for model in models]
    heads = ["", *(f"told to {to}, model at {model:g}" for to, model in columns)]
    yield from (f"| {' | '.join(heads)} |", "|" + "---|" * len(heads))
    keys = dict.fromkeys((row.how, row.epsilon) for row in rows if row.how != CLEAR)
    for how, epsilon in sorted(keys, key=lambda key: (_ORDER.index(key[0]), key[1])):
        cells = [
            found.get((data, to, 0.0 if how in (ALONE, BOOSTED) else model, how, epsilon)) for to, model in columns
        ]
        name = f"{how}, epsilon {epsilon:g}" if epsilon else how
        yield f"| {name} | " + " | ".join(f"{one[0]:.3f} ({one[1]:.3f})" if one else "" for one in cells) + " |"


def _remarks(data: str, rows: Sequence[Row], models: Sequence[float]) -> Iterator[str]:
    """What levels add to the best that a party could do alone, run by run; and the share of clear weights."""
    found, epsilons = means(rows), sorted({row.epsilon for row in rows if row.how == LEVELS})
    holder = next(row.to for row in rows if row.how == CLEAR)
    for epsilon in epsilons:
        more = [gain(rows, holder, BESIDE, BOOSTED, epsilon, model) for model in models]
        said = [
            f"{mean:+.4f} ± {off:.4f} (model at {model:g})" for (mean, off), model in zip(more, models, strict=True)
        ]
        yield f"- {holder}, {BESIDE} at epsilon {epsilon:g} over {BOOSTED}, run by run: {', '.join(said)}."
    clear = [f"{found[data, holder, model, CLEAR, 0.0][0]:.0%} at {model:g}" for model in models]
    yield from ("", f"After ± stands the deviation of the mean. {CLEAR.capitalize()}: {', '.join(clear)}.")


def write_files(people: People, out: Path, seed: int = 0) -> list[Path]:
    """Each organisation's own CSV files, in an order of its own, with some people whom the other lacks; two studies.

    ``later.csv`` has the new people's label, which nobody knows yet when they are scored.
    """
    rng, written = np.random.default_rng(seed), []
    for part, which in (("known", people.known), ("new", people.new)):
        for name, table in people.arrow.items():
            mine = rng.permutation(which)[round(_EXTRA * len(which)) :]
            held = table.take(pa.array(mine))
            if part == "new" and name == people.holder:
                held = held.drop_columns([people.column])
            path = out / name / f"{part}.csv"
            path.parent.mkdir(parents=True, exist_ok=True)
            pa_csv.write_csv(held, path)
            written.append(path)
    later = people.arrow[people.holder].take(pa.array(people.new)).select([PERSON, people.column])
    written.append(out / "later.csv")
    pa_csv.write_csv(later, written[-1])
    (out / "schemas").mkdir(exist_ok=True)
    for name, schema in people.schemas.items():
        written.append(out / "schemas" / f"{name}.toml")
        schema.save(written[-1])
    for name, task in (("fit", _FIT), ("scores", _SCORES)):
        written.append(out / f"{name}.toml")
        parties = "".join(f'\n[parties.{party}]\nschema = "schemas/{party}.toml"\n' for party in people.schemas)
        written[-1].write_text(task.format(label=people.label, to=people.holder) + _COMMON + parties, encoding="utf-8")
    return written


Data = Annotated[Path | None, typer.Option("--data", help="The folder of the data sets.  [default: COLONNADE_DATA]")]


def story(
    runs: Annotated[int, typer.Option(help="How often people are divided and noise is drawn.")] = 5,
    data: Data = None,
    out: Annotated[Path, typer.Option(help="Where story.md and story.csv are written.")] = Path("benchmarks/results"),
) -> None:
    """Scores of new people, alone and together: the figures of both data sets."""
    rows: list[Row] = []
    for name, layout in LAYOUTS.items():
        rows += measure(name, load_dataset(name, folder=data, layout=layout), range(runs))
        say(f"{name}: {runs} runs")
    out.mkdir(parents=True, exist_ok=True)
    with (out / "story.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(vars(rows[0])))
        writer.writeheader()
        writer.writerows(
            vars(row) | {name: f"{getattr(row, name):.5f}" for name in ("auc", "loss", "slope")} for row in rows
        )
    (out / "story.md").write_text(markdown(read(out / "story.csv")), encoding="utf-8")


def story_files(
    name: Annotated[str, typer.Argument(help=f"One of {', '.join(LAYOUTS)}.")],
    out: Annotated[Path, typer.Argument(help="The folder that is written.")],
    data: Data = None,
) -> None:
    """Two organisations' own CSV files, of people who are known and of new ones, made from a data set."""
    if name not in LAYOUTS:
        raise typer.BadParameter(f"choose one of {', '.join(LAYOUTS)} [CO043]")
    people = People(load_dataset(name, folder=data, layout=LAYOUTS[name]), seed=0)
    for path in write_files(people, out):
        say(str(path))


def read(path: Path) -> list[Row]:
    """The rows of a story.csv."""
    with path.open(encoding="utf-8") as file:
        return [
            Row(
                line["data"],
                line["to"],
                float(line["model"]),
                line["how"],
                float(line["epsilon"]),
                int(line["seed"]),
                float(line["auc"]),
                float(line["loss"]),
                float(line["slope"]),
            )
            for line in csv.DictReader(file)
        ]
