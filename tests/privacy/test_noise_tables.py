"""Every strip of every table against the law, by intervals: over a sweep of parameters, from the least to the largest.

A table is right if strips hold every value once, if no coin needs a chance below 0 or above 1, if float64 brackets the
chance, and if what is cut off is small enough (``docs/theory/exact-samplers.md``). The mass falls within a strip, so
the values nearest to zero and farthest from it decide; both are looked at in all strips, and one between them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from flint import arb, ctx, fmpq

from colonnade.privacy.noise import strips as module
from colonnade.privacy.noise.laws import Gaussian, Laplace, Law, Polya, Skellam
from colonnade.privacy.noise.strips import TICKET_BITS, Strips, strips

BITS = 256
TICKETS = 1 << TICKET_BITS
Mass = Callable[[int], arb]


def rational(value: Fraction) -> arb:
    return arb(fmpq(value.numerator, value.denominator))


def bessel_from_above(x: Fraction, most: int) -> Mass:
    """``I_n(x)/I_0(x)`` for all ``n`` up to ``most``: ``I_{n-1} = I_{n+1} + (2n/x) I_n``, where nothing cancels."""
    exact = rational(x)
    found = [exact.bessel_i(n, scaled=True) for n in (most + 1, most)]
    for n in range(most, 0, -1):
        found.append(found[-2] + rational(2 * n / x) * found[-1])
    masses = [one / found[-1] for one in reversed(found)]
    return lambda value: masses[value]


def masses(law: Law, end: int) -> Mass:
    """Intervals around ``f``, not by the way in which the table was made where the law has several ways."""
    if isinstance(law, Skellam) and law.fine:
        return bessel_from_above(law.variance, end + 2)
    known: dict[int, arb] = {}

    def mass(value: int) -> arb:
        bits = BITS
        while value not in known:
            with ctx.workprec(bits):
                found = law.mass(value)
            if found.rel_accuracy_bits() > 80:
                known[value] = found
            bits *= 2
        return known[value]

    return mass


def faults(table: Strips) -> Iterator[str]:
    """What is wrong with a table."""
    law, scale, count = table.law, arb(table.scale), len(table.start)
    order = np.argsort(table.start)
    start, last = table.start[order], (table.start + table.mask)[order]
    if not np.array_equal(start[1:], last[:-1] + 1) or (start[0] != 0 and not law.signed):
        yield "a value is in no strip, or in two"
    if table.sure.sum() != table.taken or table.rest.sum() != TICKETS or not 0 < table.taken < TICKETS:
        yield "tickets are missing"
    left = Fraction(TICKETS - table.taken, TICKETS)
    if any(Fraction(float(step)) != rest * left for step, rest in zip(table.step, table.rest.tolist(), strict=True)):
        yield "a step is rounded"
    ends = table.start, table.start + table.mask
    near, far = (np.where(table.start < 0, ends[1 - i], ends[i]) for i in (0, 1))
    strip, width = np.arange(count), (table.mask + 1).tolist()
    sure, step, slack = table.sure.tolist(), table.step.tolist(), table.slack.tolist()
    with ctx.workprec(BITS):
        mass, error, inside = masses(law, table.end), arb(2) ** -42, arb(0)
        for values in (near, near + (far - near) // 2, far):
            top = table.whole(strip, values).tolist()
            for k, value in enumerate(values.tolist()):
                f = mass(abs(value))
                true = scale * width[k] * f
                if not sure[k] <= true:
                    yield f"the chance of {value} is below 0"
                if not true <= sure[k] + arb(step[k]):
                    yield f"the chance of {value} is above 1"
                if not true <= arb(top[k]) * (1 + error):
                    yield f"float64 is too low at {value}"
                if not true >= arb(top[k]) * (1 - arb(slack[k])) * (1 - error):
                    yield f"float64 is too high at {value}"
                if values is far:
                    inside += width[k] * f
            for k in range(0, count, 1 + count // 16):  # what tickets and coins give together
                value = int(values[k])
                drawn = sure[k] + arb(step[k]) * table.exact_chance(k, value)
                if not drawn.overlaps(scale * width[k] * mass(abs(value))):
                    yield f"the chance of {value} is another one"
        beyond = after(law, mass, int(last[-1]) + 1)
        if law.signed:
            beyond += after(law, mass, 1 - int(start[0]))
        if not beyond < rational(law.cut) * inside:
            yield "too much is cut off"


def after(law: Law, mass: Mass, end: int) -> arb:
    """A bound of the sum of ``f`` from there on: the ratio of neighbours falls, or is below that of Laplace noise."""
    if isinstance(law, Polya):
        return mass(end) / (1 - rational(-1 / law.scale).exp())
    return mass(end) / (1 - mass(end + 1) / mass(end))


def around(power: int) -> list[Fraction]:
    """A power of two, where widths change, a little less, and something between it and the next."""
    return [Fraction(2) ** power, Fraction(2) ** power * Fraction(999_999, 10**6), Fraction(2) ** power * 13 / 9]


SMALL_SKELLAM = [Fraction(n) for n in (2**14 - 1, 2**14, 20_001, 40_000, 65_535)]
QUICK: list[Law] = [
    *(Gaussian(v) for power in (-20, -7, -2, 0, 3, 12, 14, 37, 60, 117) for v in around(power)),
    *(Gaussian(v) for v in (Fraction(2**14 - 1), Fraction(1, 120), Fraction(2**118))),
    *(Skellam(v) for power in (-40, -3, 0, 4, 9, 12) for v in around(power)),
    *(Skellam(v) for v in (*SMALL_SKELLAM, Fraction(2**16), Fraction(2**16 + 1), Fraction(10**12 + 1, 7))),
    *(Laplace(v) for power in (-9, -1, 3, 7, 20, 54) for v in around(power)),
    *(Laplace(v) for v in (Fraction(1, 80), Fraction(2**55))),
    *(Polya(v, parts) for v in (Fraction(1, 900), Fraction(1, 3), Fraction(130)) for parts in (2, 3, 10**9)),
    *(Polya(v, parts) for v, parts in ((Fraction(10**6), 5), (Fraction(2**55), 2), (Fraction(2**55), 10**9))),
]
MANY: dict[str, list[Law]] = {
    "Gaussian": [Gaussian(v) for power in range(-20, 118) for v in around(power)],
    "Skellam, small": [Skellam(v) for power in range(-20, 16) for v in around(power)],
    "Skellam, around 2^15": [Skellam(Fraction(v)) for v in range(2**13, 2**16, 1777)],
    "Skellam, large": [Skellam(v) for power in range(16, 118, 6) for v in around(power) if v >= 2**16],
    "Laplace": [Laplace(v) for power in range(-12, 55) for v in around(power)],
    "Polya": [Polya(around(p)[p % 3], m) for p in range(-9, 55, 2) for m in (2, 3, 4, 10, 100, 10**4, 10**9)],
}


@pytest.mark.parametrize("law", QUICK, ids=str)
def test_every_strip_is_right(law: Law) -> None:
    assert list(faults(strips(law))) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", MANY)
def test_every_strip_of_many_tables_is_right(name: str) -> None:
    assert {law: found for law in MANY[name] if (found := list(faults(strips(law))))} == {}


@pytest.mark.parametrize("law", [Gaussian(Fraction(10**6)), Skellam(Fraction(40_000))], ids=str)
def test_what_is_wrong_is_found(law: Law) -> None:
    table = strips(law)

    def changed(name: str, strip: int, by: float) -> list[str]:
        values = getattr(table, name).copy()
        values[strip] += values.dtype.type(by)
        return [fault.split(" of ")[0].split(" at ")[0] for fault in faults(replace(table, **{name: values}))]

    height, step = (float(getattr(table, name)[9]) for name in ("height", "step"))
    assert "float64 is too low" in changed("height", 9, -height * 2.0**-38)
    assert "float64 is too high" in changed("height", 9, height * 2.0**-38)
    assert {"tickets are missing", "the chance"} <= set(changed("sure", 9, 1))
    assert {"a step is rounded", "the chance"} <= set(changed("step", 9, -step / 2))
    assert "a value is in no strip, or in two" in changed("start", 9, 1)
    half = np.abs(table.start) < 8 * law.reach
    cut = {name: getattr(table, name)[half] for name in ("start", "mask", "sure", "rest", "step", "height", "slack")}
    assert "too much is cut off" in list(faults(replace(table, **cut)))


def test_a_strip_of_one_value_is_never_mirrored_beside_wide_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its image would hold the next value, which is less likely, with the bounds that are for this one."""
    law = Skellam(Fraction(16_386))
    ends = np.concatenate((np.arange(0, 446, 2), np.arange(446, 1700)))
    monkeypatch.setattr(module, "_ends", lambda _: (ends, 2))
    with pytest.raises(AssertionError, match="one value"):
        strips.__wrapped__(law)


@pytest.mark.parametrize("law", [law for law in QUICK if law.signed], ids=str)
def test_strips_of_one_value_are_mirrored_around_zero(law: Law) -> None:
    table = strips(law)
    wide = int(table.mask[0]) > 0
    assert table.start[0] == 0
    if wide:
        assert (table.mask > 0).all()
    else:
        assert sorted(-table.start - table.mask) == sorted(table.start)
    if law.fine:
        assert not table.mask.any()
