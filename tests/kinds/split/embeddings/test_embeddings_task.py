"""What told embeddings cost: the vectors by formula and through the task, who sees what, and tasks that are refused."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from colonnade.errors import CapacityError, PrivacyError, StudyError
from colonnade.kinds.split.embeddings.anchors import anchors
from colonnade.kinds.split.embeddings.heads import chances
from colonnade.kinds.split.embeddings.task import GRADIENT_BITS, NewEmbeddings, Sender
from colonnade.kinds.split.sensitivity import embeddings_mu_squared
from colonnade.privacy import Observer, Statement, epsilon, parse_budgets, views
from colonnade.privacy.events import innermost
from colonnade.privacy.noise.response import odds_for
from colonnade.privacy.releases import DiscreteGaussianRelease, NonPrivate
from colonnade.privacy.routes.gaussian import gaussian_epsilon, gaussian_mu
from colonnade.protocols.messages import NOISE_UNIT
from research.bounds import noise_deviation, split_noise, two_stage_mu_squared
from research.formulas import classic_gaussian_sigma
from tests.kinds.split.embeddings.learners import embeddings_task
from tests.support.errors import raises, refused

VECTORS = json.loads((Path(__file__).parents[3] / "privacy" / "vectors.json").read_text())["hdp_fm_afe"]


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
    task = task.calibrated(parse_budgets({"bank": case["eps"]}, case["delta"], task.trust))
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
    task = embeddings_task(training="labels", classes=case["K"], label_odds=odds_for(case["eps"]))
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
    task = embeddings_task(training=training, senders=(Sender("shop", 5, 0.3, 6),), bits=10)
    once: Any = innermost(task.embedding_event("shop"))
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
    calibrated = told.calibrated(budgets)
    statement = Statement.of(calibrated.events, told.trust, 1e-5)
    assert math.isinf(statement.epsilon("shop"))
    assert 1.9 < statement.epsilon("bank") <= 2
    hidden = replace(told, label_odds=odds_for(1.0)).calibrated(budgets)
    assert hidden.noise == calibrated.noise
    with raises(PrivacyError, "PR020"):
        replace(told, label_odds=odds_for(3.0)).calibrated(budgets)


def test_what_random_answers_shorten_is_stretched_again() -> None:
    """An encoder that answers with the mean point of the answers reaches the true points after the public factor."""
    task = embeddings_task(training="labels", label_odds=Fraction(4), stretch=1.5)
    answered = chances(3, Fraction(4)).T @ anchors(3, 2, 1.0)
    assert task.first_scale * answered == pytest.approx(1.5 * anchors(3, 2, 1.0))
    assert replace(task, label_odds=None).first_scale == replace(task, training="none", epochs=0).first_scale == 1.5


def test_new_people_are_told_once_exactly_or_under_the_same_noise() -> None:
    trust, senders = embeddings_task().trust, embeddings_task().senders
    noised = NewEmbeddings(trust, "bank", senders, 100).calibrated(parse_budgets(4.0, 1e-6, trust))
    assert noised.rows_stated is None
    assert noised.deviation("shop") == pytest.approx(VECTORS["afe"][3]["noise_std_embed_t1"], rel=1e-5)
    clear = NewEmbeddings(trust, "bank", senders, 100, new="clear")
    assert [type(event) for event in clear.events] == [NonPrivate]
    assert clear.deviation("shop") == clear.noise_std == 0
    assert noised.adjustable(None) == noised
    refused(StudyError, "ST445", clear.adjustable, None)
    refused(StudyError, "ST444", NewEmbeddings, trust, "bank", senders, 100, releases=2)


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
        ({"senders": (Sender("shop", 0, 1.0),)}, "ST437"),
        ({"senders": (Sender("shop", 2, 1e9),)}, "ST438"),
        ({"senders": (Sender("shop", 2, 1.0, 0),), "training": "labels"}, "ST439"),
    ],
)
def test_tasks_that_make_no_sense_are_refused_in_a_sentence(changes: dict[str, Any], words: str) -> None:
    with raises(StudyError, words):
        embeddings_task(**changes)


def test_noise_that_does_not_fit_is_refused_before_the_run() -> None:
    with raises(CapacityError, "CA024"):
        embeddings_task().calibrated(parse_budgets({"bank": 1e-12}, 1e-12))


def test_every_public_value_is_in_the_agreement() -> None:
    task = embeddings_task(training="rounds", label_odds=Fraction(3))
    changed: dict[str, Any] = {
        "rows": 31, "classes": 4, "releases": 4, "stage": True, "training": "labels", "epochs": 1, "batches": 3,
        "share": Fraction(1, 2), "first_share": Fraction(1, 2), "label_odds": None, "learning_rate": 0.5,
        "gradient_clip": 2.0, "margin": 2.0, "contrast": 0.0, "stretch": 2.0, "noise": 5, "bits": 19, "model": "x",
        "senders": (Sender("shop", 2, 1.5, 6),),
    }  # fmt: skip
    for name, value in changed.items():
        assert replace(task, **{name: value}).agreement != task.agreement, name
    assert NewEmbeddings(task.trust, "bank", task.senders, 30).agreement["new"] == "noised"


def test_loads_and_facts_are_given_for_everybody() -> None:
    task = embeddings_task(THREE, training="rounds", label_odds=Fraction(3))
    loads = {load.participant: load for load in task.loads((*THREE, "coordinator"), 30)}
    assert loads["shop"].bytes_sent == 8 * 30 * 2 * 3
    assert loads["bank"].bytes_sent == 8 * 30 * 2 + 8 * 30 * 4 * 2
    assert loads["coordinator"].bytes_sent == 0
    assert json.loads(json.dumps(task.facts))["labels"] == "randomised response"
