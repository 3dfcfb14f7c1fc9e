"""Who observes a study, which tables each observer must not tell apart, and to whom a budget applies.

Owners hold columns and shares of the noise, the committee holds secret shares, the coordinator relays, and
the analyst sees the published result. In some studies there is no committee: owners tell each other noised numbers,
and nobody holds shares. :class:`Trust` is the public part of that arrangement;
``docs/theory/observers.md`` says why each observer gets the neighbouring relation it gets.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import combinations, combinations_with_replacement
from typing import Any, Literal, get_args

from colonnade.disk import reading
from colonnade.errors import PrivacyError

COORDINATOR = "coordinator"
EVERYONE = "everyone"
OTHERS = "others"
"""In a party's own caps: all others together, over all its studies."""
_GROUPS = ("party", "pair", "coalition", EVERYONE)
RESERVED_NAMES = frozenset({"analyst", COORDINATOR, *_GROUPS})

_NAMED = 5
_PATTERNS_LISTED = 32

Alike = Callable[[str], Hashable]


class Adjacency(StrEnum):
    """Which two tables an observer must not be able to tell apart."""

    ADD_REMOVE = "add or remove one person"
    REPLACE = "replace one person"
    REPLACE_OTHERS = "replace one person's columns held by others"


@dataclass(frozen=True, order=True)
class Observer:
    """Somebody who observes: the analyst, the coordinator, one owner, or several who pool what they see."""

    rank: int
    names: tuple[str, ...]

    @classmethod
    def analyst(cls) -> Observer:
        """Whoever sees the published result and nothing else."""
        return cls(0, ())

    @classmethod
    def coordinator(cls) -> Observer:
        """The hub, which relays sealed messages and sees their sizes."""
        return cls(1, (COORDINATOR,))

    @classmethod
    def party(cls, name: str) -> Observer:
        """One owner of columns."""
        return cls.coalition(name)

    @classmethod
    def coalition(cls, *names: str) -> Observer:
        """Several who pool what they see; a coalition of one is that one."""
        members = tuple(sorted(set(names)))
        if not members:
            raise PrivacyError("a coalition needs at least one name [PR049]")
        for name in members:
            _check_name(name, allowed=COORDINATOR)
        if members == (COORDINATOR,):
            return cls.coordinator()
        return cls(2 if len(members) == 1 else 3, members)

    @classmethod
    def others(cls) -> Observer:
        """All but the party whose ledger it is, together, as far as each study's threshold allows; for ledgers."""
        return cls(4, (OTHERS,))

    @classmethod
    def parse(cls, text: str) -> Observer:
        """The observer that :attr:`label` writes, such as ``analyst`` or ``bank+shop``."""
        names = [part.strip() for part in text.split("+")]
        if names == [OTHERS]:
            return cls.others()
        return cls.analyst() if names == ["analyst"] else cls.coalition(*names)

    @property
    def label(self) -> str:
        """A short text that :meth:`parse` reads back."""
        return "+".join(self.names) or "analyst"

    @property
    def short(self) -> str:
        """The label; if it would be long, the first name and the number of others."""
        few = len(self.names) <= _NAMED
        return self.label if few else f"{self.names[0]} and {len(self.names) - 1} more together"

    def __str__(self) -> str:
        return self.short


Security = Literal["semi-honest", "active"]
RequestedInputs = Literal["unproven", "proven"]
Inputs = Literal[RequestedInputs, "needless"]
SECURITIES: tuple[Security, ...] = get_args(Security)
INPUTS: tuple[RequestedInputs, ...] = get_args(RequestedInputs)


