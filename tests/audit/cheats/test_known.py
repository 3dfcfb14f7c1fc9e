"""Three attacks that work against seats that do not check each other; each must read what it says it reads."""

from __future__ import annotations

from colonnade.audit.cheats import known
from colonnade.errors import ShareError
from colonnade.kinds.regression import audit_known


def test_a_cell_beyond_its_bound_reads_the_rows_of_victims() -> None:
    """Epsilon 1 and 50,000 people; the correlation misses 0.99 only if noise is a hundred deviations large."""
    found = known.beyond_bounds()
    assert found.cells == 16
    assert found.correlation > 0.99
    assert set(found.outcome.accepted) == {"bank", "shop", "coordinator"}  # and nobody noticed


def test_checks_of_products_alone_do_not_stop_it_and_proofs_of_rows_do() -> None:
    weakened = known.beyond_bounds(people=20_000, security="active")
    assert weakened.correlation > 0.5
    assert weakened.outcome.accepted
    stopped = known.beyond_bounds(people=20_000, security="active", inputs="proven")
    assert not stopped.outcome.accepted
    assert isinstance(stopped.outcome.reason, ShareError)


def test_shares_on_no_polynomial_show_cells_exactly_although_nothing_is_opened() -> None:
    found = known.parity()
    assert (found.read, found.cells) == (48, 48)
    assert isinstance(found.outcome.reason, ShareError)
    assert not found.outcome.accepted
    stopped = known.parity(security="active")
    assert (stopped.read, stopped.opened) == (0, False)
    assert "lie on polynomials of one degree" in str(stopped.outcome.reason)


def test_an_opener_that_tells_seats_different_numbers_reads_cells_exactly() -> None:
    found = audit_known.equivocation(victims=5)
    assert (found.read, found.cells) == (5, 5)
    stopped = audit_known.equivocation(victims=5, security="active")
    assert stopped.read < 5  # a guess among 129 values is right by chance, five of them once in 10^10
    assert not stopped.outcome.accepted
    assert "told different numbers" in str(stopped.outcome.reason)
