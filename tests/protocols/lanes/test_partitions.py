from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import given, strategies as st

from colonnade.errors import CapacityError, StudyError
from colonnade.protocols.lanes import partitions
from colonnade.protocols.lanes.partitions import MOST_PARTITIONS, Partitions, check_fits, filled_length
from tests.support.errors import raises

KEY = bytes(range(32))


def test_a_person_has_one_partition_whatever_else_is_on_the_list() -> None:
    spread = Partitions(64, KEY)
    people = [f"person {number}".encode() for number in range(1000)]
    whole = spread.of(people)
    assert whole.min() >= 0
    assert whole.max() < 64
    assert np.array_equal(spread.of(people[::-1]), whole[::-1])
    assert [spread.of([person])[0] for person in people[:50]] == whole[:50].tolist()


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


def test_finer_partitions_divide_coarser_ones() -> None:
    people = [f"{number}".encode() for number in range(2000)]
    coarse, fine = Partitions(8, KEY).of(people), Partitions(64, KEY).of(people)
    assert np.array_equal(fine // 8, coarse)


def test_people_are_spread_evenly_and_differently_under_another_key() -> None:
    people = [f"{number}".encode() for number in range(64_000)]
    first, second = (Partitions(64, key).of(people) for key in (KEY, KEY[::-1]))
    counts = np.bincount(first, minlength=64)
    assert np.all(np.abs(counts - 1000) < 7 * math.sqrt(1000))
    assert 700 < np.count_nonzero(first == second) < 1300


def test_nobody_and_one_partition() -> None:
    assert Partitions(1, KEY).of([b"a", b"b"]).tolist() == [0, 0]
    assert Partitions(16, KEY).of([]).tolist() == []


@pytest.mark.parametrize("count", [0, 3, -4, 2 * MOST_PARTITIONS])
def test_other_numbers_of_partitions_are_refused(count: int) -> None:
    with raises(StudyError, "ST457"):
        Partitions(count, KEY)


def test_the_key_is_not_shown() -> None:
    assert "key" not in repr(Partitions(4, KEY))


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
    spread = Partitions(64, KEY)
    assert spread.check == Partitions(64, KEY).check
    assert len({spread.check, Partitions(32, KEY).check, Partitions(64, KEY[::-1]).check}) == 3
    before = spread.check
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(partitions, "filled_length", lambda people, count: people)
        assert spread.check != before
    with pytest.MonkeyPatch.context() as patch:
        tags = partitions._tags
        patch.setattr(partitions, "_tags", lambda values, key: tags(values, key[::-1]))
        assert spread.check != before
    assert spread.check == before
