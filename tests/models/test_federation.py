from __future__ import annotations

import dataclasses
import datetime
from functools import cache

import numpy as np
import pyarrow as pa
import pytest

from colonnade import (
    PCA,
    Federation,
    LinearRegression,
    LogisticRegression,
    Party,
    Schema,
    flag,
    joint_scores,
    number,
    polynomial_sum,
)
from colonnade.errors import AlignmentError, CapacityError, ColonnadeError, DataError, StudyError
from colonnade.tables.keys import Key, KeyColumn
from colonnade.wire import Network
from tests.support.errors import raises

PEOPLE = 60
HELD = {"bank": range(0, 45), "shop": range(10, 60), "clinic": (*range(5, 30), *range(50, 60))}
COMMON = {2: set(range(10, 45)), 3: set(range(10, 30))}


def value(person):
    """What every party knows about a person, so that rows of different people cannot be mistaken for the same."""
    return 2 * person / PEOPLE - 1


def table(party, seed=0, *, id="person_id", written="P-{:03}".format):
    order = np.random.default_rng((seed, len(party))).permutation(list(HELD[party]))
    return pa.table({id: [written(k) for k in order], "x": [value(k) for k in order]})


def parties(count, **settings):
    schema = Schema({"x": number(-1, 1)})
    return [Party(name, table(name), schema=schema, id="person_id", **settings) for name in list(HELD)[:count]]


def found(people):
    """The people in the aligned tables, who are the same at every party row by row."""
    tables = people.tables()
    assert len({tuple(held.ids) for held in tables.values()}) == 1
    numbers = [np.rint((held.matrix()[:, 0] + 1) * PEOPLE / 2).astype(int).tolist() for held in tables.values()]
    assert all(each == numbers[0] for each in numbers)
    assert len(set(numbers[0])) == len(numbers[0])
    return set(numbers[0])


@pytest.mark.parametrize("mode", ["ot", "dh", "helper"])
@pytest.mark.parametrize("count", [2, 3])
def test_aligned_tables_hold_the_common_people_row_by_row(mode, count):
    people = Federation(parties(count))
    assert people.alignment is None
    assert people.align(on="person_id", mode=mode) is people
    assert found(people) == COMMON[count]
    summary = people.alignment
    assert (summary.mode, summary.hidden, summary.on, summary.count) == (
        mode,
        False,
        ("person_id",),
        len(COMMON[count]),
    )
    assert summary.rows == {name: len(HELD[name]) for name in list(HELD)[:count]}
    assert set(summary.missing.values()) == set(summary.repeated.values()) == {0}
    assert summary.seconds > 0
    for name, held in people.tables().items():
        assert set(held.own_ids) == {f"P-{k:03}" for k in COMMON[count]}
        assert not set(held.own_ids) & set(held.ids), name


def test_the_summary_tells_who_learned_what():
    people = Federation(parties(2)).align(on="person_id", mode="helper")
    summary, text = people.alignment, str(people.alignment)
    assert repr(summary) == text
    assert "35 people in common by person_id" in text
    assert "shop: 50 rows" in text
    assert {leak.who for leak in summary.leakage}
    words = " ".join(text.split())
    assert all(leak.who.split()[0] in words for leak in summary.leakage)
    assert max(map(len, text.splitlines())) <= 120
    assert "aligned" in repr(people)
    with pytest.raises(dataclasses.FrozenInstanceError):
        summary.count = 3


def test_progress_is_shown():
    told = []
    Federation(parties(2), progress=lambda *step: told.append(step)).align(on="person_id", mode="dh")
    assert told
    assert all(0 <= done <= total for _, done, total in told)


def test_far_apart_it_takes_longer_and_finds_the_same():
    people = Federation(parties(2), network=Network(0.02)).align(on="person_id", mode="helper")
    assert found(people) == COMMON[2]
    assert people.alignment.seconds >= 0.02


def test_a_distance_that_is_none_is_refused():
    with raises(StudyError, "ST084"):
        Federation(parties(2), network=0.02)


def test_a_misspelt_accelerator_ends_a_study_before_it_begins(monkeypatch):
    people = Federation(parties(2)).align(on="person_id", mode="helper")
    monkeypatch.setenv("COLONNADE_ACCELERATOR", "gpu")
    with raises(ColonnadeError, "CO024"):
        PCA(1, epsilon=1.0).fit(people)


