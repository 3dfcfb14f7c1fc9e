"""Split networks attacked: what is charged against searched bounds and games, and attacks on what each way shows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import cache, partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest
from hypothesis import given, settings, strategies as st

from colonnade import SplitClassifier, category
from colonnade.audit import TableChange, games, sensitivity_probe, subject
from colonnade.audit.attacks import (
    collect_gradients,
    fit_shadows,
    infer_labels,
    infer_membership,
    invert,
    nearness_to_embeddings,
    observe_people,
    read_promise,
)
from colonnade.audit.attacks.views import views_of
from colonnade.audit.registry import judge
from colonnade.errors import StudyError
from colonnade.kinds.split import embedding_programs
from colonnade.kinds.split.audit import EmbeddingSampler
from colonnade.kinds.split.embedding_programs import EmbeddingScaling, EmbeddingSide
from colonnade.kinds.split.embedding_task import GRADIENT_BITS, EmbeddingSender, EmbeddingTask, NewEmbeddingTask
from colonnade.kinds.split.encoders import TrainableEncoder, encoder_from
from colonnade.models import Roster
from colonnade.models.base import match_people
from colonnade.privacy import Trust, parse_budgets
from colonnade.privacy.events import unwrap
from colonnade.privacy.noise.local_mechanisms import odds_of_epsilon
from colonnade.testing import seeded
from research.twins.registry import twins
from tests.kinds.split.embedding_learners import Listed
from tests.kinds.split.people import roster
from tests.support.errors import refused
from tests.support.federations import numbers
from tests.support.vectors import VECTORS

Array = np.ndarray[Any, Any]
AUDITS = VECTORS["audit_eps_lower_bounds"] | VECTORS["audit_profile"]
RADIUS = 1 << GRADIENT_BITS


def _task(**given: Any) -> EmbeddingTask:
    senders = given.pop("senders", (EmbeddingSender("b", 2, 1.0, 2),))
    owners = ("a", *(sender.owner for sender in senders))
    return EmbeddingTask(Trust(owners, (), 0), "a", senders, **{"rows": 4, "classes": 2} | given)


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


def _told(rows: Array, task: EmbeddingTask, scaling: EmbeddingScaling) -> Array:
    """What is told of these embeddings, before noise."""
    given = SimpleNamespace(width=rows.shape[1], embed=lambda places: rows[places])
    side = EmbeddingSide(given, "b", task, lambda name, variance, count: np.zeros(count, dtype=np.int64), scaling)
    return side.embeddings(np.arange(len(rows)))


def _claimed(event: Any) -> TableChange:
    return TableChange(unwrap(event).replace_l1, unwrap(event).replace_l2_squared)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_no_embedding_moves_further_than_is_charged(data: st.DataObject) -> None:
    width = data.draw(st.integers(1, 5))
    clip, bits = data.draw(st.floats(1e-2, 50)), data.draw(st.integers(8, 24))
    task = _task(senders=(EmbeddingSender("b", width, clip, 2),), bits=bits)
    centre = np.array(data.draw(st.lists(st.floats(-100, 100), min_size=width, max_size=width)))
    scaling = EmbeddingScaling(centre, data.draw(st.floats(1e-3, 1e9)))
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
    task = _task(senders=(EmbeddingSender("b", width, clip, 2),), bits=20)
    far = [np.eye(width)[:1], np.ones((1, width)), *rng.normal(size=(20, 1, width))]
    for factor in (1.0, 1e6):
        for scaling in (EmbeddingScaling(np.zeros(width)), EmbeddingScaling(np.full(width, 0.1 * clip), 50.0)):
            pairs = [(factor * clip * row, -factor * clip * row) for row in far]
            claimed = _claimed(task.embedding_event("b"))
            report = sensitivity_probe(partial(_told, task=task, scaling=scaling), pairs, claimed)
            assert not report.violated
            assert report.l2_squared_ratio > Fraction(99, 100) ** 2


def _summed(given: tuple[Listed, Array], clip: float) -> Array:
    """The sum of clipped gradients in steps of their grid."""
    learner, slopes = given
    everybody = np.arange(len(learner.rows))
    total = embedding_programs.sum_with_noise(
        learner, everybody, slopes, clip, lambda count: np.zeros(count, dtype=np.int64)
    )
    return np.rint(total * (RADIUS / clip)).astype(np.int64)


UPDATE = _claimed(_task(training="labels", epochs=3, label_odds=odds_of_epsilon(1.0)).update_event("b"))


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
    if isinstance(encoder, TrainableEncoder):
        slopes = np.random.default_rng(2).normal(size=(301, encoder.width))
        found, other = (np.vstack(list(encoder.pull_back_each(each, slopes))) for each in (rows, turned))
        assert np.array_equal(found[others], other[others])
        assert not np.array_equal(found[17], other[17])


# --- the games


def test_the_games_use_nearly_all_that_is_charged() -> None:
    """Otherwise they would pass whatever the noise."""
    for game in (*games("split-embeddings"), *games("split-training")):
        if not isinstance(game.sampler, EmbeddingSampler):
            continue
        task, sampler = game.sampler.task, game.sampler
        for name in sampler.tellers:
            charged = 0.0
            for event in task.events:
                once: Any = unwrap(event)
                if name in getattr(once, "about", ()):
                    charged += getattr(event, "times", 1) * once.replace_l2_squared / float(once.shares[0][1])
            moved = [float((weights**2).sum()) for weights in sampler.weights[name]]
            shown = sum(each * variance for each, variance in zip(moved, sampler.variances(name), strict=True))
            assert 0.99 * charged < shown <= charged, (game.name, name)


def test_moments_of_features_move_nearly_as_far_as_is_charged() -> None:
    """Through the parties' encoders: rounded rows of the person, and what they add to the full matrix."""
    for game in games("split-moments"):
        bound = game.seen[0]
        sampler: Any = game.sampler
        task = sampler.study.task
        first, second = (
            np.column_stack([rows * task.gamma, np.full(len(rows), task.constant)]) for rows in sampler.embedded
        )
        change = second.T @ second - first.T @ first
        assert 0.97 * bound.l2_squared < float((change**2).sum()) <= bound.l2_squared, game.name


