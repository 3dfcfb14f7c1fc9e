"""The inverse questions of the accountant: how much noise, how many rounds, how many rows keep every budget.

Every answer is a whole number that was checked to keep all budgets; the number next to it was checked not to. Searches
use only the sign of the excess, at whole numbers of few digits, so that participants with different processors, whose
floats may differ in the last bit, find the same number.
"""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from colonnade.errors import PrivacyError
from colonnade.lazy import LazyModule
from colonnade.privacy.events import Event, exchange_key, views
from colonnade.privacy.noise_laws import View
from colonnade.privacy.observers import Budget, Observer, Trust
from colonnade.privacy.sensitivity import checked_whole
from colonnade.privacy.statement import format_rounded_up

if TYPE_CHECKING:
    from colonnade.privacy import accountant
    from colonnade.privacy.accountant import ProvenBound
else:  # imported by the first calibration, not by those who only plan one
    accountant = LazyModule("colonnade.privacy.accountant")

Made = Event | Sequence[Event]
Make = Callable[[int], Made]
Excess = Callable[[int], float]
_Point = tuple[int, float]

_LARGEST_BITS = 400
_COARSE_BITS = 6
_SLOW_BITS = 20
_QUICK_BITS = 30
_EVERY_BIT = sys.maxsize
_PATIENCE = 8  # after this many guesses the interval is halved, whatever the curve says
MOST = 1 << 40


class HasEvents(Protocol):
    """Anything that says what it would reveal."""

    @property
    def events(self) -> Sequence[Event]:
        """Everything that is revealed."""


Task = TypeVar("Task", bound=HasEvents)

_LARGE = 10.0
"""Budgets up to this are far from what can be certified."""
_NEARLY_ALL = 0.95


