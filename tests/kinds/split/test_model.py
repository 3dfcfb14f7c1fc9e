"""Split models and scores by them: ways to a head, promises, what is kept, parameters, modules and new people."""

from __future__ import annotations

import itertools
import json
import math
import stat
import sys
from copy import copy
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from colonnade import Federation, Party, SplitClassifier, SplitRegressor, SplitScores
from colonnade.errors import DataError, StudyError
from colonnade.kinds.split import encoders as split_kept, model as split_model
from colonnade.kinds.split.adaptive_programs import clip_rows
from colonnade.kinds.split.embedding_task import AdaptiveTask
from colonnade.kinds.split.encoder_base import Encoder
from colonnade.kinds.split.encoders import encoder_from, from_bytes, load_encoder, save_encoder, to_bytes
from colonnade.kinds.split.model import own_encoder
from colonnade.models import Estimator, Roster
from colonnade.privacy import Statement
from colonnade.tables import Schema, number
from colonnade.testing import seeded
from tests.kinds.split.people import arrow, federation, roster, schemas_for, tables
from tests.support.errors import raises, refused

ROWS = 1500


LINEAR = {"bank": {"kind": "linear", "width": 2}, "shop": {"kind": "linear", "width": 2}}


WAYS = {
    "committee": {"epsilon": 20.0, "width": 16},
    "embeddings": {"epsilon": 100.0, "head": "embeddings", "width": 16},
    "labels": {
        "epsilon": 20.0,
        "head": "embeddings",
        "training": "labels",
        "epochs": 10,
        "label_epsilon": 4.0,
        "constants": {"stage": True},
    },
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
    refused(StudyError, "ST268", "bank", again.predict, others)
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
    assert set(model.arrays()) == (FROM_ONE_RELEASE if way == "committee" else set())
    published = json.dumps(json.loads((tmp_path / "model.json").read_text())["learned"])
    assert not any(key in published for key in ("spread", "centre", "offsets"))  # no head that a party keeps
    if way == "committee":
        assert 0.4 < model.score_alone(people, others) < model.score(others)
        refused(DataError, "DA088", "bank", model.score_alone, {"shop": people.tables()["shop"]}, others)


@each_way
def test_a_simulation_is_the_same_in_one_place_and_follows_from_its_stream(way):
    held = tables(200, "default")
    models = [classifier(way).simulate(held, roster("default"), seeded(seed)) for seed in (5, 5, 6)]
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
    for way, more, events, most in (
        ("committee", {}, 1, (6, 6, 6, 6)),
        ("embeddings", {}, 1, (0, 0, 6, 0)),
        ("labels", {"label_epsilon": 1.5}, 4, (0, 0, 6, 1.5)),
        ("labels", {"label_epsilon": None}, 4, (0, 0, 6, math.inf)),
    ):
        model = classifier(way, epsilon=6.0, **more).simulate(tables(200, "default"), roster("default"), seeded(1))
        assert len(model.privacy_.events) == events
        for who, allowed in zip(everybody, most, strict=True):
            assert 0.4 * allowed <= model.privacy_.epsilon(who) <= allowed


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
    refused(StudyError, "ST492", "shop", "clinic", "embeddings", told({"bank": 4.0}, **rounds).plan, three)
    assert told({"party": 4.0}, **rounds).plan(three).noise > 2**10


@pytest.mark.parametrize("training", ["none", "labels", "rounds"])
def test_statements_over_told_embeddings_name_what_their_theorem_rests_on(training):
    more = {} if training == "none" else {"training": training, "epochs": 2, "batches": 2, "encoders": LINEAR}
    statement = told(9.0, **more).simulate(tables(200, "default"), roster("default"), seeded(1)).privacy_
    assert PLACES in statement.assumptions
    assert not [text for text in statement.assumptions if "when a person leaves" in text]
    assert Statement.from_dict(statement.to_dict()).assumptions == statement.assumptions


def test_members_may_be_hidden_from_a_committee_and_from_nobody_else():
    hidden = replace(roster("default"), hidden=True)
    assert classifier(width=8).plan(hidden).hidden
    for way in ("embeddings", "published"):
        refused(StudyError, "ST082", classifier(way, rows=100).plan, hidden)


def test_a_seed_makes_an_encoder_public_and_its_absence_secret():
    spec = {"shop": {"kind": "cosine", "width": 8, "seed": 11}}
    drawn = [classifier(encoders=spec).fit(federation(100, "default")).encoders_ for _ in range(2)]
    for party, same in (("shop", True), ("bank", False)):
        assert np.array_equal(*(each[party].arrays()["weights"] for each in drawn)) == same


def test_a_party_may_hold_the_label_and_nothing_else():
    held = arrow(600)
    schemas = {"bank": schemas_for("default")["bank"].select(["default"]), "shop": schemas_for("default")["shop"]}
    people = Federation([Party(name, held[name], schema=schemas[name], id="id") for name in schemas])
    for way in ("committee", "embeddings", "labels", "published"):
        encoders = {"shop": {"kind": "linear", "width": 2}} if way == "published" else None
        model = classifier(way, encoders=encoders).fit(people)
        assert list(model.encoders_) == ["shop"]
        assert model.score(people) > 0.6
    refused(StudyError, "ST274", "bank", classifier(encoders={"bank": {"kind": "cosine"}}).fit, people)


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
    refused(
        StudyError,
        said,
        classifier(epsilon=1.0, head=head, rows=200, encoders={"shop": Mine(made)}).plan,
        roster("default"),
    )


def test_statements_suppose_what_no_code_can_check_of_a_supplied_encoder():
    people, asked = federation(100, "default"), federation(5, "default", seed=1)
    said = "shop supplies an encoder that was made without this table and treats each row by itself, as it declares"
    for head in ("committee", "embeddings"):
        model = SplitClassifier(label="bank.default", epsilon=9.0, head=head, encoders={"shop": Mine()})
        assert said in model.fit(people).privacy_.assumptions
        assert said in SplitScores(model, exact=True).fit(asked).privacy_.assumptions
    drawn = simulated()
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
    assert split_kept.read_party_file(shop, model.digest).own.keys() == {"centre", "scale"}
    assert "spread" in split_kept.read_party_file(bank, model.digest).own
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
    refused(StudyError, "ST091", path, SplitClassifier.load, path)


FEW = 120


GIVEN: dict[str, dict[str, Any]] = {
    "committee": {"epsilon": 8.0},
    "embeddings": {"epsilon": 8.0, "rows": FEW},
    "published": {"per_release": 20.0, "rows": FEW, "encoders": {"shop": {"kind": "linear"}}},
}


OTHER = {
    "solver": "ridge",
    "training": "labels",
    "epochs": 3,
    "batches": 2,
    "learning_rate": 0.5,
    "label_epsilon": 1.0,
    "per_release": 1.0,
    "unprotected": True,
    "rescale": False,
    "adjust": False,
    "head_module": object(),
    "constants": {"share": 0.5},
    "epsilon": 3.0,
}


def asked_of(head, **more):
    return SplitClassifier(label="bank.default", head=head, **GIVEN[head] | more)


def planned(head: str, **more: object) -> Any:
    return asked_of(head, **more).plan(roster("default"))


def test_a_parameter_of_another_head_is_refused_by_its_name():
    common = {"label", "delta", "head", "encoders", "width", "rows", "rows_at_most", "threshold"}
    assert set(OTHER) == set(split_model.HEADS_OF_PARAMETER) == {*SplitClassifier.__dataclass_fields__} - common
    for name, heads in split_model.HEADS_OF_PARAMETER.items():
        for head in set(GIVEN) - set(heads):
            refused(StudyError, "ST231", name, head, planned, head, **{name: OTHER[name]})


def test_what_is_about_training_is_refused_without_training():
    for name in ("epochs", "batches", "learning_rate"):
        refused(StudyError, "ST232", name, planned, "embeddings", **{name: OTHER[name]})
        planned("embeddings", training="labels", label_epsilon=1.0, **{name: OTHER[name]})
    for said, head, given in (
        (("ST136", "none, labels, rounds", "own"), "committee", {"training": "own"}),
        (("ST231", "training", "embeddings"), "committee", {"training": "rounds"}),
        ("ST227", "embeddings", {"rows": None}),
        ("ST215", "published", {"rows": None}),
    ):
        refused(StudyError, said, planned, head, **given)
    refused(StudyError, "ST294", SplitRegressor(label="bank.default", epsilon=1.0).plan, roster("default"))


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
        ({"head": "embeddings", "label_epsilon": 1.0}, "ST229"),
        ({"head": "embeddings", "training": "labels", "encoders": {"shop": {"kind": "cosine"}}}, "ST279"),
        ({"head": "published", "epsilon": None}, "ST216"),
        ({"solver": "tree"}, "ST280"),
        ({"label": "bank.a"}, "ST293"),
        ({"label": "default"}, "ST188"),
    ],
)
def test_parameters_that_make_no_sense_are_refused_in_one_sentence(given, said):
    asked = SplitClassifier(**{"label": "bank.default", "epsilon": 20.0, "width": 16} | given)
    assert "\n" not in refused(StudyError, said, asked.fit, federation(60, "default"))


