"""What was revealed, as a value: mechanism, exact noise, sensitivity, who holds which share of the noise.

An event says what happened; :func:`view` says what it looks like to one observer. Privacy parameters are
integers or fractions, because a figure that a proof rests on must not be a rounded one; squared L2 norms are
kept, because the norms themselves are irrational.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from fractions import Fraction
from typing import Any, ClassVar

from colonnade.errors import PrivacyError
from colonnade.privacy.observers import COORDINATOR, Adjacency, Alike, Observer, Trust
from colonnade.privacy.sensitivity import float_up

VERSION = 1
Shares = tuple[tuple[str, Fraction], ...]


@dataclass(frozen=True)
class _NoisyRelease:
    """An integer vector published with the sum of one independent integer noise share per owner.

    ``tail`` is the distance of one sampled share from its exact law; ``unproven`` says why the figure is only
    "as published", and is empty when ``theorem`` proves it.
    """

    kind: ClassVar[str]
    name: str
    shares: Shares
    dimension: int
    l1: int
    l2_squared: int
    replace_l1: int
    replace_l2_squared: int
    tail: float | Fraction = 0.0
    theorem: str = ""
    unproven: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "shares", tuple((str(owner), Fraction(size)) for owner, size in self.shares))
        holders = [owner for owner, _ in self.shares]
        if not holders or len(set(holders)) != len(holders):
            raise PrivacyError(f"release {self.name!r} needs one noise share per owner, each owner once")
        if any(size <= 0 for _, size in self.shares):
            raise PrivacyError(f"release {self.name!r} has a noise share that is not positive")
        for label in ("dimension", "l1", "l2_squared", "replace_l1", "replace_l2_squared"):
            value = getattr(self, label)
            if isinstance(value, bool) or not isinstance(value, int) or value < (label == "dimension"):
                raise PrivacyError(f"{label} of release {self.name!r} must be a whole number, not {value!r}")
        if not (math.isfinite(self.tail) and 0 <= self.tail < 1):
            raise PrivacyError(f"the sampler distance of release {self.name!r} must lie in [0, 1)")
        if isinstance(self.tail, Fraction):
            object.__setattr__(self, "tail", float_up(self.tail))

    @property
    def noise(self) -> Fraction:
        """All shares together."""
        return sum((size for _, size in self.shares), Fraction(0))

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; large integers and fractions travel as text."""
        return {
            "version": VERSION,
            "kind": self.kind,
            "name": self.name,
            "shares": [[owner, str(size)] for owner, size in self.shares],
            "dimension": self.dimension,
            "l1": str(self.l1),
            "l2_squared": str(self.l2_squared),
            "replace_l1": str(self.replace_l1),
            "replace_l2_squared": str(self.replace_l2_squared),
            "tail": float(self.tail),
            "theorem": self.theorem,
            "unproven": self.unproven,
        }

    def to_json(self) -> str:
        """One line of JSON."""
        return json.dumps(self.to_dict(), sort_keys=True)


class SkellamRelease(_NoisyRelease):
    """Shares ``mu`` of Skellam noise: Pois(mu) - Pois(mu), whose variance is 2 mu."""

    kind = "skellam"


class DiscreteGaussianRelease(_NoisyRelease):
    """Shares ``sigma^2`` of discrete Gaussian noise (the variance parameter, not half of it)."""

    kind = "discrete_gaussian"


@dataclass(frozen=True)
class NonPrivate:
    """Something nothing is proven about was revealed; the accountant answers infinity, with this reason."""

    reason: str
    name: str = ""
    kind: ClassVar[str] = "non_private"

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {"version": VERSION, "kind": self.kind, "name": self.name, "reason": self.reason}

    def to_json(self) -> str:
        """One line of JSON."""
        return json.dumps(self.to_dict(), sort_keys=True)


Event = SkellamRelease | DiscreteGaussianRelease | NonPrivate
_RELEASES: dict[str, type[SkellamRelease] | type[DiscreteGaussianRelease]] = {
    SkellamRelease.kind: SkellamRelease,
    DiscreteGaussianRelease.kind: DiscreteGaussianRelease,
}


