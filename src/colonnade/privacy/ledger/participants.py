"""Who took part in which studies, and what somebody, or a group, sees of all of them: a participant is its key.

``docs/theory/across-studies.md`` says why what is composed here bounds what somebody, or a group, has learned, and whom
a cap speaks of.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import combinations

from colonnade.disk import reading
from colonnade.errors import LedgerError, PrivacyError
from colonnade.privacy import accountant
from colonnade.privacy.events import Event, exchange_key, from_dict, unwrap, view
from colonnade.privacy.noise_laws import NOTHING, NonPrivate, RandomisedResponse, View
from colonnade.privacy.observers import COORDINATOR, EVERYONE, OTHERS, Adjacency, Budget, Observer, Trust

DIGITS = 6
"""So many digits of a key stand beside a name that several keys have used."""
ParticipantToken = tuple[str, str]
"""One participant of one study: the owner of the ledger, a key, or a name where no key is on record."""
_OWN: ParticipantToken = ("own", "")


@dataclass(frozen=True)
class StudyParticipants:
    """The keys of everybody in a study, the coordinator included, and the name of the party whose ledger it is.

    Both are empty in entries that were written before keys were recorded.
    """

    own: str = ""
    keys: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, own: str, keys: Mapping[str, str], trust: Trust) -> StudyParticipants:
        """The people of a study; an error if they are not those of its arrangement, or two of them have one key."""
        if own and own not in trust.owners:
            raise LedgerError(f"this ledger is that of {own}, who is no party of the study [LE034]")
        if keys and set(keys) != {*trust.owners, COORDINATOR}:
            raise LedgerError("the keys of a study must be those of all its parties and of the coordinator [LE035]")
        holders: dict[str, str] = {}
        for name, key in keys.items():
            if (other := holders.setdefault(key, name)) != name:
                raise LedgerError(
                    f"{other} and {name} have the same key: they are one participant, and count as one [LE036]"
                )
        return cls(own, tuple(sorted(keys.items())))

    def to_json(self) -> str | None:
        """One line of JSON; ``None`` if nothing is known."""
        return json.dumps({"own": self.own, "keys": dict(self.keys)}, sort_keys=True) if self.own or self.keys else None

    @classmethod
    def from_json(cls, text: str | None) -> StudyParticipants:
        """Read what :meth:`to_json` wrote."""
        if text is None:
            return cls()
        try:
            value = reading.parse_json(text)
        except reading.MalformedFile as error:
            raise PrivacyError(f"the description of who took part cannot be read: {error} [PR037]") from None
        known = isinstance(value, dict) and set(value) == {"own", "keys"} and isinstance(value["keys"], dict)
        if not known or not all(isinstance(word, str) for word in (value["own"], *value["keys"].values())):
            raise PrivacyError("the description of who took part cannot be read [PR038]")
        return cls(value["own"], tuple(sorted(value["keys"].items())))


NO_PARTICIPANTS_KNOWN = StudyParticipants()


@dataclass(frozen=True)
class DisclosedStudy:
    """What one study tells, under which arrangement, and who takes part in it."""

    events: tuple[Event, ...]
    trust: Trust
    people: StudyParticipants = NO_PARTICIPANTS_KNOWN

    @classmethod
    def of(cls, owner: str, events: Iterable[Event], trust: Trust, keys: Mapping[str, str] | None) -> DisclosedStudy:
        """What a study tells according to the ledger of ``owner``; without keys, names are taken for them."""
        return cls(tuple(events), trust, StudyParticipants.of(owner, keys or {}, trust))

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        """Of hundreds of numbers, and asked for whenever somebody's view of it is looked up."""
        return hash((self.events, self.trust, self.people))

    @property
    def names(self) -> tuple[str, ...]:
        """Everybody in the study."""
        return (*self.trust.owners, COORDINATOR)


@lru_cache(maxsize=4096)
def read_study(events: str, trust: str, people: str | None) -> DisclosedStudy:
    """What an entry told, from the very texts that the ledger holds; a text is read once in a process."""
    known, who = tuple(from_dict(event) for event in reading.parse_json(events)), Trust.from_json(trust)
    if {name for event in known for name, _ in event.marks()} - {*who.owners, COORDINATOR}:
        raise PrivacyError("a release names somebody who took no part [PR040]")
    return DisclosedStudy(known, who, StudyParticipants.from_json(people))


@dataclass(frozen=True)
class KnownParticipant:
    """One participant over all studies: a key, or a name of which no key is known."""

    label: str
    tokens: frozenset[ParticipantToken]
    is_owner: bool


