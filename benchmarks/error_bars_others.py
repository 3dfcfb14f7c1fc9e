"""How often do the error bars of components, means, marginals and means of bins hold what there is without noise?

Releases are computed in one place, with the integers and the law of noise of a study; the noise is drawn anew for each
run, from a seeded stream, and the rows are rounded once. Needs ``adult.parquet`` and ``credit_default.parquet`` where
COLONNADE_DATA says, or in shared/data beside the repository.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import hashlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # `research` lies beside this folder

import numpy as np
from numpy.typing import NDArray

from colonnade.kinds import PCA, Synthesizer
from colonnade.kinds.pca import programs as power
from colonnade.kinds.pca.component_errors import component_errors, mean_deviations
from colonnade.kinds.pca.model import signed, top_eigenvectors
from colonnade.kinds.pca.subspace_iteration import NoisyProducts
from colonnade.kinds.synthesis.population import Population, column_means, column_shares
from colonnade.kinds.synthesis.release_fit import fit_products
from colonnade.kinds.tables import programs as marginals
from colonnade.kinds.tables.layout import TableLayout
from colonnade.kinds.tables.release import MarginalsRelease, NoisyMarginals
from colonnade.models import Roster
from colonnade.protocols.moments.programs import OwnMoments, exact_gram, sample_noise_share
from colonnade.protocols.moments.task import NoisyMoments
from colonnade.randomness import Stream
from colonnade.tables import Dataset, read_table
from research.datasets import load_dataset

Matrix = NDArray[np.float64]
EPSILONS = (0.3, 1.0, 3.0, 10.0)
SETS = {"adult": "Adult", "credit-default": "credit default"}
KEPT = 5
PAGE = Path(__file__).with_name("results") / "error-bars-others.md"
_HEAD = """\
# Error bars of components, means and marginals

Made by `python benchmarks/error_bars_others.py --write`: {runs} runs of noise for each line ({few} of `power`, on
{rows:,} people), the parties of each data set, the analyst's epsilon, delta 1e-5. What intervals are for is in
[theory](../../docs/theory/error-bars-components.md). Figures are shares of runs in which a 95 % interval holds what the
same computation gives without noise.

## Components

{kept} components. *Apart* is how many of them can be told apart from all others, on average. *Loadings* are those of
components that are told apart, and beside them those of the others, whose intervals hold every mixture of them. *Clear*
is how many loadings can be told from zero, and *wrong* the share of these that have the wrong sign.

"""
_MARGINALS = """
## Marginals

Shares of the people by each single column, and means of numbers by the middles of eight bins.

