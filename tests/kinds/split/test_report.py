"""The page of a split model: what it says about embeddings that were told, with a promise and without."""

from __future__ import annotations

import pytest

from colonnade import SplitClassifier
from colonnade.models import Roster
from colonnade.tables import read_table
from colonnade.tables.people import population
from tests.support.pages import Page
from tests.support.reports import rendered

LINEAR = {"kind": "linear", "width": 4}
PUBLISHED = {"head": "published", "epochs": 2, "batches": 2}


@pytest.fixture(scope="module")
def people():
    known = population(120, seed=3)
    schemas = {party: known.schemas[party] for party in ("bank", "shop")}
    return {party: read_table(known.arrow[party], schemas[party]) for party in schemas}, Roster.of(schemas)


def words_of(people, stream, **asked):
    tables, roster = people
    encoders = dict.fromkeys(roster.schemas, LINEAR)
    model = SplitClassifier(label="bank.default", encoders=encoders, **asked).simulate(tables, roster, stream)
    return Page(rendered({"study": "a study", "rows": 120}, model.privacy_, model)).words


def test_labels_that_were_told_stand_with_their_epsilon(people, stream):
    told = {"head": "embeddings", "epsilon": 8.0, "training": "labels", "epochs": 2, "batches": 2}
    words = words_of(people, stream, label_epsilon=2.5, **told)
    assert "Labels randomised response, epsilon 2.5 " in words
    assert "labels of bank, randomised response, epsilon 2.5 " in words
    assert "Labels told without protection" in words_of(people, stream, **told)
    assert "Most noise" not in words


@pytest.mark.parametrize(
    ("asked", "variant", "clipped"),
    [
        ({"per_release": 10.0}, "rescaling and adjusting", "to 1, then stretched"),
        ({"per_release": 10.0, "adjust": False}, "rescaling", "to 1, then stretched"),
        ({"per_release": 10.0, "rescale": False}, "adjusting", "to 1"),
        ({"per_release": 10.0, "rescale": False, "adjust": False}, "vanilla", "to 1"),
        ({"unprotected": True}, "unprotected", "not clipped"),
    ],
    ids=["both", "rescaling", "adjusting", "vanilla", "unprotected"],
)
def test_a_published_run_says_which_variant_it_was_and_how_embeddings_left(people, stream, asked, variant, clipped):
    words = words_of(people, stream, **PUBLISHED, **asked)
    noisy = "per_release" in asked
    assert f"Variant {variant} " in words
    assert f"shop linear 4 {clipped} {'' if noisy else 'none '}" in words
    assert ("Epsilon of one release 10, as the paper counts it" in words) == noisy
    assert f"shop its own never slopes of bank {'its own' if noisy else 'none'} public" in words
    assert "Most noise" not in words