# --- constants


def test_constants_reach_the_tasks():
    how, given = {"training": "labels"}, {"stage": True, "first_share": 0.25, "share": 0.5, "margin": 1.5}
    also = {"alpha": 0.5, "beta": 0.25, "confidence": 0.75, "apart": False, "rule": "sgd"}
    for head, more, constants in (("embeddings", how, given), ("published", {}, also)):
        task = planned(head, constants=constants, **more)
        assert {name: getattr(task, name) for name in constants} == constants
    task = planned("published", constants={"delta": 0.01})
    assert task.noise == AdaptiveTask.published_noise(20.0, 0.01) < planned("published").noise


@pytest.mark.parametrize(
    ("head", "given", "error"),
    [
        ("embeddings", {"alpha": 1.0}, ("ST246", "embeddings", "alpha")),
        ("published", {"stage": True}, ("ST246", "published", "stage")),
        ("embeddings", {"share": 1.0}, ("ST434", "share")),
        ("embeddings", {"share": "much"}, ("ST241", "share")),
        ("embeddings", {"stage": 1}, ("ST242", "stage")),
        ("published", {"rule": "fast"}, ("ST243", "rule")),
        ("published", {"beta": float("nan")}, ("ST241", "beta")),
        ("published", {"delta": 0.0}, ("ST244", "delta")),
        ("published", {"alpha": -1.0}, ("ST241", "alpha")),
        ("published", 3, "ST245"),
    ],
)
def test_wrong_constants_are_refused(head, given, error):
    refused(StudyError, error, planned, head, constants=given)