class ParticipantDirectory:
    """All whom a ledger has ever met. ``owner`` is the party whose ledger it is, where that is known."""

    def __init__(self, studies: Sequence[DisclosedStudy], owner: str = "") -> None:
        self.studies = tuple(studies)
        self.owns = self._own_names(owner)
        self._places = [self._tokens(told, own) for told, own in zip(self.studies, self.owns, strict=True)]
        self.places: dict[ParticipantToken, list[tuple[int, str]]] = {}
        """For each token the studies, by number, in which it takes part, and under which name."""
        for index, place in enumerate(self._places):
            for name, token in place.items():
                self.places.setdefault(token, []).append((index, name))

    def _own_names(self, owner: str) -> list[str]:
        """The own party's name in each study; empty where nobody can tell, and then nobody is left out as the own."""
        recorded = {told.people.own for told in self.studies if told.people.own} | ({owner} if owner else set())
        silent = [set(told.trust.owners) for told in self.studies if not told.people.own]
        # The party whose ledger it is took part in everything; a name that is missing somewhere may be another's.
        always = recorded.intersection(*silent) if silent else set()
        assumed = always.pop() if len(always) == 1 else ""
        return [told.people.own or assumed for told in self.studies]

    @staticmethod
    def _tokens(told: DisclosedStudy, own: str) -> dict[str, ParticipantToken]:
        keys = dict(told.people.keys)
        found: dict[str, ParticipantToken] = {}
        for name in told.names:
            found[name] = _OWN if name == own else ("key", keys[name]) if name in keys else ("name", name)
        return found

    @cached_property
    def _names(self) -> dict[ParticipantToken, dict[str, None]]:
        """The names that each token was known by, the oldest first."""
        return {token: dict.fromkeys(name for _, name in places) for token, places in self.places.items()}

    @cached_property
    def somebodies(self) -> tuple[KnownParticipant, ...]:
        """Everybody, in the order in which they were met; the own party, if it is known, among them."""
        own_keys = {dict(told.people.keys).get(own) for told, own in zip(self.studies, self.owns, strict=True)}
        used = {name for (kind, _), names in self._names.items() if kind == "key" for name in names}
        found = []
        for token, names in self._names.items():
            if token[0] == "name" and token[1] in used:
                continue  # whoever it was, each key of that name stands for it
            tokens = {token}
            if token[0] == "key":
                # An entry without keys: to be on the safe side, this key was there if anybody of its name was.
                tokens |= {("name", name) for name in names if ("name", name) in self._names}
            elif token == _OWN:
                tokens |= {("key", key) for key in own_keys if key and ("key", key) in self._names}
            places = [place for one in tokens for place in self.places[one]]
            owner = any(name != COORDINATOR for _, name in places)
            found.append(KnownParticipant(self._label(token), frozenset(tokens), owner))
        return tuple(found)

    def _label(self, token: ParticipantToken) -> str:
        """The name somebody used last as a party; with digits of the key, if another key has used that name too."""
        names = list(self._names[token])
        name = next((name for name in reversed(names) if name != COORDINATOR), COORDINATOR)
        rivals = [one for one, used in self._names.items() if one != token and name in used and one[0] != "name"]
        if token[0] != "key" or not rivals:
            return name
        digest = token[1].rpartition(":")[2]
        length = DIGITS
        while length < len(digest) and any(one[1].rpartition(":")[2].startswith(digest[:length]) for one in rivals):
            length += 1
        return f"{name} ({digest[:length]})"

    def is_own(self, who: KnownParticipant) -> bool:
        """Whether this is the party whose ledger it is."""
        return _OWN in who.tokens

    def tokens_named(self, name: str) -> frozenset[ParticipantToken]:
        """The tokens of everybody of this label, or else of everybody who ever used this name."""
        exact = [who for who in self.somebodies if who.label == name and "(" in name]
        found = exact or [who for who in self.somebodies if any(name in self._names[token] for token in who.tokens)]
        return frozenset(token for who in found for token in who.tokens) or frozenset({("name", name)})

    def participants_behind(self, index: int, name: str) -> tuple[KnownParticipant, ...]:
        """Who may have been behind a name of a study: one, but several keys where none is on record."""
        token = self._places[index][name]
        return tuple(who for who in self.somebodies if token in who.tokens)

    def names_in_study(self, index: int, tokens: Iterable[ParticipantToken]) -> frozenset[str]:
        """The names in a study of those who are meant."""
        place, wanted = self._places[index], frozenset(tokens)
        return frozenset(name for name, token in place.items() if token in wanted)

    @cached_property
    def _marks(self) -> list[dict[str, Hashable]]:
        found = []
        for told in self.studies:
            same = exchange_key((event, told.trust) for event in told.events)
            found.append({name: same(name) for name in told.names})
        return found

    @cached_property
    def _silent(self) -> list[bool]:
        """For each study whether no event speaks of its coordinator, who then knows no more than an outsider."""
        named = ({name for event in told.events for name, _ in event.marks()} for told in self.studies)
        return [COORDINATOR not in names for names in named]

    def places_of(self, who: KnownParticipant) -> list[tuple[int, str]]:
        """The studies, by number, in which somebody can know more than an outsider, and the names there."""
        places = sorted(place for token in who.tokens for place in self.places[token])
        return [(index, name) for index, name in places if name != COORDINATOR or not self._silent[index]]

    def role(self, who: KnownParticipant) -> Hashable:
        """Equal for two who may be exchanged: in every study both have the same position, or neither is in it."""
        return tuple((index, name == COORDINATOR, self._marks[index][name]) for index, name in self.places_of(who))


