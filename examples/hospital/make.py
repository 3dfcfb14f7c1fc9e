"""The made-up people of this example: what a hospital, an insurer and a pharmacy know about them.

    python make.py [people]

writes the three tables that lie here. Each organisation knows most of the people and not all, in an order of its own.
Margins are plausible, not measured.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

HERE = Path(__file__).parent
PEOPLE = 6_000
KNOWN = 0.96  # the share of the people whom one organisation knows
Cells = NDArray[np.generic]

MARITAL = ("single", "married", "divorced", "widowed")
DIAGNOSES = ("cardiac", "respiratory", "injury", "digestive", "mental", "other")
PLANS = ("basic", "standard", "premium", "student")


def people(count: int, seed: int = 17) -> dict[str, dict[str, Cells]]:
    """Each organisation's columns, about the same people in the same order."""
    # numpy's generator is right here: these people are invented, and no privacy rests on the draw.
    random = np.random.default_rng(seed)
    age = np.round(95 * random.beta(1.6, 1.3, count)).astype(np.int64)
    years = (age - 50) / 20
    frail = 0.8 * years + random.standard_normal(count)
    rich = 0.3 * years - 0.2 * years**2 + random.standard_normal(count)
    woman = random.random(count) < 0.52

    grown = np.where(age < 18, -9.0, 0.0)
    marital = pick(
        random, MARITAL, 0.6 - 1.2 * years, grown + 1.1, grown + 0.1 * years - 0.4, grown + 1.6 * years - 2.6
    )
    diagnosis = pick(
        random, DIAGNOSES, 0.9 * years, 0.3 * frail, -0.6 * years, 0.1, -0.4 * rich - 0.5 - 0.3 * years, 0.3
    )
    heavy = frail + 0.5 * (diagnosis == "cardiac") + 0.3 * (diagnosis == "mental")
    nights = np.minimum(random.poisson(np.exp(0.7 + 0.45 * heavy) * random.gamma(2, 0.5, count)), 60)
    medicines = np.minimum(random.poisson(np.exp(0.5 + 0.5 * frail)), 20)
    adherence = np.round(100 / (1 + np.exp(-(1.2 + 0.4 * years + 0.3 * rich + random.normal(0, 0.8, count)))))
    score = -3.0 + 0.9 * heavy + 0.06 * nights + 0.1 * medicines - 0.012 * (adherence - 70)
    readmitted = random.random(count) < 1 / (1 + np.exp(-score))

    student = np.where((age >= 18) & (age <= 29), 1.5, -30.0)
    plan = pick(random, PLANS, 0.8 - 0.7 * rich, 0.8, -0.6 + 1.1 * rich, student)
    income = np.round(np.clip(np.exp(10.3 + 0.5 * rich - 0.7 * (plan == "student")), 0, 200_000), -2).astype(np.int64)
    cost = np.round(np.exp(6.2 + 0.09 * nights + 0.35 * heavy + random.normal(0, 0.5, count)))
    claims = np.minimum(random.poisson(np.exp(0.3 + 0.35 * frail)), 30)
    filled = np.where(medicines == 0, "", adherence.astype(np.int64).astype(str))  # nothing prescribed: nothing to take

    return {
        "hospital": {
            "age": age,
            "sex": np.where(woman, "female", "male"),
            "marital": marital,
            "diagnosis": diagnosis,
            "nights": nights,
            "readmitted": np.where(readmitted, "true", "false"),
        },
        "insurer": {
            "plan": plan,
            "income": income,
            "claims": claims,
            "cost": np.minimum(cost, 100_000).astype(np.int64),
        },
        "pharmacy": {
            "medicines": medicines,
            "adherence": filled,
            "inhaler": np.where(
                random.random(count) < np.where(diagnosis == "respiratory", 0.6, 0.07), "true", "false"
            ),
        },
    }


def pick(random: np.random.Generator, names: tuple[str, ...], *scores: NDArray[np.float64] | float) -> Cells:
    """One name each, likelier where its score is high."""
    count = max(np.size(score) for score in scores)
    appeal = np.stack([np.broadcast_to(score, count) for score in scores]) + random.gumbel(size=(len(names), count))
    return np.array(names)[appeal.argmax(axis=0)]


def main(count: int = PEOPLE) -> None:
    """Write each organisation's table."""
    random = np.random.default_rng(4)
    for name, columns in people(count).items():
        known = random.permutation(count)[: round(KNOWN * count)]
        with open(HERE / name / f"{name}.csv", "w", encoding="utf-8", newline="") as file:
            rows = csv.writer(file, lineterminator="\n")
            rows.writerow(["person_id", *columns])
            for person in known:
                rows.writerow([f"P{person:06d}", *(cells[person] for cells in columns.values())])


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