@dataclass(frozen=True)
class BindingBudget:
    """One observer, its budget and what it learns; :func:`binding_budget` finds who uses most of its budget."""

    observer: Observer
    budget: Budget
    bound: ProvenBound

    @property
    def is_kept(self) -> bool:
        """Whether the budget is kept."""
        return self.bound.epsilon <= self.budget.epsilon

    @property
    def excess(self) -> float:
        """Logarithm of what is learned over what is allowed."""
        found = self.bound.epsilon / self.budget.epsilon
        return math.log(found) if found > 0 else -math.inf

    @property
    def certification_limit(self) -> str:
        """A sentence if more is allowed than can be certified, so that there is more noise than the budget asks for."""
        if self.budget.epsilon <= self.bound.ceiling or math.isinf(self.bound.epsilon):
            return ""
        return f"no epsilon above {self.bound.ceiling:.1f} can be certified at delta {self.budget.delta:g}"

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; an infinite epsilon is ``null``."""
        learned = None if math.isinf(self.bound.epsilon) else self.bound.epsilon
        return {
            "observer": self.observer.label,
            "epsilon": learned,
            "allowed": self.budget.epsilon,
            "kept": self.is_kept,
        }

    def __str__(self) -> str:
        detail = (
            f" ({self.bound.reason or self.certification_limit})"
            if self.bound.reason or self.certification_limit
            else ""
        )
        learned = format_rounded_up(self.bound.epsilon)
        return f"{self.observer} learns epsilon {learned} of {self.budget.epsilon:g} allowed{detail}"


def describe_unspent(made: Made, trust: Trust, budgets: Sequence[Budget]) -> str:
    """A sentence if the deciding budget is large and far from spent: so little noise cannot be certified, or drawn."""
    if all(budget.epsilon <= _LARGE for budget in budgets):
        return ""
    found = binding_budget(made, trust, budgets)
    spent = 0 < found.bound.epsilon < _NEARLY_ALL * found.budget.epsilon
    return f"{found}: there is more noise than this budget asks for" if spent else ""


def binding_budget(made: Made, trust: Trust, budgets: Sequence[Budget], *, quick: bool = False) -> BindingBudget:
    """The observer that decides: no other uses a larger part of its budget."""
    rough = [
        (BindingBudget(observer, budget, accountant.epsilon(seen, budget.delta, quick=True)), seen)
        for observer, budget, seen in _checks(made, trust, budgets)
    ]
    rough.sort(key=lambda pair: -pair[0].excess)
    if quick:
        return rough[0][0]
    worst: BindingBudget | None = None
    for each, seen in rough:
        if worst is not None and each.excess <= worst.excess:
            break  # the slow routes never give a larger figure
        exact = replace(each, bound=accountant.epsilon(seen, each.budget.delta))
        worst = exact if worst is None or exact.excess > worst.excess else worst
    assert worst is not None  # noqa: S101 - for the type checker; there is a budget
    return worst


def least_noise(make_event: Make, trust: Trust, budgets: Sequence[Budget], *, owners: int) -> int:
    """The least total noise, a multiple of ``owners``, that keeps every budget.

    ``make_event`` builds the event (or events) of the release for a total noise parameter; more noise must
    never cost more privacy. Budgets for coalitions are met by counting only the noise they do not know.

    "Least" means: as far as the accountant can prove, and among shares of an owner with 30 binary digits, so to a part
    in 10^9. If the figures use privacy loss distributions, which take long to evaluate, shares have 20 digits, a part
    in 10^6. The next smaller such share was checked to cost too much.
    """
    checked_whole(owners, "the number of owners among whom the noise is split", 1)
    search = _Search(lambda units: make_event(units * owners), trust, budgets)
    for observer, _, seen in _checks(make_event(owners), trust, budgets):
        if reason := next((view.reason for view in seen if view.reason), None):
            raise PrivacyError(f"no noise protects against {observer}: {reason} [PR024]")
    if search.holds(1):
        return owners
    most = 1 << _LARGEST_BITS
    if not search.holds(most):
        raise PrivacyError(f"no amount of noise meets the budget: {search.worst(most)} [PR020]")
    return search.edge(1, most, _QUICK_BITS, _SLOW_BITS) * owners


def add_least_noise(make: Callable[[int], Task], trust: Trust, budgets: Sequence[Budget], *, owners: int) -> Task:
    """What ``make`` gives for the least total noise, a multiple of ``owners``, whose events keep every budget."""
    return make(least_noise(lambda noise: make(noise).events, trust, budgets, owners=owners))


def largest_number(
    make_events: Make,
    trust: Trust,
    budgets: Sequence[Budget],
    *,
    at_least: int = 1,
    at_most: int = MOST,
    name: str = "number",
) -> int:
    """The largest whole number (of rounds, epochs, queries) whose events keep every budget; more must not cost less."""
    search = _Search(make_events, trust, budgets)
    _check_range(at_least, at_most)
    if not search.holds(at_least):
        raise PrivacyError(f"even {name} = {at_least} is too much: {search.worst(at_least)} [PR021]")
    good = at_least
    while good < at_most:  # not directly to the far end, where figures may take long
        number = min(4 * good, at_most)
        if not search.holds(number):
            return search.edge(number, good, _EVERY_BIT, _EVERY_BIT)
        good = number
    return at_most


def smallest_number(
    make_events: Make,
    trust: Trust,
    budgets: Sequence[Budget],
    *,
    at_least: int = 1,
    at_most: int = MOST,
    name: str = "number",
) -> int:
    """The smallest whole number (such as of rows) whose events keep every budget; more must not cost more."""
    search = _Search(make_events, trust, budgets)
    _check_range(at_least, at_most)
    if search.holds(at_least):
        return at_least
    if not search.holds(at_most):
        raise PrivacyError(f"even {name} = {at_most} is too little: {search.worst(at_most)} [PR022]")
    return search.edge(at_least, at_most, _EVERY_BIT, _EVERY_BIT)


class _Search:
    """Numbers, the events made for each of them, and whether they keep every budget."""

    def __init__(self, make: Make, trust: Trust, budgets: Sequence[Budget]) -> None:
        if not budgets:
            raise PrivacyError("no budget is given: without one there is nothing to keep to [PR023]")
        self.make, self.trust, self.budgets = make, trust, budgets

    def worst(self, number: int, quick: bool = False) -> BindingBudget:
        return binding_budget(self.make(number), self.trust, self.budgets, quick=quick)

    def holds(self, number: int) -> bool:
        return self.worst(number, quick=True).is_kept or self.worst(number).is_kept

    def edge(self, bad: int, good: int, quick_bits: int, slow_bits: int) -> int:
        """The last good number between a good one and a bad one, among those of at most this many binary digits.

        The search uses the quick routes first; a number that they prove good is good. It then continues with the slow
        routes, one observer at a time.
        """
        far, near = (bad, math.nan), (good, math.nan)
        if self.worst(good, quick=True).is_kept:
            far, near = _narrow(self._quickly, far, near, _COARSE_BITS)
            if not (self._slow(near[0]) or self._slow(far[0])):
                return _narrow(self._quickly, far, near, quick_bits)[1][0]
        start, worst = near[0], self.worst(near[0])
        far, near = _reach(self._excess_of(worst), (start, worst.excess), bad, slow_bits)
        while True:
            found = _narrow(self._excess_of(worst), far, near, slow_bits)[1][0]
            if (worst := self.worst(found)).is_kept:
                return found
            far, near = (found, worst.excess), (start, self._excess_of(worst)(start))

    def _quickly(self, number: int) -> float:
        return self.worst(number, quick=True).excess

    def _excess_of(self, one: BindingBudget) -> Excess:
        """The excess of this observer alone, as a function of the number."""

        def excess(number: int) -> float:
            seen = views(_events(self.make(number)), one.observer, self.trust)
            return BindingBudget(one.observer, one.budget, accountant.epsilon(seen, one.budget.delta)).excess

        return excess

    def _slow(self, number: int) -> bool:
        """Whether slow routes may prove more than the quick ones."""
        checks = _checks(self.make(number), self.trust, self.budgets)
        return any(not route.quick for _, _, seen in checks for route in accountant.routes(seen))


def _narrow(excess: Excess, bad: _Point, good: _Point, bits: int) -> tuple[_Point, _Point]:
    """Search between a bad and a good number until no number of at most ``bits`` binary digits lies between them."""
    seen = [bad, good]
    for count in itertools.count():
        low, high = sorted((bad[0], good[0]))
        if high - low <= (grain := _grain(high - 1, bits)):
            break
        guess = _middle(low, high) if count % _PATIENCE == _PATIENCE - 1 else _zero(seen[-4:], low, high)
        number = min(max(_snap(guess, bits), low + _grain(low, bits)), high - grain)
        seen.append((number, excess(number)))
        bad, good = (seen[-1], good) if seen[-1][1] > 0 else (bad, seen[-1])
    return bad, good


def _middle(low: int, high: int) -> int:
    """The middle of the two on a logarithmic scale."""
    return _times(low, (math.log(high) - math.log(low)) / 2)


def _zero(points: Sequence[_Point], low: int, high: int) -> int:
    """The number at which a curve through the points has excess 0, by Neville's scheme on its logarithm."""
    if high > 16 * low or not all(math.isfinite(value) for _, value in points):
        return _middle(low, high)
    row, values = [math.log(number) for number, _ in points], [value for _, value in points]
    if len(set(values)) < len(values):
        return _middle(low, high)
    for order in range(1, len(row)):
        row = [
            (values[k] * row[k + 1] - values[k + order] * row[k]) / (values[k] - values[k + order])
            for k in range(len(row) - 1)
        ]
    return _times(low, row[0] - math.log(low)) if math.log(low) < row[0] < math.log(high) else _middle(low, high)


