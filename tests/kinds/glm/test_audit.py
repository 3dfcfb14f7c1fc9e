"""Messages of an exchange against every bound on them: scripted transcripts in integers, games, and the formulas."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from colonnade.audit import ProbeReport, TableChange, games, sensitivity_probe, subject
from colonnade.audit.registry import judge
from colonnade.errors import PrivacyError
from colonnade.kinds.glm import sides as exchange
from colonnade.kinds.glm.audit import ExchangeTranscript, ends, score_messages, slope_messages
from colonnade.kinds.glm.losses import Family, family_for
from colonnade.kinds.glm.sensitivity import (
    ActiveFits,
    GradientExchange as Exchanged,
    PassiveFits,
    active_fits_squared,
    active_fits_weights,
    active_squared,
    passive_fits_squared,
    passive_fits_weights,
    passive_squared,
    weights_sensitivity,
)
from colonnade.kinds.glm.task import Exchange, ExchangeSide
from colonnade.privacy import Observer, Trust
from colonnade.privacy.accounting.loss_distributions import gaussian_mu
from colonnade.privacy.sensitivity import root_up
from colonnade.protocols.rows import ColumnBlock
from colonnade.tables import flag, number
from research import formulas as published
from research.bounds import closed_form_squared, logistic_own_slope
from research.twins.registry import twins
from tests.support.errors import raises
from tests.support.protocols import exchange_task

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from colonnade.testing import seeded

Array = np.ndarray[Any, Any]
Rng = np.random.Generator
LOGISTIC = family_for("logistic", flag())
HUBER = family_for("linear", number(-1, 1), clip=0.3, reach=2.0)
FAMILIES = (
    LOGISTIC,
    family_for("logistic", flag(), reach=0.5),
    HUBER,
    family_for("svm", flag(), clip=1.0),
    family_for("poisson", number(0, 20)),
    family_for("gamma", number(0.5, 20)),
)
KINDS = [(method, role) for method in ("gradient", "alternating") for role in ("passive", "active")]


# --- random plans, tables and scripts


def _plan(rng: Rng, method: str, smallest: float = -4) -> Exchange:
    """Some plan, from very small to very large penalties, balls and clips; released weights are charged too."""
    gradient = method == "gradient"
    owners = tuple("abcd"[: int(rng.integers(2, 5))])
    active, family = str(rng.choice(owners)), FAMILIES[int(rng.integers(len(FAMILIES)))]
    rows = int(rng.integers(2, 13))
    blocks = tuple(
        ColumnBlock(o, ("u", "v", "w")[: int(rng.integers(1, 4))], float(rng.uniform(0.3, 2))) for o in owners
    )
    ridge = [
        0.0 if gradient and rng.random() < 0.5 else float(10 ** rng.uniform(smallest, -0.5 * gradient)) for _ in owners
    ]
    sides = tuple(
        ExchangeSide(
            o, ridge[k], *(float(10 ** rng.uniform(-1.5, 1)) for _ in range(2)), float(10 ** rng.uniform(-1, 0.5))
        )
        for k, o in enumerate(owners)
    )
    place, intercept = owners.index(active), float(rng.choice([0.01, 0.3, 1.0]))
    limit = 2 / (family.curvature * (blocks[place].clip ** 2 + intercept**2) + max(ridge))
    return Exchange(
        blocks, sides, active, family, Trust(owners, (), 0), rows, method,  # type: ignore[arg-type]
        epochs=int(rng.integers(2 if gradient else 1, 4)),
        batches=int(rng.integers(1, min(rows, 5) + 1)) if gradient else 1,
        message_clip=float(10 ** rng.uniform(-1, 0.6)),
        learning_rate=min(limit * float(rng.choice([0.1, 0.5, 0.999])), 1 / max(*ridge, 0.01)) if gradient else 0.0,
        l1=float(rng.choice([0, 0.05])) if gradient else 0.0,
        prox_ridge=float(rng.choice([0, 0.1])) if gradient else 0.0,
        release=True, release_ridge=float(10 ** rng.uniform(-3, 0)), intercept=intercept,
    )  # fmt: skip


def _rows(rng: Rng, task: Exchange, owner: str) -> Array:
    """Rows of all lengths, all at the bound, or all along one line."""
    block = task.block(owner)
    drawn = rng.normal(size=(task.rows, len(block.columns)))
    drawn *= block.clip * (1 - 1e-12) / np.linalg.norm(drawn, axis=1, keepdims=True)
    shape = int(rng.integers(4))
    if shape == 0:
        return drawn * rng.random((task.rows, 1))
    if shape == 1:
        return drawn
    return drawn[:1] * (rng.choice([-1.0, 1.0], (task.rows, 1)) if shape == 2 else rng.random((task.rows, 1)))


def _script(rng: Rng, task: Exchange, rows: Array, person: int, size: float) -> Array:
    """Silence, noise, or a push in one direction; and often something loud about the one person."""
    shape, steps = int(rng.integers(4)), len(task.steps)
    script = rng.normal(size=(steps, task.rows)) * size * float(rng.choice([0.0, 0.1, 1.0, 30.0]))
    if shape == 0:
        script = np.tile(-size * np.sign(rows[:, 0]), (steps, 1))
    if shape == 1:
        script = size * rng.choice([-1.0, 1.0], (steps, task.rows))
    if rng.random() < 0.7:
        script[:, person] = size * float(rng.choice([-1, 1])) * float(rng.choice([1, 1000]))
    return script


def _labels(rng: Rng, family: Family, rows: Array) -> Array:
    low, high = ends(family)
    return np.where(rows[:, 0] > 0, high, low) if rng.random() < 0.5 else rng.choice([low, high], len(rows))


@dataclass(frozen=True)
class Scripted:
    """One owner's table with everything it receives."""

    task: Exchange
    owner: str
    rows: Array
    labels: Array
    received: dict[str, Array]

    def told(self) -> tuple[Array, Array]:
        """Messages and weights, on the grid."""
        if self.owner == self.task.active:
            told = slope_messages(self.rows, self.labels, self.received, self.task)
        else:
            told = score_messages(self.rows, self.owner, self.received[self.task.active], self.task)
        return self.task.grid.quantise(told.messages), self.task.grid.quantise(told.weights)