@dataclass(frozen=True)
class Trust:
    """The public arrangement of a study: owners, committee, and how many members may pool their shares.

    Without a committee the threshold is 0, and nothing is sent to the coordinator but what is published.
    """

    owners: tuple[str, ...]
    committee: tuple[str, ...]
    threshold: int
    security: Security = "semi-honest"
    """Whether what follows holds only if everybody follows the protocol, or also if some do not."""
    inputs: Inputs = "unproven"
    """Whether owners prove that what they deal keeps its bounds; needless where it is only added up."""
    noise_missing: int | None = None
    """How many owners besides an observer may leave out their noise; by default see :attr:`missing`."""
    tries: int = 1
    """How often somebody may cheat before the study ends: more than once where lanes are run again."""

    def __post_init__(self) -> None:
        for name in self.owners:
            _check_name(name)
        size = len(self.committee)
        missing = self.noise_missing
        strangers = sorted(set(self.committee) - {*self.owners, COORDINATOR})
        allowed = "1" if size < 5 else f"from 1 to {(size - 1) // 2}"
        for wrong, said in (
            (
                self.inputs != "unproven" and not self.active,
                "owners prove bounds only where security is active [PR050]",
            ),
            (
                self.active and not size,
                "security is active only where there is a committee, whose seats check each other [PR051]",
            ),
            (len(self.owners) < 2, "a study needs at least two owners [PR052]"),
            (
                len(set(self.owners)) != len(self.owners) or len(set(self.committee)) != size,
                "an owner or committee member is named twice [PR053]",
            ),
            (strangers, f"the committee names {', '.join(strangers)}, who takes no part in the study [PR054]"),
            (
                missing is not None and not (type(missing) is int and 0 <= missing <= self.threshold),
                f"noise_missing is a whole number from 0 to the threshold, here {self.threshold} [PR055]",
            ),
            (
                (size or self.threshold) and not 3 <= size <= 7,
                f"a committee has 3 to 7 members, or there is none and the threshold is 0; not {size} [PR056]",
            ),
            (
                size and not (self.threshold >= 1 and 2 * self.threshold < size),
                f"the threshold of a committee of {size} must be {allowed}, not {self.threshold} [PR057]",
            ),
        ):
            if wrong:
                raise PrivacyError(said)

    @property
    def active(self) -> bool:
        """Whether seats check what the others did before anything is opened."""
        return self.security == "active"

    @property
    def bounds_assumed(self) -> bool:
        """Whether figures that hold although some deviate rest on bounds that owners keep without a proof."""
        return self.active and self.inputs == "unproven"

    @property
    def proven(self) -> bool:
        """Whether owners prove that what they deal keeps its bounds."""
        return self.inputs == "proven"

    @property
    def missing(self) -> int:
        """How many owners may leave out their noise without making any promise untrue (docs/theory/missing-noise.md).

        If the study says nothing, as many as the threshold where participants may deviate, and otherwise none.
        """
        return self.noise_missing if self.noise_missing is not None else self.threshold * self.active

    def adjacency(self, observer: Observer) -> Adjacency:
        """The neighbouring relation an observer is held to."""
        # Without a committee the number of rows is a public parameter, on which the bounds rest.
        if observer == Observer.analyst():
            return Adjacency.ADD_REMOVE if self.committee else Adjacency.REPLACE
        # The hub counts bytes and so knows the number of rows: it sees whether a person is added or removed.
        return Adjacency.REPLACE if observer == Observer.coordinator() else Adjacency.REPLACE_OTHERS

    def broken(self, observer: Observer) -> str | None:
        """Why nothing is promised against this observer; ``None`` if something is."""
        held = [name for name in self.committee if name in observer.names]
        if len(held) > self.threshold:
            return (
                f"{_listed(held)} together hold {len(held)} of {len(self.committee)} shares; "
                f"more than the threshold {self.threshold} reveals every input"
            )
        if set(self.owners) <= set(observer.names):
            return f"{_listed(self.owners)} together hold every column and every share of the noise"
        return None

    def coalitions(self, size: int, alike: Alike | None = None) -> Iterator[Observer]:
        """Coalitions of ``size`` among the owners and the coordinator.

        With ``alike``, owners of equal key are exchangeable, and one coalition stands for all of the same pattern; so a
        study with a thousand owners does not give half a million pairs. Without a committee the coordinator holds
        nothing that a coalition could use, so it is in none.
        """
        everybody = (*self.owners, COORDINATOR) if self.committee or size == 1 else self.owners
        if alike is None:
            for names in combinations(everybody, size):
                yield Observer.coalition(*names)
            return
        for picked in _patterns(self._classes(everybody, alike), size):
            yield Observer.coalition(*picked)

    def larger_coalitions(self, alike: Alike | None = None) -> Iterator[Observer]:
        """Coalitions of more than two within the threshold, with the coordinator, up to the largest.

        Each is a choice of seats within the threshold, together with all owners without a seat, none of them, or all
        except those of one key: a member that joins knows more of the noise, but learns nothing from its own messages.
        Without a committee these are coalitions of some, but not all, owners.
        """
        if not self.committee:
            yield from self._without_committee(self._classes(self.owners, alike or _by_name))
            return
        hub = () if COORDINATOR in self.committee else (COORDINATOR,)
        seats = self._classes(self.committee, alike or _by_name)
        outside = self._classes([name for name in self.owners if name not in self.committee], alike or _by_name)
        joined = [outside, [], *([one for one in outside if one is not left] for left in outside)]
        for size in range(self.threshold + 1):
            for seated in _patterns(seats, size):
                for groups in joined:
                    names = {*hub, *seated, *(name for group in groups for name in group)}
                    if len(names) > 2:
                        yield Observer.coalition(*names)

    def _without_committee(self, classes: Sequence[Sequence[str]]) -> Iterator[Observer]:
        """Coalitions of every pattern; if these are many: all owners but one, all but those of a key, all of a key."""
        everybody, found = set(self.owners), []
        if math.prod(len(one) + 1 for one in classes) <= _PATTERNS_LISTED:
            found = [set(names) for size in range(3, len(everybody)) for names in _patterns(classes, size)]
        else:
            found = [everybody - set(left) for one in classes for left in (one[-1:], one)]
            found += [set(one) for one in classes]
        for names in found:
            if 2 < len(names) < len(everybody):
                yield Observer.coalition(*names)

    def _classes(self, names: Sequence[str], alike: Alike) -> list[list[str]]:
        """The names in groups; the names of one group are exchangeable."""
        classes: dict[Hashable, list[str]] = {}
        for name in names:
            classes.setdefault((name == COORDINATOR, name in self.committee, alike(name)), []).append(name)
        return list(classes.values())

    def standard_observers(self, alike: Alike | None = None, larger: Alike | None = None) -> tuple[Observer, ...]:
        """The analyst, the coordinator, each party, each pair, and the larger coalitions within the threshold.

        Pairs above the threshold are included. ``larger`` is ``alike`` for the coalitions of more than two.
        """
        single = [seen for seen in self.coalitions(1, alike) if seen != Observer.coordinator()]
        pooled = self.larger_coalitions(larger or alike)
        return tuple(
            dict.fromkeys((Observer.analyst(), Observer.coordinator(), *single, *self.coalitions(2, alike), *pooled))
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; where everybody is taken to follow the protocol, nothing is said about it."""
        said: dict[str, Any] = {"security": self.security, "inputs": self.inputs} if self.active else {}
        said |= {} if self.noise_missing is None else {"noise_missing": self.noise_missing}
        return {"owners": list(self.owners), "committee": list(self.committee), "threshold": self.threshold, **said}

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Trust:
        """Read what :meth:`to_dict` wrote."""
        try:
            owners, committee, threshold = value["owners"], value["committee"], value["threshold"]
            if not isinstance(threshold, int) or not all(isinstance(name, str) for name in (*owners, *committee)):
                raise TypeError("names are texts, and a threshold is a whole number [VA120]")
            security, inputs = value.get("security", "semi-honest"), value.get("inputs", "unproven")
            if inputs == "covert":  # of earlier releases, which looked at one row in eight
                inputs = "unproven"
            if security not in SECURITIES or inputs not in get_args(Inputs):
                raise ValueError("security and inputs are words from short lists [VA121]")
            return cls(tuple(owners), tuple(committee), threshold, security, inputs, value.get("noise_missing"))
        except (KeyError, TypeError, ValueError) as error:
            raise PrivacyError("the description of who is trusted cannot be read [PR058]") from error

    def to_json(self) -> str:
        """One line of JSON."""
        return json.dumps(self.to_dict(), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Trust:
        """Read what :meth:`to_json` wrote."""
        try:
            return cls.from_dict(reading.parse_json(text))
        except reading.MalformedFile as error:
            raise PrivacyError(f"the description of who is trusted cannot be read: {error} [PR059]") from None


@dataclass(frozen=True)
class Budget:
    """A limit: the observers that ``selector`` names may learn at most ``epsilon`` at ``delta``."""

    selector: str
    epsilon: float
    delta: float
    called: str | None = None
    """What the one who is meant is called, where that is not the selector."""

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)
        check_delta(self.delta)
        if self.selector not in RESERVED_NAMES:
            Observer.parse(self.selector)

    @property
    def named(self) -> bool:
        """Whether one observer is meant, rather than every observer of a kind."""
        return self.selector not in (*_GROUPS, OTHERS)

    def observers(self, trust: Trust, alike: Alike | None = None) -> tuple[Observer, ...]:
        """The observers to which this limit applies in a study.

        A group means its members within the threshold: each ``party`` alone, each ``pair``, each ``coalition`` up to
        the largest, and for ``everyone`` all who are alone, in pairs, or as many owners as the threshold with the
        coordinator. Without a committee, only the coalition of all owners is not within the threshold. An observer
        given by name is returned even above the threshold, so that the answer about it is honest.
        """
        if self.selector == OTHERS:
            raise PrivacyError(
                "others are all but one party, together, over all its studies: a study's budget cannot limit them, so "
                "name party, pair, coalition or everyone there, and others in the [policy.budget] of a party [PR060]"
            )
        if self.named:
            observer = Observer.parse(self.selector)
            if unknown := sorted(set(observer.names) - {*trust.owners, COORDINATOR}):
                possible = ["analyst", COORDINATOR, *_GROUPS, *trust.owners[:8]]
                raise PrivacyError(
                    f"no observer {', '.join(unknown)} in this study; choose from {', '.join(possible)}, "
                    "or join names with + [PR061]"
                )
            return (observer,)
        found: list[Observer]
        if self.selector == EVERYONE:
            most = max(2, trust.threshold)
            groups = [seen for size in range(1, most + 2) for seen in trust.coalitions(size, alike)]
            found = [Observer.analyst(), *(seen for seen in groups if len(set(seen.names) - {COORDINATOR}) <= most)]
        elif self.selector == "party":
            found = [seen for seen in trust.coalitions(1, alike) if seen != Observer.coordinator()]
        else:
            largest = 2 if self.selector == "pair" else max(2, trust.threshold)
            found = [seen for size in range(2, largest + 1) for seen in trust.coalitions(size, alike)]
            found += trust.larger_coalitions(alike) if self.selector == "coalition" else ()
        within = tuple(dict.fromkeys(seen for seen in found if trust.broken(seen) is None))
        if not within:
            limit = f"stays within the threshold {trust.threshold}" if trust.committee else "leaves out an owner"
            raise PrivacyError(f"no {self.selector} {limit}: nothing can be promised [PR062]")
        return within


def parse_budgets(epsilon: float | Mapping[str, float], delta: float, trust: Trust | None = None) -> tuple[Budget, ...]:
    """Budgets from what a user wrote: one number for everyone within the threshold, or a mapping by observer.

    With ``trust`` the names are checked against the study at once.
    """
    if isinstance(epsilon, Mapping):
        if not epsilon:
            raise PrivacyError("the mapping of epsilons is empty: name at least one observer [PR063]")
        budgets = tuple(Budget(str(name), value, delta) for name, value in epsilon.items())
    else:
        budgets = (Budget(EVERYONE, epsilon, delta),)
    if trust is not None:
        for budget in budgets:
            budget.observers(trust, alike=lambda _name: 0)
    return budgets


def find_unbudgeted(names: Sequence[str], budgets: Sequence[Budget], trust: Trust) -> tuple[str, ...]:
    """Those of these participants of whom no budget speaks, neither alone nor together with others."""

    def spoken(one: str) -> bool:
        observers = (seen for budget in budgets for seen in budget.observers(trust, lambda name: name == one))
        return any(one in seen.names for seen in observers)

    return tuple(name for name in names if not spoken(name))


def largest_known_noise(trust: Trust, budgets: Sequence[Budget]) -> int:
    """The most owners whose noise an observer with a budget may know, or that may be missing; one is always left."""
    groups = [observer.names for budget in budgets for observer in budget.observers(trust, lambda _: 0)]
    sizes = [len(set(names) - {COORDINATOR}) for names in groups]
    return min(max([trust.threshold, *sizes]) + trust.missing, len(trust.owners) - 1)


def check_epsilon(epsilon: float) -> None:
    """Refuse an epsilon that is no positive number."""
    if isinstance(epsilon, bool) or not isinstance(epsilon, (int, float)):
        raise PrivacyError(f"epsilon must be a number, not {type(epsilon).__name__} [PR064]")
    if not 0 < epsilon <= sys.float_info.max:
        raise PrivacyError(f"epsilon must be a positive finite number, not {reading.shorten(str(epsilon), 80)} [PR065]")


def check_delta(delta: float) -> None:
    """Refuse a delta that is no probability between 0 and 1."""
    if isinstance(delta, bool) or not isinstance(delta, (int, float)) or not 0 < delta < 1:
        raise PrivacyError(f"delta must lie strictly between 0 and 1, not {delta} [PR066]")


def _check_name(name: str, allowed: str = "") -> None:
    if not name or "+" in name or name != name.strip():
        raise PrivacyError(f"{name!r} cannot name a party: no empty names, no +, no spaces around [PR067]")
    if name in RESERVED_NAMES and name != allowed:
        raise PrivacyError(f"{name!r} is a reserved word and cannot name a party [PR068]")


def _patterns(classes: Sequence[Sequence[str]], size: int) -> Iterator[list[str]]:
    """Groups of ``size``, one for each number of members from each class."""
    for pattern in combinations_with_replacement(range(len(classes)), size):
        wanted = {index: pattern.count(index) for index in pattern}
        if all(count <= len(classes[index]) for index, count in wanted.items()):
            yield [name for index, count in wanted.items() for name in classes[index][:count]]


def _by_name(name: str) -> str:
    return name


def _listed(names: Sequence[str]) -> str:
    shown = list(names) if len(names) <= 6 else [*names[:5], f"{len(names) - 5} more"]
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"
