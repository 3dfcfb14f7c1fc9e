"""What privacy costs and promises: samplers of noise, ledgers, pricing, and error bars that must hold.

Error bars need ``adult.parquet``, ``credit_default.parquet``, ``acsincome_2018_co_ne.parquet`` and
``dutch_census_2001.parquet`` in the folder that COLONNADE_DATA names.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import hashlib
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colonnade.kinds import LogisticRegression
from colonnade.kinds.regression.least_squares import GradientDescent, LearnedWeights, steepness
from colonnade.kinds.regression.programs import integer_scores, noise_shares, quantise
from colonnade.kinds.regression.task import GradientTask
from colonnade.models import Roster
from colonnade.models.design import weighted_rows
from colonnade.privacy import Ledger, LedgerEntry, Observer, SkellamRelease, Trust, epsilon, parse_budgets, views
from colonnade.privacy.ledger.caps import CapPeriod
from colonnade.privacy.ledger.participants import StudyParticipants
from colonnade.privacy.ledger.storage import append_change, insert_entry
from colonnade.privacy.noise import discrete_gaussian, discrete_laplace, discrete_laplace_share, skellam
from colonnade.protocols.iteration import batch_secret, iterate_batches
from colonnade.protocols.moments.programs import OwnMoments, exact_gram, sample_noise_share
from colonnade.protocols.moments.task import Moments, NoisyMoments
from colonnade.randomness import Stream
from colonnade.tables import Dataset, Flag, Number, Table
from harness import Benchmark, Row, alone, command, data_folder, table, tabled, verdict
from research.datasets import load_dataset

# --- samplers

SIGMAS = [10, 10**3, 10**6, 10**9, 10**12]
POISSON_MOST = 9.2e18  # numpy refuses more
REQUIRED = 2e6
RATIOS = [
    ("discrete Gaussian", "OpenDP discrete Gaussian"),
    ("discrete Laplace", "OpenDP discrete Laplace"),
    ("Skellam", "numpy Poisson difference"),
    ("discrete Gaussian", "numpy rounded normal"),
    ("discrete Laplace", "numpy rounded Laplace"),
]
Draw = tuple[Callable[[], object], int]
Rates = dict[str, dict[str, float]]


def samplers(sigma: int, count: int) -> dict[str, Draw]:
    """What to time, and how many samples each call draws."""
    stream, inexact = Stream.fresh(), np.random.default_rng()
    variance = Fraction(sigma**2)
    mu = float(variance) / 2
    found: dict[str, Draw] = {
        "discrete Gaussian": (lambda: discrete_gaussian(variance, count, stream), count),
        "Skellam": (lambda: skellam(variance / 2, count, stream), count),
        "discrete Laplace": (lambda: discrete_laplace(sigma, count, stream), count),
        "Polya share, a third": (lambda: discrete_laplace_share(sigma, 3, count, stream), count),
        "Polya share, a hundredth": (lambda: discrete_laplace_share(sigma, 100, count, stream), count),
        "numpy rounded normal": (lambda: np.rint(inexact.normal(0, sigma, count)), count),
        "numpy rounded Laplace": (lambda: np.rint(inexact.laplace(0, sigma, count)), count),
    }
    if mu <= POISSON_MOST:
        found["numpy Poisson difference"] = (
            lambda: inexact.poisson(mu, count) - inexact.poisson(mu, count),
            count,
        )
    return found | opendp_samplers(sigma, min(count, 10_000))


def opendp_samplers(sigma: int, count: int) -> dict[str, Draw]:
    """OpenDP's exact samplers, through mechanisms that add noise to a vector of zeros."""
    if find_spec("opendp") is None:
        return {}
    import opendp.prelude as opendp

    opendp.enable_features("contrib")
    domain, zeros = opendp.vector_domain(opendp.atom_domain(T="i64")), [0] * count
    gaussian = opendp.m.make_gaussian(domain, opendp.l2_distance(T="f64"), scale=float(sigma))
    laplace = opendp.m.make_laplace(domain, opendp.l1_distance(T="i64"), scale=float(sigma))
    return {
        "OpenDP discrete Gaussian": (lambda: gaussian(zeros), count),
        "OpenDP discrete Laplace": (lambda: laplace(zeros), count),
    }


def rate(draw: Callable[[], object], count: int, repeats: int = 5) -> float:
    """The best of a few runs, in processor time, because others may use the machine."""
    draw()  # builds the table, which is kept
    best = float("inf")
    for _ in range(repeats):
        start = time.process_time()
        draw()
        best = min(best, time.process_time() - start)
    return count / best


