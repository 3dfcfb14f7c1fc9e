from __future__ import annotations

import math

import pytest

from colonnade.errors import StudyError
from colonnade.kinds.tables.weights import RESOLUTION, blocks
from tests.support.errors import raises

SIZES = (5, 2, 30, 1, 3)


def deviations(found: list[tuple[tuple[int, ...], int]], sizes: tuple[int, ...]) -> dict[tuple[int, ...], float]:
    """Noise on a cell in people, for noise of deviation one on every opened number."""
    return {
        columns: 1 / (weight * math.prod(math.sqrt(2) if sizes[c] == 2 else sizes[c] for c in columns))
        for columns, weight in found
    }


def test_all_pairs_and_triples_with_the_label_are_asked_for_once() -> None:
    found = [columns for columns, _ in blocks(SIZES, 1)]
    assert found[:5] == [(), (0,), (1,), (2,), (4,)]
    assert sorted(found[5:11]) == [(0, 1), (0, 2), (0, 4), (1, 2), (1, 4), (2, 4)]
    assert sorted(found[11:]) == [(0, 1, 2), (0, 1, 4), (1, 2, 4)]
    assert [columns for columns, _ in blocks(SIZES, order=1)] == found[:5]
    assert len(blocks(SIZES)) == 11


def test_weights_are_whole_and_fine_enough() -> None:
    found = blocks(SIZES, 1)
    assert min(weight for _, weight in found) == RESOLUTION
    fine = dict(blocks(SIZES, 1, resolution=1 << 12))
    for columns, weight in found:
        assert weight * (1 << 12) / RESOLUTION == pytest.approx(fine[columns], rel=0.6 / RESOLUTION)


def test_sums_over_a_billion_people_have_room() -> None:
    wide = (20_000, 10_000, 2)
    found = blocks(wide, 2)
    assert 1 <= min(weight for _, weight in found) < RESOLUTION
    assert all(weight * math.prod(wide[c] - 1 for c in columns) <= 1.5 * 2**31 for columns, weight in found)


def test_without_a_label_pairs_of_equal_sizes_are_alike() -> None:
    weights = {weight for columns, weight in blocks((4, 4, 4, 4)) if len(columns) == 2}
    assert len(weights) == 1


def test_what_is_named_is_more_exact() -> None:
    plain, named = (deviations(blocks(SIZES, 1, focus), SIZES) for focus in ((), [(4, 2), (0, 1, 2)]))
    others = plain[0, 4] / named[0, 4]
    assert plain[2, 4] / named[2, 4] == pytest.approx(2 * others, rel=0.1)
    assert plain[0, 1, 2] / named[0, 1, 2] == pytest.approx(2 * others, rel=0.1)


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"sizes": (3, 3), "order": 3}, "ST400"),
        ({"sizes": (1, 1)}, "ST401"),
        ({"sizes": (3, 1), "label": 1}, "ST402"),
        ({"sizes": (3, 1), "focus": [(0, 1)]}, "ST403"),
        ({"sizes": (3, 3, 3), "focus": [(0, 1, 2)]}, "ST403"),
        ({"sizes": (10**5, 10**5, 2), "label": 2}, "ST399"),
    ],
)
def test_what_cannot_be_asked_for_is_refused(keys: dict[str, object], says: str) -> None:
    with raises(StudyError, says):
        blocks(**keys)  # type: ignore[arg-type]
