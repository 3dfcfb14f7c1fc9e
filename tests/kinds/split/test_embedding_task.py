"""Told embeddings: what they cost and who sees what, the protocol, and what parties go on with."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.extra.numpy import arrays

from colonnade.errors import NO_PART, CapacityError, ColonnadeError, DataError, PrivacyError, StudyError
from colonnade.kinds.split import embedding_programs
from colonnade.kinds.split.embedding_programs import (
    EmbeddingScaling,
    EmbeddingSide,
    class_anchors,
    class_centroids,
    clip_rows_within,
    clip_to_integers,
    contrastive_slopes,
)
from colonnade.kinds.split.embedding_task import (
    GRADIENT_BITS,
    EmbeddingSender,
    EmbeddingTask,
    NewEmbeddingTask,
    embeddings_mu_squared,
)
from colonnade.models.pytorch import Adam
from colonnade.privacy import Observer, Statement, epsilon, parse_budgets, views
from colonnade.privacy.accounting.loss_distributions import gaussian_epsilon, gaussian_mu
from colonnade.privacy.events import unwrap
from colonnade.privacy.noise.local_mechanisms import odds_of_epsilon
from colonnade.privacy.noise_laws import AdditiveNoise, DiscreteGaussianRelease, NonPrivate
from colonnade.protocols.roles import COORDINATOR
from colonnade.protocols.task import NOISE_UNIT
from colonnade.randomness import Stream
from research.bounds import noise_deviation, split_noise, two_stage_mu_squared
from research.formulas import classic_gaussian_sigma
from tests.kinds.split.embedding_learners import Product, embeddings_task, encoders, labels_of
from tests.support import protocols as kit
from tests.support.errors import refused
from tests.support.protocols import Array
from tests.support.vectors import VECTORS as ALL

VECTORS = ALL["hdp_fm_afe"]
THREE = ("bank", "clinic", "shop")


def _sigmas(task: Any, owner: str = "shop") -> tuple[float, float]:
    """Noise over sensitivity, of embeddings and of updates."""
    told = math.sqrt(task.embedding_variance(owner)) / (2 * task.radius(owner))
    learned = math.sqrt(task.update_variance) / (2 << GRADIENT_BITS) if task.training != "none" else math.inf
    return told, learned


@pytest.mark.parametrize("case", VECTORS["afe"])
def test_calibrated_noise_matches_the_vectors(case: dict[str, Any]) -> None:
    mu = gaussian_mu(case["eps"], case["delta"])
    assert mu == pytest.approx(case["mu_total"], rel=1e-6)
    embedding, update = split_noise(mu, case["epochs"], case["share_embed"])
    assert (embedding, update) == pytest.approx((case["sigma_h"], float(case["sigma_g"])), rel=1e-6)
    assert noise_deviation(1, embedding) == pytest.approx(case["noise_std_embed_t1"], rel=1e-6)
    spent = embeddings_mu_squared(case["epochs"], embedding, update)
    assert Fraction(mu) ** 2 * (1 - Fraction(1, 10**12)) <= spent <= Fraction(mu) ** 2
    frozen = case["share_embed"] == 1
    how: dict[str, Any] = {} if frozen else {"training": "rounds", "epochs": case["epochs"], "share": Fraction(1, 2)}
    task = embeddings_task(releases=case["epochs"], **how)
    task = task.calibrate(parse_budgets({"bank": case["eps"]}, case["delta"], task.trust))
    assert _sigmas(task) == pytest.approx((case["sigma_h"], float(case["sigma_g"])), rel=1e-5)
    assert task.deviation("shop") == pytest.approx(case["noise_std_embed_t1"], rel=1e-5)
    assert float(embeddings_mu_squared(case["epochs"], *_sigmas(task))) == pytest.approx(mu**2, rel=1e-5)
    seen = epsilon(views(task.events, Observer.party("bank"), task.trust), case["delta"]).epsilon
    assert case["eps"] * (1 - 1e-4) < seen <= case["eps"]


@pytest.mark.parametrize("case", VECTORS["afe_paper_true"])
def test_the_true_epsilon_of_repeated_releases_matches_the_vectors(case: dict[str, Any]) -> None:
    """The noise of one release, told in every epoch by a frozen encoder."""
    sigma, true = classic_gaussian_sigma(case["eps"], case["delta"]), case["eps_true_vanilla_fixed_encoder"]
    assert sigma == pytest.approx(case["sigma"], rel=1e-9)
    mu = math.sqrt(embeddings_mu_squared(case["E"], sigma))
    assert gaussian_epsilon(mu, case["delta"]) == pytest.approx(true, rel=1e-6)
    if true < 100:
        task = embeddings_task(releases=case["E"]).with_multiplier(sigma / math.sqrt(case["E"]))
        assert _sigmas(task)[0] == pytest.approx(sigma, rel=1e-3)
        seen = epsilon(views(task.events, Observer.party("bank"), task.trust), case["delta"]).epsilon
        assert seen == pytest.approx(true, rel=1e-3)


def test_a_frozen_encoder_releases_once_or_twice_and_senseless_noise_is_refused() -> None:
    assert embeddings_mu_squared(1, 2.0) == Fraction(1, 4)
    assert two_stage_mu_squared(2.0, 4.0) == Fraction(5, 16)
    assert split_noise(1.0, 4, 0) == (math.inf, 2.0)
    assert noise_deviation(1, math.inf) == math.inf
    refused(PrivacyError, "PR088", split_noise, 1.0, 5, 1.5)
    refused(PrivacyError, "PR087", embeddings_mu_squared, 5, 0.0)


@pytest.mark.parametrize("case", VECTORS["rr"])
def test_told_labels_cost_what_randomised_response_costs(case: dict[str, Any]) -> None:
    task = embeddings_task(training="labels", classes=case["K"], label_odds=odds_of_epsilon(case["eps"]))
    odds = task.labels_event.odds
    assert float(odds / (odds + case["K"] - 1)) == pytest.approx(case["p_true"], rel=1e-9)
    assert Statement.of(task.events, task.trust, 1e-5).epsilon("shop") == pytest.approx(case["eps"], rel=1e-4)


def test_a_stage_and_the_other_releases_share_what_is_spent() -> None:
    task = embeddings_task(stage=True, first_share=Fraction(1, 4), noise=NOISE_UNIT)
    first, told = math.sqrt(task.first_variance("shop")) / (2 * task.radius("shop")), _sigmas(task)[0]
    assert (first, told) == (pytest.approx(2.0), pytest.approx(math.sqrt(4 / 3)))
    assert 1 / first**2 + 1 / told**2 == pytest.approx(1.0)


def test_every_update_is_charged_as_often_as_a_person_takes_part_and_never_sent() -> None:
    task = embeddings_task(THREE, training="labels", epochs=5, batches=3)
    updates = [task.update_event(name) for name in task.passives]
    assert set(updates) <= set(task.events) - set(task.openings)
    for event in updates:
        assert (type(event.event), event.times, event.event.dimension) == (DiscreteGaussianRelease, 5, 3 * 6)
        assert event.event.replace_l2_squared == 4 << 2 * GRADIENT_BITS


@pytest.mark.parametrize("training", ["none", "labels", "rounds"])
def test_an_embedding_moves_by_twice_its_clip_in_whole_numbers(training: str) -> None:
    task = embeddings_task(training=training, senders=(EmbeddingSender("shop", 5, 0.3, 6),), bits=10)
    once: Any = unwrap(task.embedding_event("shop"))
    assert (type(once), once.dimension) == (DiscreteGaussianRelease, 30 * 5)
    assert once.replace_l2_squared == 4 * math.floor(Fraction(0.3) * 1024) ** 2


def test_who_sees_what() -> None:
    seen = {}
    for training in ("none", "labels", "rounds"):
        task = embeddings_task(THREE, training=training, label_odds=Fraction(3), noise=4 * NOISE_UNIT)
        statement = Statement.of(task.events, task.trust, 1e-5)
        seen[training] = {name: statement.epsilon(name) for name in (*THREE, "analyst", "coordinator", "clinic+shop")}
        assert seen[training]["analyst"] == seen[training]["coordinator"] == 0
        assert seen[training]["bank"] > 0
    assert seen["none"]["shop"] == seen["none"]["clinic+shop"] == 0
    assert seen["labels"]["shop"] == pytest.approx(math.log(3), rel=1e-4)
    # Slopes that one passive party receives depend on what the other one told.
    assert seen["rounds"]["shop"] > seen["labels"]["shop"]
    assert seen["rounds"]["clinic+shop"] == pytest.approx(math.log(3), rel=1e-4)


def test_labels_without_protection_are_said_to_have_none_and_do_not_change_the_noise() -> None:
    told = embeddings_task(training="labels")
    assert isinstance(told.labels_event, NonPrivate)
    budgets = parse_budgets(2.0, 1e-5, told.trust)
    calibrated = told.calibrate(budgets)
    statement = Statement.of(calibrated.events, told.trust, 1e-5)
    assert math.isinf(statement.epsilon("shop"))
    assert 1.9 < statement.epsilon("bank") <= 2
    hidden = replace(told, label_odds=odds_of_epsilon(1.0)).calibrate(budgets)
    assert hidden.noise == calibrated.noise
    refused(PrivacyError, "PR020", replace(told, label_odds=odds_of_epsilon(3.0)).calibrate, budgets)


def test_what_random_answers_shorten_is_stretched_again() -> None:
    """An encoder that answers with the mean point of the answers reaches the true points after the public factor."""
    task = embeddings_task(training="labels", label_odds=Fraction(4), stretch=1.5)
    answered = (np.eye(3) / 2 + 1 / 6) @ class_anchors(3, 2, 1.0)
    assert task.first_scale * answered == pytest.approx(1.5 * class_anchors(3, 2, 1.0))
    assert replace(task, label_odds=None).first_scale == replace(task, training="none", epochs=0).first_scale == 1.5


def test_new_people_are_told_once_exactly_or_under_the_same_noise() -> None:
    trust, senders = embeddings_task().trust, embeddings_task().senders
    noised = NewEmbeddingTask(trust, "bank", senders, 100).calibrate(parse_budgets(4.0, 1e-6, trust))
    assert noised.rows_stated is None
    assert noised.deviation("shop") == pytest.approx(VECTORS["afe"][3]["noise_std_embed_t1"], rel=1e-5)
    clear = NewEmbeddingTask(trust, "bank", senders, 100, new="clear")
    assert [type(event) for event in clear.events] == [NonPrivate]
    assert clear.deviation("shop") == clear.noise_std == 0
    assert noised.adjustable(None) == noised
    refused(StudyError, "ST445", clear.adjustable, None)
    refused(StudyError, "ST444", NewEmbeddingTask, trust, "bank", senders, 100, releases=2)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"releases": 0}, "ST441"),
        ({"training": "rounds", "releases": 1}, "ST443"),
        ({"training": "labels", "classes": 0}, "ST432"),
        ({"training": "labels", "batches": 31}, "ST440"),
        ({"training": "none", "epochs": 2}, "ST442"),
        ({"classes": 1}, "ST431"),
        ({"training": "labels", "label_odds": Fraction(1)}, "ST433"),
        ({"share": Fraction(1)}, ("ST434", "share")),
        ({"learning_rate": 0.0}, ("ST435", "learning_rate")),
        ({"contrast": math.nan}, "ST436"),
        ({"senders": (EmbeddingSender("shop", 0, 1.0),)}, "ST437"),
        ({"senders": (EmbeddingSender("shop", 2, 1e9),)}, "ST438"),
        ({"senders": (EmbeddingSender("shop", 2, 1.0, 0),), "training": "labels"}, "ST439"),
    ],
)
def test_tasks_that_make_no_sense_are_refused_in_a_sentence(changes: dict[str, Any], words: str) -> None:
    refused(StudyError, words, embeddings_task, **changes)


def test_noise_that_does_not_fit_is_refused_before_the_run() -> None:
    refused(CapacityError, "CA024", embeddings_task().calibrate, parse_budgets({"bank": 1e-12}, 1e-12))


def test_every_public_value_is_in_the_agreement() -> None:
    task = embeddings_task(training="rounds", label_odds=Fraction(3))
    changed: dict[str, Any] = {
        "rows": 31, "classes": 4, "releases": 4, "stage": True, "training": "labels", "epochs": 1, "batches": 3,
        "share": Fraction(1, 2), "first_share": Fraction(1, 2), "label_odds": None, "learning_rate": 0.5,
        "gradient_clip": 2.0, "margin": 2.0, "contrast": 0.0, "stretch": 2.0, "noise": 5, "bits": 19, "model": "x",
        "senders": (EmbeddingSender("shop", 2, 1.5, 6),),
    }  # fmt: skip
    for name, value in changed.items():
        assert replace(task, **{name: value}).agreement != task.agreement, name
    assert NewEmbeddingTask(task.trust, "bank", task.senders, 30).agreement["new"] == "noised"
    loads = {load.participant: load.bytes_sent for load in task.loads(("bank", "shop", COORDINATOR), 30)}
    assert loads == {"bank": 8 * 30 + 8 * 30 * 2 * 2, "shop": 8 * 30 * 2 * 3, COORDINATOR: 0}


SCHEDULES: tuple[dict[str, Any], ...] = (
    {"training": "none"},
    {"training": "none", "releases": 3, "stage": True},
    {"training": "labels"},
    {"training": "labels", "stage": True, "label_odds": Fraction(3)},
    {"training": "rounds", "label_odds": Fraction(3)},
    {"training": "rounds", "releases": 2, "stage": True},
)
each_schedule = pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
OWNERS = (("bank", "shop"), ("clinic", "bank", "shop", "lab"))


def _fixed(name: str, variance: int, count: int) -> Array:
    """Noise that both runs can know: it depends on nothing but what it is for."""
    pattern = np.arange(count) % 7 - 3
    return (pattern * int(Fraction(variance) ** Fraction(1, 2)) // 4).astype(np.int64)


def parts(task: EmbeddingTask, labels: Array | None = None, **given: Any) -> dict[str, Any]:
    """Everybody's program; passive parties encode rows that tell the class."""
    classes = labels_of(task) if labels is None and task.new == "no" else labels
    held, scalings = given.get("encoders") or encoders(task), given.get("scalings", {})
    ids = [f"p{i:03d}" for i in range(len(next(iter(held.values())).rows))]

    def program(name: str) -> Any:
        label = classes if name == task.active else None
        return lambda me: embedding_programs.owner(me, held.get(name), ids, label, task, scalings.get(name))

    return {name: program(name) for name in task.owners} | {
        COORDINATOR: lambda me: embedding_programs.coordinator(me, task)
    }