def measure_samplers(count: int = 1_000_000) -> Rates:
    """Samples per second of the exact noise samplers, beside numpy's inexact ones and, if installed, OpenDP's."""
    rows: Rates = {}
    for sigma in SIGMAS:
        for name, (draw, drawn) in samplers(sigma, count).items():
            rows.setdefault(name, {})[f"{sigma:.0e}"] = rate(draw, drawn)
    return rows


def samplers_body(rows: Rates) -> str:
    """Ratios, rates, and what is required."""
    heads = list(rows["discrete Gaussian"])
    ratios = {
        f"{ours} / {theirs}": {s: f"{rows[ours][s] / rows[theirs][s]:.3g} x" for s in rows[theirs]}
        for ours, theirs in RATIOS
        if theirs in rows
    }
    rates = {name: {s: f"{value / 1e6:.3g}" for s, value in line.items()} for name, line in rows.items()}
    least = min(rate for name in ("discrete Gaussian", "Skellam") for rate in rows[name].values())
    tables = [
        table([title, *heads], ([name, *(cells.get(head, "-") for head in heads)] for name, cells in lines.items()))
        for title, lines in (("how many times as fast", ratios), ("million samples/s", rates))
    ]
    required = verdict(least >= REQUIRED, f"at least {REQUIRED / 1e6:.0f} million exact discrete Gaussian or Skellam")
    required += f" samples a second on one core; the slowest figure is {least / 1e6:.3g} million."
    return "\n\n".join([*tables, required])


# --- ledgers


SIZES = (10, 229, 1_000, 10_000)
PARTNERS = 12
DELTA = 1e-5
CAPS = parse_budgets(3.0, DELTA)
PERIODS = [CapPeriod(30, parse_budgets(1.0, DELTA))]
TIMES = 25
START = datetime(2030, 1, 1, tzinfo=UTC)
MOST_SECONDS = 0.05


def trust(number: int) -> Trust:
    owners = ("bank", f"partner{number % PARTNERS}", f"partner{(number // PARTNERS + number + 1) % PARTNERS}")
    owners = owners if len(set(owners)) == 3 else (*owners[:2], f"partner{(number + 1) % PARTNERS}")
    return Trust(owners, owners, 1)


def keys(number: int) -> dict[str, str]:
    return {name: f"sha256:{name}" for name in (*trust(number).owners, "coordinator")}


def study(number: int) -> SkellamRelease:
    shares = tuple((owner, Fraction(10**20 + number)) for owner in trust(number).owners)
    return SkellamRelease(
        "moments", shares, 100, 10**6, 10**12, 2 * 10**6, 2 * 10**12, tail=1e-30, theorem="moments-sensitivity"
    )


def asked(number: int) -> tuple[Any, ...]:
    return [study(number)], trust(number), CAPS, PERIODS, keys(number)


def reserve(ledger: Ledger, number: int) -> LedgerEntry:
    events, *rest = asked(number)
    return ledger.reserve(f"s{number}", "d" * 64, events, *rest)


def fill(path: Path, size: int) -> None:
    """A ledger with so many entries, and the costs that reservations one by one would have left."""
    ledger = Ledger(path, owner="bank")
    with ledger.writing() as base:
        for number in range(size - 1):
            at = (START + timedelta(hours=3 * number)).isoformat(timespec="milliseconds")
            people = StudyParticipants.of("bank", keys(number), trust(number)).to_json()
            events = json.dumps([study(number).to_dict()])
            entry = insert_entry(base, f"s{number}", "d" * 64, at, events, trust(number).to_json(), people)
            for state in ("sent", "committed"):
                append_change(base, entry, state, at)
    reserve(Ledger(path, owner="bank", clock=lambda: START + timedelta(hours=3 * size)), size - 1)


def take_part_in_studies(path: Path, size: int) -> dict[str, float]:
    """Take part in some more studies, in this process."""
    ledger = Ledger(path, owner="bank", clock=lambda: START + timedelta(hours=3 * size + 1))
    epsilon(views([study(0)], Observer.analyst(), trust(0)), DELTA)  # what a party computes of every study before
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    clock, processor, whole = [], [], []
    for number in range(size, size + TIMES):
        start = time.perf_counter()
        ledger.count_aborted_studies(days=30)
        ledger.note_time()
        ledger.check(f"s{number}", *asked(number))
        begun, used = time.perf_counter(), time.process_time()
        entry = reserve(ledger, number)
        clock.append(time.perf_counter() - begun)
        processor.append(time.process_time() - used)
        ledger.mark_sent(entry)
        ledger.commit(entry)
        whole.append(time.perf_counter() - start)
    memory = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    return {
        "clock": median(clock),
        "least": min(clock),
        "processor": median(processor),
        "whole": median(whole),
        "memory": memory,
    }