def _pairs(rng: Rng, task: Exchange, owner: str, count: int) -> Iterator[tuple[Scripted, Scripted]]:
    """The same script for two tables that differ in one person."""
    for _ in range(count):
        person, rows = int(rng.integers(task.rows)), _rows(rng, task, owner)
        labels = _labels(rng, task.family, rows)
        talking = task.passives if owner == task.active else (task.active,)
        size = float(rng.choice([0.3, 3.0])) if owner == task.active else task.message_clip
        received = {name: _script(rng, task, rows, person, size) for name in talking}
        moved, turned = rows.copy(), labels.copy()
        moved[person] = -rows[person] if rng.random() < 0.8 else _rows(rng, task, owner)[person]
        turned[person] = sum(ends(task.family)) - labels[person]
        yield Scripted(task, owner, rows, labels, received), Scripted(task, owner, moved, turned, received)


def _charged(event: Any) -> TableChange:
    return TableChange(event.replace_l1, event.replace_l2_squared)


def _probed(task: Exchange, owner: str, pairs: list[tuple[Scripted, Scripted]]) -> tuple[ProbeReport, ProbeReport]:
    told = [(first.told(), second.told()) for first, second in pairs]
    messages, weights = ([(one[part], two[part]) for one, two in told] for part in (0, 1))
    return (
        sensitivity_probe(lambda numbers: numbers, messages, _charged(task.message_event(owner))),
        sensitivity_probe(lambda numbers: numbers, weights, _charged(task.weights_event(owner))),
    )


