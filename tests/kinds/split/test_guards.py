"""What a split model refuses for the sake of its promises, and what its statements suppose."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from colonnade import SplitClassifier, SplitScores
from colonnade.errors import StudyError
from colonnade.kinds.split.adaptive.rescaling import clip_rows
from colonnade.kinds.split.contract import Encoder
from colonnade.kinds.split.embeddings.anchors import anchors, contrastive
from colonnade.kinds.split.encoders import encoder_from, from_bytes, load_encoder, save_encoder, to_bytes
from colonnade.kinds.split.own import own_encoder
from colonnade.kinds.split.report import who_saw_what
from colonnade.models import Estimator, Roster
from colonnade.privacy import Statement
from colonnade.tables import Schema, number
from colonnade.testing.seeded import seeded
from tests.kinds.split.people import federation, roster, schemas_for, tables
from tests.support.errors import raises

pytestmark = pytest.mark.filterwarnings("ignore:colonnade.testing.seeded")
LINEAR = {"bank": {"kind": "linear", "width": 2}, "shop": {"kind": "linear", "width": 2}}
PLACES = "ids and the order of rows are public; who is replaced is so in the same place, and so in the same batch"


def told(epsilon: object, **more: object) -> SplitClassifier:
    return SplitClassifier(label="bank.default", head="embeddings", rows=200, epsilon=epsilon, **more)


def three() -> Roster:
    return Roster.of({**schemas_for("default"), "clinic": Schema({"e": number(-3, 3)})})


@pytest.mark.parametrize("epsilon", [{"analyst": 1.0}, {"shop": 1.0}, {"coordinator": 1.0, "shop": 2.0}])
@pytest.mark.parametrize("training", ["none", "labels"])
def test_a_budget_speaks_of_whoever_is_told_embeddings(epsilon, training):
    with raises(StudyError, "ST492", "bank", "embeddings"):
        told(epsilon, training=training).plan(roster("default"))


@pytest.mark.parametrize("epsilon", [{"bank": 4.0}, {"party": 4.0}, {"bank": 4.0, "analyst": 1.0}, 4.0])
def test_a_budget_for_whoever_is_told_decides_the_noise(epsilon):
    assert told(epsilon).plan(roster("default")).noise == told(4.0).plan(roster("default")).noise


def test_in_rounds_a_budget_speaks_of_every_party():
    rounds = {"training": "rounds", "epochs": 2, "label_epsilon": 1.0, "encoders": LINEAR | {"clinic": LINEAR["shop"]}}
    with raises(StudyError, "ST492", "shop", "clinic", "embeddings"):
        told({"bank": 4.0}, **rounds).plan(three())
    assert told({"party": 4.0}, **rounds).plan(three()).noise > 2**10


class Mine(Encoder):
    """An encoder of a user's own: as it is asked, it treats rows by themselves, or not."""

    kind = "mine"

    def __init__(self, how: str, columns: int = 2) -> None:
        self.how, self.columns, self.width, self.calls = how, columns, columns, 0

    def embed(self, rows):
        self.calls += 1
        match self.how:
            case "standardised":
                return (rows - rows.mean(axis=0)) / (rows.std(axis=0) + 1e-12)
            case "large blocks":
                return rows - rows.mean(axis=0) if len(rows) > 500 else rows
            case "neighbours":
                return rows + np.roll(rows, 1, axis=0)
            case "each time":
                return rows + self.calls
            case "places":
                return rows + np.arange(len(rows))[:, None]
            case "flat":
                return rows.sum(axis=1)
            case "broken":
                raise RuntimeError("no such layer\nsecond line")
            case "no numbers":
                return np.full(rows.shape, np.nan)
        return np.tanh(rows)

    def options(self):
        return {}

    def arrays(self):
        return {}