def measure_ledger() -> dict[str, Any]:
    """How long a reservation takes, and the rest of a study's use of its ledger, and how much memory, as it grows.

    Every entry is a study of its own, with other noise than all before, every three hours, with two of twelve
    partners. The policy has one number for everyone, for ever and within 30 days. Each figure is of a process of its
    own that has loaded what a party has loaded when it comes to its ledger, and that takes part in a few studies. The
    clock's median decides; each change is flushed to disk, so run it on a machine that does nothing else.
    """
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for size in SIZES:
            path = Path(folder) / f"{size}.sqlite"
            fill(path, size)
            found[size] = alone(take_part_in_studies, path, size) | {"file": path.stat().st_size}
    return {"sizes": found}


def ledger_rows(found: dict[str, Any]) -> Iterator[Row]:
    for size, figures in found["sizes"].items():
        kept = figures["clock"] < MOST_SECONDS
        yield (
            f"a reservation with {int(size):,} entries",
            f"**{1e3 * figures['clock']:.0f} ms** on the clock, {1e3 * figures['least']:.0f} ms at least, "
            f"{1e3 * figures['processor']:.0f} ms of the processor; with the checks before it and the changes after it "
            f"{1e3 * figures['whole']:.0f} ms; {figures['memory'] / 1e6:.1f} MB of memory; file "
            f"{figures['file'] / 1e6:.1f} MB",
            verdict(kept, "under 50 ms") if int(size) == max(map(int, found["sizes"])) else "",
        )


# --- pricing

EXAMPLE = Path(__file__).parents[1] / "examples" / "iterative-sketch"
RUNS = 3
MOST_PRICING = 2.0
BUDGETS = {
    "the analyst and the parties": "{ analyst = 1.0, party = 10.0 }",
    "the analyst alone": "{ analyst = 1.0 }",
}


def price(study: Path) -> tuple[float, float]:
    """Wall clock and processor time of one cold process."""
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime, time.perf_counter()
    command = [sys.executable, "-m", "colonnade", "privacy", str(study), "--json"]
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)
    return time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before


def measure_pricing(runs: int = RUNS) -> dict[str, Any]:
    """Seconds until `colonnade privacy` has priced 5,000 rounds: a cold process, best of three.

    The example's budget is for the parties, who know the coins, and the analyst; with one for the analyst alone the
    noise is searched for with privacy loss distributions, which is the most there is to compute.
    """
    found = {}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(shutil.copytree(EXAMPLE, Path(scratch) / "study"))
        text = (EXAMPLE / "STUDY.toml").read_text(encoding="utf-8")
        shown = BUDGETS["the analyst and the parties"]
        assert shown in text
        for name, budget in BUDGETS.items():
            (folder / "STUDY.toml").write_text(text.replace(shown, budget), encoding="utf-8")
            found[name] = min(price(folder / "STUDY.toml") for _ in range(runs))
    return found


def pricing_rows(found: dict[str, Any]) -> Iterator[Row]:
    """Rows of a table: for whom the budget is, seconds, what is allowed."""
    for name, (wall, used) in found.items():
        yield name, f"{wall:.2f}", f"{used:.2f}", verdict(wall < MOST_PRICING, f"under {MOST_PRICING:.0f} s")


# --- error bars of regressions


Vector = NDArray[np.float64]
EPSILONS = (0.3, 1.0, 3.0, 10.0)
SETS = {
    "adult": "Adult",
    "credit-default": "credit default",
    "acs-income": "ACSIncome",
    "dutch-census": "Dutch census",
}


ERROR_BARS = (
    "Logistic regression, the parties of each data set, the analyst's epsilon, delta 1e-5. What intervals are for, and "
    "what they rest on, is in [the theory](../../docs/theory/error-bars.md); its constants were set with Adult and "
    "credit default in sight, the others had no part in it. Coverage is averaged over weights; beside it that of each "
    "kind: numbers (with flags), values of categories, the intercept. *Mostly* is the share of weights whose interval "
    "holds in at least 85 % of fits. Widths are of the whole interval, in log-odds for one step of an encoded column; "
    "*clear* is how many weights can be told from zero, and *wrong* how many of these have the wrong sign."
)


