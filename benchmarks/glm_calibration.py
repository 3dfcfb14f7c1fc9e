"""Are the chances of a model over messages right? Adult and credit default, each between two organisations.

Four fifths of the people are learned from, the others are asked about. *All weights* are predictions by the weights of
all parties without noise, which nobody can make; *asked* is what the party with the label predicts after one question
at the epsilon of the fit; *own columns* is what it could predict without asking. *Gradient* is by all weights of steps
of gradient descent, *released* by weights that were published with noise. The slope of the recalibration is 1
where chances are right and below 1 where they are too sure. *Best* is the log-loss after that recalibration on the same
people, which nobody could do beforehand. Needs ``adult.parquet`` and ``credit_default.parquet`` in the folder that
COLONNADE_DATA names. ``--write`` writes results/glm-calibration.md.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # `research` lies beside this folder

import numpy as np

from colonnade.kinds.glm.kept_scores import KeptScores
from colonnade.kinds.glm.model import GLM
from colonnade.models.assessment import Assessment, assess_chances
from research.datasets import catalog
from research.datasets.catalog import Layout
from research.datasets.named import load_dataset
from research.reproduce.census import People
from research.reproduce.chance import stream

RUNS, EPSILONS = 5, (1.0, 3.0, 10.0, 30.0)
PAGE = Path(__file__).parent / "results" / "glm-calibration.md"
_ADULT, _CREDIT = catalog.ADULT, catalog.CREDIT_DEFAULT
SETS = {
    "Adult": ("adult", "employer", ("employer", "tax-office"), "registry", _ADULT),
    "Credit default": ("credit-default", "bank", ("bank", "registry"), "payments", _CREDIT),
}
HEADS = ("Data", "Epsilon", "Prediction by", "AUC", "Slope", "Slopes from", "to", "Log-loss", "Best", "Worst gap")
VARIANTS: dict[str, dict[str, Any]] = {"gradient": {"method": "gradient"}, "released": {"release": True}}
VARIED = (10.0, 30.0)
_ROW = tuple[str, float, str, Assessment]


def two(name: str) -> People:
    """A data set between the party with the label and one other."""
    stored, active, joined, passive, layout = SETS[name]
    columns = {key: column for party in joined for key, column in layout.parties[party].items()}
    dealt = {active: columns, passive: layout.parties[passive]}
    label = f"{active}.{layout.label.partition('.')[2]}"
    return People(name, load_dataset(stored, layout=Layout(layout.description, dealt, label)))


def assessed(name: str, runs: int) -> Iterator[_ROW]:
    """Every fit of a data set and a question about its other people, each by several kinds of prediction."""
    people = two(name)
    active, count = people.dataset.label_party, len(people.label)
    for run in range(runs):
        order = np.random.default_rng(run).permutation(count)
        learned, other = np.sort(order[: round(0.8 * count)]), np.sort(order[round(0.8 * count) :])
        known, new, truth = people.part(learned), people.part(other), people.label[other] > 0
        by_id = np.argsort(np.asarray(new[active].ids))
        for epsilon in EPSILONS:
            model = GLM(label=people.dataset.label, epsilon=epsilon, rows=len(learned))
            model.simulate(known, people.roster, stream(0, "fit", name, run, epsilon))
            yield name, epsilon, "all weights", assess_chances(truth, model.predict_proba(new, same_order=True)[:, 1])
            question = KeptScores(model, epsilon=epsilon, rows_at_most=len(other))
            found = question.simulate(new, people.roster, stream(0, "question", name, run, epsilon)).joint
            assert found.probabilities is not None and found.own_probabilities is not None  # noqa: PT018
            yield name, epsilon, "asked", assess_chances(truth[by_id], found.probabilities[:, 1])
            yield name, epsilon, "own columns", assess_chances(truth[by_id], found.own_probabilities[:, 1])
            for kind, given in VARIANTS.items() if epsilon in VARIED else ():
                model = GLM(label=people.dataset.label, epsilon=epsilon, rows=len(learned), **given)
                model.simulate(known, people.roster, stream(0, "fit", name, run, epsilon))
                yield name, epsilon, kind, assess_chances(truth, model.predict_proba(new, same_order=True)[:, 1])


def best(found: Assessment) -> float:
    """The log-loss after the recalibration that these very people would ask for."""
    odds = np.log(found._probability) - np.log1p(-found._probability)
    scores = found.intercept + found.slope * odds
    return float(np.mean(np.logaddexp(0, scores) - found._truth * scores))


def lines(rows: list[_ROW]) -> Iterator[tuple[str, ...]]:
    """A row of the page for each data set, epsilon and kind of prediction."""
    for key in dict.fromkeys(row[:3] for row in rows):
        found = [row[3] for row in rows if row[:3] == key]
        slopes, bests = [each.slope or 0.0 for each in found], [best(each) for each in found]
        losses = [each.log_loss for each in found]
        gap = max(loss - least for loss, least in zip(losses, bests, strict=True))
        yield (
            *(key[0], f"{key[1]:g}", key[2], f"{np.mean([each.auc for each in found]):.3f}"),
            *(f"{np.mean(slopes):.2f}", f"{min(slopes):.2f}", f"{max(slopes):.2f}"),
            *(f"{np.mean(losses):.4f}", f"{np.mean(bests):.4f}", f"{gap:.4f}"),
        )


def main() -> None:
    """Print the table, and write the page if that is asked for."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--runs", type=int, default=RUNS)
    options.add_argument("--write", action="store_true")
    asked = options.parse_args()
    rows = [row for name in SETS for row in assessed(name, asked.runs)]
    cells = [HEADS, ("---",) * len(HEADS), *lines(rows)]
    table = "\n".join(f"| {' | '.join(row)} |" for row in cells)
    print(table)
    if asked.write:
        told = " ".join(str(__doc__).partition("Needs")[0].split())
        how = f"Means over {asked.runs} splits; `python benchmarks/glm_calibration.py --write` makes this page."
        PAGE.write_text(f"# Are the chances of a model over messages right?\n\n{told} {how}\n\n{table}\n")


if __name__ == "__main__":
    main()