def test_several_keys_under_other_names_and_spellings():
    """Names and birth days that each party calls and writes in its own way; nobody has ids."""
    born = {k: datetime.date(1950 + k, 1 + k % 12, 1 + k % 28) for k in range(PEOPLE)}
    bank = {
        "name": [f" Ana  {k % 7}" for k in HELD["bank"]],
        "dob": [born[k].strftime("%d.%m.%Y") for k in HELD["bank"]],
        "x": [value(k) for k in HELD["bank"]],
    }
    shop = {
        "customer": [f"ANA {k % 7}" for k in HELD["shop"]],
        "birth": [born[k] for k in HELD["shop"]],
        "x": [value(k) for k in HELD["shop"]],
    }
    schema = Schema({"x": number(-1, 1)})
    people = Federation(
        [
            Party("bank", pa.table(bank), schema=schema, keys={"birth": KeyColumn("dob", format="%d.%m.%Y")}),
            Party("shop", pa.table(shop), schema=schema, keys={"name": "customer"}),
        ]
    )
    keys = [Key("name", case="fold", blanks="collapse"), Key("birth", kind="date")]
    assert found(people.align(on=keys)) == COMMON[2]
    assert people.alignment.on == ("name", "birth")
    with pytest.raises(AlignmentError):
        people.align(on=["name", Key("birth", kind="date")])  # capitals are kept, so nobody is the same


def numbered_differently():
    """Two parties that call and write the same numbers in their own ways, aligned."""
    schema = Schema({"x": number(-1, 1)})
    bank = Party("bank", table("bank", id="account", written=str), schema=schema, id="account")
    shop = Party("shop", table("shop", id="card", written="{:05}".format), schema=schema, id="card")
    return Federation([bank, shop]).align(on=Key("number", kind="number"), mode="helper")


def test_one_key_is_the_id_column_whatever_it_is_called():
    people = numbered_differently()
    assert found(people) == COMMON[2]
    assert set(people.tables()["shop"].own_ids) == {f"{k:05}" for k in COMMON[2]}


def test_similar_names_of_two_parties():
    names = ["Johanna Vermeulen", "Pieter van der Berg", "Katarzyna Nowak", "Mohammed El Amrani", "Siobhan O'Connor"]
    typed = ["Johana Vermeulen", "Pieter van den Berg", "Katarzyna Novak", "Mohamed El Amrani", "Xavier Dupont"]
    schema = Schema({"x": number(-1, 1)})
    people = Federation(
        [
            Party(party, pa.table({"name": held, "x": list(map(value, range(5)))}), schema=schema)
            for party, held in (("bank", names), ("shop", typed))
        ]
    )
    people.align(on=Key("name", case="fold"), mode="fuzzy", similarity=0.7)
    assert found(people) == {0, 1, 2, 3}
    assert "Bloom" in str(people.alignment)
    with raises(StudyError, "ST425"):
        Federation(parties(3)).align(on="person_id", mode="fuzzy")


def test_predictions_come_back_under_the_ids_of_whoever_receives_them():
    people = numbered_differently()
    model = LinearRegression(epsilon={"analyst": 50.0}, label="bank.x", rows_at_most=1000).fit(people)
    (told,) = people.roster.assumptions
    assert "helper" in told
    assert told in model.privacy_.assumptions
    scores = joint_scores(model, people, to="shop", exact=True)
    numbers = list(map(int, scores.ids))
    assert set(numbers) == COMMON[2]
    assert {len(own) for own in scores.ids} == {5}
    want = model.intercept_[0] + model.coef_[0, 0] * np.array([value(person) for person in numbers])
    np.testing.assert_allclose(scores.scores[:, 0], want, atol=1e-4)


# --- what is left out, and what fails


def doubled(party, extra):
    """A party's table with more rows: ids that are there already, or none."""
    held = table(party)
    more = pa.table({"person_id": pa.array(extra, pa.string()), "x": [0.5] * len(extra)})
    return pa.concat_tables([held, more])


def test_duplicates_and_missing_keys_are_left_out_and_counted():
    schema = Schema({"x": number(-1, 1)})
    bank = Party("bank", doubled("bank", ["P-012", "P-013", None, None, ""]), schema=schema, id="person_id")
    people = Federation([bank, parties(2)[1]])
    with raises(DataError, "DA181"):
        people.align(on="person_id", mode="helper")
    assert people.alignment is None
    assert found(people.align(on="person_id", mode="helper", duplicates="first")) == COMMON[2]
    assert people.alignment.repeated == {"bank": 2, "shop": 0}
    assert people.alignment.missing == {"bank": 3, "shop": 0}
    assert "bank: 50 rows, 3 without a full key, 2 with a repeated key" in str(people.alignment)
    assert found(people.align(on="person_id", mode="helper", duplicates="drop")) == COMMON[2] - {12, 13}
    assert people.alignment.repeated["bank"] == 4


