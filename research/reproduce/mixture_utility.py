"""What synthetic tables from mixtures are worth, at each epsilon."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from research.reproduce.mixture_tables import Coded, Method
from research.reproduce.options import Options
from research.reproduce.results import CURATOR, PROVEN, Group, Row
from research.synthesis import table
from research.synthesis.layouts import bench
from research.synthesis.ours import WAYS
from research.synthesis.scores import Score, scored

EPSILONS = (0.1, 0.3, 1.0, 3.0, 10.0)
METHODS: dict[Method, str] = {"EM": "Colonnade, mixture by EM", "DPVI": "Colonnade, mixture by DPVI"}
MARGINALS = WAYS[0].name
_OTHERS = {MARGINALS: ("Colonnade, marginals", PROVEN), "aim": ("AIM", CURATOR), "mst": ("MST", CURATOR)}
_BOOSTING = "gradient boosting"


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
