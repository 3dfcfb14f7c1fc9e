"""Who took part in which studies: a participant is its key, whatever it calls itself.

``docs/theory/across-studies.md`` says why what is composed here bounds what somebody, or a group, has learned.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

from colonnade.disk import reading
from colonnade.errors import LedgerError, PrivacyError
from colonnade.privacy.events import Event, exchange_key, from_dict
from colonnade.privacy.observers import COORDINATOR, Observer, Trust

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
        if not isinstance(value, dict) or set(value) != {"own", "keys"} or not isinstance(value["keys"], dict):
            raise PrivacyError("the description of who took part cannot be read [PR038]")
        if not all(isinstance(word, str) for word in (value["own"], *value["keys"].values())):
            raise PrivacyError("the description of who took part cannot be read [PR039]")
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
    def _own_keys(self) -> set[str]:
        keys = (dict(told.people.keys).get(own, "") for told, own in zip(self.studies, self.owns, strict=True))
        return {key for key in keys if key}

    @cached_property
    def somebodies(self) -> tuple[KnownParticipant, ...]:
        """Everybody, in the order in which they were met; the own party, if it is known, among them."""
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
                tokens |= {("key", key) for key in self._own_keys if ("key", key) in self._names}
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

    def studies_of(self, tokens: Iterable[ParticipantToken]) -> set[int]:
        """The numbers of the studies in which one of them took part."""
        return {index for token in tokens for index, _ in self.places.get(token, ())}

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
