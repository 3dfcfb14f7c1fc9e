"""Split classifiers and regressors: every way to a head, what is promised, supposed and kept, and what pages say."""

from __future__ import annotations

import itertools
import json
import math
import stat
from pathlib import Path

import numpy as np
import pytest

from colonnade import Federation, Party, SplitClassifier, SplitRegressor, SplitScores
from colonnade.errors import DataError, SchemaError, StudyError
from colonnade.kinds.split import kept as split_kept
from colonnade.kinds.split.adaptive.rescaling import clip_rows
from colonnade.kinds.split.contract import Encoder
from colonnade.kinds.split.encoders import encoder_from, from_bytes, load_encoder, save_encoder, to_bytes
from colonnade.kinds.split.own import own_encoder
from colonnade.models import Estimator, Roster
from colonnade.privacy import Statement
from colonnade.tables import Schema, number
from colonnade.testing.seeded import seeded
from tests.kinds.split.people import arrow, federation, roster, schemas_for, tables
from tests.support.errors import raises, refused

ROWS = 1500


LINEAR = {"bank": {"kind": "linear", "width": 2}, "shop": {"kind": "linear", "width": 2}}


WAYS = {
    "committee": {"epsilon": 20.0, "width": 16},
    "own": {"epsilon": 20.0, "width": 12, "training": "own", "epochs": 5, "rows": ROWS},
    "embeddings": {"epsilon": 100.0, "head": "embeddings", "width": 16},
    "labels": {"epsilon": 20.0, "head": "embeddings", "training": "labels", "epochs": 10, "label_epsilon": 4.0},
    "rounds": {"epsilon": 60.0, "head": "embeddings", "training": "rounds", "epochs": 5, "encoders": LINEAR},
    "published": {"head": "published", "per_release": 20.0, "epochs": 8, "batches": 30, "encoders": LINEAR},
    "unprotected": {"head": "published", "unprotected": True, "epochs": 8, "batches": 30, "encoders": LINEAR},
}


each_way = pytest.mark.parametrize("way", WAYS)


def classifier(way: str = "committee", label: str = "bank.default", **more: object) -> SplitClassifier:
    return SplitClassifier(label=label, **WAYS[way] | more)


def simulated(way: str = "committee", rows: int = 200, **more: object) -> SplitClassifier:
    return classifier(way, **more).simulate(tables(rows, "default"), roster("default"), seeded(1))


def reloaded(model: SplitClassifier, folder: Path, others: Federation) -> SplitClassifier:
    """From the published file and from what the parties kept, without which nobody is predicted."""
    files = [model.save_kept(folder / f"{party}.npz", party) for party in model.holders]
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
    again = Estimator.load(model.save(folder / "model.json"))
    with raises(StudyError, "ST268", "bank"):
        again.predict(others)
    assert [again.load_kept(file) for file in files] == list(model.holders)
    assert (type(again), again.digest) == (type(model), model.digest)
    assert again.summary() == model.summary()
    return again


FROM_ONE_RELEASE = {"weights", "intercept", "own_weights", "own_intercepts", "own_spreads"}
"""What follows from the noisy moments that everybody sees; heads over one party's embeddings too."""


@each_way
def test_every_way_learns_from_both_parties_and_comes_back_from_files(way, tmp_path):
    people, others = federation(ROWS, "kind"), federation(500, "kind", seed=1)
    model = classifier(way, "bank.kind").fit(people)
    assert model.classes_.tolist() == ["low", "middle", "high"]
    assert model.score(others) > 0.1 + max(np.mean(model.true_of(others) == value) for value in model.classes_)
    chances = model.predict_proba(others)
    assert np.allclose(chances.sum(axis=1), 1)
    assert (model.classes_[chances.argmax(axis=1)] == model.predict(others)).all()
    assert np.array_equal(reloaded(model, tmp_path, others).scores(others), model.scores(others))
    assert set(model.arrays()) == (FROM_ONE_RELEASE if way in ("committee", "own") else set())
    published = json.dumps(json.loads((tmp_path / "model.json").read_text())["learned"])
    assert not any(key in published for key in ("spread", "centre", "offsets"))  # no head that a party keeps
    if way == "committee":
        assert 0.4 < model.score_alone(people, others) < model.score(others)
        with raises(DataError, "DA088", "bank"):
            model.score_alone({"shop": people.tables()["shop"]}, others)


@each_way
def test_a_simulation_is_the_same_in_one_place_and_follows_from_its_stream(way):
    held, more = tables(200, "default"), {"rows": 200} if way == "own" else {}
    models = [classifier(way, **more).simulate(held, roster("default"), seeded(seed)) for seed in (5, 5, 6)]
    first, same, other = (model.scores(held) for model in models)
    assert models[0].classes_.tolist() == [False, True]
    assert np.array_equal(first, same)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize("head", ["committee", "embeddings"])