def as_observer(names: Iterable[str]) -> Observer:
    """The observer of a study that is made of these of its participants; of none, somebody outside."""
    members = tuple(sorted(names))
    if members == (COORDINATOR,):
        return Observer.coordinator()
    return Observer(3 if len(members) > 1 else 2, members or ("(somebody outside)",))


_VIEWS = 1 << 13
MOST_NAMED = 8
"""In a larger study, one group stands for all in the same position."""


@dataclass(frozen=True)
class CrossStudyObserver:
    """An observer over all studies; ``tokens`` are ``None`` for the analyst.

    A group that is ``held`` is meant within the threshold of each study: where it exceeds one, it sees what those parts
    of it see that do not. ``others`` are all but the own party, and held.
    """

    label: str
    tokens: frozenset[ParticipantToken] | None
    held: bool = False
    others: bool = False


ANALYST = CrossStudyObserver("analyst", None)
ALL_OTHERS = CrossStudyObserver(OTHERS, frozenset(), held=True, others=True)


class CrossStudyViews:
    """What observers see of each study of a ledger."""

    def __init__(self, studies: Sequence[DisclosedStudy], owner: str = "", most_named: int = MOST_NAMED) -> None:
        self.everybody = ParticipantDirectory(studies, owner)
        self._most_named = most_named
        self.studies = self.everybody.studies

    def observer_named(self, observer: Observer) -> CrossStudyObserver:
        """An observer as a user names it; above a threshold the answer about it is infinite."""
        if observer == Observer.analyst():
            return ANALYST
        if observer == Observer.others():
            return ALL_OTHERS
        tokens = frozenset(token for name in observer.names for token in self.everybody.tokens_named(name))
        return CrossStudyObserver(observer.label, tokens)

    def total(
        self, who: CrossStudyObserver, delta: float, among: Sequence[int] | None = None
    ) -> accountant.ProvenBound:
        """What an observer learns from all studies together, or from those of the given numbers.

        If studies hold the analyst to different relations, the number of rows is public in some of them, so adding or
        removing a person is visible: the replace relation is then used for all. It serves everybody else anyway.
        """
        return accountant.epsilon(self.all_views(who, among), delta)

    def all_views(self, who: CrossStudyObserver, among: Sequence[int] | None = None) -> tuple[View, ...]:
        """What an observer sees of all studies, or of those of the given numbers, under one relation."""
        numbers = range(len(self.studies)) if among is None else among
        relation = self.relation(who, numbers)
        return tuple(seen for number in numbers for seen in self.views(number, who, relation))

    def relation(self, who: CrossStudyObserver, numbers: Sequence[int]) -> Adjacency:
        """The relation that an observer is held to in all of these studies."""
        if who.tokens is None and all(self.studies[number].trust.committee for number in numbers):
            return Adjacency.ADD_REMOVE
        return Adjacency.REPLACE

    def views(self, number: int, who: CrossStudyObserver, relation: Adjacency = Adjacency.REPLACE) -> tuple[View, ...]:
        """Each event of a study as an observer sees it."""
        told, names = self.studies[number], self.names_in_study(number, who)
        return views_of_group(told, names, who.held, who.others, relation)

    def names_in_study(self, number: int, who: CrossStudyObserver) -> frozenset[str] | None:
        """Whom of a study an observer is made of; ``None`` for the analyst."""
        if who.others:
            return frozenset(self.studies[number].names) - {self.everybody.owns[number]}
        return None if who.tokens is None else self.everybody.names_in_study(number, who.tokens)

    # --- whom a cap speaks of

    def observers_of_cap(self, cap: Budget) -> list[CrossStudyObserver]:
        """Everybody whom a cap speaks of, over all whom the ledger has ever met, each once."""
        if cap.named:
            who = self.observer_named(Observer.parse(cap.selector))
            return [who if cap.called is None else replace(who, label=cap.called)]
        if cap.selector == OTHERS:
            return [ALL_OTHERS]
        found: dict[frozenset[ParticipantToken] | None, CrossStudyObserver] = {}
        for who in self._of_kind(cap):
            found.setdefault(who.tokens, who)
        return list(found.values())

    def standard_observers(self) -> list[CrossStudyObserver]:
        """Everybody who has a row: the analyst, all alone, pairs and larger groups within a threshold, all others."""
        found: dict[frozenset[ParticipantToken] | None, CrossStudyObserver] = {ANALYST.tokens: ANALYST}
        for kind in (EVERYONE, "coalition"):
            for who in self._of_kind(Budget(kind, 1.0, 0.5)):
                found.setdefault(who.tokens, who)
        return [*found.values(), *([ALL_OTHERS] if self.studies else [])]

    def _of_kind(self, cap: Budget) -> Iterator[CrossStudyObserver]:
        if cap.selector == EVERYONE:
            yield ANALYST
        if cap.selector in ("party", EVERYONE):
            alone = [who for who in self.everybody.somebodies if who.is_owner or cap.selector == EVERYONE]
            yield from (self.group([who]) for who in self._one_of_each_kind(alone))
        if cap.selector != "party":
            yield from self._pairs()
            yield from self._within_studies(cap)

    def group(self, members: Iterable[KnownParticipant]) -> CrossStudyObserver:
        """Several who pool what they see, within the threshold of each study."""
        known = sorted(members, key=lambda who: who.label)
        return CrossStudyObserver(
            "+".join(who.label for who in known), frozenset(t for who in known for t in who.tokens), held=True
        )

    def _one_of_each_kind(self, some: Sequence[KnownParticipant]) -> Sequence[KnownParticipant]:
        if len(some) <= self._most_named + 1:  # and the coordinator
            return some
        return list({self._news(who): who for who in reversed(some)}.values())[::-1]

    def _within_studies(self, cap: Budget) -> Iterator[CrossStudyObserver]:
        """The groups that a study has within its threshold, followed through all studies."""
        seen = set()
        for number, told in reversed(list(enumerate(self.studies))):
            place = (told.trust, *(self.everybody.participants_behind(number, name) for name in told.names))
            if place in seen:
                continue
            seen.add(place)
            roles = {
                n: tuple(map(self.everybody.role, self.everybody.participants_behind(number, n))) for n in told.names
            }
            try:
                found = cap.observers(told.trust, roles.__getitem__ if len(told.trust.owners) > MOST_NAMED else None)
            except PrivacyError:
                continue  # in that study nobody of this kind stays within the threshold
            for observer in found:
                if len(observer.names) > 1:
                    yield self.group(
                        {who for name in observer.names for who in self.everybody.participants_behind(number, name)}
                    )

    def _pairs(self) -> Iterator[CrossStudyObserver]:
        """Each two of the others, if one of them takes part in some study in which both stay within the threshold."""
        others = [who for who in self.everybody.somebodies if not self.everybody.is_own(who)]
        few = len(others) <= self._most_named + 1
        pairs = map(self.group, combinations(others, 2)) if few else self._unlike_pairs(others)
        yield from (pair for pair in pairs if self._is_within_somewhere(pair))

    def _unlike_pairs(self, some: Sequence[KnownParticipant]) -> Iterator[CrossStudyObserver]:
        """One pair for each figure. Of two who never met, it only matters what each sees beyond an outsider."""
        roles: dict[Hashable, list[KnownParticipant]] = {}
        for who in some:
            roles.setdefault(self.everybody.role(who), []).append(who)
        yield from (self.group(alike[:2]) for alike in roles.values() if len(alike) > 1)
        one_of_each = [who for who, *_ in roles.values()]
        met = [{index for index, _ in self.everybody.places_of(who)} for who in one_of_each]
        numbers: dict[Hashable, int] = {}
        kinds = [numbers.setdefault(self._news(who), len(numbers)) for who in one_of_each]
        seen = set()
        for i, j in combinations(range(len(one_of_each)), 2):
            strangers = met[i].isdisjoint(met[j])
            if strangers and frozenset((kinds[i], kinds[j])) in seen:
                continue
            pair = self.group([one_of_each[i], one_of_each[j]])
            if strangers and self._is_within_somewhere(pair):
                seen.add(frozenset((kinds[i], kinds[j])))
            yield pair

    def _news(self, who: KnownParticipant) -> Hashable:
        """What somebody sees beyond an outsider: for each study it is in, both views."""
        outside, inside = CrossStudyObserver("", frozenset(), held=True), self.group([who])
        met = {index for index, _ in self.everybody.places_of(who)}
        return frozenset(Counter((self.views(n, outside), self.views(n, inside)) for n in met).items())

    def _is_within_somewhere(self, who: CrossStudyObserver) -> bool:
        for number in {index for token in who.tokens or () for index, _ in self.everybody.places.get(token, ())}:
            names = self.names_in_study(number, who) or frozenset()
            if self.studies[number].trust.broken(as_observer(names)) is None:
                return True
        return False