@pytest.mark.parametrize(
    ("how", "said"),
    [
        *((how, "ST337") for how in ("standardised", "large blocks", "neighbours")),
        *((how, "ST337") for how in ("each time", "places")),
        ("flat", ("ST339", "2")),
        ("broken", ("ST338", "2", "RuntimeError")),
        ("no numbers", "ST340"),
    ],
)
@pytest.mark.parametrize("head", ["committee", "embeddings"])
def test_an_encoder_that_does_not_treat_each_row_by_itself_is_refused(head, how, said):
    model = SplitClassifier(label="bank.default", epsilon=1.0, head=head, rows=200, encoders={"shop": Mine(how)})
    with raises(StudyError, said):
        model.plan(roster("default"))


def test_a_wide_encoder_is_tried_on_few_rows():
    with raises(StudyError, "ST337"):
        encoder_from(Mine("standardised", 5000), 5000)
    assert encoder_from(Mine("tanh", 5000), 5000).calls < 10


def test_statements_suppose_what_no_code_can_check_of_a_supplied_encoder():
    people, asked = federation(200, "default"), federation(5, "default", seed=1)
    said = "shop supplies an encoder that was made without this table and treats each row by itself, as it declares"
    for head in ("committee", "embeddings"):
        model = SplitClassifier(label="bank.default", epsilon=9.0, head=head, encoders={"shop": Mine("tanh")})
        assert said in model.fit(people).privacy_.assumptions
        assert said in SplitScores(model, exact=True).fit(asked).privacy_.assumptions
    drawn = SplitClassifier(label="bank.default", epsilon=9.0).fit(people)
    assert not [text for text in SplitScores(drawn, epsilon=9.0).fit(asked).privacy_.assumptions if "encoder" in text]


LEARNED = {
    "published": ("uncharged", {"head": "published", "unprotected": True, "epochs": 1}),
    "rounds": ("charged", {"head": "embeddings", "epsilon": 9.0, "training": "rounds", "epochs": 1}),
}


@pytest.mark.parametrize("way", LEARNED)
def test_an_encoder_remembers_that_it_learned_wherever_it_goes(way, tmp_path):
    learned, how = LEARNED[way]
    model = SplitClassifier(label="bank.default", encoders=LINEAR, **how)
    trained = model.simulate(tables(100, "default"), roster("default"), seeded(1)).encoders_["shop"]
    assert trained.learned == from_bytes(to_bytes(trained)).learned == learned
    save_encoder(trained, tmp_path / "bare.npz")
    with raises(StudyError, "ST270", "bare.npz"):
        own_encoder("shop", {"weights": tmp_path / "bare.npz"}, trained.columns)
    for given in (trained, load_encoder(tmp_path / "bare.npz")):
        with raises(StudyError, "ST270", "shop"):
            SplitClassifier(label="bank.default", epsilon=1.0, encoders={"shop": given}).plan(roster("default"))


def test_an_encoder_that_did_not_learn_may_be_brought_again(tmp_path):
    frozen = SplitClassifier(label="bank.default", epsilon=9.0, encoders=LINEAR)
    drawn = frozen.simulate(tables(100, "default"), roster("default"), seeded(1)).encoders_["shop"]
    assert drawn.learned == "none"
    assert b"learned" not in to_bytes(drawn)
    save_encoder(drawn, tmp_path / "bare.npz")
    assert own_encoder("shop", {"weights": tmp_path / "bare.npz"}, drawn.columns).width == drawn.width


def test_a_kept_file_never_says_less_than_its_encoder(tmp_path):
    model = SplitClassifier(label="bank.default", epsilon=9.0, encoders=LINEAR)
    model.simulate(tables(100, "default"), roster("default"), seeded(1))
    model.encoders_["shop"].learned = "uncharged"
    path = model.save_kept(tmp_path / "kept.npz", "shop")
    with raises(StudyError, "ST270"):
        own_encoder("shop", {"weights": path}, 2)


def test_a_file_that_does_not_say_how_an_encoder_learned_is_refused():
    drawn = encoder_from({"kind": "linear", "width": 2}, 2, seed=0)
    drawn.learned = "somehow"
    with raises(StudyError, "ST252"):
        from_bytes(to_bytes(drawn))


