"""Embeddings, updates and labels against what is charged for them: searched bounds, games, and whole runs."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from colonnade.audit import Change, games, sensitivity_probe, subject, twins
from colonnade.audit.registry import observers
from colonnade.audit.verdict import judge
from colonnade.errors import StudyError
from colonnade.kinds.pca.audit_moments import Entries
from colonnade.kinds.split.audit_embeddings import Columns
from colonnade.kinds.split.audit_features import Trained
from colonnade.kinds.split.embeddings import programs, sides, updates
from colonnade.kinds.split.embeddings.scaling import Scaling
from colonnade.kinds.split.embeddings.sides import Passive
from colonnade.kinds.split.embeddings.task import GRADIENT_BITS, Embeddings, NewEmbeddings, Sender
from colonnade.kinds.split.encoders import Trainable, encoder_from
from colonnade.kinds.split.model import SplitClassifier
from colonnade.models import Roster
from colonnade.privacy import Trust, epsilon, parse_budgets, views
from colonnade.privacy.events import innermost
from colonnade.privacy.noise.response import odds_for
from colonnade.tables import Schema, flag, number
from colonnade.testing.seeded import seeded
from tests.kinds.split.embeddings.learners import Listed
from tests.support.errors import refused

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import colonnade.testing.twins  # noqa: F401 - registers them
    from colonnade.kinds.split import audit_twins

Array = np.ndarray[Any, Any]
VECTORS = json.loads((Path(__file__).parents[2] / "privacy" / "vectors.json").read_text())
AUDITS = VECTORS["audit_eps_lower_bounds"] | VECTORS["audit_profile"]
RADIUS = 1 << GRADIENT_BITS


def _task(**given: Any) -> Embeddings:
    senders = given.pop("senders", (Sender("b", 2, 1.0, 2),))
    owners = ("a", *(sender.owner for sender in senders))
    return Embeddings(Trust(owners, (), 0), "a", senders, **{"rows": 4, "classes": 2} | given)


OURS = {
    "afe vanilla one round, fixed encoder ok": ("split-embeddings", "embedding", ""),
    "afe BROKEN paper rescaling": ("split-embeddings", "embedding", "embeddings stretched to the clip as published"),
    "afe BROKEN 20 epochs, one-round noise": ("split-embeddings", "embedding", "twenty releases charged as one"),
    "afe 20 epochs composed ok": ("split-training", "update", ""),
    "afeR ok (theta treated as released)": ("split-training", "update", ""),
    "afeR BROKEN no noise on encoder update": ("split-training", "update", "updates of the encoder without noise"),
    "afeR BROKEN no per-example clip": ("split-training", "update", "gradients summed without clipping each"),
    "label_rr ok": ("split-training", "labels", ""),
    "label BROKEN true labels": ("split-training", "labels", "slopes made of true labels"),
}


@pytest.mark.parametrize("name", OURS)
def test_the_verdicts_are_those_of_the_vectors(name: str) -> None:
    """Its figures depend on samples and on the statistic; whether something is caught does not."""
    about, part, broken = OURS[name]
    found = twins(about) if broken else [("", game) for game in games(about)]
    (game,) = [game for what, game in found if what == broken and game.part == part]
    assert judge(game, 10_000, seed=5).result.caught == AUDITS[name]["caught"]


# --- the integers, whatever the encoder gives


def _anything(values: int, width: int) -> st.SearchStrategy[list[list[float]]]:
    number = st.one_of(
        st.floats(-1, 1), st.floats(-1e6, 1e6), st.floats(allow_nan=True), st.sampled_from((0.0, 5e-324, 1e308, -1e308))
    )
    return st.lists(st.lists(number, min_size=width, max_size=width), min_size=values, max_size=values)


class Given:
    """An encoding that gives these embeddings."""

    def __init__(self, rows: Array) -> None:
        self.rows, self.width = rows, rows.shape[1]

    def embed(self, places: Array, /) -> Array:
        return np.asarray(self.rows[places])


def _told(rows: Array, task: Embeddings, scaling: Scaling) -> Array:
    """What is told of these embeddings, before noise."""
    side = Passive(Given(rows), "b", task, lambda name, variance, count: np.zeros(count, dtype=np.int64), scaling)
    return side.embeddings(np.arange(len(rows)))


def _claimed(event: Any) -> Change:
    return Change(innermost(event).replace_l1, innermost(event).replace_l2_squared)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_no_embedding_moves_further_than_is_charged(data: st.DataObject) -> None:
    width = data.draw(st.integers(1, 5))
    clip, bits = data.draw(st.floats(1e-2, 50)), data.draw(st.integers(8, 24))
    task = _task(senders=(Sender("b", width, clip, 2),), bits=bits)
    centre = np.array(data.draw(st.lists(st.floats(-100, 100), min_size=width, max_size=width)))
    scaling = Scaling(centre, data.draw(st.floats(1e-3, 1e9)))
    before, after = (np.array(data.draw(_anything(2, width))) for _ in range(2))
    after[1] = before[1]
    claimed = _claimed(task.embedding_event("b"))
    assert not sensitivity_probe(lambda rows: _told(rows, task, scaling), [(before, after)], claimed).violated
    gone = _told(before, task, scaling)[width:] - _told(after, task, scaling)[width:]
    assert not gone.any()  # the other person's embedding stays as it is


@pytest.mark.parametrize("width", [1, 2, 16])
@pytest.mark.parametrize("clip", [0.01, 7.3])
def test_opposite_embeddings_move_nearly_as_far_as_is_charged(width: int, clip: float) -> None:
    rng = np.random.default_rng(width)
    task = _task(senders=(Sender("b", width, clip, 2),), bits=20)
    far = [np.eye(width)[:1], np.ones((1, width)), *rng.normal(size=(20, 1, width))]
    for factor in (1.0, 1e6):
        for scaling in (Scaling.none(width), Scaling(np.full(width, 0.1 * clip), 50.0)):
            pairs = [(factor * clip * row, -factor * clip * row) for row in far]
            claimed = _claimed(task.embedding_event("b"))
            report = sensitivity_probe(partial(_told, task=task, scaling=scaling), pairs, claimed)
            assert not report.violated
            assert report.l2_squared_ratio > Fraction(99, 100) ** 2


def _summed(given: tuple[Listed, Array], clip: float) -> Array:
    """The sum of clipped gradients in steps of their grid."""
    learner, slopes = given
    everybody = np.arange(len(learner.rows))
    total = updates.noised_sum(learner, everybody, slopes, clip, lambda count: np.zeros(count, dtype=np.int64))
    return np.rint(total * (RADIUS / clip)).astype(np.int64)


UPDATE = _claimed(_task(training="labels", epochs=3, label_odds=odds_for(1.0)).update_event("b"))


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_no_gradient_moves_a_sum_further_than_is_charged(data: st.DataObject) -> None:
    """Whether gradients are listed, or said to be products of two vectors."""
    products = data.draw(st.integers(0, 4))
    width, clip = data.draw(st.integers(1, 6)), data.draw(st.floats(1e-6, 1e6))
    rows, slopes = (np.array(data.draw(_anything(5, each))) for each in (width, max(1, products)))
    other_rows, other_slopes = rows.copy(), slopes.copy()
    other_rows[2] = data.draw(_anything(1, width))[0]
    other_slopes[2] = data.draw(_anything(1, max(1, products)))[0]
    pair = [((Listed(rows, products), slopes), (Listed(other_rows, products), other_slopes))]
    report = sensitivity_probe(partial(_summed, clip=clip), pair, UPDATE)
    assert report.largest.l2_squared <= report.claimed.l2_squared


@pytest.mark.parametrize("products", [0, 1])
def test_opposite_gradients_move_a_sum_nearly_as_far_as_is_charged(products: int) -> None:
    for width in (1, 2, 500):
        rng, ones, pairs = np.random.default_rng(width), np.ones((4, 1)), []
        for row in (np.eye(width)[0], np.ones(width), *rng.normal(size=(5, width))):
            others = rng.normal(size=(3, width))
            tables = [np.vstack([others, size * row]) for size in (1e3, -1e3)]
            pairs.append(tuple((Listed(table, products), ones) for table in tables))
        report = sensitivity_probe(partial(_summed, clip=0.5), pairs, UPDATE)
        assert report.largest.l2_squared <= report.claimed.l2_squared
        assert report.l2_squared_ratio > Fraction(99, 100) ** 2


ENCODERS: dict[str, dict[str, Any]] = {
    "cosine": {"width": 40},
    "linear": {"width": 7},
    "convolution": {"shape": [12, 10], "width": 20, "filters": 8},
    "edges": {"shape": [12, 10]},
    "mlp": {"width": 5},
    "cnn": {"shape": [12, 10], "width": 5},
}


@pytest.mark.parametrize("kind", ENCODERS)
def test_another_row_beside_it_changes_no_bit_of_an_embedding(kind: str) -> None:
    """What every bound rests on: an embedding, and a gradient, depends on its own row alone."""
    rows = np.random.default_rng(1).normal(size=(301, 120))
    turned = rows.copy()
    turned[17] *= -50.0
    others, encoder = np.arange(301) != 17, encoder_from({"kind": kind, **ENCODERS[kind]}, 120, seed=3)
    first, second = encoder.embed(rows), encoder.embed(turned)
    assert np.array_equal(first[others], second[others])
    assert not np.array_equal(first[17], second[17])
    if isinstance(encoder, Trainable):
        slopes = np.random.default_rng(2).normal(size=(301, encoder.width))
        found, other = (np.vstack(list(encoder.pull_back_each(each, slopes))) for each in (rows, turned))
        assert np.array_equal(found[others], other[others])
        assert not np.array_equal(found[17], other[17])


# --- the games


def test_the_games_use_nearly_all_that_is_charged() -> None:
    """Otherwise they would pass whatever the noise."""
    for game in (*games("split-embeddings"), *games("split-training")):
        if not isinstance(game.sampler, Columns):
            continue
        task, sampler = game.sampler.task, game.sampler
        for name in sampler.tellers:
            charged = 0.0
            for event in task.events:
                once: Any = innermost(event)
                if name in getattr(once, "about", ()):
                    charged += getattr(event, "times", 1) * once.replace_l2_squared / float(once.shares[0][1])
            moved = [float((weights**2).sum()) for weights in sampler.weights[name]]
            shown = sum(each * variance for each, variance in zip(moved, sampler.variances(name), strict=True))
            assert 0.99 * charged < shown <= charged, (game.name, name)


def test_moments_of_features_move_nearly_as_far_as_is_charged() -> None:
    """Through the parties' encoders: rounded rows of the person, and what they add to the full matrix."""
    for game in games("split-moments"):
        bound = game.seen[0]
        sampler: Any = game.sampler.moments if isinstance(game.sampler, Trained) else game.sampler
        task = sampler.study.task
        first, second = (
            np.column_stack([rows * task.gamma, np.full(len(rows), task.constant)]) for rows in sampler.embedded
        )
        change = second.T @ second - first.T @ first
        assert 0.97 * bound.l2_squared < float((change**2).sum()) <= bound.l2_squared, game.name


