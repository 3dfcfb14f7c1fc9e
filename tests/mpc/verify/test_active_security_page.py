"""The figures of docs/theory/active-security.md, computed anew from the code."""

from __future__ import annotations

import re
from fractions import Fraction
from math import log2
from pathlib import Path

import pytest

from colonnade.mpc import PRIMES, Committee, ResidueSystem
from colonnade.mpc.verify import bits, folding, ranges

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "theory" / "active-security.md").read_text(encoding="utf-8")
OPENED_BY_CHECKS = {
    ("hand.py", "def open_residues("): 1,
    ("verify/claims.py", "open_residues("): 2,  # Lemmas 11 and 12
    ("verify/folding.py", "open_residues("): 1,  # Theorem 13
    ("verify/folding.py", "def open_residues("): 1,
    ("verify/inputs.py", "open_residues("): 1,  # Lemma 16
    ("verify/bits.py", "_open("): 3,  # Theorem 13 and Lemmas 11 and 12, for bits
    ("verify/bits.py", "def _open("): 1,
}
"""What checks open. Each place is proven on the page to tell nothing; whoever adds one proves it there."""


def table(first: str) -> list[list[str]]:
    """The rows of the table whose first heading this is."""
    lines = PAGE[PAGE.index(f"| {first} |") :].split("\n\n")[0].splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in (lines[0], *lines[2:])]


def shown(chance: object) -> str:
    """A chance as a power of two, its exponent cut to one decimal, so that the chance is below."""
    return f"2^−{int(-log2(chance) * 10) / 10}"  # type: ignore[arg-type]


def test_the_chances_of_a_settlement() -> None:
    rows = table("length")[1:]
    assert len(rows) >= 5
    for length_text, parts, degrees, *chances in rows:
        length = int(length_text.replace(",", ""))
        assert parts == ", ".join(map(str, folding.steps(length)))
        assert int(degrees) == folding.degrees(length) + 1
        for losses, said in enumerate(chances):
            repeated = folding.repetitions(length, losses)
            chance = folding.chance(length, repeated, losses)
            assert said == f"{repeated}: {shown(chance)}"
            assert chance <= folding.ERROR <= 2**-40


def test_how_many_seats_may_be_lost() -> None:
    sizes, lost = table("seats, threshold")
    for size, said in zip(sizes[1:], lost[1:], strict=True):
        seats, threshold = map(int, size.split(","))
        committee = Committee(tuple(f"n{i}" for i in range(seats)), threshold, ResidueSystem(PRIMES[:3]), active=True)
        assert committee.losses == int(said)
        assert committee.spare == (int(said) > 0)


def test_the_points_that_coins_avoid() -> None:
    """z is none of the points at which values are known, and uniform on the rest: at least p - 129 points."""
    assert re.search(r"q = p − 129", PAGE)
    most = max(2 * parts for length in (16, 4096, 10**6, 10**8) for parts in folding.steps(length))
    assert most + 1 <= 2 * folding.PARTS + 1 == 129


def test_the_chances_of_proofs_of_inputs() -> None:
    proof = ranges.Ranges.fitting([ranges.within(40, 2**20)], 45_000)
    rows = {row[0].split(" (")[0]: row[1:] for row in table("what passes")[1:]}
    assert rows["a cell beyond 2^b"] == rows["a bit that is none"] == ["1/2", f"{proof.projections} times"]
    assert rows["bits that do not add up to the projections"] == ["1/p", f"{ranges.COMBINED} times"]
    folded = proof._folding_error
    said = f"{folded.numerator}/(p − {PRIMES[-1] - folded.denominator}) each"
    assert rows["rows, or bits, that break their equations"] == [said, f"{proof.repetitions} times"]
    assert rows["all together"][0] == shown(proof.error)
    for length in (1, 4096, 45_000, 195_666, 10**6, 10**7, 10**9):
        for losses in (0, 1, 2):
            settled = folding.chance(length, folding.repetitions(length, losses), losses)
            assert proof.error + losses * Fraction(1, 2**proof.projections) + settled < 2**-40


def test_the_chances_of_shared_bits() -> None:
    for ands, *said in table("ANDs at a time")[1:]:
        count = int(ands.replace(",", ""))
        assert said == [shown(bits.error(count)), shown(bits.error(count, spare=True))]


def test_checks_open_what_the_page_speaks_of_and_nothing_else() -> None:
    source = ROOT / "src" / "colonnade" / "mpc"
    found: dict[tuple[str, str], int] = {}
    for path in [*source.glob("*.py"), *source.glob("verify/*.py")]:
        for match in re.findall(r"(?:def )?\b(?:open_residues|_open)\(", path.read_text(encoding="utf-8")):
            place = (path.relative_to(source).as_posix(), match)
            found[place] = found.get(place, 0) + 1
    assert found == OPENED_BY_CHECKS


@pytest.mark.parametrize("test", sorted(set(re.findall(r"`(tests/mpc/verify/\w+\.py)`", PAGE))))
def test_named_tests_are_there(test: str) -> None:
    assert (ROOT / test).is_file()
