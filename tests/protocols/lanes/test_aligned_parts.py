"""Alignment of one partition: lists are as long as public numbers say, and nobody need be common to all."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from colonnade.errors import CapacityError, StudyError
from colonnade.protocols import align
from colonnade.protocols.align import join
from colonnade.protocols.lanes.partitions import Partitions, filled_length
from colonnade.protocols.roles import COORDINATOR
from colonnade.tables.keys import Keys
from tests.support import protocols as kit
from tests.support.errors import raises

KEY = bytes(range(32))


def plain_keys(values):
    found = [struct.pack("<I", len(value)) + value.encode() for value in values]
    return Keys(("id",), found, np.arange(len(found)), 0, 0)


def part_of(keys, spread, partition):
    values = [value for value, where in zip(keys.values, spread.of(keys.values), strict=True) if where == partition]
    return Keys(keys.names, values, np.arange(len(values)), 0, 0)


def aligned(task, lists, people, log=None):
    programs = {name: lambda me, n=name: align.owner(me, lists[n], task, people=people[n]) for name in task.owners} | {
        COORDINATOR: lambda me: align.coordinator(me, task)
    }
    return kit.results(task, programs, log=log)


@pytest.mark.parametrize("mode", ["helper", "dh"])
@pytest.mark.parametrize("hidden", [False, True], ids=["visible", "hidden"])
@settings(max_examples=5)
@given(held=st.lists(st.tuples(st.booleans(), st.booleans(), st.booleans()), max_size=30))
def test_parts_together_are_the_whole(mode, hidden, held):
    owners, spread = ("a", "b") if hidden and mode == "dh" else ("a", "b", "c"), Partitions(4, KEY)
    lists = {name: plain_keys([f"p{i}" for i, row in enumerate(held) if row[o]]) for o, name in enumerate(owners)}
    task = kit.align_task(owners, mode=mode, hidden=hidden, partitions=4)
    people = {name: len(keys) for name, keys in lists.items()}
    lengths = {name: filled_length(count, 4) for name, count in people.items()}
    common, counted = [], 0
    for partition in range(4):
        parts = {name: part_of(keys, spread, partition) for name, keys in lists.items()}
        found = aligned(task, parts, people)
        assert found[COORDINATOR].sizes == lengths
        counted += found[COORDINATOR].count
        if hidden:
            at = [
                {s: parts[n].values[r] for s, r in zip(found[n].slots.tolist(), found[n].rows.tolist(), strict=True)}
                for n in owners
            ]
            common += [at[0][slot] for slot in set.intersection(*map(set, at))]
            assert {found[name].size for name in owners} == {sum(lengths.values())}
        else:
            common += [parts["a"].values[row] for row in found["a"].rows.tolist()]
    assert sorted(common) == sorted(align.reference([keys.values for keys in lists.values()]))
    assert counted == len(common)


@pytest.mark.parametrize("mode", ["ot", "dh", "helper"])
def test_the_same_is_sent_for_parts_of_different_lengths(mode):
    task = kit.align_task(("a", "b"), mode=mode, partitions=8)
    people = {"a": 300, "b": 300}
    heard = []
    for own in (range(100, 109), range(100, 130)):
        log: kit.Log = {}
        lists = {"a": plain_keys(f"{n}" for n in own), "b": plain_keys(["200", "300"])}
        aligned(task, lists, people, log)
        heard.append([[(kind, _sizes(fields)) for kind, fields in log[pair] if kind != "waiting"] for pair in log])
    assert sorted(map(str, heard[0])) == sorted(map(str, heard[1]))


def _sizes(fields):
    return {name: getattr(value, "shape", None) or type(value).__name__ for name, value in fields.items()}


def test_padded_parts_have_the_length_of_padded_lists():
    task = kit.align_task(("a", "b"), mode="helper", partitions=8, pad_to=1000)
    found = aligned(task, {"a": plain_keys(["x", "y"]), "b": plain_keys(["y"])}, {"a": 700, "b": 5})
    assert set(found[COORDINATOR].sizes.values()) == {filled_length(1000, 8)}
    assert found[COORDINATOR].count == 1


def test_a_part_that_does_not_fit_is_refused():
    task = kit.align_task(("a", "b"), mode="helper", partitions=8)
    people = {"a": 100, "b": 100}
    with raises(CapacityError, "CA020"):
        aligned(task, {"a": plain_keys(f"{n}" for n in range(90)), "b": plain_keys(["y"])}, people)


def test_at_least_is_about_all_parts_and_partitions_are_in_the_agreement():
    task = kit.align_task(("a", "b"), mode="helper", partitions=2, at_least=50)
    found = aligned(task, {"a": plain_keys(["x"]), "b": plain_keys(["y"])}, {"a": 60, "b": 60})
    assert found[COORDINATOR].count == 0
    assert task.agreement["partitions"] == 2
    assert "partitions" not in kit.align_task(("a", "b")).agreement


@pytest.mark.parametrize("mode", ["ot", "dh"])
def test_three_parties_hide_members_in_partitions_only_where_the_coordinator_could_guess_keys_anyway(mode):
    """The coordinator sees how many people of the others are common; with a party's help, in which partition."""
    with raises(StudyError, "ST429"):
        kit.align_task(("a", "b", "c"), mode=mode, hidden=True, partitions=2)
    for allowed in ({"owners": ("a", "b"), "mode": mode}, {"owners": ("a", "b", "c"), "mode": "helper"}):
        assert kit.align_task(**allowed, hidden=True, partitions=2).why_not_partitions is None
    assert kit.align_task(("a", "b", "c"), mode=mode, partitions=2).why_not_partitions is None
    assert kit.align_task(("a", "b", "c"), mode=mode, hidden=True).partitions == 1


def test_what_partitions_tell_is_said():
    plain, parted = (kit.align_task(("a", "b"), at_least=5, partitions=count).leakage for count in (1, 4))
    assert "fewer than at_least" in parted[0].learns
    assert "in each partition" in parted[1].learns
    assert not any("partition" in leak.learns or "at_least" in leak.learns for leak in plain)


@pytest.mark.parametrize("people", [1, 4])
def test_a_false_verdict_is_refused_in_the_same_words_whatever_a_part_holds(people):
    """The coordinator cannot find out by it how many people of an owner a partition has."""
    task = kit.align_task(("a", "b"), mode="helper", partitions=8)
    keys = {"a": plain_keys(f"{n}" for n in range(people)), "b": plain_keys(["y"])}
    programs = {name: lambda me, n=name: align.owner(me, keys[n], task, people=30) for name in task.owners}

    def false(me):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("colonnade.protocols.align.programs.join.coordinator_joins", _three_more)
            return align.coordinator(me, task)

    ended = kit.outcomes(task, programs | {COORDINATOR: false})
    assert "not about those who were matched" in str(ended["a"])


_REAL = join.coordinator_joins


def _three_more(me, leader, sizes, at_least):
    return _REAL(me, leader, sizes, at_least) + 3


def test_partitions_are_a_power_of_two():
    with raises(StudyError, "ST457"):
        kit.align_task(("a", "b"), partitions=3)