def _probe(method: str, role: str, plans: int, scripts: int, smallest: float = -4) -> tuple[float, float]:
    """What part of the charged squares some transcripts of some plans came to, at most."""
    rng, worst = np.random.default_rng(KINDS.index((method, role))), np.zeros(2)
    for _ in range(plans):
        task = _plan(rng, method, smallest)
        owner = task.active if role == "active" else str(rng.choice(task.passives))
        reports = _probed(task, owner, list(_pairs(rng, task, owner, scripts)))
        assert not any(report.violated for report in reports), (task, owner)
        worst = np.maximum(worst, [float(report.l2_squared_ratio or 0) for report in reports])
    return float(worst[0]), float(worst[1])


@pytest.mark.parametrize(
    ("kind", "plans", "scripts", "smallest", "least"),
    [
        (KINDS[0], 60, 8, -4, (0.3, 0.6)),
        (KINDS[1], 60, 8, -4, (0.3, 0.6)),
        (KINDS[2], 60, 8, -4, (0.3, 0.6)),
        (KINDS[3], 10, 2, -1, (0.3, 0.2)),  # smaller penalties take this side seconds each
    ],
    ids=["gradient-passive", "gradient-active", "alternating-passive", "alternating-active"],
)
def test_hundreds_of_scripted_transcripts_stay_within_what_is_charged(
    kind: tuple[str, str], plans: int, scripts: int, smallest: float, least: tuple[float, float]
) -> None:
    """The sides themselves, in integers: no script and no pair of tables moves messages or weights further."""
    messages, weights = _probe(*kind, plans=plans, scripts=scripts, smallest=smallest)
    assert messages > least[0]
    assert weights > least[1]


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("method", "role"), KINDS)
def test_many_scripted_transcripts_stay_within_what_is_charged(method: str, role: str) -> None:
    assert _probe(method, role, plans=500, scripts=4)[0] > 0.5


# --- scripts that come close


def _task(method: str, **changes: Any) -> Exchange:
    gradient, names = method == "gradient", ("a", "b")
    given: dict[str, Any] = {
        "blocks": tuple(ColumnBlock(name, ("x",), 1.0) for name in names),
        "sides": tuple(ExchangeSide(name, 0.0 if gradient else 0.25, 1.0, 10.0) for name in names),
        "rows": 200,
        "epochs": 3,
        "batches": 50 if gradient else 1,
        "message_clip": 1.0,
        "learning_rate": 0.5 if gradient else 0.0,
        "release": True,
        "intercept": 2.0**-12,
    }
    return exchange_task(method, names, **given | changes)


def _pushed(task: Exchange) -> tuple[Scripted, Scripted]:
    """All rows alike, and slopes about one person alone: turned around it drags the weights to the other side."""
    rows, slopes = np.ones((task.rows, 1)), np.zeros((len(task.steps), task.rows))
    slopes[:, 0] = -1000.0
    turned = np.where(np.arange(task.rows)[:, None], rows, -rows)
    first, second = (Scripted(task, "b", held, np.zeros(0), {"a": slopes}) for held in (rows, turned))
    return first, second


def changed_row_alone(told: ExchangeTranscript) -> TableChange:
    """A broken bound on the messages of one who tells, for the probe: nobody's row moves but the changed one."""
    (owner,), task = told.tellers, told.task
    norm, side = task.row_norm(owner), task.side(owner)
    own = task.family.own if owner == task.active else 2 * Fraction(min(side.score_clip, norm * side.weight_bound))
    square = task.grid.sensitivity_squared(root_up(task.epochs * own**2), task.numbers(owner))
    return TableChange(l1=square, l2_squared=square)