def test_numbers_are_predicted_within_their_bounds(head, tmp_path):
    people, others = federation(ROWS, "amount"), federation(500, "amount", seed=1)
    model = SplitRegressor(label="bank.amount", epsilon=40.0, width=24, head=head).fit(people)
    assert model.score(others) == model.score(others, model.true_of(others)) > 0.5
    assert np.abs(model.predict(others)).max() <= 3
    assert np.array_equal(reloaded(model, tmp_path, others).predict(others), model.predict(others))
    if head == "committee":
        assert 0.2 < model.score_alone(people, others) < model.score(others)


# --- who is promised what


def test_every_way_keeps_the_budgets_of_those_who_see_something():
    everybody = ("analyst", "coordinator", "bank", "shop")
    model = simulated(epsilon=1.0)
    assert model.head_ == "committee"
    assert all(0 < model.privacy_.epsilon(who) <= 1.0 for who in everybody)
    seen = simulated("embeddings", epsilon=2.0).privacy_
    assert [seen.epsilon(who) for who in ("analyst", "coordinator", "shop")] == [0, 0, 0]
    assert 1.9 < seen.epsilon("bank") <= 2.0
    seen = simulated("labels", epsilon=6.0, label_epsilon=1.5).privacy_
    assert "encoder updates of shop" in [event.name for event in seen.events]
    assert seen.epsilon("bank") <= 6.0
    assert 1.4 < seen.epsilon("shop") <= 1.5
    seen = classifier("own", epsilon=6.0, rows=200).simulate(tables(200, "default"), roster("default")).privacy_
    assert len(seen.events) == 2  # moments, and the updates before them
    assert max(seen.epsilon(who) for who in everybody) <= 6.0
    assert math.isinf(simulated("labels", label_epsilon=None).privacy_.epsilon("shop"))


PLACES = "ids and the order of rows are public; who is replaced is so in the same place, and so in the same batch"


def test_as_published_promises_nothing_and_says_so():
    model = simulated("published", rows=120)
    assert [model.privacy_.epsilon(who) for who in ("bank", "shop")] == [math.inf, math.inf]
    assert "as published, not proven: the encoder and the rescaling depend" in str(model.privacy_)
    bare = simulated("unprotected", rows=120).privacy_
    assert "not protected: embeddings are told without noise" in str(bare)
    assert "and of the columns of bank" in str(bare)
    assert PLACES not in bare.assumptions


def told(epsilon: object, **more: object) -> SplitClassifier:
    return SplitClassifier(label="bank.default", head="embeddings", rows=200, epsilon=epsilon, **more)


def test_a_budget_for_whoever_is_told_decides_the_noise():
    noise = told(4.0).plan(roster("default")).noise
    for epsilon in ({"bank": 4.0}, {"party": 4.0}, {"bank": 4.0, "analyst": 1.0}):
        assert told(epsilon).plan(roster("default")).noise == noise
    for training in ("none", "labels"):
        for epsilon in ({"analyst": 1.0}, {"coordinator": 1.0, "shop": 2.0}):
            asked = told(epsilon, training=training)
            refused(StudyError, "ST492", "bank", "embeddings", asked.plan, roster("default"))
    three = Roster.of({**schemas_for("default"), "clinic": Schema({"e": number(-3, 3)})})
    rounds = {"training": "rounds", "epochs": 2, "label_epsilon": 1.0, "encoders": LINEAR | {"clinic": LINEAR["shop"]}}
    with raises(StudyError, "ST492", "shop", "clinic", "embeddings"):
        told({"bank": 4.0}, **rounds).plan(three)
    assert told({"party": 4.0}, **rounds).plan(three).noise > 2**10


@pytest.mark.parametrize("training", ["none", "labels", "rounds"])
def test_statements_over_told_embeddings_name_what_their_theorem_rests_on(training):
    more = {} if training == "none" else {"training": training, "epochs": 2, "batches": 2, "encoders": LINEAR}
    statement = told(9.0, **more).simulate(tables(200, "default"), roster("default"), seeded(1)).privacy_
    assert PLACES in statement.assumptions
    assert not [text for text in statement.assumptions if "when a person leaves" in text]
    assert Statement.from_dict(statement.to_dict()).assumptions == statement.assumptions


def test_a_seed_makes_an_encoder_public_and_its_absence_secret():
    spec = {"shop": {"kind": "cosine", "width": 8, "seed": 11}}
    first, second = (classifier(encoders=spec).fit(federation(200, "default")) for _ in range(2))
    weights = [model.encoders_["shop"].arrays()["weights"] for model in (first, second)]
    others = [model.encoders_["bank"].arrays()["weights"] for model in (first, second)]
    assert np.array_equal(*weights)
    assert not np.array_equal(*others)