def test_games_are_about_what_the_study_does_and_twins_about_what_can_be_broken() -> None:
    assert {name for name in AUDITS if name.startswith(("afe", "label"))} == set(OURS)
    frozen, told = _task(), _task(training="labels", epochs=2)
    learning = replace(told, label_odds=odds_of_epsilon(1.0))
    assert (subject(frozen), subject(learning)) == ("split-embeddings", "split-training")
    assert [game.name for game in games("split-embeddings", frozen)] == ["split-embeddings/a/embedding"]
    assert [game.part for game in games("split-training", learning)] == ["update", "labels"]
    assert [game.part for game in games("split-training", told)] == ["update"]  # nothing is promised about labels
    once = replace(learning, epochs=1)
    assert "all epochs charged as one" not in [what for what, _ in twins("split-training", once)]
    published = SplitClassifier(label="bank.default", head="published", rows=100, per_release=1.0, epochs=2)
    clear = NewEmbeddingTask(Trust(("a", "b"), (), 0), "a", (EmbeddingSender("b", 2, 1.0),), 10, new="clear")
    for nothing in (published.plan(roster("default")), clear):  # it promises nothing, so there is nothing to play for
        refused(StudyError, "ST014", subject, nothing)
    assert subject(replace(clear, new="noised")) == "split-embeddings"


@pytest.mark.parametrize(
    "given",
    [
        {"releases": 3},
        {"stage": True, "senders": (EmbeddingSender("b", 3, 0.2), EmbeddingSender("c", 1, 5.0))},
        {"training": "labels", "epochs": 3, "label_odds": odds_of_epsilon(0.5), "classes": 10},
        {"training": "labels", "epochs": 2, "stage": True, "label_odds": odds_of_epsilon(2.0)},
        {"training": "rounds", "epochs": 2, "releases": 5, "label_odds": odds_of_epsilon(1.0), "stage": True},
    ],
)
def test_studies_of_every_kind_hold(given: dict[str, Any]) -> None:
    draft = _task(**given)
    task = draft.calibrate(parse_budgets(4.0, 1e-5, draft.trust))
    for game in games(subject(task), task):
        found = game.play(20_000, seeded(3))
        assert found.margin <= 0
        assert found.reach > (0.2 if game.part == "labels" else 0.5)


REAL_NOISED: Any = EmbeddingSide._noised


Break = Callable[[pytest.MonkeyPatch], None]