def from_dict(value: Mapping[str, Any]) -> Event:
    """Read an event; a kind or version this code does not know is refused, never guessed."""
    if not isinstance(value, Mapping):
        raise PrivacyError("a privacy event must be a JSON object")
    if value.get("version") != VERSION:
        raise PrivacyError(f"privacy event of version {value.get('version')!r}; this code reads {VERSION}")
    kind = value.get("kind")
    try:
        if kind == NonPrivate.kind:
            return NonPrivate(reason=str(value["reason"]), name=str(value["name"]))
        release = _RELEASES.get(str(kind))
        if release is None:
            raise PrivacyError(f"unknown privacy event {kind!r}: its cost cannot be accounted for")
        given = {field.name: value[field.name] for field in fields(release)}
        for label in ("l1", "l2_squared", "replace_l1", "replace_l2_squared"):
            given[label] = int(given[label])
        given["shares"] = tuple((owner, Fraction(size)) for owner, size in given["shares"])
        return release(**given)
    except (KeyError, TypeError, ValueError, ZeroDivisionError) as error:
        raise PrivacyError(f"privacy event of kind {kind!r} is incomplete or malformed") from error


def from_json(text: str) -> Event:
    """Read what an event's ``to_json`` wrote."""
    try:
        return from_dict(json.loads(text))
    except json.JSONDecodeError as error:
        raise PrivacyError("a privacy event is not valid JSON") from error


@dataclass(frozen=True)
class View:
    """One event as one observer sees it; with a ``reason``, nothing is hidden from that observer.

    ``noise`` is the sum of the shares the observer does not know, made of ``parts`` shares of which the least
    is ``smallest``.
    """

    kind: str
    adjacency: Adjacency
    noise: Fraction = Fraction(0)
    parts: int = 0
    smallest: Fraction = Fraction(0)
    dimension: int = 0
    l1: int = 0
    l2_squared: int = 0
    tail: float = 0.0
    theorem: str = ""
    unproven: str = ""
    reason: str = ""

    @property
    def draws(self) -> int:
        """How many samples the unknown noise is made of."""
        return self.dimension * self.parts


def view(event: Event, observer: Observer, trust: Trust) -> View:
    """The mechanism that is left when the observer subtracts the noise it knows.

    A party that takes no part in the study sees the published result; it is still held to its own relation
    (replace), so that its views of several studies compose.
    """
    adjacency = trust.adjacency(observer)
    if isinstance(event, NonPrivate):
        return View(NonPrivate.kind, adjacency, reason=event.reason)
    if not isinstance(event, (SkellamRelease, DiscreteGaussianRelease)):
        raise PrivacyError(f"unknown privacy event {type(event).__name__}: its cost cannot be accounted for")
    if strangers := sorted({owner for owner, _ in event.shares} - {*trust.owners, COORDINATOR}):
        raise PrivacyError(f"release {event.name!r} has noise from {', '.join(strangers)}, not in the study")
    if reason := trust.broken(observer):
        return View(NonPrivate.kind, adjacency, reason=reason)
    unknown = [size for owner, size in event.shares if owner not in observer.names]
    if not unknown:
        return View(NonPrivate.kind, adjacency, reason=f"{observer} knows every share of the noise")
    whole = adjacency is Adjacency.ADD_REMOVE
    return View(
        kind=event.kind,
        adjacency=adjacency,
        noise=sum(unknown, Fraction(0)),
        parts=len(unknown),
        smallest=min(unknown),
        dimension=event.dimension,
        l1=event.l1 if whole else event.replace_l1,
        l2_squared=event.l2_squared if whole else event.replace_l2_squared,
        tail=float(event.tail),
        theorem=event.theorem,
        unproven=event.unproven,
    )


def views(events: Iterable[Event], observer: Observer, trust: Trust) -> tuple[View, ...]:
    """Every event of a study as one observer sees it."""
    return tuple(view(event, observer, trust) for event in events)


def alike(history: Iterable[tuple[Event, Trust]]) -> Alike:
    """A key under which two owners are exchangeable: same seats and same noise shares throughout."""
    marks: dict[str, list[tuple[int, str, Fraction]]] = {}
    for index, (event, trust) in enumerate(history):
        for owner in trust.owners:
            marks.setdefault(owner, []).append((index, "owner", Fraction(0)))
        for member in trust.committee:
            marks.setdefault(member, []).append((index, "seat", Fraction(0)))
        for owner, size in () if isinstance(event, NonPrivate) else event.shares:
            marks.setdefault(owner, []).append((index, "share", size))
    keys = {owner: tuple(found) for owner, found in marks.items()}
    return lambda name: keys.get(name, ())