@pytest.mark.parametrize("mode", ["ot", "dh", "helper"])
def test_nothing_in_common_is_an_error_with_own_examples(mode):
    schema = Schema({"x": number(-1, 1)})
    shop = Party("shop", table("shop", written="p{}".format), schema=schema, id="person_id")
    people = Federation([parties(2)[0], shop])
    with pytest.raises(AlignmentError) as caught:
        people.align(on="person_id", mode=mode)
    assert caught.value.examples
    assert all("P-0" in example for example in caught.value.examples)  # those of the first party, here bank
    assert "P-0" not in str(caught.value)
    assert people.alignment is None
    assert not people.roster.hidden


def test_too_few_in_common_is_an_error_and_leaves_the_last_alignment():
    people = Federation(parties(2)).align(on="person_id", mode="helper")
    before = people.alignment
    with raises(AlignmentError, "AL001", "36"):
        people.align(on="person_id", mode="helper", at_least=36)
    with raises(StudyError, "ST422"):
        people.align(on="person_id", mode="helper", hidden="no")
    assert people.alignment is before
    assert found(people) == COMMON[2]
    assert people.roster.hidden is False
    assert found(people.align(on="person_id", mode="helper", at_least=35)) == COMMON[2]
    assert people.alignment is not before


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"on": 5}, ("ST059", "int")),
        ({"on": ["person_id", None]}, ("ST059", "NoneType")),
        ({"on": []}, "ST607"),
        ({"on": ""}, "ST605"),
        ({"on": ["person_id", "person_id"]}, "ST608"),
        ({"mode": "magic"}, ("ST421", "ot", "dh", "helper", "fuzzy", "magic")),
        ({"duplicates": "keep"}, "ST609"),
        ({"at_least": 0.5}, "ST423"),
        ({"mode": "fuzzy", "similarity": 2}, "ST426"),
        ({"similarity": 0.85}, "ST090"),
        ({"hidden": "no"}, "ST422"),
    ],
)
def test_bad_settings_are_named(changes, message):
    with raises(StudyError, message):
        Federation(parties(2)).align(**{"on": "person_id"} | changes)


@pytest.mark.parametrize("keys", [["x"], "x", {"birth": 3}, {"birth": ""}, {"birth": None}])
def test_a_party_says_where_its_keys_are_by_name(keys):
    with raises(StudyError, "ST089", "bank"):
        parties(1, keys=keys)


def test_a_format_is_for_dates_and_an_id_that_is_given_must_be_there():
    born = {"person_id": KeyColumn("person_id", format="%d.%m.%Y")}
    with raises(DataError, "DA178", "bank", "person_id", "text"):
        Federation(parties(2, keys=born)).align(on="person_id")
    schema = Schema({"x": number(-1, 1)})
    wrong = Party("bank", table("bank"), schema=schema, id="person", keys={"id": "person_id"})
    with raises(DataError, "DA154", "bank", "person"):
        Federation([wrong, parties(2)[1]]).align(on="id", mode="helper")


def test_all_lists_count_while_nobody_knows_who_matched():
    people = Federation(parties(2)).align(on="person_id", mode="helper", hidden=True)
    with raises(CapacityError, "CA030", "94"):
        PCA(1, epsilon=1.0, rows_at_most=94).fit(people)
    people.align(on="person_id", mode="helper")
    with raises(CapacityError, "CA030", "tables", "34"):
        PCA(1, epsilon=1.0, rows_at_most=34).fit(people)


def test_unknown_columns_are_named():
    with raises(DataError, "DA154", "bank", "passport"):
        Federation(parties(2)).align(on=["person_id", "passport"])
    with raises(DataError, "DA154", "bank", "customer"):
        Federation(parties(2, keys={"person_id": "customer"})).align(on="person_id")


def test_different_people_are_aligned_before_a_fit():
    schema = Schema({"x": number(-1, 1)})
    people = Federation(parties(2))
    for attempt in (lambda: PCA(1, epsilon=1.0).fit(people), people.tables):
        with raises(StudyError, "ST087"):
            attempt()
    nameless = Federation([Party(name, table(name), schema=schema) for name in ("bank", "shop")])
    with raises(StudyError, "ST077", "bank"):
        PCA(1, epsilon=1.0).fit(nameless)
    assert found(nameless.align(on="person_id", mode="helper")) == COMMON[2]


