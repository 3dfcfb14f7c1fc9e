"""Split classifiers and regressors: every way to a head, what is promised, what is kept, and what is refused."""

from __future__ import annotations

import json
import math
import stat

import numpy as np
import pytest

from colonnade import Federation, Party, SplitClassifier, SplitRegressor
from colonnade.errors import DataError, SchemaError, StudyError
from colonnade.kinds.split import kept as split_kept
from colonnade.kinds.split.embeddings.task import Embeddings
from colonnade.kinds.split.encoders import encoder_from
from colonnade.models import Estimator
from colonnade.protocols.moments.task import Moments
from colonnade.testing.seeded import seeded
from tests.kinds.split.people import arrow, federation, roster, schemas_for, tables
from tests.support.errors import raises

pytestmark = pytest.mark.filterwarnings("ignore:colonnade.testing.seeded")
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


@each_way
@pytest.mark.parametrize("label", ["default", "kind"])
def test_every_way_learns_from_both_parties_and_comes_back_from_files(way, label, tmp_path):
    people, others = federation(ROWS, label), federation(500, label, seed=1)
    model = classifier(way, f"bank.{label}").fit(people)
    base = max(np.mean(model.true_of(others) == value) for value in model.classes_)
    assert model.score(others) > base + 0.1
    assert model.classes_.tolist() == ([False, True] if label == "default" else ["low", "middle", "high"])
    chances = model.predict_proba(others)
    assert np.allclose(chances.sum(axis=1), 1)
    assert (model.classes_[chances.argmax(axis=1)] == model.predict(others)).all()
    files = [model.save_kept(tmp_path / f"{party}.npz", party) for party in model.holders]
    assert [stat.S_IMODE(file.stat().st_mode) for file in files] == [0o600, 0o600]
    again = Estimator.load(model.save(tmp_path / "model.json"))
    assert isinstance(again, SplitClassifier)
    with raises(StudyError, "ST268", "bank"):
        again.predict(others)
    assert [again.load_kept(file) for file in files] == ["bank", "shop"]
    assert np.array_equal(again.scores(others), model.scores(others))
    assert again.summary() == model.summary()
    assert again.digest == model.digest


@each_way
def test_a_simulation_is_the_same_in_one_place_and_follows_from_its_stream(way):
    held = tables(600, "default")
    models = [classifier(way).simulate(held, roster("default"), seeded(5)) for _ in range(2)]
    others = federation(500, "default", seed=1)
    assert models[0].score(others) > 0.7
    assert np.array_equal(models[0].scores(others), models[1].scores(others))
    assert not np.array_equal(
        models[0].scores(others), classifier(way).simulate(held, roster("default"), seeded(6)).scores(others)
    )


@pytest.mark.parametrize("head", ["committee", "embeddings"])
def test_numbers_are_predicted_within_their_bounds(head, tmp_path):
    people, others = federation(ROWS, "amount"), federation(500, "amount", seed=1)
    model = SplitRegressor(label="bank.amount", epsilon=40.0, head=head, width=24).fit(people)
    assert model.score(others) > 0.5
    assert model.score(others, model.true_of(others)) == model.score(others)
    assert np.abs(model.predict(others)).max() <= 3
    files = [model.save_kept(tmp_path / f"{party}.npz", party) for party in model.holders]
    again = SplitRegressor.load(model.save(tmp_path / "model.json"))
    for file in files:
        again.load_kept(file)
    assert np.array_equal(again.predict(others), model.predict(others))


@pytest.mark.parametrize("label", ["default", "kind", "amount"])
def test_together_is_better_than_the_party_with_the_label_alone(label):
    people, others = federation(ROWS, label), federation(500, label, seed=1)
    kind = SplitRegressor if label == "amount" else SplitClassifier
    model = kind(label=f"bank.{label}", epsilon=40.0, width=24).fit(people)
    alone = model.score_alone(people, others)
    assert (0.2 if label == "amount" else 0.4) < alone < model.score(others)
    with raises(DataError, "DA088", "bank"):
        model.score_alone({"shop": people.tables()["shop"]}, others)


