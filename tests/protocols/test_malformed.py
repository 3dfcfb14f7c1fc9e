"""Whatever a participant sends, the honest ones end with a result or with a sentence about who sent what."""

from __future__ import annotations

import random
from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from colonnade.errors import ProtocolError, without_code
from colonnade.message_schema import (
    ArrayForm,
    Boolean,
    FiniteFloat,
    FixedBytes,
    Integer,
    ItemList,
    MessageSchema,
    TextChoice,
    TextForm,
    UpTo,
    receive_message,
)
from colonnade.protocols.session import RunResult
from colonnade.wire import codec
from tests.support import malice
from tests.support.errors import raises

SCENES = pytest.mark.parametrize("name", malice.SCENES)


def broken(scene, chosen):
    """What went wrong for anybody honest, of some mutations."""
    found = {}
    for who, at, kind, change in chosen:
        if wrong := malice.faults(malice.run(scene, who, at, change), who, change):
            found[f"{who} sent {kind!r}: {change.name}"] = wrong
    return found


@pytest.mark.parametrize("name", [name for name in malice.SCENES if name != "alignment, ot"])
def test_an_honest_run_ends_as_it_should_and_one_malformed_message_of_each_kind_is_refused_by_name(name):
    """An alignment with too few people ends alike for everybody; whoever sends a message of a kind may be the cheat.

    That by transfers takes long: ``align/test_align.py`` has a malformed message of each of its kinds.
    """
    scene, chance = malice.SCENES[name](), random.Random(name)  # noqa: S311
    ended = malice.run(scene)
    too_few = {type(end).__name__ for end in ended.values()} == {"AlignmentError"}
    assert too_few if name.endswith("too few") else all(isinstance(end, RunResult) for end in ended.values()), ended
    of_kind = defaultdict(list)
    for mutation in malice.mutations(malice.SCENES[name]()):
        if mutation[3].name != "not at all":
            of_kind[mutation[2]].append(mutation)
    assert len(of_kind) >= 3
    assert not broken(malice.SCENES[name](), [chance.choice(some) for some in of_kind.values()])


@pytest.mark.slow
@pytest.mark.timeout(3600)
@SCENES
def test_every_malformed_message_is_refused_by_name(name):
    scene = malice.SCENES[name]()
    every = list(malice.mutations(scene, malice.by_form))
    assert len(every) > 400
    assert not broken(scene, every)


# --- the door: a received message is as it was declared, or refused by name, without values and without limits


class Kept:
    """A channel at whose other end this was sent; it minds the size as a transport does."""

    def __init__(self, kind, **fields):
        self.frame = codec.encode([kind, fields])

    def recv(self, kind, most):
        assert len(self.frame) <= most, "the declared size is too small"
        got, fields = codec.decode(self.frame)
        assert got == kind
        return fields


FITTING = [
    (Integer(-5, 5), [-5, 0, 5], [-6, 6, 1.0, True, None, "1", np.array(1), 1 << 700]),
    (Integer(0, 1 << 70), [1 << 70], [-1, (1 << 70) + 1]),
    (FiniteFloat(1e60), [0.5, -0.0, -1e60], [1, float("nan"), float("inf"), 1.79e308, "0.5", None, np.array(0.5)]),
    (Boolean(), [True, False], [1, 0, None, "true", np.array(True)]),
    (Boolean(only=False), [False], [True, 0, None]),
    (FixedBytes(0, 16), [b"", bytes(16)], [bytes(15), bytes(17), "", None, 16, [0] * 16, np.zeros(16, np.uint8)]),
    (TextForm(3), ["", "abc", "\U0001f600" * 3], ["abcd", b"abc", None, 3]),
    (TextForm(4, " *-?[0-9]+"), ["  -7", "1234"], ["", "1_2", "\u0663", "1\n", "12345", "-"]),
    (TextChoice(("", "a")), ["", "a"], ["b", None, b"a", ["a"], np.array("a" == "a")]),
    (
        ItemList(Integer(1, 1), FixedBytes(2)),
        [[1, b"xy"]],
        [[], [1], [True, b"xy"], [1, b"xy", 1], [b"xy", 1], (None,), {"a": 1}],
    ),
    (
        ArrayForm(np.int64, (2, 3), -1, 1),
        [np.zeros((2, 3), np.int64), np.full((2, 3), -1)],
        [
            np.zeros((2, 3)),
            np.zeros((3, 2), np.int64),
            np.full((2, 3), 2),
            np.zeros(6, np.int64),
            0,
            None,
            [[0] * 3] * 2,
            np.zeros((2, 3), np.int32),
            np.zeros((2, 4), np.int64),
            np.full((2, 3), np.iinfo(np.int64).min),
        ],
    ),
    (ArrayForm(np.float64, (2,)), [np.zeros(2), np.full(2, 1e308)], [np.array([0, np.nan]), np.array([np.inf, 0])]),
    (
        ArrayForm(np.float64, (2,), -1, 1),
        [np.ones(2)],
        [np.array([0, np.nan]), np.array([np.nan, 2]), np.array([0, 1.1])],
    ),
    (
        ArrayForm(np.uint8, (UpTo(3), 2)),
        [np.zeros((0, 2), np.uint8), np.zeros((3, 2), np.uint8)],
        [np.zeros((4, 2), np.uint8), np.zeros((3, 1), np.uint8), np.zeros((3, 3), np.uint8), np.zeros(2, np.uint8)],
    ),
]


@pytest.mark.parametrize(("form", "good", "bad"), FITTING, ids=lambda value: str(value)[:40])
def test_a_form_takes_what_it_says_and_nothing_else(form, good, bad):
    due = MessageSchema("thing", field=form)
    for value in good:
        found = receive_message(Kept("thing", field=value), "bank", due)["field"]
        assert np.array_equal(found, value) if isinstance(value, np.ndarray) else found == value
    for value in bad:
        with raises(ProtocolError, "MS049", "bank", "thing", "field") as caught:
            due.check({"field": value}, "bank")
        assert not any(character.isdigit() for character in without_code(str(caught.value))), (
            "neither values nor limits are told"
        )


@pytest.mark.parametrize("fields", [{}, {"a": 1}, {"b": 1}, {"a": 1, "b": 1, "c": 1}])
def test_no_field_is_missing_and_none_is_too_many(fields):
    with raises(ProtocolError, "MS048", "bank", "pair"):
        MessageSchema("pair", a=Integer(0, 1), b=Integer(0, 1)).check(fields, "bank")


@settings(max_examples=60, deadline=None)
@given(
    shape=st.lists(st.integers(0, 5), max_size=4).map(tuple),
    dtype=st.sampled_from([np.int8, np.int64, np.float64, np.uint32, np.bool_]),
    text=st.text(max_size=20),
    number=st.integers(-(1 << 900), 1 << 900),
    count=st.integers(0, 5),
)
def test_the_declared_size_is_enough_and_not_much_more(shape, dtype, text, number, count):
    values = {"a": np.zeros(shape, dtype), "t": text, "n": number, "o": [bytes(9)] * count}
    ends = (number, 0) if number < 0 else (0, number)
    due = MessageSchema(
        "things",
        a=ArrayForm(dtype, shape),
        t=TextForm(len(text)),
        n=Integer(*ends),
        o=ItemList(*[FixedBytes(9)] * count),
    )
    receive_message(Kept("things", **values), "bank", due)
    assert due.max_bytes - len(codec.encode(["things", values])) < 1200