def _reach(excess: Excess, good: _Point, end: int, bits: int) -> tuple[_Point, _Point]:
    """Go from a good number towards a bad end until a number is bad; return it and the last good one."""
    stride = 2 / 3
    while True:
        number, at = good
        distance = stride * min(-at, 3.0) if at else 0.0
        if number > end:
            step = min(_snap(_times(number, -distance), bits), number - _grain(number - 1, bits))
            following = max(step, end)
        else:
            following = min(max(_snap(_times(number, distance), bits), number + _grain(number, bits)), end)
        value = math.inf if following == end else excess(following)
        if value > 0:
            return (following, value), good
        good, stride = (following, value), 3 * stride


def _grain(value: int, bits: int) -> int:
    """The distance between neighbouring numbers of ``bits`` binary digits near ``value``."""
    return 1 << max(0, value.bit_length() - bits)


def _snap(value: int, bits: int) -> int:
    grain = _grain(value, bits)
    return -(-value // grain) * grain


def _times(value: int, exponent: float) -> int:
    """``value`` times e^exponent, also where a float cannot hold it."""
    return value * int(math.exp(exponent) * 2.0**64) >> 64


def _events(made: Made) -> list[Event]:
    return list(made) if isinstance(made, Sequence) else [made]


def _checks(made: Made, trust: Trust, budgets: Sequence[Budget]) -> Iterator[tuple[Observer, Budget, tuple[View, ...]]]:
    """Every observer to which a budget applies, once for each different view."""
    events = _events(made)
    same = exchange_key((event, trust) for event in events)
    found = set()
    for budget in budgets:
        for observer in budget.observers(trust, same):
            seen = views(events, observer, trust)
            if (key := (seen, budget.epsilon, budget.delta)) not in found:
                found.add(key)
                yield observer, budget, seen


def _check_range(at_least: int, at_most: int) -> None:
    if not 1 <= at_least <= at_most:
        raise PrivacyError(f"whole numbers are looked for from 1 on, not from {at_least} to {at_most} [PR025]")