# --- who is promised what


def test_a_committee_learns_by_default_and_keeps_every_budget():
    task = classifier(epsilon=1.0).plan(roster("default"))
    assert isinstance(task, Moments)
    model = classifier(epsilon=1.0).simulate(tables(200, "default"), roster("default"), seeded(1), task=task)
    assert model.head_ == "committee"
    for who in ("analyst", "coordinator", "bank", "shop"):
        assert 0 < model.privacy_.epsilon(who) <= 1.0


def test_told_embeddings_are_about_those_who_tell_them():
    model = classifier("embeddings", epsilon=2.0).simulate(tables(200, "default"), roster("default"), seeded(1))
    found = {who: model.privacy_.epsilon(who) for who in ("analyst", "coordinator", "shop", "bank")}
    assert found["analyst"] == found["coordinator"] == found["shop"] == 0
    assert 1.9 < found["bank"] <= 2.0


def test_training_is_charged_and_labels_are_answered_at_random():
    model = classifier("labels", epsilon=6.0, label_epsilon=1.5, rows=200)
    task = model.plan(roster("default"))
    assert isinstance(task, Embeddings)
    assert task.update_event("shop").to_dict() in [event.to_dict() for event in task.events]
    fitted = model.simulate(tables(200, "default"), roster("default"), seeded(1), task=task)
    assert fitted.privacy_.epsilon("bank") <= 6.0
    assert 1.4 < fitted.privacy_.epsilon("shop") <= 1.5
    own = classifier("own", epsilon=6.0, rows=200).simulate(tables(200, "default"), roster("default"), seeded(1))
    assert len(own.privacy_.events) == 2  # moments, and the updates before them
    assert max(own.privacy_.epsilon(who) for who in ("analyst", "coordinator", "bank", "shop")) <= 6.0
    told = classifier("labels", label_epsilon=None).simulate(tables(200, "default"), roster("default"), seeded(1))
    assert math.isinf(told.privacy_.epsilon("shop"))


def test_as_published_promises_nothing_and_says_so():
    model = classifier("published").simulate(tables(120, "default"), roster("default"), seeded(1))
    assert math.isinf(model.privacy_.epsilon("bank"))
    assert math.isinf(model.privacy_.epsilon("shop"))
    assert "as published, not proven: the encoder and the rescaling depend" in str(model.privacy_)
    assert any(line.startswith("as published, not proven: ") for line in model.summary())
    bare = classifier("unprotected").simulate(tables(120, "default"), roster("default"), seeded(1))
    assert "not protected: embeddings are told without noise" in str(bare.privacy_)


def test_a_supplied_encoder_is_an_assumption_of_the_statement():
    own = encoder_from({"kind": "cosine", "width": 8}, 2, seed=3)
    model = classifier(encoders={"shop": own}).fit(federation(200, "default"))
    said = "shop supplies an encoder that was made without this table and treats each row by itself, as it declares"
    assert said in model.privacy_.assumptions
    assert "matching people between the parties is outside this statement" in model.privacy_.assumptions
    assert not [text for text in classifier().fit(federation(200, "default")).privacy_.assumptions if "encoder" in text]
    assert np.array_equal(model.encoders_["shop"].arrays()["weights"], own.arrays()["weights"])


def test_a_seed_makes_an_encoder_public_and_its_absence_secret():
    spec = {"shop": {"kind": "cosine", "width": 8, "seed": 11}}
    first, second = (classifier(encoders=spec).fit(federation(200, "default")) for _ in range(2))
    weights = [model.encoders_["shop"].arrays()["weights"] for model in (first, second)]
    others = [model.encoders_["bank"].arrays()["weights"] for model in (first, second)]
    assert np.array_equal(*weights)
    assert not np.array_equal(*others)