@pytest.mark.parametrize("owners", OWNERS, ids=len)
@each_schedule
def test_the_protocol_ends_with_the_numbers_of_its_reference_and_tells_what_is_planned(
    schedule: dict[str, Any], owners: Sequence[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    task = embeddings_task(owners, noise=1 << 12, **schedule)
    held, again = encoders(task), encoders(task)
    monkeypatch.setattr(AdditiveNoise, "draw", lambda noise, shape, _: _fixed("", noise.scale, shape[0]))
    done = kit.outcomes(task, parts(task, encoders=held))
    found = {name: done[name].result for name in owners}
    told = found["bank"].labels
    assert (told is None) == (task.training == "none")
    expected = embedding_programs.reference(again, told, task, _fixed)
    for name in task.passives:
        assert np.array_equal(found["bank"].received[name], expected["bank"].received[name])
        assert np.array_equal(held[name].weights, again[name].weights)
        assert found[name].scaling.scale == expected[name].scaling.scale
        assert np.array_equal(found[name].scaling.centre, expected[name].scaling.centre)
        assert told is None or np.array_equal(found[name].labels, told)
    revealed = {event for name in task.owners for event in done[name].revealed}
    assert revealed == set(task.openings)
    assert revealed | {task.update_event(name) for name in task.passives if task.training != "none"} == set(task.events)
    assert (done[COORDINATOR].result, done[COORDINATOR].revealed) == (None, ())


def test_told_embeddings_have_the_noise_that_the_task_says() -> None:
    task = embeddings_task(rows=4000, noise=NOISE_UNIT, releases=2)
    held = encoders(task)
    found = embedding_programs.simulate(held, labels_of(task), task, Stream(bytes(32)))["bank"].received["shop"]
    exact = clip_rows_within(held["shop"].embed(np.arange(4000)), 1.0)
    assert task.received_variance("shop") == pytest.approx(4.0)
    assert (found - exact).var() == pytest.approx(4.0, rel=0.12)


@pytest.mark.parametrize("training", ["labels", "rounds"])
def test_true_labels_reach_nobody_but_through_their_answers(training: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other true labels with equal answers leave every encoder and every told number as they are."""
    monkeypatch.setattr(AdditiveNoise, "draw", lambda noise, shape, _: _fixed("", noise.scale, shape[0]))

    def ended(task: EmbeddingTask, true: Array) -> list[Array]:
        held = encoders(task)
        found = kit.results(task, parts(task, true, encoders=held))
        return [held["shop"].weights, found["bank"].received["shop"], found["shop"].labels]

    task = embeddings_task(training=training, label_odds=Fraction(3), noise=1 << 12)
    true = labels_of(task)
    other = (true + 1) % 3
    unprotected = replace(task, label_odds=None)
    assert not any(map(np.array_equal, ended(unprotected, true), ended(unprotected, other)))
    answers = labels_of(task)[::-1].copy()
    monkeypatch.setattr(embedding_programs, "randomised_response", lambda *given: answers)
    assert all(map(np.array_equal, ended(task, true), ended(task, other)))


def test_steps_do_not_depend_on_how_long_gradients_are_and_batches_hold_everybody() -> None:
    short, long = Adam(0.1), Adam(0.1)
    gradient = np.array([1.0, -2.0, 0.5])
    for _ in range(4):
        one, two = short.step(gradient), long.step(1000 * gradient)
        assert one == pytest.approx(two, rel=1e-4)
        assert (np.sign(one) == -np.sign(gradient)).all()
    task = embeddings_task(training="labels", batches=7)
    assert sorted(np.concatenate([embedding_programs.batch_places(index, task) for index in range(7)])) == list(
        range(30)
    )


@pytest.mark.parametrize("new", ["clear", "noised"])
def test_new_people_are_told_by_the_encoder_and_scale_of_before(new: Any) -> None:
    fit = embeddings_task(("bank", "clinic", "shop"), training="labels", stage=True, noise=1)
    held = encoders(fit)
    before = embedding_programs.simulate(held, labels_of(fit), fit, Stream(bytes(32)))
    scalings = {name: before[name].scaling for name in fit.passives}
    assert all(scaling is not None and scaling.centre.any() for scaling in scalings.values())
    task = NewEmbeddingTask(fit.trust, "bank", fit.senders, 50, classes=3, new=new, noise=1)
    asked = encoders(task, rows=11, seed=8)
    for name, each in asked.items():
        each.weights = held[name].weights
    found = kit.results(task, parts(task, encoders=asked, scalings=scalings))
    for name in fit.passives:
        scaling = scalings[name]
        assert scaling is not None
        exact = (
            clip_to_integers(scaling.apply(clip_rows_within(asked[name].embed(np.arange(11)), 1.0)) * 2**20, 1 << 20)
            / 2**20
        )
        error = np.abs(found["bank"].received[name] - exact).max()
        assert error == 0 if new == "clear" else 0 < error < 20 * task.deviation(name)


def test_what_does_not_fit_the_study_is_refused_before_anything_is_sent() -> None:
    task = embeddings_task(training="labels", label_odds=odds_of_epsilon(1.0))
    ids, held, labels = [f"p{i:03d}" for i in range(30)], encoders(task)["shop"], labels_of(task)
    wrong: list[tuple[str, Any, tuple[Any, ...]]] = [
        ("shop", StudyError, (held, ids[:29], None)),
        ("bank", DataError, (None, ids, labels[:29])),
        ("bank", DataError, (None, ids, labels + 1)),
        ("shop", DataError, (Product(held.rows, 3), ids, None)),
        ("shop", DataError, (Product(held.rows[:, :2], 2), ids, None)),
        ("bank", DataError, (held, ids, labels)),
        ("shop", DataError, (held, ids, labels)),
    ]
    for name, kind, brings in wrong:
        errors = kit.outcomes(
            task, parts(task) | {name: lambda me, brings=brings: embedding_programs.owner(me, *brings, task)}
        )
        assert isinstance(errors.pop(name), kind)
        assert all(isinstance(error, ColonnadeError) and NO_PART in str(error) for error in errors.values())
    others = [f"q{i:03d}" for i in range(30)]
    refused(
        StudyError,
        "ST532",
        kit.results,
        task,
        parts(task) | {"shop": lambda me: embedding_programs.owner(me, held, others, None, task)},
    )


# --- what a party goes on with: noise is written so that told numbers are the same for any rows, and nothing else may
# depend on them: not the centre and scale, not the points of the classes, not its encoder


class Script:
    """Noise that fits whatever numbers it is added to, so that their sums are those of the script."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.hidden: list[Array] = []
        self.shown: list[Array] = []
        self.asked: list[tuple[int, int]] = []
        patch.setattr(embedding_programs, "clip_to_integers", self._remembered(embedding_programs.clip_to_integers))
        patch.setattr(
            embedding_programs, "sum_clipped_gradients", self._remembered(embedding_programs.sum_clipped_gradients)
        )

    def _remembered(self, exact: Callable[..., Array]) -> Callable[..., Array]:
        def remembered(*given: Any) -> Array:
            found = exact(*given)
            self.hidden.append(found.ravel())
            return found

        return remembered

    def draw(self, name: str, variance: int, count: int) -> Array:
        rng = np.random.default_rng([len(self.asked), count])
        self.asked.append((variance, count))
        self.shown.append(np.rint(rng.normal(size=count) * math.isqrt(variance)).astype(np.int64))
        return self.shown[-1] - self.hidden[-1]


@pytest.mark.parametrize("row", [[1e6, -5.0, 3.0], [0.0, 0.0, 0.0], [np.nan, 1.0, 1.0]], ids=str)
@pytest.mark.parametrize("schedule", [*SCHEDULES, {"training": "labels", "stage": True, "releases": 2}], ids=str)
def test_nobody_ends_with_anything_but_what_was_told(
    schedule: dict[str, Any], row: Sequence[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every step of an encoder goes into its last weights, and so would anything else that it had learned from."""
    task = embeddings_task(("clinic", "bank", "shop"), noise=1 << 12, **schedule)
    hidden, ended = [], []
    for turned in (False, True):
        held = encoders(task)
        if turned:
            held["shop"].rows[7] = row
        with monkeypatch.context() as patch:
            script = Script(patch)
            outcome = embedding_programs.reference(held, labels_of(task), task, script.draw)
        after = [held[name].weights for name in task.passives]
        for name in task.passives:
            scaling = outcome[name].scaling
            after += [outcome["bank"].received[name], scaling.centre, np.array([scaling.scale])]
        hidden.append(script.hidden)
        ended.append(after)
    assert not all(map(np.array_equal, *hidden))  # rows matter to what noise is added to
    assert all(map(np.array_equal, *ended))


@pytest.mark.parametrize("training", ["labels", "rounds"])
def test_an_encoder_moves_by_its_noise_as_it_was_drawn(training: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every step is that of a sum which is told: the noise is neither left out nor made smaller."""
    task = embeddings_task(training=training, noise=1 << 12, gradient_clip=0.7)
    held, script = encoders(task)["shop"], Script(monkeypatch)
    expected, steps = held.weights.copy(), Adam(task.learning_rate)
    embedding_programs.reference({"shop": held}, labels_of(task), task, script.draw)
    updated = [shown for (v, _), shown in zip(script.asked, script.shown, strict=True) if v == task.update_variance]
    assert len(updated) == task.epochs * task.batches
    for shown in updated:
        expected += steps.step(shown * (0.7 / (1 << GRADIENT_BITS))).reshape(expected.shape)
    assert np.array_equal(held.weights, expected)


def test_points_of_classes_are_means_of_what_was_told(monkeypatch: pytest.MonkeyPatch) -> None:
    task = embeddings_task(training="rounds", noise=1 << 12)
    held, script, labels = encoders(task)["shop"], Script(monkeypatch), labels_of(task)
    side = EmbeddingSide(held, "shop", task, script.draw)
    before, everybody = side._points, np.arange(task.rows)
    told = side.embeddings(everybody).reshape(-1, 2) / 2.0**task.bits
    side.end_epoch(labels)
    assert np.array_equal(side._points, class_centroids(told, labels, before))
    assert not np.allclose(side._points, class_centroids(clip_rows_within(held.embed(everybody), 1.0), labels, before))


@each_schedule
def test_as_much_noise_is_drawn_as_is_charged(schedule: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """In the parties' own programs: for every event its variance, for as many numbers as often as it says."""
    task = embeddings_task(("clinic", "bank", "shop"), noise=1 << 12, **schedule)
    drawn, charged, real = Counter[Fraction](), Counter[Fraction](), AdditiveNoise.draw

    def watched(noise: AdditiveNoise, shape: tuple[int, ...], stream: Stream) -> Array:
        drawn[Fraction(noise.scale)] += math.prod(shape)
        return real(noise, shape, stream)

    monkeypatch.setattr(AdditiveNoise, "draw", watched)
    kit.results(task, parts(task))
    for event in task.embedding_events:
        once: Any = unwrap(event)
        ((_, variance),) = once.shares
        charged[variance] += once.dimension * getattr(event, "times", 1)
    assert drawn == charged


# --- whole numbers within a ball, public scaling, and points of classes


@settings(max_examples=100, deadline=None)
@given(
    arrays(np.float64, st.tuples(st.integers(0, 4), st.integers(1, 6)), elements=st.floats(width=64)),
    st.integers(1, 1 << 30),
)
def test_no_row_is_longer_than_the_radius_in_whole_numbers(rows: Array, radius: int) -> None:
    whole = clip_to_integers(rows, radius)
    assert whole.dtype == np.int64
    for row, before in zip(whole.tolist(), rows, strict=True):
        assert sum(v * v for v in row) <= radius * radius
        assert np.isfinite(before).all() or not any(row)


def test_rows_at_the_edge_are_kept_and_short_rows_stay() -> None:
    rows = np.random.default_rng(1).normal(size=(2000, 5))
    rows *= (1 << 20) / np.linalg.norm(rows, axis=1, keepdims=True)
    norms = np.linalg.norm(clip_to_integers(3 * rows, 1 << 20).astype(float), axis=1)
    assert norms.min() > (1 << 20) - 4
    assert np.array_equal(clip_to_integers(rows / 2, 1 << 20), np.trunc(rows / 2))
    assert clip_rows_within(np.array([[3e307, 4e307]]), 5.0) == pytest.approx(np.array([[3.0, 4.0]]))


def test_centre_and_scale_are_learned_from_noised_embeddings_alone() -> None:
    rng = np.random.default_rng(2)
    embeddings = np.array([0.5, -0.3]) + 0.05 * rng.normal(size=(20_000, 2))
    learned = EmbeddingScaling(np.zeros(2)).learn(embeddings + 0.5 * rng.normal(size=embeddings.shape), 0.25, 1.0)
    assert learned.centre == pytest.approx([0.5, -0.3], abs=0.02)
    assert 1 < learned.scale < 30
    exact = EmbeddingScaling(np.zeros(2)).learn(embeddings, 0.0, 1.0)
    assert np.sqrt((exact.apply(embeddings) ** 2).sum(axis=1).mean()) == pytest.approx(0.8, rel=0.01)
    assert EmbeddingScaling(np.zeros(2)).learn(np.zeros((9, 2)), 0.0, 1.0).scale == pytest.approx(
        0.8 * 64
    )  # is not believed
    wild = 50 * np.random.default_rng(1).normal(size=(9, 2))
    assert (
        EmbeddingScaling(np.zeros(2)).learn(wild, 2500.0, 1.0).scale == 1.0
    )  # noise that shows nothing changes nothing


def test_points_of_classes_are_far_apart_within_the_ball_and_become_means_of_what_was_told() -> None:
    for classes, width in ((2, 1), (3, 2), (10, 9), (10, 16), (10, 4), (3, 1)):
        points = class_anchors(classes, width, 1.5)
        assert np.linalg.norm(points, axis=1) == pytest.approx(np.full(classes, 1.5))
        if width >= classes - 1:
            apart = np.linalg.norm(points[:, None] - points, axis=2)[~np.eye(classes, dtype=bool)]
            assert apart == pytest.approx(np.full(apart.shape, 1.5 * np.sqrt(2 * classes / (classes - 1))))
    told, points = np.array([[1.0, 0], [3, 0], [0, 5]]), np.full((3, 2), 7.0)
    assert class_centroids(told, np.array([0, 0, 2]), points).tolist() == [[2, 0], [7, 7], [0, 5]]


def _loss(h: Array, labels: Array, points: Array, margin: float, contrast: float) -> float:
    apart = np.linalg.norm(h[:, None] - points, axis=2)
    own = np.arange(len(h)), labels
    push = np.maximum(0, margin - apart) ** 2
    return float((apart[own] ** 2).sum() + contrast * (push.sum() - push[own].sum())) / 2


def test_contrastive_slopes_are_those_of_the_loss_and_push_classes_apart() -> None:
    rng = np.random.default_rng(3)
    h, labels, points = rng.normal(size=(6, 4)), rng.integers(0, 3, 6), class_anchors(3, 4, 1.0)
    slopes = contrastive_slopes(h, labels, points, 2.5, 0.7)
    for place in np.ndindex(h.shape):
        step = np.zeros_like(h)
        step[place] = 1e-6
        change = _loss(h + step, labels, points, 2.5, 0.7) - _loss(h - step, labels, points, 2.5, 0.7)
        assert slopes[place] == pytest.approx(change / 2e-6, rel=1e-4, abs=1e-6)
    beside = points[[1]] + 0.1  # near the point of another class: the push is away from it
    alone = contrastive_slopes(beside, np.array([0]), points, 2.5, 0.0)
    assert ((contrastive_slopes(beside, np.array([0]), points, 2.5, 1.0) - alone) @ (beside - points[1]).T).item() < 0
    far = np.vstack([beside, [[1e200, -1e200, 0.0, 0.0]]])  # which overflows nothing and leaves the others alone
    with np.errstate(over="raise", invalid="raise"):
        assert np.array_equal(contrastive_slopes(far, np.array([0, 1]), points, 2.5, 0.0)[:1], alone)