def test_games_are_about_what_the_study_does_and_twins_about_what_can_be_broken() -> None:
    assert {name for name in AUDITS if name.startswith(("afe", "label"))} == set(OURS)
    frozen, told = _task(), _task(training="labels", epochs=2)
    learning = replace(told, label_odds=odds_for(1.0))
    assert (subject(frozen), subject(learning)) == ("split-embeddings", "split-training")
    assert [game.name for game in games("split-embeddings", frozen)] == ["split-embeddings/a/embedding"]
    assert [game.part for game in games("split-training", learning)] == ["update", "labels"]
    assert [game.part for game in games("split-training", told)] == ["update"]  # nothing is promised about labels
    once = replace(learning, epochs=1)
    assert "all epochs charged as one" not in [what for what, _ in twins("split-training", once)]


@pytest.mark.parametrize(
    "given",
    [
        {"releases": 3},
        {"stage": True, "senders": (Sender("b", 3, 0.2), Sender("c", 1, 5.0))},
        {"training": "labels", "epochs": 3, "label_odds": odds_for(0.5), "classes": 10},
        {"training": "labels", "epochs": 2, "stage": True, "label_odds": odds_for(2.0)},
        {"training": "rounds", "epochs": 2, "releases": 5, "label_odds": odds_for(1.0), "stage": True},
    ],
)
def test_studies_of_every_kind_hold(given: dict[str, Any]) -> None:
    draft = _task(**given)
    task = draft.calibrated(parse_budgets(4.0, 1e-5, draft.trust))
    for game in games(subject(task), task):
        found = game.play(20_000, seeded(3))
        assert found.margin <= 0
        assert found.reach > (0.2 if game.part == "labels" else 0.5)


