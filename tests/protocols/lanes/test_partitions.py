"""Partitions: who is in which, how long their lists are, and alignment of one part of people at a time."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import given, settings, strategies as st

from colonnade.errors import CapacityError, ProtocolError, StudyError
from colonnade.protocols import align
from colonnade.protocols.align import join
from colonnade.protocols.lanes import partitions
from colonnade.protocols.lanes.partitions import MOST_PARTITIONS, Partitions, check_fits, filled_length
from colonnade.protocols.roles import COORDINATOR
from colonnade.tables.keys import Keys
from tests.support import protocols as kit
from tests.support.errors import raises, refused

KEY = bytes(range(32))


def test_a_person_has_one_partition_whatever_else_is_on_the_list() -> None:
    spread = Partitions(64, KEY)
    people = [f"person {number}".encode() for number in range(64_000)]
    whole, other = spread.of(people), Partitions(64, KEY[::-1]).of(people)
    assert np.array_equal(spread.of(people[:1000][::-1]), whole[:1000][::-1])
    assert [spread.of([person])[0] for person in people[:50]] == whole[:50].tolist()
    assert np.array_equal(whole // 8, Partitions(8, KEY).of(people)), "finer partitions divide coarser ones"
    assert np.all(np.abs(np.bincount(whole, minlength=64) - 1000) < 7 * math.sqrt(1000)), "they are spread evenly"
    assert 700 < np.count_nonzero(whole == other) < 1300, "and differently under another key"
    assert Partitions(1, KEY).of([b"a", b"b"]).tolist() == [0, 0]
    assert spread.of([]).tolist() == []
    assert "key" not in repr(spread)


def mac(value: bytes) -> bytes:
    """CBC-MAC as the page on lanes defines it."""
    state = bytes(16)
    text = len(value).to_bytes(16, "little") + value + bytes(-len(value) % 16)
    for start in range(0, len(text), 16):
        mixed = bytes(a ^ b for a, b in zip(state, text[start : start + 16], strict=True))
        state = Cipher(algorithms.AES(KEY), modes.ECB()).encryptor().update(mixed)  # noqa: S305
    return state


@given(st.lists(st.binary(max_size=70), max_size=40))
def test_partitions_are_the_first_bits_of_the_hash_on_the_page(values: list[bytes]) -> None:
    values += [b"", b"a" * 16, b"a" * 16 + b"\0", b"a" * 15 + b"\0", b"a" * 15]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(partitions, "_CHUNK", 17)
        found = Partitions(MOST_PARTITIONS, KEY).of(values)
    assert found.tolist() == [int.from_bytes(mac(value)[:2], "big") for value in values]


@pytest.mark.parametrize("count", [0, 3, -4, 2 * MOST_PARTITIONS])
def test_other_numbers_of_partitions_are_refused(count: int) -> None:
    refused(StudyError, "ST457", Partitions, count, KEY)
    refused(StudyError, "ST457", kit.align_task, ("a", "b"), partitions=count)


def tail(people: int, partitions: int, length: int) -> Fraction:
    """The exact probability that a binomial count is above ``length``."""
    p = Fraction(1, partitions)
    return sum(
        (math.comb(people, k) * p**k * (1 - p) ** (people - k) for k in range(length + 1, people + 1)), Fraction(0)
    )


@given(st.integers(0, 300), st.sampled_from([1, 2, 4, 16, 64]))
def test_no_partition_exceeds_its_length_but_once_in_two_to_the_64(people: int, partitions: int) -> None:
    length = filled_length(people, partitions)
    assert partitions * tail(people, partitions, length) <= Fraction(1, 2**64)
    assert length <= people


@given(st.integers(0, 10**9), st.integers(0, 12))
def test_lengths_grow_with_lists_and_filling_is_cheap_for_long_ones(people: int, bits: int) -> None:
    partitions = 1 << bits
    length = filled_length(people, partitions)
    assert length <= filled_length(people + 1, partitions)
    assert length * partitions >= people
    mean = people / partitions
    if mean >= 1e6:  # what the page says
        assert length <= 1.011 * mean


def test_a_list_that_does_not_fit_is_refused_without_a_number() -> None:
    check_fits(7, 7)
    with pytest.raises(CapacityError) as caught:
        check_fits(8, 7)
    assert "8" not in str(caught.value)
    assert "7" not in str(caught.value)


def test_the_check_shows_other_rules() -> None:
    spread, tags = Partitions(64, KEY), partitions._tags
    before = spread.check
    assert before == Partitions(64, KEY).check
    assert len({before, Partitions(32, KEY).check, Partitions(64, KEY[::-1]).check}) == 3
    for name, other in (
        ("filled_length", lambda people, count: people),
        ("_tags", lambda values, key: tags(values, key[::-1])),
    ):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(partitions, name, other)
            assert spread.check != before
    assert spread.check == before


def test_padded_parts_have_one_length_too_long_ones_are_refused_and_at_least_is_about_all_of_them():
    task = kit.align_task(("a", "b"), mode="helper", partitions=8, pad_to=1000)
    found = aligned(task, {"a": kit.keys_of(["x", "y"]), "b": kit.keys_of(["y"])}, {"a": 700, "b": 5})[COORDINATOR]
    assert set(found.sizes.values()) == {filled_length(1000, 8)}
    assert found.count == 1
    with raises(CapacityError, "CA020"):
        lists = {"a": kit.keys_of(f"{n}" for n in range(90)), "b": kit.keys_of(["y"])}
        aligned(kit.align_task(("a", "b"), mode="helper", partitions=8), lists, {"a": 100, "b": 100})
    task = kit.align_task(("a", "b"), mode="helper", partitions=2, at_least=50)
    found = aligned(task, {"a": kit.keys_of(["x"]), "b": kit.keys_of(["y"])}, {"a": 60, "b": 60})[COORDINATOR]
    assert found.count == 0


def part_of(keys, spread, partition):
    values = [value for value, where in zip(keys.values, spread.of(keys.values), strict=True) if where == partition]
    return Keys(keys.names, values, np.arange(len(values)), 0, 0)


def aligned(task, lists, people, log=None):
    return kit.results(task, kit.align_programs(task, lists, people=people), log=log)


@pytest.mark.parametrize("mode", ["helper", "dh"])
@pytest.mark.parametrize("hidden", [False, True], ids=["visible", "hidden"])
@settings(max_examples=5)
@given(held=st.lists(st.tuples(st.booleans(), st.booleans(), st.booleans()), max_size=30))
def test_parts_together_are_the_whole(mode, hidden, held):
    owners, spread = ("a", "b") if hidden and mode == "dh" else ("a", "b", "c"), Partitions(4, KEY)
    lists = {name: kit.keys_of([f"p{i}" for i, row in enumerate(held) if row[o]]) for o, name in enumerate(owners)}
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
        lists = {"a": kit.keys_of(f"{n}" for n in own), "b": kit.keys_of(["200", "300"])}
        aligned(task, lists, people, log)
        heard.append([[(kind, _sizes(fields)) for kind, fields in log[pair] if kind != "waiting"] for pair in log])
    assert sorted(map(str, heard[0])) == sorted(map(str, heard[1]))


def _sizes(fields):
    return {name: getattr(value, "shape", None) or type(value).__name__ for name, value in fields.items()}


@pytest.mark.parametrize("mode", ["ot", "dh"])
def test_three_parties_hide_members_in_partitions_only_where_the_coordinator_could_guess_keys_anyway(mode):
    """The coordinator sees how many people of the others are common; with a party's help, in which partition."""
    refused(StudyError, "ST429", kit.align_task, ("a", "b", "c"), mode=mode, hidden=True, partitions=2)
    for allowed in ({"owners": ("a", "b"), "mode": mode}, {"owners": ("a", "b", "c"), "mode": "helper"}):
        assert kit.align_task(**allowed, hidden=True, partitions=2).why_not_partitions is None
    assert kit.align_task(("a", "b", "c"), mode=mode, partitions=2).why_not_partitions is None
    assert kit.align_task(("a", "b", "c"), mode=mode, hidden=True).partitions == 1


def test_what_partitions_tell_is_said():
    plain, parted = (kit.align_task(("a", "b"), at_least=5, partitions=count) for count in (1, 4))
    assert "fewer than at_least" in parted.leakage[0].learns
    assert "in each partition" in parted.leakage[1].learns
    assert not any("partition" in leak.learns or "at_least" in leak.learns for leak in plain.leakage)
    assert (parted.agreement["partitions"], plain.agreement.get("partitions")) == (4, None)


@pytest.mark.parametrize("people", [1, 4])
def test_a_false_verdict_is_refused_in_the_same_words_whatever_a_part_holds(people, monkeypatch):
    """The coordinator cannot find out by it how many people of an owner a partition has."""
    real = join.coordinator_joins
    monkeypatch.setattr(join, "coordinator_joins", lambda *given: real(*given) + 3)
    task = kit.align_task(("a", "b"), mode="helper", partitions=8)
    keys = {"a": kit.keys_of(f"{n}" for n in range(people)), "b": kit.keys_of(["y"])}
    refused(ProtocolError, "MS*", "not about those who were matched", aligned, task, keys, {"a": 30, "b": 30})