def test_the_changed_row_alone_is_too_little_for_steps() -> None:
    """172.4 of a bound of 184.4, where a claim that ignores how one row moves the others' scores is 12."""
    task = _task("gradient")
    report, weights = _probed(task, "b", [_pushed(task)])
    unit = 1 << 2 * task.bits
    assert report.largest.l2_squared / unit == pytest.approx(172.4375, rel=1e-5)
    assert report.claimed.l2_squared / unit == pytest.approx(184.4375, rel=1e-5)
    assert not report.violated
    assert weights.l2_squared_ratio == pytest.approx(1, abs=1e-4)
    ignored = changed_row_alone(ExchangeTranscript.of(task, ("b",)))
    assert ignored.l2_squared / unit == pytest.approx(12, rel=1e-5)
    assert replace(report, claimed=ignored).violated


@pytest.mark.parametrize(("rounds", "least"), [(1, 0.97), (3, 0.7)])
def test_the_changed_row_alone_is_too_little_for_fits(rounds: int, least: float) -> None:
    """A ball just large enough: hardly any score moves by itself, and all move together."""
    ball = 1.05 * rounds / (2 * 200 * 0.25)
    task = _task(
        "alternating", epochs=rounds, sides=(ExchangeSide("a", 0.25, 1.0, 1.0), ExchangeSide("b", 0.25, ball, 1.0))
    )
    report, weights = _probed(task, "b", [_pushed(task)])
    assert not any(each.violated for each in (report, weights))
    assert least < report.l2_squared_ratio <= 1
    assert report.largest.l2_squared > 25 * changed_row_alone(ExchangeTranscript.of(task, ("b",))).l2_squared


@pytest.mark.parametrize(("rows", "ridge", "least"), [(3, 0.02, 0.0), (60, 0.5, 0.9)])
def test_the_changed_row_alone_is_too_little_for_the_active_party(rows: int, ridge: float, least: float) -> None:
    """With few rows and a small penalty one turned label moves every slope; enough rows come close to the bound."""
    sides = (ExchangeSide("a", ridge, 1.0, 1.0), ExchangeSide("b", 0.5, 1.0, 1.0))
    task = _task("alternating", rows=rows, epochs=2 if rows == 3 else 3, family=HUBER, sides=sides)
    silence, labels = {"b": np.zeros((task.epochs, rows))}, np.zeros((2, rows))
    labels[:, 0] = (1.0, -1.0)
    first, second = (Scripted(task, "a", np.ones((rows, 1)), each, silence) for each in labels)
    report, _ = _probed(task, "a", [(first, second)])
    assert not report.violated
    assert least < report.l2_squared_ratio <= 1
    ignored = changed_row_alone(ExchangeTranscript.of(task, ("a",)))
    assert (report.largest.l2_squared > 1.4 * ignored.l2_squared) == (rows == 3)


# --- the games


def test_the_games_use_most_of_what_is_charged() -> None:
    """Otherwise they would pass whatever the noise."""
    for game in (*games("glm-alternating"), *games("glm-gradient")):
        task, tellers = game.sampler.task, game.sampler.tellers
        charged = sum(
            event.replace_l2_squared / event.shares[0][1] for event in task.events if event.about[0] in tellers
        )
        shown = 0.0
        for part in game.sampler.parts:
            variance = task.weights_variance(part.owner) if part.weights else task.message_variance(part.owner)
            shown += variance * float((part.weighed(task) ** 2).sum())
        assert 0.75 * charged < shown <= charged, game.name
        assert sum(len(part.values[0]) for part in game.sampler.parts) <= 16


