from __future__ import annotations

import importlib.util
import random
import sys
from datetime import date, timedelta
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from colonnade.errors import CapacityError, ProtocolError, StudyError
from colonnade.protocols.align import AlignmentTask, fuzzy, fuzzy as similarity
from colonnade.protocols.roles import COORDINATOR
from colonnade.tables.keys import Key, KeyColumn, KeyPlan, collect_keys
from tests.support import protocols as kit
from tests.support.errors import refused

KEYS = (Key("first", case="fold"), Key("last", case="fold"), Key("born", kind="date"))


SECRET = bytes(range(32))


DEFAULT = 0.85


TASK = AlignmentTask(kit.trust_of(("east", "west")), KEYS, "fuzzy", similarity=DEFAULT)


def listed(people, keys=KEYS):
    """The normalised keys of some people, as a party's table has them."""
    columns = {key.name: [person[i] for person in people] for i, key in enumerate(keys)}
    places = {key.name: KeyColumn(key.name) for key in keys}
    return collect_keys(pa.table(columns), KeyPlan(keys), places, "made up", "map")


def alike(one, other, keys=KEYS):
    records = [listed([person], keys).parts(0) for person in (one, other)]
    a, b = np.unpackbits(similarity.encode(records, keys, SECRET), axis=1).astype(int)
    return 2 * (a & b).sum() / (a.sum() + b.sum())


# ------------------------------------------------------------------------------------------------ what is alike


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("José", "Muñoz", "1990-11-02"), ("Jose", "Munoz", "1990-11-02")),
        (("Zoë", "Brontë", "1990-11-02"), ("Zoe", "Bronte", "1990-11-02")),
    ],
)
def test_missing_accents_are_alike_and_equal_where_the_key_says_so(one, other):
    assert alike(one, other) >= 0.75
    stripped = (Key("first", accents="strip"), Key("last", accents="strip"), KEYS[2])
    assert alike(one, other, stripped) == 1


def test_numbers_are_compared_digit_by_digit_in_their_places():
    keys = (Key("name"), Key("postcode", kind="number"))
    same, close, moved = (
        alike(("Anna Silva", "31425"), ("Anna Silva", code), keys) for code in ("31425", "31426", "54231")
    )
    assert same == 1
    assert close >= DEFAULT > moved


def test_filters_are_half_full_and_depend_on_the_secret():
    records = [("katharina", "hoffmann", "1984-03-17")]
    one, other = similarity.encode(records, KEYS, SECRET), similarity.encode(records, KEYS, bytes(32))
    a, b = np.unpackbits(one), np.unpackbits(other)
    assert one.shape == (1, 128)
    assert 0.4 < a.mean() < 0.6
    assert 2 * (a & b).sum() / (int(a.sum()) + int(b.sum())) < 0.65


FIRST_NAMES = """
anna berta clara dora emma frieda greta hanna ida johanna karla lena maria nora olga paula rosa sophie thea ursula
anton bruno carl david emil franz georg hugo isaak jakob konrad ludwig max noah otto peter robert simon theo victor
katharina elisabeth margarethe charlotte alexander benjamin christian sebastian maximilian friedrich
"""


LAST_NAMES = """
abel bauer becker berg braun busch dietrich engel fischer frank fuchs graf gross haas hahn hartmann herrmann
hoffmann huber jung kaiser keller klein koch koehler krause krueger lang lehmann ludwig maier martin meyer moeller
mueller neumann otto peters pfeiffer pohl richter roth sauer schmidt schmitt schneider schroeder schubert schulz
schwarz seidel simon sommer stein thomas vogel vogt wagner walter weber weiss werner winkler wolf ziegler zimmer
"""


def made_up(chance):
    born = date(1935, 1, 1) + timedelta(days=chance.randrange(75 * 365))
    return chance.choice(FIRST_NAMES.split()), chance.choice(LAST_NAMES.split()), born.isoformat()


def mistyped(word, chance):
    at, letter = chance.randrange(len(word) - 1), chance.choice("abcdefghijklmnopqrstuvwxyz")
    return chance.choice(
        [
            word[:at] + letter + word[at + 1 :],
            word[:at] + letter + word[at:],
            word[:at] + word[at + 1 :],
            word[:at] + word[at + 1] + word[at] + word[at + 2 :],
        ]
    )


# ------------------------------------------------------------------------------------------------ the pairing