@dataclass
class Cell:
    """What fits of one data set, method and budget showed."""

    model: LogisticRegression
    held: list[NDArray[np.bool_]]
    widths: list[float]
    clear: list[int]
    wrong: list[int]

    def add(self, true: Vector) -> None:
        """Compare the fitted model's intervals with these weights; the intercept is last."""
        model = self.model
        found = [model.estimate(0, place) for place in [*range(len(model.feature_names_in_)), None]]
        low, high = np.array([[each.low, each.high] for each in found]).T
        self.held.append((low <= true) & (true <= high))
        self.widths.append(float(np.median(high - low)))
        told = np.array([each.clear for each in found[:-1]])
        self.clear.append(int(told.sum()))
        self.wrong.append(int((told & (np.sign([float(each) for each in found[:-1]]) != np.sign(true[:-1]))).sum()))

    def row(self, name: str, method: str, epsilon: float) -> str:
        """One line of the table."""
        rates = np.mean(self.held, axis=0)
        kinds = np.array([*_kinds(self.model), "intercept"])
        parts = [f"{rates[kinds == kind].mean():.3f}" for kind in ("number", "value", "intercept")]
        figures = [f"**{rates.mean():.3f}**", *parts, f"{np.mean(rates >= 0.85):.2f}", f"{np.mean(self.widths):.2f}"]
        figures += [f"{np.mean(self.clear):.1f}", f"{np.mean(self.wrong):.2f}"]
        return " | ".join([f"| {name}", method, f"{epsilon:g}", str(len(self.held)), *figures]) + " |"


def _kinds(model: LogisticRegression) -> Iterator[str]:
    for party, schema in model.schemas_.items():
        for name, column in schema.columns.items():
            if f"{party}.{name}" != model.label_:
                yield from ["number" if isinstance(column, Number | Flag) else "value"] * len(column.parts)


class People:
    """A data set in one place."""

    def __init__(self, data: Dataset) -> None:
        self.data, self.tables = data, data.tables()
        self.roster = Roster.of(data.schemas)

    def model(self, method: str, epsilon: float) -> LogisticRegression:
        """A model to be fitted."""
        rows = self.data.rows if method == "sqm" else None
        return LogisticRegression(epsilon={"analyst": epsilon}, label=self.data.label, method=method, rows=rows)

    def least_squares(self, fitted: LogisticRegression) -> Vector:
        """The weights of least squares without noise, the shortest ones, and the intercept, as log-odds."""
        parts = [_encoded(self.tables[party], fitted, party) for party in self.data.schemas]
        x, y = np.hstack(parts), fitted.label_of(dict(self.tables))[:, 0]
        centred = x - x.mean(axis=0)
        weights = np.linalg.pinv(centred.T @ centred, rcond=1e-9, hermitian=True) @ (centred.T @ (y - y.mean()))
        explained = float(np.var(centred @ weights))
        slope = steepness(0.5, float(y.mean()), explained**0.5, explained)
        return np.append(slope * weights, slope * (y.mean() - x.mean(axis=0) @ weights - 0.5))


def _encoded(table: Table, fitted: LogisticRegression, party: str) -> Vector:
    centred = fitted.design_.centred_columns(party)
    found: Vector = centred.centre_features(table).matrix() + centred.middle[: len(centred.feature_names)]
    return found


def _from_moments(
    people: People, model: LogisticRegression, task: Moments, fits: int, stream: Stream
) -> Iterator[Vector]:
    """Fits to the same moments with other noise; after each, the weights that its intervals are for."""
    rows = [
        np.vstack(list(weighted_rows(party, people.tables[party], model.label, task).blocks(task.block_rows)))
        for party in task.owners
    ]
    whole = [OwnMoments(task, party).quantise(part, stream) for party, part in zip(task.owners, rows, strict=True)]
    joint = np.hstack([*whole, np.full((len(whole[0]), 1), float(task.constant))])
    exact = exact_gram(joint, task.norm_squared)[np.triu_indices(task.width)] * task.weights
    true = None
    for _ in range(fits):
        noise = sum(sample_noise_share(task, stream) for _ in task.owners)
        model.conclude(people.roster, task, NoisyMoments(task, exact + noise))
        true = people.least_squares(model) if true is None else true
        yield true