def test_games_and_twins_are_about_the_method_of_the_task() -> None:
    task = _task("gradient", release=False, rows=30, batches=3)
    assert subject(task) == "glm-gradient"
    assert subject(_task("alternating")) == "glm-alternating"
    named = {game.name: game.observer for game in games("glm-gradient", task)}
    assert named == {"glm-gradient/a/scores": Observer.party("a"), "glm-gradient/b/slopes": Observer.party("b")}
    for rounds, found in ((1, 0), (3, 1)):  # one round is charged as one, rightly, and cannot be broken that way
        broken = [what for what, game in twins("glm-alternating", _task("alternating", epochs=rounds, release=False))]
        assert sum("charged as one" in what for what in broken) == found
        assert "received slopes used without clipping" in broken


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: f"{family.name} {family.reach:.2g}")
def test_every_family_holds(family: Family) -> None:
    for method in ("alternating", "gradient"):
        task = _task(
            method, rows=31, batches=2 if method == "gradient" else 1, epochs=2, family=family, intercept=1.0,
            learning_rate=0.2 if method == "gradient" else 0.0,
            blocks=(ColumnBlock("a", (), 0.0), ColumnBlock("b", ("u", "v"), 1.0)),
        )  # fmt: skip
        for game in games(subject(task), task):
            assert game.play(2000, seeded(3)).margin <= 0


