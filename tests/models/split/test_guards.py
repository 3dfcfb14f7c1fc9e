"""What a split model refuses for the sake of its promises, and what its statements suppose."""

from __future__ import annotations

import pytest

from colonnade import SplitClassifier
from colonnade.errors import StudyError
from colonnade.models import Roster
from colonnade.tables import Schema, number

from .people import roster, schemas_for

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
    with pytest.raises(
        StudyError, match=r"no budget speaks of 'bank', which is told embeddings .*: give it an epsilon"
    ):
        told(epsilon, training=training).plan(roster("default"))


@pytest.mark.parametrize("epsilon", [{"bank": 4.0}, {"party": 4.0}, {"bank": 4.0, "analyst": 1.0}, 4.0])
def test_a_budget_for_whoever_is_told_decides_the_noise(epsilon):
    assert told(epsilon).plan(roster("default")).noise == told(4.0).plan(roster("default")).noise


def test_in_rounds_a_budget_speaks_of_every_party():
    rounds = {"training": "rounds", "epochs": 2, "label_epsilon": 1.0, "encoders": LINEAR | {"clinic": LINEAR["shop"]}}
    with pytest.raises(StudyError, match="no budget speaks of 'shop', 'clinic', which are told embeddings"):
        told({"bank": 4.0}, **rounds).plan(three())
    assert told({"party": 4.0}, **rounds).plan(three()).noise > 2**10