def test_members_may_be_hidden_from_a_committee_and_from_nobody_else():
    people = federation(100, "default").align(on="id", hidden=True)
    assert classifier(epsilon=8.0, width=8).fit(people).head_ == "committee"
    for way in ("embeddings", "published"):
        with raises(StudyError, "ST082"):
            classifier(way, rows=100).fit(people)


def test_a_party_may_hold_the_label_and_nothing_else():
    held = arrow(600)
    schemas = {"bank": schemas_for("default")["bank"].select(["default"]), "shop": schemas_for("default")["shop"]}
    people = Federation([Party(name, held[name], schema=schemas[name], id="id") for name in schemas])
    for way in ("committee", "embeddings", "labels", "published"):
        encoders = {"shop": {"kind": "linear", "width": 2}} if way == "published" else None
        model = classifier(way, encoders=encoders).fit(people)
        assert list(model.encoders_) == ["shop"]
        assert model.score(people) > 0.6
    with raises(StudyError, "ST274", "bank"):
        classifier(encoders={"bank": {"kind": "cosine"}}).fit(people)


# --- encoders that parties supply


class Mine(Encoder):
    """An encoder of a user's own, which makes embeddings as it is told."""

    kind, columns, width = "mine", 2, 2

    def __init__(self, made=np.tanh) -> None:
        self.made = made

    def embed(self, rows):
        return self.made(rows)

    def options(self):
        return {}

    def arrays(self):
        return {}


TIMES = itertools.count()


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda rows: (rows - rows.mean(axis=0)) / (rows.std(axis=0) + 1e-12), "ST337"),
        (lambda rows: rows - rows.mean(axis=0) if len(rows) > 500 else rows, "ST337"),
        (lambda rows: rows + np.roll(rows, 1, axis=0), "ST337"),
        (lambda rows: rows + next(TIMES), "ST337"),
        (lambda rows: rows + np.arange(len(rows))[:, None], "ST337"),
        (lambda rows: rows.sum(axis=1), ("ST339", "2")),
        (lambda rows: rows["no such column"], ("ST338", "2", "IndexError")),
        (lambda rows: np.full(rows.shape, np.nan), "ST340"),
    ],
    ids=["standardised", "large blocks", "neighbours", "each time", "places", "flat", "broken", "no numbers"],
)
@pytest.mark.parametrize("head", ["committee", "embeddings"])
def test_an_encoder_that_does_not_treat_each_row_by_itself_is_refused(head, made, said):
    with raises(StudyError, said):
        classifier(epsilon=1.0, head=head, rows=200, encoders={"shop": Mine(made)}).plan(roster("default"))


def test_statements_suppose_what_no_code_can_check_of_a_supplied_encoder():
    people, asked = federation(100, "default"), federation(5, "default", seed=1)
    said = "shop supplies an encoder that was made without this table and treats each row by itself, as it declares"
    for head in ("committee", "embeddings"):
        model = SplitClassifier(label="bank.default", epsilon=9.0, head=head, encoders={"shop": Mine()})
        assert said in model.fit(people).privacy_.assumptions
        assert said in SplitScores(model, exact=True).fit(asked).privacy_.assumptions
    drawn = SplitClassifier(label="bank.default", epsilon=9.0).fit(people)
    assert "matching people between the parties is outside this statement" in drawn.privacy_.assumptions
    for statement in (drawn.privacy_, SplitScores(drawn, epsilon=9.0).fit(asked).privacy_):
        assert not [text for text in statement.assumptions if "encoder" in text]


LEARNED = {
    "published": ("uncharged", {"head": "published", "unprotected": True, "epochs": 1}),
    "rounds": ("charged", {"head": "embeddings", "epsilon": 9.0, "training": "rounds", "epochs": 1}),
    "committee": ("none", {"epsilon": 9.0}),
}


@pytest.mark.parametrize("way", LEARNED)
def test_an_encoder_remembers_that_it_learned_wherever_it_goes(way, tmp_path):
    """Charged or not: whoever sees the result of another study is not whom the first one charged."""
    learned, how = LEARNED[way]
    model = SplitClassifier(label="bank.default", encoders=LINEAR, **how)
    trained = model.simulate(tables(100, "default"), roster("default"), seeded(1)).encoders_["shop"]
    assert trained.learned == from_bytes(to_bytes(trained)).learned == learned
    kept, bare = model.save_kept(tmp_path / "kept.npz", "shop"), tmp_path / "bare.npz"
    save_encoder(trained, bare)
    other = classifier(encoders={"shop": {"kind": "own", "width": 2}})
    other.equip("shop", {"make": None, "weights": kept, "shape": None})
    if learned == "none":
        assert b"learned" not in to_bytes(trained)
        assert own_encoder("shop", {"weights": bare}, trained.columns).width == trained.width
        again = other.fit(federation(100, "default")).encoders_["shop"]
        assert np.array_equal(again.arrays()["weights"], trained.arrays()["weights"])
        return
    refused(StudyError, "ST270", other.fit, federation(100, "default"))
    refused(StudyError, "ST270", "bare.npz", own_encoder, "shop", {"weights": bare}, trained.columns)
    for given in (trained, load_encoder(bare)):
        refused(StudyError, "ST270", "shop", classifier(encoders={"shop": given}).plan, roster("default"))


