"""The figures of docs/theory/active-security.md, computed anew from the code, and its attacks without each check.

Each attack is played on plain arithmetic *without* the check that stops it and shows that it succeeds. So none of these
tests says anything about the code that is there; they say why it is there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction
from itertools import product
from math import log2, prod
from pathlib import Path

import flint
import numpy as np
import pytest

from colonnade.mpc import PRIMES, Committee, ResidueSystem
from colonnade.mpc.fixed_point.shared_bits import BinaryField
from colonnade.mpc.residues import centred
from colonnade.mpc.shamir import lagrange_weights
from colonnade.mpc.verification import bit_products, claims, input_proofs
from colonnade.randomness import Stream

ROOT = Path(__file__).parents[3]


PAGE = (ROOT / "docs" / "theory" / "active-security.md").read_text(encoding="utf-8")


OPENED_BY_CHECKS = {
    ("engine.py", "def open_residues("): 1,
    ("verification/claims.py", "open_residues("): 3,  # Theorem 13 and Lemmas 11 and 12
    ("verification/input_proofs.py", "open_residues("): 1,  # Lemma 16
    ("verification/bit_products.py", "_open("): 3,  # Theorem 13 and Lemmas 11 and 12, for bits
    ("verification/bit_products.py", "def _open("): 1,
}
"""What checks open. Each place is proven on the page to tell nothing; whoever adds one proves it there."""


def table(first: str) -> list[list[str]]:
    """The rows of the table whose first heading this is."""
    lines = PAGE[PAGE.index(f"| {first} |") :].split("\n\n")[0].splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in (lines[0], *lines[2:])]


def shown(chance: object) -> str:
    """A chance as a power of two, its exponent cut to one decimal, so that the chance is below."""
    return f"2^−{int(-log2(chance) * 10) / 10}"  # type: ignore[arg-type]


def test_the_chances_of_a_settlement_and_the_points_that_coins_avoid() -> None:
    rows = table("length")[1:]
    assert len(rows) >= 5
    for length_text, parts, degrees, *chances in rows:
        length = int(length_text.replace(",", ""))
        assert parts == ", ".join(map(str, claims.steps(length)))
        assert int(degrees) == claims.degrees(length) + 1
        for losses, said in enumerate(chances):
            repeated = claims.repetitions(length, losses)
            chance = claims.error_chance(length, repeated, losses)
            assert said == f"{repeated}: {shown(chance)}"
            assert chance <= claims.ERROR <= 2**-40
    # A coin is none of the points at which values are known, and uniform on the rest: at least p - 129 points.
    assert re.search(r"q = p − 129", PAGE)
    most = max(2 * parts for length in (16, 4096, 10**6, 10**8) for parts in claims.steps(length))
    assert most + 1 <= 2 * claims.PARTS + 1 == 129


def test_how_many_seats_may_be_lost() -> None:
    sizes, lost = table("seats, threshold")
    for size, said in zip(sizes[1:], lost[1:], strict=True):
        seats, threshold = map(int, size.split(","))
        committee = Committee(tuple(f"n{i}" for i in range(seats)), threshold, ResidueSystem(PRIMES[:3]), active=True)
        assert committee.max_losses == int(said)
        assert committee.spare == (int(said) > 0)


def test_the_chances_of_proofs_of_inputs() -> None:
    proof = input_proofs.InputRanges((input_proofs.bounded_norm(40, 2**20),), 45_000)
    rows = {row[0].split(" (")[0]: row[1:] for row in table("what passes")[1:]}
    assert rows["a row longer than 2L"] == ["1/2", f"{proof.projections} times"]
    assert (input_proofs.MASK_SETS, rows["a bit that is none"]) == (8, ["1/2, eight times over", "46 times"])
    for what in ("the projections", "their norms"):
        assert rows[f"bits that do not add up to {what}"] == ["1/p", f"{proof.check_repetitions} times"]
    folded = proof._folding_error
    said = f"{folded.numerator}/(p − {PRIMES[-1] - folded.denominator}) each"
    assert rows["rows, or bits, that break their equations"] == [said, f"{proof.repetitions} times"]
    assert rows["all together"][0] == shown(proof.error)
    for length in (1, 4096, 45_000, 195_666, 10**6, 10**7, 10**9):
        for losses in (0, 1, 2):
            settled = claims.error_chance(length, claims.repetitions(length, losses), losses)
            assert proof.error + losses * Fraction(1, 2**proof.projections) + settled < 2**-40


def test_the_chances_of_shared_bits() -> None:
    for ands, *said in table("ANDs at a time")[1:]:
        count = int(ands.replace(",", ""))
        assert said == [shown(bit_products.error_chance(count)), shown(bit_products.error_chance(count, spare=True))]


def test_checks_open_what_the_page_speaks_of_and_nothing_else() -> None:
    source = ROOT / "src" / "colonnade" / "mpc"
    found: dict[tuple[str, str], int] = {}
    for path in [*source.glob("*.py"), *source.glob("verification/*.py")]:
        for match in re.findall(r"(?:def )?\b(?:open_residues|_open)\(", path.read_text(encoding="utf-8")):
            place = (path.relative_to(source).as_posix(), match)
            found[place] = found.get(place, 0) + 1
    assert found == OPENED_BY_CHECKS


LARGE = 2**61 - 1
"""A prime that stands for the product of all primes: what is read off a result does not depend on how it is split."""


BOUND = 64


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20)


def deal(rng: np.random.Generator, secret: int, degree: int, seats: int) -> dict[int, int]:
    """The shares of one number by seat."""
    factors = [secret, *(int(c) for c in rng.integers(0, LARGE, degree))]
    return {seat: sum(c * seat**power for power, c in enumerate(factors)) % LARGE for seat in range(1, seats + 1)}


def joined(shares: Mapping[int, int], prime: int = LARGE, at: int = 0) -> int:
    """The value at a point of the polynomial through these shares, as a signed number."""
    points = tuple(sorted(shares))
    factors = lagrange_weights(prime, points, at)
    return centred(sum(factor * shares[point] for factor, point in zip(factors, points, strict=True)), prime)


def added(*terms: Mapping[int, int], prime: int = LARGE) -> dict[int, int]:
    return {seat: sum(term[seat] for term in terms) % prime for seat in terms[0]}


def times(left: Mapping[int, int], right: Mapping[int, int], prime: int = LARGE) -> dict[int, int]:
    return {seat: left[seat] * right[seat] % prime for seat in left}


def only(shares: Mapping[int, int], *seats: int) -> dict[int, int]:
    return {seat: shares[seat] for seat in seats}


# Inputs


def test_a_cell_far_beyond_its_bound_reads_the_victims_row(rng: np.random.Generator) -> None:
    """Second moments of 50,000 people with noise for epsilon 1: one cell of the cheater is 10^6 times its bound."""
    people, columns, factor = 50_000, 16, 10**6
    rows = rng.integers(-BOUND, BOUND + 1, (people, columns))
    noise = np.rint(rng.normal(0, 4 * (columns + 1) * BOUND**2, columns)).astype(np.int64)
    own = np.zeros(people, dtype=np.int64)
    own[31_337] = factor * BOUND
    opened = own @ rows + noise
    read = np.rint(opened / (factor * BOUND))
    assert (read == rows[31_337]).all()


def test_signs_without_zeros_let_halves_of_the_modulus_pass() -> None:
    """Two cells near M/2 have small projections for all signs; with zeros among the coins half of them are large."""
    modulus, window = prod(PRIMES[:3]), 2**20
    cells = ((modulus + 1) // 2, (modulus - 1) // 2)
    signs = [abs(centred(a * cells[0] + b * cells[1], modulus)) < window for a, b in product((-1, 1), repeat=2)]
    assert all(signs)
    ternary = (-1, 0, 0, 1)
    passed = [abs(centred(a * cells[0] + b * cells[1], modulus)) < window for a, b in product(ternary, repeat=2)]
    assert np.mean(passed) == 0.5


def test_an_idempotent_is_a_bit_modulo_every_prime_and_large(rng: np.random.Generator) -> None:
    """b (b - 1) = 0 modulo every prime holds for numbers that are 0 modulo some and 1 modulo others."""
    primes = PRIMES[:3]
    modulus = prod(primes)
    target = int(rng.integers(2**40, 2**60))
    # The bits of target mod p, for each p by themselves: as numbers modulo M they are idempotents.
    bits = []
    for place in range(22):
        residues = [(target % prime) >> place & 1 for prime in primes]
        bits.append(
            sum(r * (modulus // p) * pow(modulus // p, -1, p) for r, p in zip(residues, primes, strict=True)) % modulus
        )
    assert all(bit * (bit - 1) % prime == 0 for bit in bits for prime in primes)
    assert sum(bit << place for place, bit in enumerate(bits)) % modulus == target, "22 'bits' make a 60-bit number"
    assert any(bit > 1 for bit in bits)


def test_a_long_row_passes_as_a_code_by_its_norm() -> None:
    """|v|^2 = n (n - 1) holds for vectors that are no codes n * onehot - 1, even with the sum 0 that codes have."""
    other = np.array((1, 1, -2))
    assert other @ other == 3 * 2
    assert other.sum() == 0
    assert ((other + 1) * (other + 1 - 3) != 0).any(), "cell by cell it is found out"


# Coins


def test_who_knows_the_projections_first_deals_large_cells_that_vanish(rng: np.random.Generator) -> None:
    """A coin that is known before the last share is dealt: all 41 ternary projections of large cells are zero."""
    rows, projections = 64, 41
    sigma = [[int(s) for s in row] for row in rng.choice([-1, 0, 0, 1], (projections, rows))]
    kernel, dimension = flint.nmod_mat(sigma, LARGE).nullspace()
    assert dimension >= rows - projections
    cells = [int(kernel[row, 0]) for row in range(rows)]
    assert not any(sum(s * cell for s, cell in zip(row, cells, strict=True)) % LARGE for row in sigma)
    assert sum(abs(centred(cell, LARGE)) > 2**40 for cell in cells) > projections // 2


def test_a_shared_coin_is_known_when_one_honest_seat_has_spoken(rng: np.random.Generator) -> None:
    """Three seats, threshold 1: seat 1 opens its share of the coin while seat 2 still waits for its input."""
    coin = int(rng.integers(0, LARGE))
    shares = deal(rng, coin, 1, 3)
    assert joined(only(shares, 1, 3)) % LARGE == coin, "seat 3 deviates, and needs no word of seat 2"


def test_an_owner_that_believes_one_seat_answers_a_question_about_a_row(rng: np.random.Generator) -> None:
    """The coin told to an honest owner differs in one row: its proof holds just if this row is zero."""
    people, projections, asked = 40, 41, 17
    for empty in (False, True):
        column = rng.integers(-BOUND, BOUND + 1, people)
        column[asked] = 0 if empty else 1 + abs(column[asked])
        sigma = rng.choice([-1, 0, 0, 1], (projections, people))
        told = sigma.copy()
        told[0, asked] = 1 - abs(told[0, asked])
        assert np.array_equal(told @ column, sigma @ column) == empty


def test_who_chooses_the_seed_of_batches_chooses_who_is_in_them() -> None:
    """A person is in 2 of 20 batches on average; among 2^13 seeds there is one that puts it into at least 8."""
    rate, rounds = 2**32 // 10, 20
    found = max(int((Stream(k.to_bytes(32, "little")).uint32(rounds) < rate).sum()) for k in range(2**13))
    assert found >= 8


# Agreement


def test_parity_of_an_inconsistent_product_shows_a_cell(rng: np.random.Generator) -> None:
    """Four seats, threshold 1: masks, noise and all other rows cancel in the parity check of the opened product."""
    cells = [int(x) for x in rng.integers(-BOUND, BOUND + 1, 50)]
    victim, error, deviating = 33, 1, 4
    x = [deal(rng, cell, 1, 4) for cell in cells]
    y = [deal(rng, int(c), 1, 4) for c in rng.integers(-BOUND, BOUND + 1, 50)]
    y[victim][1] += error
    noise, zero = deal(rng, int(rng.integers(-(2**30), 2**30)), 1, 4), deal(rng, 0, 2, 4)
    opened = added(*(times(a, b) for a, b in zip(x, y, strict=True)), noise, zero)
    parity = (opened[1] - joined(only(opened, 2, 3, 4), at=1)) % LARGE
    share = parity * pow(error, -1, LARGE) % LARGE
    assert share == x[victim][1]
    assert joined({1: share, deviating: x[victim][deviating]}) == cells[victim]


def test_directions_told_differently_read_a_cell_through_any_noise(rng: np.random.Generator) -> None:
    """Seats 1 and 2 of three were told directions q and q + 1: x (x q) opens as x times a known large number."""
    cell, q, noise = -37, 5, int(rng.normal(0, 10**8))
    x, masked = deal(rng, cell, 1, 3), added(deal(rng, noise, 1, 3), deal(rng, 0, 2, 3))
    told = {1: q, 2: q + 1, 3: q}
    opened = joined({seat: x[seat] ** 2 * told[seat] + masked[seat] for seat in x})
    third = pow(3, -1, LARGE)

    def expected(guess: int) -> int:
        one, two = (2 * guess + x[3]) * third, (guess + 2 * x[3]) * third
        return joined({1: one**2 * q, 2: two**2 * (q + 1), 3: x[3] ** 2 * q})

    close = [g for g in range(-BOUND, BOUND + 1) if abs(centred(opened - expected(g), LARGE)) < 10**10]
    assert close == [cell]


def test_keyed_sharings_of_zero_hide_everything_from_whom_the_others_disagree_with() -> None:
    """Three seats, exhaustively over a small prime: two honest seats with different digests open uniform numbers."""
    prime = 11
    unknown = {point: point * joined({0: 1, 3: 0}, prime, at=point) % prime for point in (1, 2)}
    agreeing = {(u * unknown[1] % prime, u * unknown[2] % prime) for u in range(prime)}
    differing = {(u * unknown[1] % prime, v * unknown[2] % prime) for u in range(prime) for v in range(prime)}
    assert len(agreeing) == prime
    assert len(differing) == prime**2


def test_two_halves_of_five_seats_open_twice_under_the_same_noise(rng: np.random.Generator) -> None:
    """Five seats, threshold 1: keyed masks do not help, as each half and the deviating seat are enough to open.

    They are told different weights; or, having lost each other, they were dealt different rows by the cheater, each
    half consistent by itself.
    """
    cell, noise = 41, deal(rng, int(rng.integers(-(2**40), 2**40)), 1, 5)
    x, squares, rows = deal(rng, cell, 1, 5), [], []
    for half, weight in (((1, 2), 7), ((3, 4), 8)):
        weighted = {seat: x[seat] * x[seat] * weight for seat in x}
        squares.append(joined(only(added(weighted, noise, deal(rng, 0, 2, 5)), *half, 5)))
        dealt = times(x, deal(rng, weight, 1, 5))
        rows.append(joined(only(added(dealt, noise, deal(rng, 0, 2, 5)), *half, 5)))
    assert squares[1] - squares[0] == cell**2, "without any noise"
    assert rows[1] - rows[0] == cell


@pytest.mark.parametrize(("factors", "wrong_by"), [((2, -1), 1), ((4, -6, 4, -1), 2**30)])
def test_truncated_numbers_that_disagree_keep_a_claim_about_the_product(
    rng: np.random.Generator, factors: tuple[int, ...], wrong_by: int
) -> None:
    """Seats are told different c that combine to the right one; their quotients do not (threshold 1, and 3)."""
    cut, modulus = 20, prod(PRIMES[:3])
    right = int(rng.integers(2**50, 2**60)) | 1
    if len(factors) == 2:
        apart = 2**cut - right % 2**cut  # the first quotient is just rounded up
        told = [right + apart, right + 2 * apart]
    else:
        # 4 a - 6 b + 4 c - d = right + M, each of them within the range that an honest number may have.
        d = -(right + modulus) % 8
        told = [(right + modulus + d) // 8, 0, (right + modulus + d) // 8, d]
    assert all(0 <= c < modulus // 4 for c in told)
    assert sum(f * c for f, c in zip(factors, told, strict=True)) % modulus == right, "the claim holds"
    quotient = sum(f * (c >> cut) for f, c in zip(factors, told, strict=True))
    assert abs(centred(quotient - (right >> cut), modulus)) >= wrong_by


# Products


def test_an_error_in_one_prime_is_caught_no_better_than_by_that_prime() -> None:
    """Two primes, all coins: an error that the second prime divides passes p2 of p1 p2 coins, not one."""
    primes = (11, 13)
    error = primes[1]
    passed = [
        all(coin * error % prime == 0 for coin, prime in zip(coins, primes, strict=True))
        for coins in product(*(range(prime) for prime in primes))
    ]
    assert sum(passed) == primes[1]


def test_an_error_before_the_last_product_reads_a_row(rng: np.random.Generator) -> None:
    """Hidden members: an error on the shared flag of one row is multiplied by this row before noise is added."""
    row, error = [int(c) for c in rng.integers(-BOUND, BOUND + 1, 6)], 10**12
    first, second = deal(rng, 1, 1, 3), deal(rng, 0, 1, 3)
    product_shares = times(first, second)
    dealt = {seat: deal(rng, share, 1, 3) for seat, share in product_shares.items()}
    dealt[3] = deal(rng, product_shares[3] + error, 1, 3)  # the seat that deviates: its factor at zero is 1
    flag = {seat: joined({dealer: dealt[dealer][seat] for dealer in dealt}) % LARGE for seat in (1, 2, 3)}
    opened = []
    for cell in row:
        noise = int(rng.normal(0, 10**6))
        opened.append(joined(added(times(flag, deal(rng, cell, 1, 3)), deal(rng, noise, 1, 3))))
    assert joined(only(flag, 1, 2)) == error, "nobody is a member; the flag should be 0"
    assert [round(value / error) for value in opened] == row


def test_a_zero_test_that_is_opened_at_twice_the_degree_is_answered_last(rng: np.random.Generator) -> None:
    """Three seats: whoever sends last knows r v by the others' shares and its own, and makes it zero.

    And where v is zero, a seat adds to what it lowers, and the proof of an honest owner fails: so nobody is named.
    """
    for wrong in (1, 12345, LARGE - 1):
        r, v, zero = deal(rng, int(rng.integers(1, LARGE)), 1, 3), deal(rng, wrong, 1, 3), deal(rng, 0, 2, 3)
        shares = added(times(r, v), zero)
        known = joined(shares)
        assert known != 0
        last = (shares[3] - known * pow(lagrange_weights(LARGE, (1, 2, 3), 0)[2], -1, LARGE)) % LARGE
        assert joined({1: shares[1], 2: shares[2], 3: last}) == 0
        honest = times(r, deal(rng, 0, 1, 3))
        honest[3] += 1
        assert joined(honest) != 0


# Masks that are not uniform


def test_a_truncation_after_an_unchecked_error_shows_a_secret(rng: np.random.Generator) -> None:
    """Three seats: a mask of a truncation spans an eighth of the modulus, so an error times a secret sticks out."""
    modulus, groups = prod(PRIMES[:5]), 3
    width = (modulus // (8 * groups)).bit_length() - 1
    error = modulus // 16
    for secret in range(16):
        masks = [int.from_bytes(rng.bytes(16), "little") % 2**width for _ in range(groups)]
        small = int(rng.integers(0, 2**40))
        opened = (error * secret + small + sum(masks)) % modulus
        left = (opened - sum(masks[1:])) % modulus  # the deviating seat is in two of the three groups
        assert left // error == secret


def test_a_coin_does_not_hide_an_element_that_is_no_bit() -> None:
    """GF(4): an error x on one AND, times a secret bit in the next one; the coin covers the first plane only."""
    field, x = BinaryField(2), 2
    for secret in (0, 1):
        for coin in (0, 1):
            opened = field.times(x, secret) ^ coin
            assert opened >> 1 == secret