# --- hidden


ROWS = 1200
SCHEMAS = {
    "left": Schema({"a": number(-1, 1), "y": flag(), "z": number(-8, 8)}),
    "right": Schema({"c": number(-1, 1)}),
    "third": Schema({"b": number(-1, 1)}),
}


@pytest.fixture(scope="module")
def crowd(unaligned):
    """The federation of one of two labels, aligned once; z is 4 a - 3 c + b, and y is likely where that is high."""
    rng = np.random.default_rng(0)
    a, b, c = rng.uniform(-1, 1, (3, ROWS))
    score = 4 * a - 3 * c + b
    ids = [f"p{k}" for k in range(ROWS)]
    tables = {
        "left": pa.table({"id": ids, "a": a, "y": rng.random(ROWS) < 1 / (1 + np.exp(-score)), "z": score}),
        "right": pa.table({"id": ids, "c": c}),
        "third": pa.table({"id": ids, "b": b}),
    }
    held = unaligned(tables, "id")

    @cache
    def federation(label, hidden):
        schemas = SCHEMAS | {"left": SCHEMAS["left"].select(["a", label])}
        people = Federation([Party(name, held[name], schema=schema, id="id") for name, schema in schemas.items()])
        return people.align(on="id", mode="helper", hidden=hidden)

    return federation


def test_hidden_components_are_those_of_the_common_people(crowd):
    models = []
    for hidden in (False, True):
        people = crowd("z", hidden)
        assert people.roster.hidden is people.alignment.hidden is hidden
        models.append(PCA(1, epsilon={"analyst": 50.0}, rows_at_most=4000).fit(people))
    seen, unseen = models
    assert abs(seen.components_[0] @ unseen.components_[0]) == pytest.approx(1, abs=2e-3)
    assert unseen.count_ == pytest.approx(ROWS, abs=8)
    np.testing.assert_allclose(unseen.mean_, seen.mean_, atol=0.01)


def test_hidden_regressions_are_those_of_the_common_people(crowd):
    model = LinearRegression(epsilon={"analyst": 50.0}, label="left.z", rows_at_most=4000)
    seen = model.fit(crowd("z", False)).coef_.copy()
    np.testing.assert_allclose(seen, [[4, -3, 1]], atol=0.2)
    np.testing.assert_allclose(model.fit(crowd("z", True)).coef_, seen, atol=0.2)


@pytest.mark.parametrize("method", ["one-shot", "functional"])
def test_hidden_classifiers_are_those_of_the_common_people(crowd, method):
    visible, hidden = crowd("y", False), crowd("y", True)
    model = LogisticRegression(epsilon={"analyst": 50.0}, label="left.y", method=method, rows_at_most=4000)
    scores = [model.fit(people).decision_function(visible) for people in (visible, hidden)]
    assert np.corrcoef(*scores)[0, 1] > 0.999
    assert model.score(visible) > 0.78


@pytest.mark.parametrize("count", [2, 3])
def test_hidden_members_without_a_trusted_helper(count):
    people = Federation(parties(count)).align(on="person_id", hidden=True)
    assert people.alignment.count == len(COMMON[count])  # as the coordinator knows
    model = PCA(1, epsilon={"analyst": 50.0}, rows_at_most=1000).fit(people)
    assert model.count_ == pytest.approx(len(COMMON[count]), abs=9)  # six deviations; the lists are far longer


def test_after_a_hidden_alignment_nobody_has_a_common_table():
    people = Federation(parties(2)).align(on="person_id", mode="helper", hidden=True)
    model = PCA(1, epsilon={"analyst": 50.0}, rows_at_most=4000).fit(people)
    for attempt in (people.tables, lambda: model.transform(people)):
        with raises(StudyError, "ST086"):
            attempt()
    with raises(StudyError, "ST082"):
        polynomial_sum(people, "bank.x * shop.x", epsilon=1.0)
    assert "of which no party knows" in str(people.alignment)
    assert people.roster.assumptions[0] in model.privacy_.assumptions
    assert model.transform(people.align(on="person_id", mode="helper")).shape == (len(COMMON[2]), 1)


def test_gradients_need_to_know_who_takes_part(crowd):
    with raises(StudyError, "ST082"):
        LogisticRegression(epsilon=5.0, label="left.y", method="sqm", rows=ROWS).fit(crowd("y", True))