@st.composite
def filter_lists(draw):
    """Few different bytes, so that equal rows, equal similarities and empty filters are common."""
    byte = st.sampled_from([0, 0, 1, 3, 7, 255])
    row = st.lists(byte, min_size=4, max_size=4).map(lambda head: head + [0] * 124)
    sides = [draw(st.lists(row, max_size=9)) for _ in range(2)]
    return [np.array(side, dtype=np.uint8).reshape(-1, 128) for side in sides]


def pairs_one_by_one(left_bits, right_bits, similarity):
    """What ``similarity.pair`` must find, written as it is defined: one pair at a time, with whole numbers."""
    lefts, rights = ([int.from_bytes(row.tobytes(), "big") for row in bits] for bits in (left_bits, right_bits))
    scored = []
    for i, a in enumerate(lefts):
        for j, b in enumerate(rights):
            weight = a.bit_count() + b.bit_count()
            score = 2 * (a & b).bit_count() / weight if weight else 0.0
            if score >= similarity:
                scored.append((-score, i, j))
    chosen = []
    while scored:
        _, i, j = min(scored)
        chosen.append((i, j))
        scored = [other for other in scored if other[1] != i and other[2] != j]
    return chosen


@settings(max_examples=40, deadline=None)
@given(lists=filter_lists(), threshold=st.sampled_from([0.01, 0.3, 2 / 3, 0.8, 0.9, 1.0]), block=st.integers(1, 10))
def test_block_by_block_equals_the_reference(lists, threshold, block):
    pairs = similarity.pair(*lists, threshold, block=block)
    assert pairs.shape[1:] == (2,)
    assert list(map(tuple, pairs.tolist())) == pairs_one_by_one(*lists, threshold)


def test_too_many_similar_pairs_are_refused(monkeypatch):
    monkeypatch.setattr(similarity, "CANDIDATES_AT_MOST", 24)
    ones = np.full((5, 128), 255, dtype=np.uint8)
    assert len(similarity.pair(ones[:4], ones, 0.5, block=2)) == 4
    refused(CapacityError, "CA014", similarity.pair, ones, ones, 0.5, block=2)


# ------------------------------------------------------------------------------------------------ the protocol


def execute(task, lists, **how):
    sizes = {name: len(keys) for name, keys in lists.items()}
    roles = SimpleNamespace(owner=fuzzy.owner, coordinator=lambda me, task: fuzzy.coordinator(me, task, sizes))
    return kit.execute(roles, task, lists, **how)


def small_lists():
    """Twelve people in common, corrupted, at places that the test knows; others on both sides."""
    chance = random.Random(3)  # noqa: S311
    people = [made_up(chance) for _ in range(30)]
    west = [(mistyped(first, chance), last, born) for first, last, born in people[:12]] + people[22:]
    order = list(range(len(west)))
    chance.shuffle(order)
    partner = {order.index(i): i for i in range(12)}
    return {"east": listed(people[:22]), "west": listed([west[i] for i in order])}, partner


def test_both_owners_end_with_the_same_people_in_one_random_order():
    lists, partner = small_lists()
    runs = [execute(TASK, lists) for _ in range(2)]
    for results in runs:
        (east, index), (west, same) = results["east"], results["west"]
        assert results[COORDINATOR] == len(partner) == len(east)
        assert {w: e for e, w in zip(east.tolist(), west.tolist(), strict=True)} == partner
        assert index.shape == (len(partner), 16)
        assert np.array_equal(index, same)
        assert len(np.unique(index, axis=0)) == len(partner)
    first, second = runs
    assert not np.array_equal(first["east"][0], second["east"][0])
    assert not np.array_equal(first["east"][1], second["east"][1])


@pytest.mark.parametrize(("east", "west"), [(1, 2), (0, 2), (2, 0), (0, 0)])
def test_no_one_in_common_is_an_empty_match(east, west):
    chance = random.Random(5)  # noqa: S311
    lists = {name: listed([made_up(chance) for _ in range(count)]) for name, count in (("east", east), ("west", west))}
    results = execute(TASK, lists)
    assert results[COORDINATOR] == 0
    assert all((results[name][0].shape, results[name][1].shape) == ((0,), (0, 16)) for name in lists)