@lru_cache(maxsize=_VIEWS)
def views_of_group(
    told: DisclosedStudy, names: frozenset[str] | None, held: bool, others: bool, relation: Adjacency
) -> tuple[View, ...]:
    """Each event of a study as those of its participants see it; ``None`` is the analyst.

    The same for every ledger that holds this very study, so it is worked out once in a process.
    """
    if names is None:
        return tuple(view(event, Observer.analyst(), told.trust, relation) for event in told.events)
    groups = list(parts_within_threshold(told.trust, names)) if held else [names]
    return tuple(
        worst_view([view(event, as_observer(group), told.trust, relation) for group in groups])
        for event in told.events
        if not (others and _is_exact_answer(event))
    )


def views_of_anybody(told: DisclosedStudy) -> Iterator[View]:
    """For each event of a study a view of at least what any group within the threshold sees, if rows are replaced."""
    everybody = frozenset(told.names)
    largest = [(part, everybody - part) for part in parts_within_threshold(told.trust, everybody)]
    for event in told.events:
        once, same = unwrap(event), exchange_key([(event, told.trust)])
        about = {once.holder} if isinstance(once, RandomisedResponse) else set(getattr(once, "about", ()))
        # The largest groups know most noise; whoever holds all that an event is about learns nothing of it, so those
        # that do not. The smallest that see it may be held to a larger sensitivity, and see noise of more samples.
        groups = {frozenset[str](), *(frozenset({name}) for name in getattr(once, "audience", ()))}
        for part in {frozenset(Counter(map(same, left)).items()): part for part, left in largest}.values():
            groups |= {part - {name} for name in about} if about and about <= part else {part}
        yield worst_view([view(event, as_observer(group), told.trust, Adjacency.REPLACE) for group in groups])


