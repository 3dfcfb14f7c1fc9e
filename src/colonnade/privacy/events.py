"""Reads events, and says what one observer sees of each."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from fractions import Fraction
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any

from colonnade.disk import reading
from colonnade.errors import PrivacyError
from colonnade.privacy.noise_laws import (
    LAWS_BY_EVENT_KIND,
    NOTHING,
    PURE,
    VERSION,
    AdditiveRelease,
    NonPrivate,
    PoissonSampled,
    PostProcessing,
    RandomisedResponse,
    RepeatedRelease,
    View,
    law_of_event,
)
from colonnade.privacy.observers import COORDINATOR, Adjacency, Alike, Observer, Trust

if TYPE_CHECKING:
    from pydantic import TypeAdapter

Event = AdditiveRelease | RandomisedResponse | PoissonSampled | RepeatedRelease | PostProcessing | NonPrivate
_KINDS: dict[str, Any] = {
    each.kind: each for each in (RandomisedResponse, PoissonSampled, RepeatedRelease, PostProcessing, NonPrivate)
}
_NEW_IN_2 = frozenset({"audience", "about", "others"})
_EXACT = re.compile(r"-?[0-9]{1,1000}(/[0-9]{1,1000})?")
_MOST = 2**63


def from_dict(value: Mapping[str, Any]) -> Event:
    """Read an event; a kind, a version or a field this code does not know is refused, never guessed."""
    if not isinstance(value, Mapping):
        raise PrivacyError("a privacy event must be a JSON object [PR026]")
    if value.get("version") not in (1, VERSION):
        raise PrivacyError(
            f"privacy event of version {_said(value.get('version'))}; this code reads 1 to {VERSION} [PR027]"
        )
    kind = value.get("kind")
    known = kinds_of_events()
    if not isinstance(kind, str) or kind not in known:
        raise PrivacyError(f"unknown privacy event {_said(kind)}: its cost cannot be accounted for [PR028]")
    make = known[kind]
    labels = {field.name for field in fields(make)}
    if strange := sorted(set(value) - labels - {"version", "kind"}):
        raise PrivacyError(
            f"privacy event of kind {kind!r} has a field this code does not know: {_said(strange[0])} [PR029]"
        )
    needed = (labels - _NEW_IN_2 if value["version"] == 1 else labels) - (make.may_lack - set(value))
    try:
        found: Event = make(**{label: _forms()[label].validate_python(value[label]) for label in needed})
        return found
    except PrivacyError as error:
        raise PrivacyError(reading.shorten(str(error))) from None
    except (KeyError, TypeError, ValueError, ArithmeticError, RecursionError) as error:
        raise PrivacyError(f"privacy event of kind {kind!r} is incomplete or malformed [PR030]") from error


def kinds_of_events() -> dict[str, Any]:
    """The class of every kind of event, with those of the laws of noise."""
    return {kind: law.event_type for kind, law in LAWS_BY_EVENT_KIND.items()} | _KINDS


def _said(value: Any) -> str:
    return reading.shorten(repr(value), 80)


def _exact(value: Any) -> int | Fraction:
    # Python reads 1e999999999 as well, and would write out all of its digits.
    if isinstance(value, bool) or not isinstance(value, int | str) or not _EXACT.fullmatch(str(value)):
        raise ValueError("an exact number is whole or a fraction, with a limited number of digits [VA108]")
    number = Fraction(value)
    return int(number) if number.denominator == 1 else number


@cache
def _forms() -> dict[str, TypeAdapter[Any]]:
    """What checks each field of an event; imported with the first event that is read."""
    from pydantic import Field, PlainValidator, TypeAdapter

    exact = Annotated[Any, PlainValidator(_exact)]
    text = Annotated[str, Field(strict=True)]
    whole = Annotated[int, Field(strict=True, ge=-_MOST, le=_MOST)]
    real = Annotated[float, Field(strict=True)]
    forms: tuple[tuple[Any, tuple[str, ...]], ...] = (
        (exact, ("l1", "l2_squared", "replace_l1", "replace_l2_squared", "scale", "odds", "rate")),
        (whole, ("dimension", "times", "categories")),
        (tuple[text, ...], ("audience", "about", "coins")),
        (text, ("name", "holder", "reason", "theorem", "unproven")),
        (real, ("tail", "lost")),
        (tuple[tuple[text, exact], ...], ("shares",)),
        (tuple[tuple[text, exact, exact], ...], ("others",)),
        (Annotated[Any, PlainValidator(from_dict)], ("event",)),
    )
    return {label: TypeAdapter(form) for form, labels in forms for label in labels}


def view(
    event: Event,
    observer: Observer,
    trust: Trust,
    adjacency: Adjacency | None = None,
    missing: int | None = None,
) -> View:
    """The mechanism that is left when the observer subtracts the noise it knows, and ``missing`` others draw none.

    These are by default as many as the trust says, and those with the largest shares; one owner that the observer is
    not in league with draws its noise.

    A party that takes no part in the study sees the published result; it is still held to its own relation
    (replace), so that its views of several studies compose. ``adjacency`` is given where several studies must be
    held to one relation.
    """
    adjacency = trust.adjacency(observer) if adjacency is None else adjacency
    if not isinstance(event, Event):
        raise PrivacyError(f"unknown privacy event {type(event).__name__}: its cost cannot be accounted for [PR032]")
    named = {name for name, _ in event.marks()}
    if strangers := sorted(named - {*trust.owners, COORDINATOR}):
        raise PrivacyError(f"release {event.name!r} names {', '.join(strangers)}, not in the study [PR033]")
    if not trust.committee and COORDINATOR in named:
        # Such a study's coalitions leave the coordinator out, since it holds nothing of its own.
        raise PrivacyError(
            f"release {event.name!r} names the coordinator, which without a committee only relays [PR034]"
        )
    if reason := trust.broken(observer):
        return View(NonPrivate.kind, adjacency, reason=reason)
    return _view(event, observer, adjacency, trust.owners, trust.missing if missing is None else missing)


def _view(event: Event, observer: Observer, adjacency: Adjacency, owners: Sequence[str], missing: int) -> View:
    if isinstance(event, RepeatedRelease):
        once = _view(event.event, observer, adjacency, owners, missing)
        return replace(once, times=once.times * event.times)
    if isinstance(event, PoissonSampled):
        known = bool(set(event.coins) & set(observer.names))
        once = _view(event.event, observer, adjacency, owners, missing)
        return replace(once, rate=event.rate, coins_known=known)
    nothing = View(NOTHING, adjacency)
    if isinstance(event, PostProcessing):
        return nothing
    if event.audience and not set(event.audience) & set(observer.names):
        return nothing  # it was sent to others, sealed
    if isinstance(event, RandomisedResponse):
        return nothing if event.holder in observer.names else _response(event, adjacency)
    if event.about and set(event.about) <= set(observer.names):
        return nothing  # it depends on the observer's own columns only
    if isinstance(event, NonPrivate):
        return View(NonPrivate.kind, adjacency, reason=event.reason)
    return _noisy(event, observer, adjacency, owners, missing)


def _response(event: RandomisedResponse, adjacency: Adjacency) -> View:
    if adjacency is Adjacency.ADD_REMOVE:
        reason = f"{event.name} has one answer a person, so it tells how many there are"
        return View(NonPrivate.kind, adjacency, reason=reason)
    cost = event.epsilon
    return View(PURE, adjacency, theorem=event.theorem, unproven=event.unproven, pure=cost, single_pure=cost)


def _noisy(
    event: AdditiveRelease,
    observer: Observer,
    adjacency: Adjacency,
    owners: Sequence[str],
    missing: int,
) -> View:
    drawn = sorted(size for owner, size in event.shares if owner not in observer.names)
    if not drawn:
        return View(NonPrivate.kind, adjacency, reason=f"{observer} knows every share of the noise")
    # Who leaves out noise gives away its own columns: where it is about no others, somebody is left who drew.
    own = set(event.about or owners) <= {*observer.names, *(owner for owner, _ in event.shares)}
    unknown = drawn[: max(len(drawn) - missing, int(own))]
    if not unknown:
        reason = f"those who draw the noise of {event.name} may all leave it out, and it is about columns of others too"
        return View(NonPrivate.kind, adjacency, reason=reason)
    l1, l2_squared = event.l1, event.l2_squared
    if adjacency is not Adjacency.ADD_REMOVE:
        l1, l2_squared = event.replace_l1, event.replace_l2_squared
        # For one owner only: a larger group must never seem to learn less, or the table could miss the worst one.
        alone = {name for name in observer.names if name != COORDINATOR}
        for owner, other_l1, other_l2_squared in event.others:
            if alone == {owner}:
                l1, l2_squared = min(l1, other_l1), min(l2_squared, other_l2_squared)
    seen = View(
        kind=event.kind,
        adjacency=adjacency,
        noise=sum(unknown, Fraction(0)),
        parts=len(unknown),
        smallest=min(unknown),
        dimension=event.dimension,
        l1=l1,
        l2_squared=l2_squared,
        single_l1=event.l1,
        single_l2_squared=event.l2_squared,
        tail=float(event.tail),
        lost=float(getattr(event, "lost", 0.0)),
        theorem=event.theorem,
        unproven=event.unproven,
    )
    known = str(observer) if len(unknown) == len(drawn) else ""
    return law_of_event(event.kind).resolve_view(event, seen, known)


def views(events: Iterable[Event], observer: Observer, trust: Trust, missing: int | None = None) -> tuple[View, ...]:
    """Every event of a study as one observer sees it."""
    known = tuple(events)
    check_sources(known)
    return tuple(view(event, observer, trust, missing=missing) for event in known)


def check_sources(events: Iterable[Event]) -> None:
    """Post-processing is free only for those who received what it is made of."""
    made = [event for event in events if isinstance(event, PostProcessing)]
    sealed = [event for event in events if not isinstance(event, PostProcessing) and audience_of(event)] if made else []
    for event in sealed:
        for result in made:
            if not result.audience or not set(result.audience) <= set(audience_of(event)):
                raise PrivacyError(
                    f"{result.name!r} reaches people who did not receive {event.name!r}: charge it as a release [PR035]"
                )


def unwrap(event: Event) -> Event:
    """What is released once, without its repetitions and batches."""
    while isinstance(event, RepeatedRelease | PoissonSampled):
        event = event.event
    return event


def audience_of(event: Event) -> tuple[str, ...]:
    """The names of those who receive an event, also if it is repeated; empty if it is published."""
    return getattr(unwrap(event), "audience", ())


def exchange_key(history: Iterable[tuple[Event, Trust]]) -> Alike:
    """A function that gives each owner a key; owners of equal key have equal seats, noise shares and knowledge."""
    marks: dict[str, list[tuple[Any, ...]]] = {}
    messages: dict[str, list[tuple[Any, ...]]] = {}
    for index, (event, trust) in enumerate(history):
        for owner in trust.owners:
            marks.setdefault(owner, []).append((index, "owner"))
        for member in trust.committee:
            marks.setdefault(member, []).append((index, "seat"))
        if own := _own_message(event, trust):
            messages.setdefault(own[0], []).append(own[1:])
            continue
        for name, mark in event.marks():
            marks.setdefault(name, []).append((index, *mark))
    keys = {name: (*found, *messages.get(name, ())) for name, found in marks.items()}
    return lambda name: keys.get(name, ())


def _own_message(event: Event, trust: Trust) -> tuple[Any, ...] | None:
    """The sender of a message about its own columns, then what else describes the message; ``None`` for other events.

    If two owners send equal messages of this kind, exchanging the owners only exchanges the messages.
    """
    once = event.event if isinstance(event, RepeatedRelease) else event
    if isinstance(once, PoissonSampled | RandomisedResponse | PostProcessing | NonPrivate) or once.others:
        return None
    owners = tuple(name for name, _ in once.shares)
    if len(owners) != 1 or once.about != owners or owners[0] not in trust.owners:
        return None
    if once.audience and {*once.audience, *owners} != set(trust.owners):
        return None
    rest = {field.name: getattr(once, field.name) for field in fields(once)}
    told = (once.kind, once.noise, bool(rest.pop("audience")), event.times if isinstance(event, RepeatedRelease) else 1)
    varied = {"name", "shares", "about"}
    return (*owners, trust, *told, *(value for label, value in sorted(rest.items()) if label not in varied))