def test_a_file_never_says_less_than_its_encoder(tmp_path):
    model = simulated(encoders=LINEAR)
    model.encoders_["shop"].learned = "uncharged"
    path = model.save_kept(tmp_path / "kept.npz", "shop")
    refused(StudyError, "ST270", own_encoder, "shop", {"weights": path}, 2)
    drawn = encoder_from({"kind": "linear", "width": 2}, 2, seed=0)
    drawn.learned = "somehow"
    refused(StudyError, "ST252", from_bytes, to_bytes(drawn))


# --- what a party keeps


def test_a_party_keeps_its_own_encoder_and_nobody_elses(tmp_path):
    model = simulated("embeddings")
    shop, bank = (model.save_kept(tmp_path / f"{party}.npz", party) for party in ("shop", "bank"))
    refused(StudyError, "ST282", "bank", model.save_kept, shop, "bank")
    refused(StudyError, "ST266", "bank", "shop", model.save_kept, tmp_path / "x.npz")
    assert split_kept.read(shop, model.digest).own.keys() == {"centre", "scale"}
    assert "spread" in split_kept.read(bank, model.digest).own
    refused(StudyError, "ST284", simulated("embeddings", epsilon=3.0).load_kept, shop)
    for damage in (b"", b"PK", b"{}", b"\x00" * 100):
        shop.write_bytes(damage)
        refused(StudyError, "ST283", model.load_kept, shop)
    refused(StudyError, "ST285", model.load_kept, tmp_path / "nothing.npz")


def test_few_new_people_are_stretched_as_in_training(tmp_path):
    others = tables(30, "default", seed=1)["shop"]
    model = classifier("published", epochs=4, batches=8).fit(federation(200, "default"))
    factor, together = float(model.own_["shop"]["factor"]), model.embedded("shop", others)
    assert factor != 1.0
    alone = [model.embedded("shop", others.take_rows([place])) for place in range(30)]
    assert np.allclose(np.vstack(alone), together)
    raw = model.encoders_["shop"].embed(model.encoded_rows("shop", others))
    assert np.allclose(together, clip_rows(raw, 1.0) * factor)
    assert str(factor)[:8] not in model.save(tmp_path / "model.json").read_text()
    again = Estimator.load(tmp_path / "model.json")
    again.load_kept(model.save_kept(tmp_path / "shop.npz", "shop"))
    assert np.array_equal(again.embedded("shop", others), together)
    assert "shop" not in simulated("published", rescale=False, epochs=1).own_
    for own in ({}, {"factor": np.array(0.0)}, {"factor": np.ones(2)}, {"weights": np.ones(2)}):
        model.own_["shop"] = own
        refused(StudyError, "ST091", model.load_kept, model.save_kept(tmp_path / "shop.npz", "shop"))


@pytest.mark.parametrize(
    ("where", "value"),
    [
        ("plan", {"widths": {"bank": 3, "shop": 3}}),
        ("plan", {"widths": {"shop": 3}}),
        ("head", "embeddings"),
        ("head", "another"),
        ("feature_names_in", ["bank.a"]),
    ],
)
def test_a_model_file_whose_parts_do_not_belong_together_is_refused(where, value, tmp_path):
    model = simulated(width=8)
    assert model.n_features_in_ == len(model.feature_names_in_) == 4
    assert model.plan_["widths"] == {"bank": 8, "shop": 8}
    path = model.save(tmp_path / "model.json")
    content = json.loads(path.read_text())
    content["learned"][where] = content["learned"][where] | value if where == "plan" else value
    path.write_text(json.dumps(content))
    with raises(StudyError, "ST091", path):
        SplitClassifier.load(path)


def test_people_who_cannot_be_predicted_are_refused():
    model, few = simulated(), arrow(10)
    refused(DataError, "DA061", "shop", model.predict, {"bank": few["bank"]})
    refused(DataError, "DA062", model.predict, {"bank": few["bank"], "shop": arrow(9)["shop"]}, same_order=True)
    refused(DataError, "DA066", "ndarray", model.predict, np.zeros((3, 4)))
    refused(
        (DataError, SchemaError),
        "DA*|SC*",
        model.predict,
        {"bank": few["bank"].drop_columns(["a"]), "shop": few["shop"]},
        same_order=True,
    )
    refused(StudyError, "ST073", classifier().predict, arrow(3))