REAL_NOISED: Any = Passive._noised


@pytest.mark.parametrize(
    ("about", "broken", "name", "mended"),
    [
        ("split-embeddings", "embeddings stretched to the clip as published", "stretch", lambda pairs, clip: 1.0),
        ("split-moments", "encoders that learned from the rows, uncharged", "_RATE", 0.0),
    ],
)
def test_twins_are_caught_for_what_is_broken_in_them(
    about: str, broken: str, name: str, mended: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (before,) = [game for what, game in twins(about) if what == broken]
    assert judge(before, 20_000, seed=2, broken=broken).good
    monkeypatch.setattr(audit_twins, name, mended)
    (after,) = [game for what, game in twins(about) if what == broken]
    assert judge(after, 60_000, seed=2).word == "holds"


Break = Callable[[pytest.MonkeyPatch], None]


WRONG: dict[str, tuple[str, int, Break]] = {
    "half the variance of embeddings": (
        "split-embeddings",
        0,
        lambda patch: patch.setattr(Passive, "_noised", lambda side, places, v: REAL_NOISED(side, places, v // 2)),
    ),
    "nothing is clipped again": (
        "split-embeddings",
        0,
        lambda patch: patch.setattr(sides, "whole_within", lambda rows, radius: np.trunc(rows).astype(np.int64)),
    ),
    "gradients are not clipped": (
        "split-training",
        0,
        lambda patch: patch.setattr(updates, "whole_sum", lambda *given: _unclipped(*given)),
    ),
    "labels are told as they are": (
        "split-training",
        1,
        lambda patch: patch.setattr(programs, "randomised_response", lambda labels, *_: labels),
    ),
}


def _unclipped(learner: Any, places: Array, slopes: Array, clip: float, radius: int) -> Array:
    return np.asarray(np.trunc(learner.pull_back(places, slopes) * (radius / clip)), dtype=np.int64)


@pytest.mark.parametrize("wrong", WRONG)
def test_what_is_wrong_in_the_protocol_itself_is_seen(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the audit is changed: only what parties of a study call."""
    about, which, make_wrong = WRONG[wrong]
    assert judge(games(about)[which], 60_000, seed=2).word == "holds"
    make_wrong(monkeypatch)
    assert judge(games(about)[which], 60_000, seed=2).word == "REFUTED"


# --- a whole run


# --- studies


SCHEMAS = {
    "bank": Schema({"income": number(0, 10), "good": flag()}),
    "shop": Schema({"age": number(0, 100), "visits": number(0, 50)}),
    "clinic": Schema({"height": number(100, 220)}),
}


STUDIES: dict[str, tuple[str, dict[str, Any]]] = {
    "a committee": ("pca", {"head": "committee", "width": 2}),
    "a committee, after training": (
        "split-moments",
        {"head": "committee", "width": 2, "training": "own", "epochs": 3, "rows": 100},
    ),
    "frozen encoders": ("split-embeddings", {"head": "embeddings", "rows": 100, "width": 2}),
    "encoders that learn": (
        "split-training",
        {"head": "embeddings", "rows": 100, "training": "labels", "epochs": 2, "label_epsilon": 1.0},
    ),
}


@pytest.mark.parametrize("study", STUDIES)
def test_every_head_that_promises_something_has_games(study: str) -> None:
    about, how = STUDIES[study]
    model = SplitClassifier(label="bank.good", epsilon=2.0, **how)
    task: Any = model.plan(Roster.of(SCHEMAS))
    assert subject(task) == about
    for game in games(about, task):
        found = game.play(16_000, seeded(6))
        assert found.margin <= 0
        assert found.reach > 0


def test_who_trained_before_a_committee_learns_from_the_moments_alone_and_is_played_too() -> None:
    _, how = STUDIES["a committee, after training"]
    task: Any = SplitClassifier(label="bank.good", epsilon=2.0, **how).plan(Roster.of(SCHEMAS))
    found = {str(game.observer): game for game in games("split-moments", task)}
    played = {str(observer) for observer, _ in observers(task)}
    assert set(found) == played
    assert {"analyst", "coordinator", "bank", "bank+coordinator"} <= played
    for name, game in found.items():
        assert isinstance(game.sampler, Entries if "bank" in name else Trained), name
    without = replace(task, charged=())
    for name in ("bank", "bank+coordinator"):
        spent = [
            epsilon(views(each.events, found[name].observer, task.trust), 1e-5).epsilon for each in (task, without)
        ]
        assert spent[0] == spent[1]  # its own training costs nothing about others


def test_what_promises_nothing_has_no_games() -> None:
    model = SplitClassifier(label="bank.good", head="published", rows=100, per_release=1.0, epochs=2)
    refused(StudyError, "ST014", subject, model.plan(Roster.of(SCHEMAS)))
    clear = NewEmbeddings(Trust(("a", "b"), (), 0), "a", (Sender("b", 2, 1.0),), 10, new="clear")
    refused(StudyError, "ST014", subject, clear)
    assert subject(replace(clear, new="noised")) == "split-embeddings"
