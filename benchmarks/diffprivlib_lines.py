"""diffprivlib's regressions on the data and splits of ``research reproduce functional``, as lines for its tables.

diffprivlib 0.6 needs a scikit-learn of its own, so this takes two steps in two environments:

    .venv/bin/python benchmarks/diffprivlib_lines.py prepare /tmp/peers        (this project's environment)
    python -m venv /tmp/dpl && /tmp/dpl/bin/pip install diffprivlib scikit-learn==1.6.1
    /tmp/dpl/bin/python benchmarks/diffprivlib_lines.py run /tmp/peers benchmarks/results/diffprivlib.csv

Its models are for a trusted curator and pure epsilon. Bounds are the public ones of the schemas, never the data's.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import csv
import json
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np

EPSILONS = (0.1, 1.0, 10.0)
COLUMNS = ["part", "data", "setting", "axis", "at", "method", "promise", "measure", "mean", "deviation", "runs"]
PROMISE = "needs a trusted curator"


def prepare(folder: Path, runs: int, seed: int) -> None:
    """Matrices, labels and splits, and where the lines belong."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # `research` lies beside this folder

    from research.reproduce import census, chance
    from research.reproduce.options import Options

    options = Options()
    cases = (
        ("FM Table I", census.working_hours(options), "mean squared error"),
        ("FM Table III", census.adult(options), "accuracy"),
        ("FM Table III", census.dutch(options), "accuracy"),
    )
    folder.mkdir(parents=True, exist_ok=True)
    for number, (part, people, measure) in enumerate(cases):
        rows = people.features if measure != "accuracy" else people.unit[:, :-1]
        splits = [chance.split(len(people.label), run, seed) for run in range(runs)]
        facts = {
            "part": part,
            "data": people.name,
            "setting": f"{len(people.label)} people",
            "axis": "epsilon",
            "measure": measure,
        }
        np.savez_compressed(
            folder / f"{number}.npz",
            rows=rows,
            label=people.label,
            low=[low_end(column) for schema in people.dataset.feature_schemas.values() for column in parts(schema)],
            facts=json.dumps(facts),
            train=np.array([train for train, _ in splits]),
            test=np.array([test for _, test in splits]),
        )


def parts(schema: Any) -> list[Any]:
    return [column for column in schema.columns.values() for _ in column.parts]


def low_end(column: Any) -> float:
    return -1.0 if getattr(column, "scale", "unit") == "signed" else 0.0


def run(folder: Path, target: Path) -> None:
    """Fit and score on every split; needs diffprivlib and nothing of this project."""
    import diffprivlib
    from diffprivlib.models import LinearRegression, LogisticRegression

    warnings.filterwarnings("ignore")
    lines = []
    for path in sorted(folder.glob("*.npz")):
        with np.load(path) as stored:
            rows, label, low, train, test = (stored[key] for key in ("rows", "label", "low", "train", "test"))
            facts = json.loads(str(stored["facts"]))
        linear = facts["measure"] != "accuracy"
        high = np.ones(rows.shape[1])
        for epsilon in EPSILONS:
            draws = []
            for learn, check in zip(train, test, strict=True):
                model: Any
                if linear:
                    model = LinearRegression(epsilon=epsilon, bounds_X=(low, high), bounds_y=(-1.0, 1.0))
                    error = model.fit(rows[learn], label[learn]).predict(rows[check]) - label[check]
                    draws.append(float(np.mean(error**2)))
                else:
                    model = LogisticRegression(epsilon=epsilon, data_norm=1.0, max_iter=300)
                    draws.append(float(model.fit(rows[learn], label[learn]).score(rows[check], label[check])))
            spread = float(np.std(draws, ddof=1)) if len(draws) > 1 else 0.0
            method = f"diffprivlib {diffprivlib.__version__}, trusted curator"
            found = {"at": epsilon, "method": method, "promise": PROMISE}
            numbers = {"mean": f"{np.mean(draws):.6g}", "deviation": f"{spread:.6g}", "runs": len(draws)}
            lines.append({**facts, **found, **numbers})
            print(facts["data"], epsilon, numbers)
    with target.open("w", newline="", encoding="utf-8") as opened:
        writer = csv.DictWriter(opened, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    steps = parser.add_subparsers(dest="step", required=True)
    first = steps.add_parser("prepare")
    first.add_argument("folder", type=Path)
    first.add_argument("--runs", type=int, default=20)
    first.add_argument("--seed", type=int, default=2024)
    second = steps.add_parser("run")
    second.add_argument("folder", type=Path)
    second.add_argument("target", type=Path)
    options: Any = parser.parse_args()
    if options.step == "prepare":
        prepare(options.folder, options.runs, options.seed)
    else:
        run(options.folder, options.target)


if __name__ == "__main__":
    main()