def _is_exact_answer(event: Event) -> bool:
    """Whether somebody alone is told something without noise: a policy allows it by name, and no epsilon covers it."""
    once = unwrap(event)
    return isinstance(once, NonPrivate) and bool(once.audience)


def parts_within_threshold(trust: Trust, names: frozenset[str]) -> Iterator[frozenset[str]]:
    """The largest parts of a group of participants against which a study promises something."""
    if trust.broken(as_observer(names)) is None:
        yield names
        return
    seated = sorted(names & set(trust.committee))
    for seats in combinations(seated, min(trust.threshold, len(seated))):
        part = (names - set(seated)) | set(seats)
        if set(trust.owners) <= part:
            yield from (part - {owner} for owner in trust.owners)
        else:
            yield part


def worst_view(views: Sequence[View]) -> View:
    """A view of one event from which at least as much can be learned as from each of these views of it."""
    found = [seen for seen in views if seen.kind != NOTHING] or list(views)
    first = next((seen for seen in found if seen.kind == NonPrivate.kind), found[0])
    if len(found) == 1 or first.kind == NonPrivate.kind:
        return first
    return replace(
        first,
        noise=min(seen.noise for seen in found),
        parts=max(seen.parts for seen in found),
        smallest=min(seen.smallest for seen in found),
        l1=max(seen.l1 for seen in found),
        l2_squared=max(seen.l2_squared for seen in found),
        pure=max(seen.pure for seen in found),
        single_pure=max(seen.single_pure for seen in found),
        coins_known=any(seen.coins_known for seen in found),
    )
