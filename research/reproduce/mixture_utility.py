"""What synthetic tables from mixtures are worth, at each epsilon, and whether a start from marginals helps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from colonnade.kinds.synthesis.product_mixture import ProductMixture
from colonnade.models.planner import Roster
from colonnade.privacy import Event
from research.reproduce.chance import stream
from research.reproduce.mixture_tables import Coded, Method
from research.reproduce.options import Options
from research.reproduce.results import CURATOR, PROVEN, Group, Row
from research.synthesis import table
from research.synthesis.layouts import Bench, bench
from research.synthesis.ours import WAYS
from research.synthesis.scores import Score, scored

EPSILONS = (0.1, 0.3, 1.0, 3.0, 10.0)
METHODS: dict[Method, str] = {"EM": "Colonnade, mixture by EM", "DPVI": "Colonnade, mixture by DPVI"}
MARGINALS = WAYS[0].name
_OTHERS = {MARGINALS: ("Colonnade, marginals", PROVEN), "aim": ("AIM", CURATOR), "mst": ("MST", CURATOR)}
_BOOSTING = "gradient boosting"
COMPOSED = "composed by the accountant"
FIRST_SHARE = 0.5
"""Epsilon of the marginals where a mixture starts from them and both together keep epsilon 1."""


def utility(options: Options) -> Iterator[Row]:
    """Accuracy, AUC and two-way error of tables from mixtures, beside lines of other methods in ``--peers``."""
    known = [line for line in table.read(options.peers) if line.data == "adult"] if options.peers else []
    lines = [*known, *_missing(known, options)]
    named = _OTHERS | {name: (name, PROVEN) for name in METHODS.values()}
    boosted = [line for line in lines if line.model == _BOOSTING and line.method in named]
    for measure, field in (("accuracy", "accuracy"), ("AUC", "auc"), ("two-way error", "two_way")):
        group = Group("Synthetic data", "Adult", "trained on synthetic, tested on real", "epsilon", measure)
        for method, (shown, promise) in named.items():
            for epsilon in EPSILONS:
                draws = [getattr(one, field) for one in boosted if (one.method, one.epsilon) == (method, epsilon)]
                if draws:
                    yield group.row(epsilon, shown, promise, draws)


def _missing(known: Sequence[Score], options: Options) -> Iterator[Score]:
    """Lines of mixtures that no file has."""
    have = {(line.method, line.epsilon, line.seed) for line in known}
    coded = _adult(options)
    seeds = range(options.few(5))
    wanted = [(method, epsilon) for method in METHODS for epsilon in (EPSILONS[2:3] if options.quick else EPSILONS)]
    for done, (method, epsilon) in enumerate(wanted):
        options.progress(f"tables by {method}", done, len(wanted))
        left = [seed for seed in seeds if (METHODS[method], epsilon, seed) not in have]
        yield from mixture_lines(coded, method, epsilon, left)
    options.progress("tables by mixtures", len(wanted), len(wanted))


def mixture_lines(coded: Coded, method: Method, epsilon: float, seeds: Sequence[int]) -> Iterator[Score]:
    """One synthetic table for each seed, scored."""
    if seeds:
        plan = coded.plan(method, epsilon)
        for seed in seeds:
            made_up = coded.table(coded.fitted(method, plan, seed), seed)
            yield from scored(coded.bench, made_up, METHODS[method], epsilon, seed)


def _adult(options: Options) -> Coded:
    if options.quick:
        return Coded(bench("adult", options.folder, 1000), em_rounds=2, dpvi_rounds=20)
    return Coded(bench("adult", options.folder))


def starts(options: Options, epsilon: float = 1.0) -> Iterator[Row]:
    """Marginals alone, mixtures alone, and mixtures that start from a fit to marginals, all for the same epsilon."""
    coded = _adult(options)
    measures = ("negative log-likelihood", "two-way error", "accuracy", "AUC")
    groups = [Group("Does a start from marginals help?", "Adult", "", "epsilon", measure) for measure in measures]
    found: dict[str, list[tuple[float, ...]]] = {}
    for seed in range(options.few(5)):
        options.progress("starts", seed, options.few(5))
        for method, worth in one_start(coded, epsilon, seed):
            found.setdefault(method, []).append(worth)
    for place, group in enumerate(groups):
        for method, worths in found.items():
            promise = COMPOSED if method.startswith("marginals, then") else PROVEN
            yield group.row(epsilon, method, promise, [worth[place] for worth in worths])


def one_start(coded: Coded, epsilon: float, seed: int) -> Iterator[tuple[str, tuple[float, ...]]]:
    """What each way is worth with one seed: negative log-likelihood, two-way error, accuracy and AUC."""
    products, _, made_up = marginals(coded.bench, epsilon, seed)
    yield "marginals", _worth(coded, -products.log_likelihood(coded.test_codes), made_up, epsilon, seed)
    first, events, _ = marginals(coded.bench, epsilon * FIRST_SHARE, seed)
    methods: tuple[Method, ...] = ("EM", "DPVI")
    for method in methods:
        for name, before in ((method, ()), (f"marginals, then {method}", events)):
            plan = coded.plan(method, epsilon, before)
            start = coded.started(first, plan.components) if before else None
            mixture = coded.fitted(method, plan, seed, start)
            costs = -mixture.log_likelihood(coded.encoded(coded.test_codes))
            yield name, _worth(coded, costs, coded.table(mixture, seed), epsilon, seed)


def marginals(of: Bench, epsilon: float, seed: int) -> tuple[ProductMixture, tuple[Event, ...], object]:
    """A fit to noisy marginals, what they cost, and a table from it."""
    roster = Roster.of(of.train.schemas)
    model = WAYS[0].synthesizer(of, epsilon)
    planned = model.plan(roster)
    model.simulate(of.tables, roster, stream(seed, of.name, "start", epsilon), task=planned)
    return model.population_.require_model(), tuple(planned.events), model.sample(of.train.rows)


def _worth(
    coded: Coded, costs: np.ndarray[tuple[int], np.dtype[np.float64]], made_up: object, epsilon: float, seed: int
) -> tuple[float, ...]:
    line = next(one for one in scored(coded.bench, made_up, "", epsilon, seed) if one.model == _BOOSTING)
    return float(np.mean(costs)), line.two_way, line.accuracy, line.auc
