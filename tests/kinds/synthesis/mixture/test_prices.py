"""How far a row moves the sums of a mixture, and what rounds of it cost every observer: figures of the paper."""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from colonnade.errors import PrivacyError
from colonnade.kinds.synthesis.mixture.clipping import ROOT_BITS
from colonnade.kinds.synthesis.mixture.task import Mixture
from colonnade.kinds.synthesis.sensitivity import mixture_sensitivity, responsibilities_square, vector_square
from colonnade.privacy import Observer, accountant, parse_budgets
from colonnade.privacy.events import views
from colonnade.privacy.routes.gaussian import gaussian_epsilon, gaussian_mu
from research.bounds import noise_ratio
from tests.kinds.synthesis.mixture.learners import mixture_task
from tests.support.errors import refused

VECTORS = json.loads((Path(__file__).parents[3] / "privacy" / "vectors.json").read_text())


DPVI, EM = VECTORS["dpvi"]["dpvi"], VECTORS["extra"]["em_sigma"]


ANALYST, PARTY = Observer.analyst(), Observer.party("o0")
EXTRA = VECTORS["extra"]


# --- how far a row moves sums


@pytest.mark.parametrize("case", EXTRA["dpvi_R"])
def test_mixtures_match_the_vectors(case: dict[str, Any]) -> None:
    bound = mixture_sensitivity(case["Cp"], 7, case["f"], case["f2"], case["eta"])
    assert math.sqrt(bound.l2_squared) == pytest.approx(case["delta2_int"], rel=1e-9)
    exact = (1 + Fraction(case["eta"])) ** 2 * (1 + sum(Fraction(c) ** 2 for c in case["Cp"]))
    assert bound.l2_squared == 4 ** (case["f"] + case["f2"]) * exact  # all of these are whole numbers
    assert bound.replace_l2_squared == 4 * bound.l2_squared


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 4), st.lists(st.floats(0, 3), min_size=1, max_size=3), st.floats(0, 1), st.integers(0, 2**32 - 1))
def test_no_row_contributes_more(components: int, clips: list[float], slack: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    bits, vector_bits, width = 6, 5, 2

    def contribution() -> list[int]:
        top = responsibilities_square(bits, slack)
        r = [int(v) for v in rng.dirichlet(np.ones(components) * 0.1) * math.sqrt(top)]
        if rng.random() < 0.3:
            r = [-v for v in r]  # the committee's check holds whatever the sign
        assert sum(v * v for v in r) <= top
        out = [v << vector_bits for v in r]
        for clip in clips:
            for weight in r:
                direction = rng.normal(size=width)
                whole = np.trunc(2**vector_bits * clip * direction / np.linalg.norm(direction)).astype(int)
                assert int(whole @ whole) <= vector_square(vector_bits, clip)
                out += [weight * int(v) for v in whole]
        return out

    one, other = contribution(), contribution()
    bound = mixture_sensitivity(clips, len(one), bits, vector_bits, slack)
    assert sum(v * v for v in one) <= bound.l2_squared
    assert sum(map(abs, one)) <= bound.l1
    gap = [a - b for a, b in zip(one, other, strict=True)]
    assert sum(v * v for v in gap) <= bound.replace_l2_squared
    assert sum(map(abs, gap)) <= bound.replace_l1


def test_a_certain_responsibility_reaches_the_bound_and_a_smaller_weight_on_the_counts_costs_less() -> None:
    row = [16 * 4, 0, 16 * 4 * 3, 0]
    assert sum(v * v for v in row) == mixture_sensitivity([3.0], 4, 4, 2, slack=0).l2_squared
    assert mixture_sensitivity([2.0], 4, 8, 8, slack=0, weight=0.5).l2_squared == 4**16 * Fraction(17, 4)


# --- what rounds cost


def paper(multiple, owners=2, **changes):
    """Adult in the paper: 30,162 people, batches of 100, 20,000 rounds; noise of so many sensitivities."""
    given = {"rows": 30_162, "batch": 100, "rounds": 20_000, "components": 20, "block_rows": 2048} | changes
    draft = mixture_task((30,) * owners, **given)
    return replace(draft, noise=draft.additive.least_scale(multiple, draft.sensitivity))


def epsilon(task, observer, delta=1e-5):
    return accountant.epsilon(views(task.events, observer, task.trust), delta).epsilon


@pytest.mark.parametrize(
    ("sigma", "expected"),
    [(2.042, DPVI["pld_eps_sigma2.042"]), (DPVI["sigma_pld_eps1"], 1.0)],
)
def test_the_analyst_pays_what_the_paper_says_or_less(sigma, expected):
    assert epsilon(paper(sigma), ANALYST) == pytest.approx(expected, rel=2e-3)
    assert expected <= 1.0 + 1e-9 < DPVI["sigma_rdp_eps1"]


def test_a_party_pays_for_epochs_of_disjoint_batches():
    """It knows its own share of the noise, and a replaced person moves sums twice as far: as in the vectors.

    With the noise of the paper the figures are 112 and 128. Beyond about 60 the far end of the noise, which the
    samplers cut off, is too large for any figure at this delta; so here is ten times the noise.
    """
    task = paper(20.42, sampling="disjoint")
    assert task.epochs == 67
    assert epsilon(task, PARTY) == pytest.approx(gaussian_epsilon(2 / 20.42 * math.sqrt(67 * 2), 1e-5), rel=1e-3)
    assert gaussian_epsilon(2 / 2.042 * math.sqrt(67 * 2), 1e-5) == pytest.approx(DPVI["gdp_eps_P2_sens2_steps67"])
    assert math.isinf(epsilon(paper(2.042, sampling="disjoint"), PARTY))


def test_a_party_pays_for_batches_that_it_knows():
    known, hidden = (epsilon(paper(20.42), who) for who in (PARTY, ANALYST))
    in_turn = epsilon(paper(20.42, sampling="disjoint"), PARTY)
    assert 20 * hidden < in_turn < known < 1.25 * in_turn


@pytest.mark.parametrize("case", EXTRA["em_sigma"])
def test_expectation_maximisation_costs_as_many_releases(case):
    """With the deviations of the vectors both epsilons are the same."""
    mu, due = gaussian_mu(case["eps"], case["delta"]), case["sigma_over_Delta_analyst_addremove"]
    assert noise_ratio(mu, case["T"]) == pytest.approx(due, rel=1e-6)
    assert case["T"] / noise_ratio(mu, case["T"]) ** 2 <= mu**2 * (1 + 1e-15)
    replaced = noise_ratio(mu, case["T"], replace=True, parties=case["P"], known=1)
    assert replaced == pytest.approx(case["sigma_over_Delta_party_replace"], rel=1e-6)
    for observer, sigma in ((ANALYST, due), (PARTY, replaced)):
        task = paper(sigma, case["P"], sampling="all", rounds=case["T"], batch=30_162)
        assert epsilon(task, observer, case["delta"]) == pytest.approx(case["eps"], rel=1e-4)


def test_what_is_charged_for_masks_and_room_is_small():
    task = paper(2.0)
    assert float(task.distance) * task.rounds < 1e-7
    assert task.room(30_162) == 192


def test_joint_clipping_costs_its_clip():
    """A joint clip C takes the place of the root of 1 and the squared clips of the owners."""
    local, joint = mixture_task(), mixture_task(joint_clip=1.0)
    assert math.sqrt(local.sensitivity.l2_squared) == pytest.approx(2 * local.gamma, rel=1e-3)
    assert math.sqrt(joint.sensitivity.l2_squared) == pytest.approx(joint.gamma, rel=1e-3)
    wide = mixture_task(joint_clip=50.0)  # it never bites, but clipped responsibilities are truncated once more
    assert local.sensitivity.l2_squared < wide.sensitivity.l2_squared < local.sensitivity.l2_squared * (1 + 1e-4)


def truncated(number: int, cut: int, high: bool) -> int:
    """A truncation by three seats whose parts of the mask are all as small, or all as large, as they can be."""
    return (number + (3 * ((1 << cut) - 1) if high else 0) - (1 << cut)) >> cut


def largest_weight(density: int, task: Mixture) -> int:
    """The largest responsibility of a single component that a joint clip above every norm leaves, over all coins."""
    f, b = task.fraction, task.bits
    found = 0
    for first, second, third, fourth, fifth, sixth, last in itertools.product((False, True), repeat=7):
        joint = truncated(density << f, f, first) + task.precision.lift
        near = joint << (f - joint.bit_length())
        rest = (1 << (f + 4)) - 45 * near + 30 * truncated(near * near, f, second)
        inverse = truncated(((45 << f) - 30 * near) * ((1 << (f + 4)) + rest), f + 8, third)
        inverse = truncated(inverse * ((1 << f) + truncated(rest * rest, f + 8, fourth)), f, fifth)
        weight = truncated(near * inverse, 2 * f - b, sixth)
        found = max(found, truncated(weight << 2 * ROOT_BITS, 2 * ROOT_BITS, last))
    return found


def test_a_joint_clip_that_never_bites_counts_its_own_truncation():
    """For some coins a clipped responsibility is longer than any that is not clipped can be."""
    task = mixture_task(components=1, joint_clip=8.0)
    row = 4**task.vector_bits + sum(vector_square(task.vector_bits, part.clip) for part in task.parts)
    reached = largest_weight(61_512_399, task) ** 2 * row
    assert mixture_task(components=1).sensitivity.l2_squared < reached <= task.sensitivity.l2_squared


def test_clips_and_noise_that_make_no_sense_are_refused_when_planning():
    wide = mixture_task(vectors="derivatives")
    refused(PrivacyError, "PR120", mixture_task, joint_clip=1e6)
    for clip in (1e5, 1e6):
        refused(
            PrivacyError,
            "PR119",
            replace,
            wide,
            joint_clip=1.0,
            parts=tuple(replace(part, clip=clip) for part in wide.parts),
        )
    refused(
        PrivacyError,
        "PR130",
        "4,001",
        "4,000",
        replace,
        wide,
        parts=(replace(wide.parts[0], width=4001), *wide.parts[1:]),
    )
    refused(PrivacyError, "PR020", paper(2.0).calibrated, parse_budgets({"analyst": 1.0}, 1e-12))
    refused(PrivacyError, "PR094", noise_ratio, 1.0, 5, parties=2, known=2)
    refused(PrivacyError, "PR095", noise_ratio, 0.0, 5)
