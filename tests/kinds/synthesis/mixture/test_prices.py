"""What rounds of a mixture cost every observer: the figures of the mixture paper, and of the tighter account."""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from colonnade.errors import PrivacyError
from colonnade.kinds.synthesis.mixture.clipping import ROOT_BITS
from colonnade.kinds.synthesis.mixture.task import Mixture
from colonnade.kinds.synthesis.sensitivity import vector_square
from colonnade.privacy import Observer, accountant, parse_budgets
from colonnade.privacy.events import views
from colonnade.privacy.routes.gaussian import gaussian_epsilon
from tests.kinds.synthesis.mixture.learners import mixture_task
from tests.support.errors import raises

VECTORS = json.loads((Path(__file__).parents[3] / "privacy" / "vectors.json").read_text())
DPVI, EM = VECTORS["dpvi"]["dpvi"], VECTORS["extra"]["em_sigma"]
ANALYST, PARTY = Observer.analyst(), Observer.party("o0")


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


@pytest.mark.parametrize("case", EM)
def test_expectation_maximisation_costs_as_many_releases(case):
    """With the deviations of the vectors both epsilons are the same."""
    given = {"sampling": "all", "rounds": case["T"], "batch": 30_162}
    analyst = paper(case["sigma_over_Delta_analyst_addremove"], case["P"], **given)
    party = paper(case["sigma_over_Delta_party_replace"], case["P"], **given)
    assert epsilon(analyst, ANALYST, case["delta"]) == pytest.approx(case["eps"], rel=1e-4)
    assert epsilon(party, PARTY, case["delta"]) == pytest.approx(case["eps"], rel=1e-4)


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


def test_clips_that_the_arithmetic_cannot_hold_are_refused_when_planning():
    with raises(PrivacyError, "PR120"):
        mixture_task(joint_clip=1e6)
    wide = mixture_task(vectors="derivatives")
    for clip in (1e5, 1e6):
        with raises(PrivacyError, "PR119"):
            replace(wide, joint_clip=1.0, parts=tuple(replace(part, clip=clip) for part in wide.parts))
    with raises(PrivacyError, "PR130", "4,001", "4,000"):
        replace(wide, parts=(replace(wide.parts[0], width=4001), *wide.parts[1:]))


def test_what_no_noise_can_mend_is_named():
    task = replace(paper(2.0), rounds=20_000)
    with raises(PrivacyError, "PR020"):
        task.calibrated(parse_budgets({"analyst": 1.0}, 1e-12, task.trust))