def test_members_may_be_hidden_from_a_committee_and_from_nobody_else():
    people = federation(300, "default").align(on="id", hidden=True)
    assert classifier(epsilon=8.0, width=8).fit(people).head_ == "committee"
    for way in ("embeddings", "published"):
        with raises(StudyError, "ST082"):
            classifier(way, rows=300).fit(people)


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


# --- what a party keeps


def test_a_party_keeps_its_own_encoder_and_nobody_elses(tmp_path):
    model = classifier("embeddings").fit(federation(200, "default"))
    shop, bank = (model.save_kept(tmp_path / f"{party}.npz", party) for party in ("shop", "bank"))
    with raises(StudyError, "ST282", "bank"):
        model.save_kept(shop, "bank")
    with raises(StudyError, "ST266", "bank", "shop"):
        model.save_kept(tmp_path / "x.npz")
    assert split_kept.read(shop, model.digest).own.keys() == {"centre", "scale"}
    assert "spread" in split_kept.read(bank, model.digest).own
    later = classifier("embeddings", epsilon=3.0).fit(federation(200, "default"))
    with raises(StudyError, "ST284"):
        later.load_kept(shop)


@pytest.mark.parametrize("damage", [b"", b"PK", b"{}", b"\x00" * 100])
def test_a_damaged_kept_file_is_refused_in_a_sentence(damage, tmp_path):
    model = classifier().fit(federation(100, "default"))
    path = tmp_path / "kept.npz"
    path.write_bytes(damage)
    with raises(StudyError, "ST283"):
        model.load_kept(path)
    with raises(StudyError, "ST285"):
        model.load_kept(tmp_path / "nothing.npz")


FROM_ONE_RELEASE = {"weights", "intercept", "own_weights", "own_intercepts", "own_spreads"}
"""What follows from the noisy moments that everybody sees; heads over one party's embeddings too."""


def test_what_is_published_holds_no_encoder_and_no_head_that_a_party_keeps(tmp_path):
    for way in WAYS:
        model = classifier(way).simulate(tables(200, "default"), roster("default"), seeded(2))
        model.save(tmp_path / "model.json")
        content = json.loads((tmp_path / "model.json").read_text())
        arrays = model.arrays()
        assert set(arrays) == (FROM_ONE_RELEASE if way in ("committee", "own") else set())
        assert not any(key in json.dumps(content["learned"]) for key in ("spread", "centre", "offsets"))


@pytest.mark.parametrize(
    ("where", "value"),
    [
        (("learned", "plan", "widths"), {"bank": 3, "shop": 3}),
        (("learned", "plan", "widths"), {"shop": 3}),
        (("learned", "head"), "embeddings"),
        (("learned", "head"), "another"),
        (("learned", "feature_names_in"), ["bank.a"]),
    ],
)
def test_a_model_file_whose_parts_do_not_belong_together_is_refused(where, value, tmp_path):
    model = classifier(width=8).simulate(tables(200, "default"), roster("default"), seeded(2))
    path = model.save(tmp_path / "model.json")
    content = json.loads(path.read_text())
    place = content
    for key in where[:-1]:
        place = place[key]
    place[where[-1]] = value
    path.write_text(json.dumps(content))
    with raises(StudyError, "ST091", path):
        SplitClassifier.load(path)