@pytest.mark.parametrize("training", ["none", "labels", "rounds"])
def test_statements_over_told_embeddings_name_what_their_theorem_rests_on(training):
    more = {} if training == "none" else {"training": training, "epochs": 2, "batches": 2, "encoders": LINEAR}
    model = told(9.0, **more).simulate(tables(200, "default"), roster("default"), seeded(1))
    assert PLACES in model.privacy_.assumptions
    assert not [text for text in model.privacy_.assumptions if "when a person leaves" in text]
    again = Statement.from_dict(model.privacy_.to_dict())
    assert again.assumptions == model.privacy_.assumptions


def test_a_statement_that_promises_nothing_about_rows_supposes_nothing_of_their_places():
    model = SplitClassifier(label="bank.default", head="published", unprotected=True, epochs=1, encoders=LINEAR)
    model.simulate(tables(100, "default"), roster("default"), seeded(1))
    assert PLACES not in model.privacy_.assumptions
    assert "and of the columns of bank" in str(model.privacy_)


def published(**more: object) -> SplitClassifier:
    how = {"head": "published", "per_release": 20.0, "epochs": 4, "batches": 8, "encoders": LINEAR} | more
    return SplitClassifier(label="bank.default", **how)


def test_few_new_people_are_stretched_as_in_training(tmp_path):
    fits = [published().fit(federation(200, "default"))]
    fits.append(published().simulate(tables(200, "default"), roster("default"), seeded(1)))
    others = tables(30, "default", seed=1)["shop"]
    for model in fits:
        assert set(model.own_["shop"]) == {"factor"}
        factor = float(model.own_["shop"]["factor"])
        assert factor != 1.0
        together = model.embedded("shop", others)
        assert np.allclose(
            np.vstack([model.embedded("shop", others.take_rows([place])) for place in range(30)]), together
        )
        raw = model.encoders_["shop"].embed(model.encoded_rows("shop", others))
        assert np.allclose(together, clip_rows(raw, 1.0) * factor)
        assert str(factor)[:8] not in model.save(tmp_path / "model.json").read_text()
        again = Estimator.load(tmp_path / "model.json")
        again.load_kept(model.save_kept(tmp_path / "shop.npz", "shop"))
        assert np.array_equal(again.embedded("shop", others), together)
    assert "shop" not in published(rescale=False).fit(federation(200, "default")).own_


@pytest.mark.parametrize("own", [{}, {"factor": np.array(0.0)}, {"factor": np.ones(2)}, {"weights": np.ones(2)}])
def test_a_kept_factor_that_is_none_is_refused(own, tmp_path):
    model = published().simulate(tables(100, "default"), roster("default"), seeded(1))
    model.own_["shop"] = own
    path = model.save_kept(tmp_path / "shop.npz", "shop")
    with raises(StudyError, "ST091"):
        model.load_kept(path)


def test_one_very_long_embedding_says_nothing_and_leaves_the_others_alone():
    points, labels = anchors(2, 2, 1.0), np.array([0, 1])
    embeddings = np.array([[0.5, 0.1], [1e200, -1e200]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = contrastive(embeddings, labels, points, 2.0, 0.5)
    assert np.array_equal(found[:1], contrastive(embeddings[:1], labels[:1], points, 2.0, 0.5))


@pytest.mark.parametrize(
    ("training", "back"),
    [("labels", "epsilon 2<"), ("rounds", "epsilon 2, and slopes made of told numbers<")],
)
def test_the_report_says_everything_that_comes_back(training, back):
    model = told(9.0, training=training, epochs=1, label_epsilon=2.0, encoders=LINEAR)
    model.simulate(tables(200, "default"), roster("default"), seeded(1))
    page = str(who_saw_what(model, {}, model.privacy_.trust))
    assert f"labels of bank, randomised response, {back}" in page