def test_the_coordinator_sees_shuffled_filters_under_a_new_secret_and_nothing_else():
    lists, partner = small_lists()
    logs = {}, {}
    for log in logs:
        execute(TASK, lists, log=log)
    one, other = ({pair: [fields for _, fields in sent] for pair, sent in log.items()} for log in logs)
    secret = one["east", "west"][0]["key"]
    (seen,) = one["east", COORDINATOR]
    assert set(seen) == {"filters"}
    keys = lists["east"]
    inside = similarity.encode([keys.parts(i) for i in range(len(keys))], KEYS, secret)
    assert not np.array_equal(seen["filters"], inside)
    assert sorted(map(bytes, seen["filters"])) == sorted(map(bytes, inside))
    assert not set(map(bytes, seen["filters"])) & set(map(bytes, other["east", COORDINATOR][0]["filters"]))
    assert one["east", "west"] == [{"key": secret}]
    assert one["west", "east"] == []
    (told,) = one[COORDINATOR, "west"]
    assert set(told) == {"rows", "index"}
    assert len(told["rows"]) == len(partner)


_ROWS, _INDEX = np.arange(3), np.arange(48, dtype=np.uint8).reshape(3, 16)


def answers(**answer):
    """A coordinator that gives this answer, and an owner that waits for nobody else."""

    def coordinator(me):
        me.link("east").recv("fuzzy-filters")
        me.link("east").send("fuzzy-matched", **answer)

    return {"west": lambda me: me.link("east").recv("align-key"), COORDINATOR: coordinator}


WRONG = [
    *(
        (answers(**answer), COORDINATOR)
        for answer in (
            {},
            {"rows": _ROWS.astype(np.float64), "index": _INDEX},
            {"rows": _ROWS - 1, "index": _INDEX},
            {"rows": _ROWS + 20, "index": _INDEX},
            {"rows": _ROWS * 0, "index": _INDEX},
            {"rows": _ROWS},
            {"rows": _ROWS, "index": _INDEX[:2]},
            {"rows": _ROWS, "index": _INDEX.astype(np.int64)},
            {"rows": _ROWS, "index": _INDEX * 0},
        )
    ),
]


@pytest.mark.parametrize(("others", "blamed"), WRONG)
def test_a_wrong_answer_a_wrong_secret_and_wrong_filters_are_refused(others, blamed):
    lists, _ = small_lists()
    honest = {name: lambda me, n=name: fuzzy.owner(me, lists[n], TASK) for name in ("east", "west")}
    honest[COORDINATOR] = lambda me: fuzzy.coordinator(me, TASK, {"east": 3, "west": 3})
    refused(ProtocolError, "MS010|MS011|MS048|MS049|MS055", blamed, kit.results, TASK, honest | others)


def test_without_the_package_the_module_loads_and_an_owner_is_told_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "clkhash", None)
    spec = importlib.util.spec_from_file_location("loaded_again", similarity.__file__)
    again = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(again)
    refused(StudyError, "ST420", again.require_clkhash)


KATHARINA = ("Katharina", "Hoffmann", "1984-03-17")


PEOPLE = {
    "the same": (KATHARINA, KATHARINA, True),
    "capitals": (KATHARINA, ("KATHARINA", "hoffmann", "1984-03-17"), True),
    "another letter": (KATHARINA, ("Catharina", "Hoffmann", "1984-03-17"), True),
    "a letter dropped": (KATHARINA, ("Katharina", "Hofmann", "1984-03-17"), True),
    "a letter doubled": (KATHARINA, ("Katharina", "Hoffmannn", "1984-03-17"), True),
    "letters swapped": (KATHARINA, ("Kahtarina", "Hoffmann", "1984-03-17"), True),
    "two errors": (KATHARINA, ("Katarina", "Hofmann", "1984-03-17"), True),
    "another day": (KATHARINA, ("Katharina", "Hoffmann", "1984-03-18"), True),
    "a letter dropped and another day": (KATHARINA, ("Katharina", "Hofmann", "1984-03-18"), True),
    "another order": (("Anna Maria", "Silva", "1970-05-05"), ("Maria Anna", "Silva", "1970-05-05"), True),
    "a sister": (KATHARINA, ("Johanna", "Hoffmann", "1986-08-17"), False),
    "the same name, born elsewhen": (KATHARINA, ("Katharina", "Hoffmann", "1951-12-30"), False),
    "first name and date": (KATHARINA, ("Katharina", "Petersen", "1984-03-17"), False),
    "a similar name": (KATHARINA, ("Karina", "Hofman", "1992-07-01"), False),
    "the same date": (KATHARINA, ("Robert", "Petersen", "1984-03-17"), False),
}


@pytest.mark.parametrize("name", PEOPLE)
def test_a_person_written_differently_is_alike_and_other_people_are_not(name):
    one, other, same = PEOPLE[name]
    assert (alike(one, other) >= DEFAULT) == same