"""


def streams(*about: object) -> Iterator[Stream]:
    """Streams that a name and a number determine."""
    for k in range(10**6):
        yield Stream(hashlib.sha256(repr((*about, k)).encode()).digest())


def components(data: Dataset, epsilon: float, runs: int, method: str = "moments") -> dict[str, float]:
    """How often intervals of a PCA hold."""
    roster = Roster.of(data.feature_schemas)
    model = PCA(KEPT, epsilon={"analyst": epsilon}, method=method, rows_at_most=2 * data.rows)  # type: ignore[arg-type]
    task = model.plan(roster)
    parts = {
        party: read_table(data.arrow[party], schema, id="person_id").matrix()
        for party, schema in data.feature_schemas.items()
    }
    rows = np.hstack(list(parts.values()))
    mean = rows.mean(axis=0)
    values, vectors = top_eigenvectors((rows - mean).T @ (rows - mean) / len(rows), KEPT)
    found: dict[str, list[float]] = {
        name: [] for name in ("apart", "loadings", "others", "variances", "angles", "means")
    }
    clear, wrong = 0, 0
    drawn = _products(parts, task, runs) if method == "power" else _moments(parts, task, runs)
    for result in drawn:
        spectrum = result.spectrum(center=True)
        variances, own = result.components(KEPT, center=True)
        own = signed(own)
        bars = component_errors(result, spectrum, own, variances, center=True)
        exact = vectors * np.sign((own * vectors).sum(axis=1))[:, None]
        apart = np.array(bars.first) == np.array(bars.last)
        held = (bars.low <= exact) & (exact <= bars.high)
        sure = (bars.low > 0) | (bars.high < 0)
        angles = np.degrees(np.arccos(np.minimum(1.0, (own * exact).sum(axis=1))))
        found["apart"].append(float(apart.sum()))
        found["loadings"] += held[apart].ravel().tolist()
        found["others"] += held[~apart].ravel().tolist()
        found["variances"] += ((bars.variances_low <= values) & (values <= bars.variances_high))[apart].tolist()
        found["angles"] += (angles <= bars.angles)[apart].tolist()
        found["means"] += (np.abs(result.means - mean) <= 1.96 * mean_deviations(result)).tolist()
        clear, wrong = clear + int(sure.sum()), wrong + int((sure & (own * exact < 0)).sum())
    shown = {name: float(np.mean(each)) if each else float("nan") for name, each in found.items()}
    return shown | {"clear": clear / runs, "wrong": wrong / max(1, clear)}


def _moments(parts: Mapping[str, Matrix], task: Any, runs: int) -> Iterator[NoisyMoments]:
    draws = streams("moments", task.noise)
    first = next(draws)
    whole = [OwnMoments(task, owner).quantise(parts[owner], first) for owner in task.owners]
    joint = np.hstack([*whole, np.full((len(whole[0]), 1), float(task.constant))])
    entries = exact_gram(joint, task.norm_squared)[np.triu_indices(task.width)] * task.weights
    for stream, _ in zip(draws, range(runs), strict=False):
        yield NoisyMoments(task, entries + sum(sample_noise_share(task, stream) for _ in task.owners))


def _products(parts: Mapping[str, Matrix], task: Any, runs: int) -> Iterator[NoisyProducts]:
    for stream, _ in zip(streams("products", task.noise), range(runs), strict=False):
        yield power.simulate(parts, task, stream)


def cells(data: Dataset, epsilon: float, runs: int) -> dict[str, float]:
    """How often intervals of shares and of means of bins hold."""
    model = Synthesizer(epsilon={"analyst": epsilon}, bins=8, rows_at_most=2 * data.rows)
    task = model.plan(Roster.of(data.schemas))
    layout = TableLayout.of(data.schemas, 8)
    tables = {party: read_table(data.arrow[party], schema, id="person_id") for party, schema in data.schemas.items()}
    codes = {party: layout.codes(party, tables[party]) for party in data.schemas}
    exact, joint = marginals.reference(codes, replace(task, hidden=False)), np.hstack(list(codes.values()))
    names = layout.column_names(range(len(layout.free)))
    held, mean_held, widths, clear, fitted = [], [], [], [], None
    for stream, _ in zip(streams("marginals", task.noise), range(runs), strict=False):
        noisy = exact + sum(task.additive.draw((task.entries,), stream) for _ in task.owners)
        release = MarginalsRelease.of(NoisyMarginals(task, noisy))
        fitted = fitted or fit_products(layout.sizes, release.count, release.parts, components=2, steps=2)
        people = Population(layout, release, fitted, ())
        for column, own in enumerate(column_shares(people).values()):
            truth = np.bincount(joint[:, column], minlength=len(own)) / data.rows
            held += [each.low <= share <= each.high for each, share in zip(own.values(), truth, strict=True)]
            widths += [each.high - each.low for each in own.values()]
            clear += [each.clear for each in own.values()]
        for name, mean in column_means(people).items():
            column = names.index(name)
            coding = layout.columns[layout.free[column]]
            assert coding.bins is not None
            middles = np.add(*coding.bins.extremes) / 2
            there = joint[:, column][joint[:, column] < len(middles)]
            mean_held.append(mean.low <= middles[there].mean() <= mean.high)
    return {
        "shares": float(np.mean(held)),
        "width": float(np.median(widths)),
        "clear": float(np.mean(clear)),
        "means": float(np.mean(mean_held)) if mean_held else float("nan"),
    }


def data_folder() -> Path | None:
    """COLONNADE_DATA, or shared/data beside the repository."""
    for above in Path(__file__).resolve().parents[2:4]:
        if not os.environ.get("COLONNADE_DATA") and (above / "shared" / "data").is_dir():
            return above / "shared" / "data"
    return None


def page(runs: int, few: int, rows: int) -> str:
    """All figures, as Markdown."""
    heads = (
        "data",
        "epsilon",
        "method",
        "apart",
        "loadings",
        "not apart",
        "variances",
        "angles",
        "means",
        "clear",
        "wrong",
    )
    lines = [_HEAD.format(runs=runs, few=few, rows=rows, kept=KEPT), _row(heads), _row(["---"] * len(heads))]
    for name, title in SETS.items():
        data, small = (load_dataset(name, folder=data_folder(), rows=kept) for kept in (None, rows))
        for method, people, times in (("moments", data, runs), ("power", small, few)):
            for epsilon in EPSILONS if method == "moments" else EPSILONS[-1:]:
                found = components(people, epsilon, times, method)
                shown = [
                    f"{found['apart']:.1f}",
                    *(_share(found[each]) for each in ("loadings", "others", "variances")),
                ]
                shown += [
                    _share(found["angles"]),
                    _share(found["means"]),
                    f"{found['clear']:.0f}",
                    _share(found["wrong"]),
                ]
                lines.append(_row([title, f"{epsilon:g}", method, *shown]))
    heads = ("data", "epsilon", "shares", "median width", "clear", "means")
    lines += [_MARGINALS, _row(heads), _row(["---"] * len(heads))]
    for name, title in SETS.items():
        data = load_dataset(name, folder=data_folder())
        for epsilon in EPSILONS:
            found = cells(data, epsilon, max(2, runs // 4))
            shown = [_share(found["shares"]), f"{found['width']:.4f}", _share(found["clear"]), _share(found["means"])]
            lines.append(_row([title, f"{epsilon:g}", *shown]))
    return "".join(lines)


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |\n"


def _share(value: float) -> str:
    return "-" if value != value else f"{100 * value:.1f} %"


if __name__ == "__main__":
    given = argparse.ArgumentParser(description=__doc__)
    given.add_argument("--runs", type=int, default=200)
    given.add_argument("--few", type=int, default=200, help="runs of the method power, which take longer")
    given.add_argument("--rows", type=int, default=10_000, help="people for the method power")
    given.add_argument("--write", action="store_true", help=f"write {PAGE.name}")
    asked = given.parse_args()
    text = page(asked.runs, asked.few, asked.rows)
    print(text)
    if asked.write:
        PAGE.write_text(text, encoding="utf-8")