# --- what is refused


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"head": "alone"}, ("ST234", "auto", "committee", "embeddings", "published")),
        ({"epsilon": None}, "ST224"),
        ({"encoders": {"clinic": {}}}, ("ST273", "clinic", "'bank', 'shop'")),
        ({"encoders": [1]}, "ST272"),
        ({"encoders": {"shop": {"kind": "tree"}}}, ("ST276", "shop", "tree", "own")),
        ({"encoders": {"shop": {"kind": "cosine", "colour": 1}}}, ("ST306", "colour")),
        ({"encoders": {"shop": {"width": 0}}}, "ST150"),
        ({"encoders": {"shop": {"clip": -1.0}}}, ("ST277", "shop")),
        ({"encoders": {"shop": {"kind": "own", "width": 3, "scale": 2}}}, "ST275"),
        ({"encoders": {"shop": {"kind": "own", "width": 3}}}, ("ST271", "shop")),
        ({"encoders": {"shop": {"shape": [3, 3]}}}, "ST312"),
        ({"training": "labels"}, ("ST233", "labels", "embeddings")),
        ({"training": "own"}, "ST223"),
        ({"training": "own", "rows": 60, "encoders": {"bank": {"kind": "cosine"}}}, "ST279"),
        ({"training": "own", "head": "embeddings"}, ("ST233", "own", "committee")),
        ({"per_release": 1.0}, ("ST231", "per_release", "committee")),
        ({"head": "embeddings", "label_epsilon": 1.0}, "ST229"),
        (
            {"head": "embeddings", "training": "labels", "encoders": {"shop": {"kind": "cosine"}}},
            "ST279",
        ),
        ({"head": "published"}, ("ST231", "epsilon")),
        ({"head": "published", "epsilon": None}, "ST216"),
        ({"head": "published", "epsilon": None, "per_release": 1.0, "training": "labels"}, "ST231"),
        ({"solver": "tree"}, "ST280"),
        ({"label": "bank.a"}, "ST293"),
        ({"label": "default"}, "ST188"),
    ],
)
def test_parameters_that_make_no_sense_are_refused_in_one_sentence(given, said):
    with raises(StudyError, said) as caught:
        classifier(**given).fit(federation(60, "default"))
    assert "\n" not in str(caught.value)


def test_labels_of_the_wrong_kind_are_refused():
    with raises(StudyError, "ST294"):
        SplitRegressor(label="bank.default", epsilon=1.0).fit(federation(60, "default"))
    with raises(StudyError, "ST227"):
        classifier("embeddings").plan(roster("default"))
    with raises(StudyError, "ST215"):
        classifier("published").plan(roster("default"))


def test_people_who_cannot_be_predicted_are_refused():
    model = classifier().fit(federation(100, "default"))
    with raises(DataError, "DA061", "shop"):
        model.predict({"bank": arrow(10)["bank"]})
    with raises(DataError, "DA062"):
        model.predict({"bank": arrow(10)["bank"], "shop": arrow(9)["shop"]}, same_order=True)
    with raises(DataError, "DA066", "ndarray"):
        model.predict(np.zeros((3, 4)))
    with pytest.raises((DataError, SchemaError)):
        model.predict({"bank": arrow(10)["bank"].drop_columns(["a"]), "shop": arrow(10)["shop"]}, same_order=True)
    with raises(StudyError, "ST073"):
        classifier().predict(arrow(3))


def test_an_encoder_that_was_trained_on_private_rows_is_refused_elsewhere(tmp_path):
    """Charged or not: whoever sees the result of another study is not whom the first one charged."""
    model = classifier(encoders={"shop": {"kind": "own", "width": 2}})
    for head in ("published", "rounds"):
        trained = classifier(head).simulate(tables(200, "default"), roster("default"), seeded(2))
        path = trained.save_kept(tmp_path / f"{head}.npz", "shop")
        model.equip("shop", {"make": None, "weights": path, "shape": None})
        with raises(StudyError, "ST270"):
            model.fit(federation(100, "default"))
    frozen = classifier(width=2).simulate(tables(200, "default"), roster("default"), seeded(2))
    path = frozen.save_kept(tmp_path / "frozen.npz", "shop")
    model.equip("shop", {"make": None, "weights": path, "shape": None})
    fitted = model.fit(federation(300, "default"))
    assert np.array_equal(fitted.encoders_["shop"].arrays()["weights"], frozen.encoders_["shop"].arrays()["weights"])


def test_widths_and_columns_are_known():
    model = classifier(width=8).fit(federation(100, "default"))
    assert model.n_features_in_ == len(model.feature_names_in_) == 4
    assert model.plan_["widths"] == {"bank": 8, "shop": 8}