def _from_gradients(
    people: People, model: LogisticRegression, task: GradientTask, fits: int, stream: Stream
) -> Iterator[Vector]:
    """Rounds with and without noise over the same batches; after each, the weights without noise."""
    parts = {party: model._for_gradients(party, people.tables[party], task) for party in task.owners}
    matrices = {party: found.features(people.tables[party]).matrix() for party, (found, _) in parts.items()}
    labels = parts[task.label_owner][1]
    assert labels is not None
    whole = [quantise(matrices[block.owner], block, task, stream)[:, : len(block.columns)] for block in task.blocks]
    x = np.hstack([*whole, np.full((len(labels), 1), float(task.constant))])
    signs, ids = 1 - 2 * np.rint(labels), [str(index) for index in range(len(x))]
    for _ in range(fits):
        quiet, noisy = GradientDescent(task), GradientDescent(task)
        for batch in iterate_batches(task, len(x), batch_secret(task, stream.bytes(32), ids)):
            rows, sign = x[batch], signs[batch]
            for descent in (quiet, noisy):
                total = (rows.T @ integer_scores(rows @ descent.integer_weights.T.astype(float), sign, task)).reshape(
                    -1
                )
                if descent is noisy:
                    total = total + sum(noise_shares(task, 1, stream)[0] for _ in task.owners)
                descent.step(total)
        true = _weights(people, model, quiet.learned)
        model.conclude(people.roster, task, noisy.learned)
        yield true


def _weights(people: People, model: LogisticRegression, learned: LearnedWeights) -> Vector:
    model.conclude(people.roster, learned.task, learned)
    return np.append(model.coef_[0], model.intercept_)


def covered(name: str, method: str, epsilon: float, fits: int, people: People) -> str:
    """One line of the table."""
    model = people.model(method, epsilon)
    task = model.plan(people.roster)
    stream = Stream(hashlib.sha256(f"{name} {method} {epsilon}".encode()).digest())  # the same each time
    cell = Cell(model, [], [], [], [])
    found = (
        _from_gradients(people, model, task, fits, stream)
        if isinstance(task, GradientTask)
        else _from_moments(people, model, task, fits, stream)
    )
    for true in found:
        cell.add(true)
    return cell.row(SETS[name], method, epsilon)


def measure_error_bars(fits: int = 30, methods: tuple[str, ...] = ("one-shot", "functional", "sqm")) -> list[str]:
    """How often do the error bars of regressions hold what the same computation gives without noise?

    Each fit is computed in one place, with the integers, the law of noise and the code of a study. Intervals of second
    moments are for least squares without noise and without a ridge; those of gradients for the same rounds over the
    same batches. Coverage is the share of fits whose 95 % interval holds it, for each weight, and then averaged over
    weights.
    """
    lines = []
    for name in SETS:
        people = People(load_dataset(name, split="train", folder=data_folder()))
        for method in methods:
            for budget in EPSILONS:
                lines.append(covered(name, method, budget, max(2, fits // 6) if method == "sqm" else fits, people))
                print(lines[-1], file=sys.stderr, flush=True)
    return lines


def error_bars_body(lines: list[str]) -> str:
    """The table."""
    heads = "| data | method | epsilon | fits | coverage | numbers | values | intercept | mostly | median width "
    return "\n".join([heads + "| clear | wrong |", "|---" * 12 + "|", *lines])


BENCHMARKS = {
    "samplers": Benchmark(
        measure_samplers,
        samplers_body,
        page="samplers",
        title="Samplers",
        about="Best of five runs in processor time, one core. Columns are deviations; for Laplace and Polya, scales. "
        "OpenDP's are exact. numpy's are neither exact nor cryptographic; its Poisson refuses the last column.",
    ),
    "ledger": Benchmark(
        measure_ledger,
        tabled(ledger_rows),
        page="ledger",
        title="Speed of a ledger",
        about="No two studies are alike; each has three parties, two of them among twelve partners. One number caps "
        "everyone, for ever and within 30 days. 25 studies in a fresh process, every change flushed to disk, once the "
        "cost of the study itself is known; medians.",
    ),
    "pricing": Benchmark(
        measure_pricing,
        tabled(pricing_rows, ("budget for", "seconds", "processor seconds", "required")),
        page="privacy-speed",
        title="How long privacy takes to price",
        about="`colonnade privacy` on `examples/iterative-sketch`, a cold process each time, the best of some.",
    ),
    "error-bars": Benchmark(
        measure_error_bars,
        error_bars_body,
        page="error-bars",
        title="Error bars of regressions",
        about=ERROR_BARS,
        help={"fits": "of second moments, for each line; a sixth of gradients"},
    ),
}

if __name__ == "__main__":
    command(__doc__, BENCHMARKS)