REAL = exchange.add_noise
WRONG = {
    "half the variance": lambda values, name, task, draw: REAL(
        values, name, replace(task, noise=task.noise // 2), draw
    ),
    "none": lambda values, name, task, draw: task.grid.quantise(values),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_wrong_noise_in_the_protocol_itself_is_seen(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the audit is changed: only the function by which parties of a study make their messages."""
    monkeypatch.setattr(exchange, "add_noise", WRONG[wrong])
    game = games("glm-alternating")[0]
    assert judge(game, 60_000, seed=2).word == "REFUTED"


# --- the formulas: vectors, closed forms, and what never costs less


VECTORS = json.loads((Path(__file__).parents[2] / "privacy" / "vectors.json").read_text())["hdp_fm_afe"]["hdp"]
NEAR = {"rel": 1e-9}


# --- steps


@pytest.mark.parametrize("case", VECTORS)
def test_exchanges_match_the_vectors(case: dict[str, Any]) -> None:
    run = Exchanged(
        case["e"], case["r"], case["b"], case["eta"],
        weight_norm=case["k"], slope=case["L"], curvature=case["beta_theta"],
    )  # fmt: skip
    own, reach, mu = logistic_own_slope(run), 2 * Fraction(case["k"]), gaussian_mu(case["eps"], case["delta"])
    passive, active = (math.sqrt(square) for square in (passive_squared(run), active_squared(run, own)))
    closed = (closed_form_squared(run, Fraction(1), reach), closed_form_squared(run, Fraction(1, 4), own))
    found = {
        "S_A": float(own),
        "delta_B": passive,
        "delta_A": active,
        "delta_B_closed": math.sqrt(closed[0]),
        "delta_A_closed": math.sqrt(closed[1]),
    }
    assert found == {name: pytest.approx(case[name], **NEAR) for name in found}
    assert passive / mu == pytest.approx(case["sigma_B"], rel=1e-6)
    assert active / mu == pytest.approx(case["sigma_A"], rel=1e-6)
    # The vector has no cap; the weights stay in a ball of diameter 2k, and so does their change.
    assert float(weights_sensitivity(run)) == pytest.approx(min(case["model_release_sens"], 2 * case["k"]), **NEAR)


@pytest.mark.parametrize("case", VECTORS)
def test_the_published_sensitivities_match_the_vectors(case: dict[str, Any]) -> None:
    run = (case["e"], case["r"], case["b"], case["eta"], case["k"])
    passive, active = published.paper_passive_norm(*run), published.paper_active_norm(*run)
    classic = published.classic_gaussian_sigma(case["eps"], case["delta"])
    assert (passive, active) == pytest.approx((case["paper_delta_B"], case["paper_delta_A"]), **NEAR)
    assert classic * passive == pytest.approx(case["paper_sigma_for_ZB"], **NEAR)
    assert classic * active == pytest.approx(case["paper_sigma_for_ZA"], **NEAR)


def test_penalties_never_cost_privacy_and_too_large_a_step_is_charged() -> None:
    plain = Exchanged(5, 8, 4, 0.5)
    for softer in (Exchanged(5, 8, 4, 0.5, ridge=0.2), Exchanged(5, 8, 4, 0.5, prox_ridge=0.2)):
        for bound in (passive_squared, active_squared, weights_sensitivity):
            assert bound(softer) < bound(plain)
    run = Exchanged(3, 4, 2, 9.0, weight_norm=100.0)
    assert run.active_contraction == Fraction(5, 4)
    assert weights_sensitivity(run, active=True) > weights_sensitivity(run)


# --- fits


def test_one_round_has_a_closed_form_and_more_grow_like_a_root() -> None:
    run = PassiveFits(50, 100, 2.0, 0.0, 0.5, 1.0, 0.25, 0.04)
    assert float(run.spreads[0]) == pytest.approx(2 * 2.0 * 0.5 / 100 / (2 * 0.2), rel=1e-12)
    for before, after in zip(run.spreads, run.spreads[1:], strict=False):
        least = after * before + run.pull(1) ** 2 / (4 * Fraction(0.04))
        assert least <= after**2 <= least * (1 + Fraction(1, 10**12))
    assert float(run.spreads[-1] / run.spreads[0]) == pytest.approx(math.sqrt(2 * 50), rel=0.05)
    # Bounding every score by the weights would cost nine hundred times as much for the other rows.
    run = PassiveFits(1, 1000, 3.0, 10.0, 1.0, 0.0, 0.25, 0.01)
    by_weights = 1000 * 9 * (run.pull(0) / Fraction(0.01)) ** 2
    assert float(by_weights / passive_fits_squared(run)) == pytest.approx(900, rel=1e-9)


def test_weights_move_within_the_ball() -> None:
    run = PassiveFits(3, 4, 1.0, 0.1, 5.0, 1.0, 0.25, 1e-4)
    assert passive_fits_weights(run) == 2 * Fraction(0.1)
    free = replace(run, weight_norm=100.0, ridge=1.0, rounds=1)
    assert passive_fits_weights(free) == free.pull(0) == Fraction(35, 4)
    active = ActiveFits(1, 10, 2.0, 1.0, 0.25, Fraction(3, 2), 0.5)
    assert active_fits_weights(active) == Fraction(4, 5)
    # Its rounds add up.
    assert active_fits_squared(active) == Fraction(9, 4) + Fraction(1, 4) * 10 * Fraction(4, 10) ** 2 / 2
    assert active_fits_squared(replace(active, rounds=7)) == 7 * active_fits_squared(active)


@pytest.mark.parametrize(
    ("kind", "given", "said"),
    [
        (PassiveFits, (1, 10, 1.0, 1.0, 1.0, 1.0, 0.25, 0.0), ("VA122", "ridge")),
        (PassiveFits, (1, 10, 1.0, 1.0, 1.0, 1.0, 0.0, 0.1), ("VA122", "curvature")),
        (PassiveFits, (0, 10, 1.0, 1.0, 1.0, 1.0, 0.25, 0.1), "PR*"),
        (PassiveFits, (1, 0, 1.0, 1.0, 1.0, 1.0, 0.25, 0.1), "PR*"),
        (PassiveFits, (1, 10, 1.0, 1.0, 1.0, math.nan, 0.25, 0.1), "PR*"),
        (PassiveFits, (1, 10, 1.0, 1.0, -1.0, 1.0, 0.25, 0.1), "PR*"),
        (ActiveFits, (1, 10, 1.0, 1.0, 0.25, Fraction(2), 0.0), "VA123"),
        (Exchanged, (0, 1, 1, 0.1), "PR089"),
        (Exchanged, (1, 1, 1, math.nan), "PR090"),
    ],
)
def test_senseless_runs_are_refused(kind: Any, given: tuple[Any, ...], said: Any) -> None:
    with raises((ValueError, PrivacyError), said):
        kind(*given)