WRONG: dict[str, tuple[str, int, Break]] = {
    "half the variance of embeddings": (
        "split-embeddings",
        0,
        lambda patch: patch.setattr(
            EmbeddingSide, "_noised", lambda side, places, v: REAL_NOISED(side, places, v // 2)
        ),
    ),
    "nothing is clipped again": (
        "split-embeddings",
        0,
        lambda patch: patch.setattr(
            embedding_programs, "clip_to_integers", lambda rows, radius: np.trunc(rows).astype(np.int64)
        ),
    ),
    "gradients are not clipped": (
        "split-training",
        0,
        lambda patch: patch.setattr(embedding_programs, "sum_clipped_gradients", lambda *given: _unclipped(*given)),
    ),
    "labels are told as they are": (
        "split-training",
        1,
        lambda patch: patch.setattr(embedding_programs, "randomised_response", lambda labels, *_: labels),
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


STUDIES: dict[str, tuple[str, dict[str, Any]]] = {
    "a committee": ("pca", {"head": "committee", "width": 2}),
    "frozen encoders": ("split-embeddings", {"head": "embeddings", "rows": 100, "width": 2}),
    "encoders that learn": (
        "split-training",
        {"head": "embeddings", "rows": 100, "training": "labels", "epochs": 2, "label_epsilon": 1.0},
    ),
}


@pytest.mark.parametrize("study", STUDIES)
def test_every_head_that_promises_something_has_games(study: str) -> None:
    about, how = STUDIES[study]
    model = SplitClassifier(label="bank.default", epsilon=2.0, **how)
    task: Any = model.plan(roster("default"))
    assert subject(task) == about
    for game in games(about, task):
        found = game.play(16_000, seeded(6))
        assert found.margin <= 0
        assert found.reach > 0


COLUMNS = {"bank": [f"a{k}" for k in range(6)], "shop": [f"b{k}" for k in range(6)]}
LINEAR = {party: {"kind": "linear", "width": 5} for party in COLUMNS}
SCHEMAS = {
    "bank": numbers(COLUMNS["bank"], -3, 3),
    "shop": numbers(COLUMNS["shop"], -3, 3, kind=category(["x", "y", "z"])),
}


def cells(rows, seed=0):
    """Three kinds of people, whose columns differ a little."""
    draw = np.random.default_rng(seed)
    kind = draw.integers(0, 3, rows)
    middles = np.random.default_rng(99).normal(size=(3, 12))
    values = np.clip(draw.normal(size=(rows, 12)) + middles[kind], -3, 3)
    names = [name for each in COLUMNS.values() for name in each]
    whole = pa.table({name: values[:, place] for place, name in enumerate(names)})
    return whole.append_column("kind", pa.array(np.array(["x", "y", "z"])[kind]))


def people(rows, seed=0):
    given = cells(rows, seed)
    return match_people(dict.fromkeys(COLUMNS, given), SCHEMAS, None, "a test", same_order=True)


@cache
def fitted(head, rows=150, **more):
    """A model that attacks only read."""
    model = SplitClassifier(label="shop.kind", head=head, encoders=LINEAR, **more)
    seats = Roster.of(SCHEMAS) if head == "committee" else Roster(SCHEMAS, Trust(tuple(COLUMNS), (), 0))
    return model.simulate(people(rows), seats, seeded(20240))


def unprotected(epochs=4):
    return fitted("published", unprotected=True, epochs=epochs, batches=5)


def inverted(model, **how):
    """What a ridge finds about the bank's columns of eighty people, from what is seen of them."""
    seen = observe_people(model, "bank", people(240, seed=1), **how)
    return seen, invert(seen.split(np.arange(240) < 80), "ridge")


def test_unprotected_embeddings_are_inverted_and_noised_ones_and_sums_are_not():
    _, bare = inverted(unprotected())
    assert min(bare.found.explained, bare.found.recognised) > 0.5
    for head in ("embeddings", "committee"):
        _, found = inverted(fitted(head, epsilon=1.0))
        assert found.found.explained < 0.1
        assert found.found.recognised < 0.15


def test_exact_scores_tell_more_than_the_sums_they_follow_from():
    model = fitted("committee", epsilon=5.0)
    seen, found = inverted(model, scores=True)
    assert seen.numbers == pytest.approx(model.scores(people(240, seed=1)))
    assert found.found.explained > 0.05


def test_embeddings_that_are_told_in_every_epoch_lose_their_noise():
    model = fitted("published", per_release=2.0, epochs=9, batches=5)
    everyone, told = people(200), fitted("embeddings", epsilon=1.0)
    exact = model.embedded("bank", everyone["bank"])
    once, often = (observe_people(model, "bank", everyone, releases=times) for times in (1, 9))
    assert np.std(often.numbers - exact) == pytest.approx(np.std(once.numbers - exact) / 3)
    refused(StudyError, "ST007", "9", observe_people, model, "bank", everyone, releases=10)
    refused(StudyError, "ST007", "1", observe_people, told, "bank", everyone, releases=2)
    refused(StudyError, "ST010", "shop", observe_people, told, "shop", everyone)


def test_returned_slopes_give_every_label_away_and_rounds_those_that_were_told(stream):
    returned = collect_gradients(unprotected(), people(300, seed=2), 30, stream=stream)
    assert returned.slopes.shape[1:] == (300, 5)
    found = infer_labels(returned)
    assert found.base_rate < 0.5 < 0.9 < found.accuracy
    assert found.most is None
    model = fitted("embeddings", epsilon=8.0, training="rounds", epochs=2, batches=3)
    returned = collect_gradients(model, people(150, seed=2), 30, stream=stream)
    assert (returned.slopes.shape, returned.epsilon) == ((2, 150, 5), None)
    found = infer_labels(returned)
    assert found.accuracy > 0.6
    for head in ("committee", "embeddings"):  # where no label is told there is nothing to attack
        refused(StudyError, "ST005", collect_gradients, fitted(head, epsilon=1.0), people(60), 10, stream=stream)


def test_randomised_labels_are_told_as_the_bound_says(stream):
    model = fitted("embeddings", epsilon=8.0, training="labels", epochs=1, label_epsilon=1.0)
    found = infer_labels(collect_gradients(model, people(2000, seed=2), 100, stream=stream))
    assert found.base_rate < found.accuracy < found.most + 0.06  # five deviations of 1,900 guesses


def test_only_what_was_published_is_promised_and_shadows_have_encoders_that_did_not_learn(stream):
    model, scratch, pool = fitted("committee", epsilon=1.0), unprotected(epochs=1), people(300)
    promise = read_promise(model)
    assert 0.5 < promise.accuracy < 0.6
    assert read_promise(fitted("embeddings", epsilon=1.0)) is None  # the head is its party's own
    assert read_promise(scratch) is None
    half = {party: table.take_rows(np.arange(150)) for party, table in pool.items()}
    again = views_of(model).fresh(model).simulate(half, Roster.of(SCHEMAS), stream)
    for party in COLUMNS:
        assert (again.embedded(party, pool[party]) == model.embedded(party, pool[party])).all()
    assert views_of(scratch).fresh(scratch).encoders == LINEAR
    found = infer_membership(fit_shadows(model, pool, 150, 8, seed=1, stream=stream), promise=promise)
    assert found.alike.accuracy_interval[0] < found.promise.accuracy


@pytest.mark.slow
def test_unprotected_embeddings_give_members_away_without_any_scores(stream):
    pool, size = people(48, seed=3), 24
    encoders = {party: {"kind": "linear", "width": 8} for party in COLUMNS}
    how = {"head": "published", "unprotected": True, "epochs": 150, "batches": 4}
    members = {party: table.take_rows(np.arange(size)) for party, table in pool.items()}
    model = SplitClassifier(label="shop.kind", encoders=encoders, **how)
    model.simulate(members, Roster.of(SCHEMAS), stream)
    shadows = fit_shadows(model, pool, size, 16, seed=1, see=nearness_to_embeddings("bank"), stream=stream)
    assert infer_membership(shadows).alike.auc_interval[0] > 0.55


def test_embeddings_alone_are_seen_of_those_who_tell_them():
    pool = people(60)
    seen = nearness_to_embeddings("bank")(fitted("published", 60, unprotected=True, epochs=1, batches=5), pool)
    assert seen.shape == (60,)
    assert np.mean(seen > 0) > 0.4  # three classes
    refused(StudyError, "ST009", nearness_to_embeddings("bank"), fitted("committee", epsilon=1.0), pool)


def test_the_commands_take_kept_encoders(colonnade, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = unprotected()
    model.save("model.json")
    kept = [word for party in model.holders for word in ("--kept", str(model.save_kept(f"{party}.npz", party)))]
    for name, seed in (("members", 0), ("others", 1)):
        pyarrow.csv.write_csv(cells(150, seed), f"{name}.csv")
    given = ("--party", "bank", "--people", "others.csv", "--auxiliary", "members.csv", "--decoder", "ridge")
    facts = colonnade("audit", "inversion", "model.json", *given, *kept, "--json")
    assert facts["seen"] == "unprotected embeddings"
    assert facts["found"]["explained"] > 0.5
    facts = colonnade("audit", "labels", "model.json", "--members", "members.csv", *kept, "--json")
    assert facts["accuracy"] > 0.9
    given_both = ("--members", "members.csv", "--others", "others.csv", "--seen", "bank", "--shadows", 8)
    said = colonnade("audit", "membership", "model.json", *given_both, *kept)
    assert "what bank tells" in said
    assert "No bound from the privacy statement stands beside this attacker" in said
    text = colonnade("audit", "inversion", "model.json", *given, code=StudyError.exit_code)
    assert "the attack needs what bank kept of the model" in text
