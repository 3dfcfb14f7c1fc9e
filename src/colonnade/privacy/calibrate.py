"""From budgets to noise: the least noise at which every named observer stays within its budget."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from colonnade.errors import PrivacyError
from colonnade.privacy.accountant import Bound, epsilon
from colonnade.privacy.events import Event, View, alike, views
from colonnade.privacy.observers import Budget, Observer, Trust

_LARGEST_BITS = 400
_PRECISION = 10**9

Made = Event | Sequence[Event]
_Check = tuple[Observer, Budget, tuple[View, ...]]


def least_noise(make_event: Callable[[int], Made], trust: Trust, budgets: Sequence[Budget], *, owners: int) -> int:
    """The least total noise, a multiple of ``owners`` up to one part in 10^9, that meets every budget.

    ``make_event`` builds the event (or events) of the release for a total noise parameter; more noise must
    never cost more privacy. Budgets for coalitions are met by counting only the noise they do not know.
    """
    if isinstance(owners, bool) or not isinstance(owners, int) or owners < 1:
        raise PrivacyError(f"the noise is split among a positive number of owners, not {owners!r}")
    if not budgets:
        raise PrivacyError("no budget is given: without one there is no noise to choose")

    def failure(units: int) -> str | None:
        return _failure(make_event(units * owners), trust, budgets)

    _refuse_hopeless(make_event(owners), trust, budgets)
    high = 1
    while (reason := failure(high)) is not None:
        high *= 4
        if high.bit_length() > _LARGEST_BITS:
            raise PrivacyError(f"no amount of noise meets the budget: {reason}")
    low = high // 4
    while high - low > max(1, high // _PRECISION):
        # Noise spans many orders of magnitude: while the ends are far apart, halve the exponent.
        middle = math.isqrt(low * high) if low and high > 2 * low else (low + high) // 2
        middle = min(max(middle, low + 1), high - 1)
        if failure(middle) is None:
            high = middle
        else:
            low = middle
    return high * owners


def _checks(made: Made, trust: Trust, budgets: Sequence[Budget]) -> dict[tuple[object, ...], _Check]:
    events = list(made) if isinstance(made, Sequence) else [made]
    same = alike((event, trust) for event in events)
    found: dict[tuple[object, ...], _Check] = {}
    for budget in budgets:
        for observer in budget.observers(trust, same):
            seen = views(events, observer, trust)
            found.setdefault((seen, budget.epsilon, budget.delta), (observer, budget, seen))
    return found


def _refuse_hopeless(made: Made, trust: Trust, budgets: Sequence[Budget]) -> None:
    for observer, _, seen in _checks(made, trust, budgets).values():
        reason = next((view.reason for view in seen if view.reason), None)
        if reason:
            raise PrivacyError(f"no noise protects against {observer}: {reason}")


def _failure(made: Made, trust: Trust, budgets: Sequence[Budget]) -> str | None:
    for observer, budget, seen in _checks(made, trust, budgets).values():
        bound: Bound = epsilon(seen, budget.delta)
        if bound.epsilon > budget.epsilon:
            detail = f" ({bound.reason})" if bound.reason else ""
            return f"{observer} learns epsilon {bound.epsilon:.4g} of {budget.epsilon:.4g} allowed{detail}"
    return None