# --- encoders


def test_options_are_read_when_a_study_is_planned_and_need_no_torch(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    planned("committee", encoders={"shop": {"kind": "mlp", "width": 3}})
    for spec, *said in (
        ({"kind": "mlp", "hiden": [3]}, "ST306", "mlp", "hiden"),
        ({"kind": "cosine", "scale": -1.0}, "ST308", "scale"),
        ({"kind": "cnn", "shape": [28, 14], "width": 3}, "ST312", "28, 14", "392"),
        ({"kind": "edges", "shape": [28, 14], "width": 3}, "ST312", "28, 14", "392"),
        ({"kind": "edges", "width": 3}, "ST311", "shape", "2", "3"),
        ({"kind": "linear", "width": 3, "over": {"kind": "cosine", "widht": 3}}, "ST306", "widht"),
        ({"kind": "linear", "width": 3, "over": {"kind": "nothing"}}, "ST256"),
        ({"kind": "linear", "width": 3, "over": 3}, "ST255"),
    ):
        refused(StudyError, said, "the encoder of shop: ", planned, "committee", encoders={"shop": spec})


def three() -> Any:
    from torch import nn

    return nn.Linear(2, 3)


@pytest.mark.parametrize("head", GIVEN)
def test_a_module_that_is_named_tells_its_width_itself(head):
    pytest.importorskip("torch")
    spec, bank = {"kind": "module", "make": f"{__name__}:three", "clip": 2.0}, {"kind": "linear", "width": 2}
    model = asked_of(head, encoders={"shop": spec, "bank": bank}).fit(federation(FEW, "default"))
    assert model.encoders_["shop"].width == 3
    assert len(model.predict(federation(FEW, "default"))) == FEW


def failing(made: Any, columns: int = 2, width: int = 3) -> Any:
    """A module that gives what is made of its rows and of what a linear layer would give."""
    torch = pytest.importorskip("torch")

    class Failing(torch.nn.Module):  # type: ignore[name-defined, misc]
        def __init__(self) -> None:
            super().__init__()
            self.map = torch.nn.Linear(columns, width)

        def forward(self, rows):
            return made(rows, self.map(rows))

    return Failing()


def late(rows: Any, found: Any) -> Any:
    """It fails on tables, and not on the few rows by which modules are tried."""
    if len(rows) in (FEW, 256):
        raise KeyError(f"bad cell {rows[0, 0]}")
    return found


@pytest.mark.parametrize("head", GIVEN)
def test_a_module_that_fails_on_rows_is_its_partys(head):
    with raises(StudyError, "ST247", "KeyError") as raised:
        asked_of(head, encoders={"shop": failing(late)}).simulate(tables(FEW, "default"), roster("default"))
    assert "cell " not in str(raised.value)
    assert raised.value.__suppress_context__


def test_modules_that_do_not_fit_say_why():
    held, seats = tables(FEW, "default"), roster("default")
    several = failing(lambda rows, found: (rows, rows))
    refused(StudyError, "ST297", planned, "committee", encoders={"shop": several})
    stepped = failing(lambda rows, found: found * (1.0 if float(rows.detach().abs().max()) >= 0 else 2.0))
    learning = asked_of("embeddings", training="labels", label_epsilon=2.0, epochs=2, encoders={"shop": stepped})
    refused(StudyError, "ST247", "RuntimeError", learning.simulate, held, seats)
    refused(StudyError, "ST289", "64", "2", asked_of("embeddings", head_module=three()).simulate, held, seats)
    asked = asked_of("embeddings", head_module=failing(late, 64, 2))
    assert "cell " not in refused(StudyError, "ST288", "KeyError", asked.simulate, held, seats)


ASKED_HEADS = ("committee", "embeddings")


@cache
def learned(head: str, label: str = "kind", rows: int = 1000) -> Any:
    """A model that tests only ask; the head of two kinds, the classes or the numbers of ``label``."""
    kind = SplitRegressor if label == "amount" else SplitClassifier
    model = kind(label=f"bank.{label}", epsilon=20.0, head=head, width=12)
    return model.simulate(tables(rows, label), roster(label), seeded(3))


def answered(model: Any, new: Any, label: str, **how: Any) -> SplitScores:
    """The question in one place."""
    return SplitScores(model, **how).simulate(new, roster(label), seeded(7))


@pytest.mark.parametrize("head", ASKED_HEADS)
def test_scores_are_those_of_the_model_or_have_noise_and_cost_no_more(head, tmp_path):
    model, new = learned(head), federation(80, "kind", seed=4)
    exact, noisy = SplitScores(model, exact=True).fit(new), SplitScores(model, epsilon=2.0).fit(new)
    assert np.abs(exact.scores_ - model.scores(new)).max() < 1e-3 < np.abs(noisy.scores_ - model.scores(new)).max()
    assert (exact.predictions_ == model.predict(new)).mean() > 0.95
    assert set(noisy.predictions_) <= {"low", "middle", "high"}
    assert np.abs(exact.joint.probabilities - model.predict_proba(new)).max() < 1e-3
    assert np.allclose(noisy.joint.probabilities.sum(axis=1), 1)
    assert exact.recipient == "bank"
    assert (exact.joint.ids, exact.joint.classes) == (exact.ids_, model.classes_.tolist())
    assert np.abs(answered(model, new.tables(), "kind", exact=True).scores_ - exact.scores_).max() < 1e-3
    assert [exact.privacy_.epsilon(who) for who in ("bank", "shop", "analyst")] == [math.inf, 0, 0]
    assert 1.9 < noisy.privacy_.epsilon("bank") <= 2.0
    again = SplitScores.load(noisy.save(tmp_path / "scores.json"))
    assert np.array_equal(again.scores_, noisy.scores_)
    assert again.recipient == "bank"
    assert (tmp_path / "scores.json").stat().st_mode & 0o077 == 0


def _loss(chances, truth) -> float:
    return -float(np.log(np.clip(chances[np.arange(len(truth)), truth.astype(int)], 1e-12, 1)).mean())


@pytest.mark.parametrize("head", ASKED_HEADS)
@pytest.mark.parametrize("epsilon", [1.0, 8.0])
def test_noisy_answers_are_no_worse_than_own_columns(head, epsilon):
    model, new = learned(head, "default", 3000), tables(3000, "default", seed=4)
    truth, joint = model.true_of(new), answered(model, new, "default", epsilon=epsilon).joint
    noisy, own = _loss(joint.probabilities, truth), _loss(joint.own_probabilities, truth)
    assert own < 0.66  # a coin has 0.69
    assert noisy < own + 0.005
    assert (joint.predictions == truth).mean() > (joint.own_predictions == truth).mean() - 0.02
    assert joint.own_scores.shape == joint.scores.shape
    assert joint.classes == [False, True]


def test_what_classes_have_in_common_needs_no_noise_and_parts_on_shares_stay_within_their_bounds():
    model = learned("committee")
    exact, noisy = (SplitScores(model, **how).plan(roster("kind")) for how in ({"exact": True}, {"epsilon": 2.0}))
    assert sum(noisy.part("shop").high) < sum(exact.part("shop").high)
    joint = answered(model, tables(50, "kind", seed=4), "kind", epsilon=2.0).joint
    assert np.abs(joint.scores.sum(axis=1)).max() < 1e-9
    for party, columns in (("bank", slice(0, 12)), ("shop", slice(12, 24))):
        weights, high = model.public_["weights"][:, columns], np.array(exact.part(party).high)
        reached = exact.gamma * np.abs(model.embedded(party, tables(200, "kind", seed=5)[party]) @ weights.T)
        assert (reached.max(axis=0) <= high).all()
        assert (high <= exact.gamma * np.linalg.norm(weights, axis=1) + 2).all()


def test_a_model_of_an_earlier_release_is_weighed_against_a_guess():
    earlier, new = copy(learned("committee", "default", 3000)), tables(3000, "default", seed=4)
    earlier.public_ = {name: earlier.public_[name] for name in ("weights", "intercept")}
    truth, joint = earlier.true_of(new), answered(earlier, new, "default", epsilon=1.0).joint
    assert _loss(joint.probabilities, truth) < _loss(joint.own_probabilities, truth) + 0.01
    assert (joint.own_predictions == truth).mean() > 0.55


def test_numbers_are_asked_about_too_and_with_noise_are_no_worse_than_own_columns():
    model, new = learned("committee", "amount", 3000), tables(2000, "amount", seed=4)
    truth, joint = model.true_of(new), answered(model, new, "amount", epsilon=1.0).joint
    assert model.score_of(truth, joint.own_predictions) > 0.2
    assert model.score_of(truth, joint.predictions) > model.score_of(truth, joint.own_predictions) - 0.01
    assert (joint.probabilities, joint.classes) == (None, None)
    few = federation(40, "amount", seed=4)
    assert np.abs(SplitScores(model, exact=True).fit(few).predictions_ - model.predict(few)).max() < 1e-2


def test_a_committee_may_tell_another_party():
    new = federation(40, "kind", seed=4)
    told = SplitScores(learned("committee"), to="shop", exact=True).fit(new)
    assert told.recipient == "shop"
    assert np.abs(told.scores_ - learned("committee").scores(new)).max() < 1e-3
    refused(StudyError, "ST221", "bank", SplitScores(learned("embeddings"), to="shop", exact=True).fit, new)


def test_questions_that_make_no_sense_are_refused(tmp_path):
    model, people = learned("committee"), federation(20, "kind")
    linear = {party: {"kind": "linear"} for party in ("bank", "shop")}
    published = SplitClassifier(label="bank.kind", head="published", unprotected=True, epochs=1, encoders=linear)
    published.simulate(tables(60, "kind"), roster("kind"), seeded(1))
    path = model.save(tmp_path / "model.json")
    own = {party: model.save_kept(tmp_path / f"{party}.npz", party) for party in ("bank", "shop")}
    for asked_of, given, *said in (
        (model, {}, "ST333"),
        (model, {"epsilon": 1.0, "exact": True}, "ST333"),
        (model, {"epsilon": {"shop": 1.0}}, "ST170", "bank"),
        (model, {"epsilon": 1.0, "rows_at_most": 0}, "ST150", "rows_at_most"),
        (published, {"exact": True}, "ST220"),
        (path, {"exact": True}, "ST268"),
    ):
        refused(StudyError, said, SplitScores(asked_of, **given).fit, people)
    refused(StudyError, "ST334", SplitScores("nothing", exact=True).check_model, 3)
    question = SplitScores(path, exact=True)
    question.bring(own["shop"], "shop")  # a party brings its own encoder and nobody else's
    assert list(question.scorer.encoders_) == ["shop"]
    refused(StudyError, "ST332", "bank", "shop", question.bring, own["bank"], "shop")
