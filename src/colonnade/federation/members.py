"""Who belongs to a federation: FEDERATION.toml with names, roles and pinned certificates, and six words for a key.

Pins are everybody's own: the hub may say that somebody has joined, and a person here decides, after six words of the
key were compared with whoever joined.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cache, lru_cache
from hashlib import scrypt
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationError, field_validator, model_validator

from colonnade.disk import reading, writing
from colonnade.errors import FederationError, IdentityError, StorageError
from colonnade.privacy.observers import OTHERS
from colonnade.protocols.roles import COORDINATOR
from colonnade.study.party_file import PROCESSES, ConsoleRole as PersonRole, ConsoleSection, LogSection, WorkersSection
from colonnade.study.spec import first_problem
from colonnade.study.study_file import FileSection, HostAndPort, PathText
from colonnade.wire import Certificate, HubLimits, check_name
from colonnade.wire.certificates import CLOCK_SKEW

FederationRole = Literal["hub", "party", "analyst"]
KeyState = Literal["current", "former", "revoked"]
MOST_MEMBERS = 1000
NOT_LISTED = (
    "the hub's console shows nothing to this person, who is no member and whom operators in [hub] of FEDERATION.toml "
    "does not name: add the name there, or write it as the member's is written [FE723]"
)
LIST_LASTS = timedelta(days=7)
"""For how long a list of revoked keys is good."""
_FORMER = "former"
REVOCATIONS = "revocations.json"
"""The file of revoked keys, beside FEDERATION.toml."""
INVITED = "invitation."
"""How the names begin under which those dial who are invited and no members yet."""
_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30}
_SIZE = re.compile(r"(\d{1,6}(?:\.\d{1,3})?) ?([KMG]?I?B?)", re.IGNORECASE)


def parse_size(given: Any) -> Any:
    """A number of bytes, which may be written with a unit, such as "4 GB"."""
    if not isinstance(given, str):
        return given
    if (found := _SIZE.fullmatch(given.strip())) is None or found[2].upper() not in _UNITS:
        raise ValueError('must be a number of bytes, or text such as "4 GB" or "512 MB" [VA157]')
    return int(float(found[1]) * _UNITS[found[2].upper()])


Size = Annotated[int, BeforeValidator(parse_size)]


class MemberPart(FileSection):
    """``[members.NAME]``: what a member is, and the fingerprint of its certificate.

    ``formerly`` is that of the first key of a member that has another one now: ledgers go on counting it by that.
    """

    role: FederationRole
    pin: str
    formerly: str | None = None

    @field_validator("pin", "formerly")
    @classmethod
    def _fingerprint(cls, pin: str | None) -> str | None:
        if pin is not None and not re.fullmatch("sha256:[0-9a-f]{64}", pin):
            raise ValueError(
                "must be sha256: and 64 hexadecimal digits in lower case, as `colonnade init` prints them [VA158]"
            )
        return pin


class HubComputePart(WorkersSection):
    """``[hub.compute]``: the workers of the hub's coordinators, in studies with lanes."""

    @model_validator(mode="after")
    def _counted(self) -> HubComputePart:
        if self.engine != PROCESSES and self.workers is None:
            raise ValueError(
                f"engine = {self.engine!r} needs workers: say how many of them the cluster has cores for [VA159]"
            )
        return self


class HubPart(FileSection):
    """``[hub]``: what the hub alone needs to know; others ignore it."""

    key: PathText = "coordinator.key"
    folder: PathText = "hub"
    listen: HostAndPort | None = None
    dial: bool = Field(default=True, strict=True)
    health: HostAndPort | None = None
    console: ConsoleSection | Literal[False] = False
    people: dict[str, PersonRole] = Field(default_factory=dict)
    operators: tuple[str, ...] = ()
    """Whom the console shows everything; of others a member sees what that member may, and nobody else anything."""
    log: LogSection = LogSection()
    connections: int = Field(default=HubLimits.connections, ge=1, le=10_000, strict=True)
    studies: int = Field(default=HubLimits.studies, ge=1, le=10_000, strict=True)
    lanes: int = Field(default=32, ge=1, le=1024, strict=True)
    bytes_per_second: Annotated[Size, Field(ge=1 << 20)] = HubLimits.bytes_per_second
    memory: Annotated[Size, Field(ge=1 << 26)] = HubLimits.memory
    study_memory: Annotated[Size, Field(ge=10**8)] = 4 * 10**9
    proposals: int = Field(default=100, ge=1, le=100_000, strict=True)
    studies_at_once: int = Field(default=4, ge=1, le=1000, strict=True)
    studies_per_party: int = Field(default=1, ge=1, le=1000, strict=True)
    overdue: float = Field(default=300.0, gt=0, le=86_400)
    hours: float = Field(default=12.0, gt=0, le=8784)
    keep_days: float = Field(default=90.0, gt=0, le=36500)
    scores: tuple[str, ...] = Field(default=(), max_length=64)
    """Study files of standing questions, whose rooms are open and in which the hub keeps the coordinator's seat."""
    compute: HubComputePart = HubComputePart()


class RevocationsPart(FileSection):
    """``[revocations]``: who signs lists of keys that are no good, and how many must sign one alike."""

    signers: tuple[str, ...] = Field(min_length=2, max_length=MOST_MEMBERS)
    needed: int = Field(ge=2, strict=True)

    @model_validator(mode="after")
    def _most(self) -> RevocationsPart:
        if not len({*self.signers} - {COORDINATOR}) == len(self.signers) >= self.needed > len(self.signers) / 2:
            raise ValueError(
                "must name members, each once and never the hub, and needed must be more than half of them: otherwise "
                "a hub could choose between two lists [VA781]"
            )
        return self


@dataclass(frozen=True)
class RevokedKeys:
    """The fingerprints of keys that are no good, as they stand beside FEDERATION.toml.

    A key is no good with all its certificates. Earlier releases wrote fingerprints of certificates, which count.
    """

    number: int = 0
    """Of the last list that enough signers have signed: the hour in which it was made."""
    revoked: frozenset[str] = frozenset()
    wanted: frozenset[str] = frozenset()
    """Those that a person here wants on the next list."""

    @classmethod
    def load(cls, folder: Path) -> RevokedKeys:
        """What is known in this folder."""
        path = folder / REVOCATIONS
        try:
            said = reading.read_json(path) if path.exists() else {}
            return cls(
                int(said.get("number", 0)), frozenset(said.get("revoked", ())), frozenset(said.get("wanted", ()))
            )
        except (reading.UnreadableFile, reading.MalformedFile, AttributeError, TypeError, ValueError):
            raise FederationError(f"{path} cannot be read: put it back from a copy [FE782]") from None

    def cover(self, certificate: Certificate) -> bool:
        """Whether the key of a certificate is one of them."""
        return not {certificate.fingerprint, certificate.key_fingerprint}.isdisjoint(self.revoked | self.wanted)

    def save(self, folder: Path) -> None:
        """Keep it."""
        said = {"number": self.number, "revoked": sorted(self.revoked), "wanted": sorted(self.wanted)}
        writing.write_files({folder / REVOCATIONS: json.dumps(said, indent=1).encode()})


class FederationFile(FileSection):
    """The whole file."""

    name: str = Field(min_length=1, max_length=80)
    address: HostAndPort
    members: dict[str, MemberPart] = Field(min_length=1, max_length=MOST_MEMBERS)
    hub: HubPart | None = None
    revocations: RevocationsPart | None = None

    @field_validator("name")
    @classmethod
    def _one_line(cls, name: str) -> str:
        if not name.isprintable() or not name.strip():
            raise ValueError("must be one line of text [VA160]")
        return name

    @model_validator(mode="after")
    def _one_hub(self) -> FederationFile:
        for name, member in self.members.items():
            check_name(name)
            if (member.role == "hub") != (name == COORDINATOR):
                raise ValueError(
                    f'members - the hub, and nobody else, is [members.{COORDINATOR}] with role = "hub" [VA161]'
                )
            if not is_allowed_name(name):
                raise ValueError(f"members - {name!r} is a reserved word and cannot name a member [VA162]")
        if COORDINATOR not in self.members:
            raise ValueError(f"members.{COORDINATOR} is missing: it is the hub, which everybody dials [VA163]")
        both = {*map(str.casefold, self.members)} & {*map(str.casefold, self.hub.operators if self.hub else ())}
        if both:
            raise ValueError(f"hub.operators - {min(both)!r} is a member's name: give the person another [VA722]")
        return self


@dataclass(frozen=True)
class FederationMembers:
    """A federation: its members with roles and certificates, and the address of its hub."""

    name: str
    address: str
    certificates: Mapping[str, Certificate]
    roles: Mapping[str, FederationRole]
    hub: HubPart | None
    path: Path
    revocations: RevocationsPart | None = None
    revoked: RevokedKeys = RevokedKeys()
    former: tuple[Certificate, ...] = ()
    """Certificates of keys that were replaced or called back: for what was signed with them, and for nothing else."""
    first: Mapping[str, str] = field(default_factory=dict)
    """The fingerprints of the first keys of those that have another one now."""

    @classmethod
    def load(cls, path: str | Path) -> FederationMembers:
        """Read FEDERATION.toml and the certificates beside it, each checked against its pin."""
        path = Path(path)
        try:
            raw = reading.read_toml(path)
            if "members" not in raw and ("task" in raw or "policy" in raw):
                what = "study" if "task" in raw else "party's own"
                raise FederationError(f"{path} is a {what} file: name FEDERATION.toml in its place [FE033]")
            content = FederationFile.model_validate(raw)
        except reading.MalformedFile as error:
            raise FederationError(f"the federation file {path} is not valid TOML: {error} [FE034]") from None
        except reading.UnreadableFile as error:
            raise FederationError(f"the federation file {path} cannot be read: {error} [FE035]") from None
        except ValidationError as error:
            raise FederationError(f"{path}: {first_problem(error)} [FE036]") from None
        except IdentityError as error:
            raise FederationError(f"{path}: members - {error} [FE037]") from None
        known, certs = RevokedKeys.load(path.parent), path.parent / "certs"
        all_found = {name: Certificate.load(certs / f"{name}.crt", each.pin) for name, each in content.members.items()}
        found = {name: each for name, each in all_found.items() if name == COORDINATOR or not known.cover(each)}
        former = [Certificate.load(kept) for kept in sorted((certs / _FORMER).glob("*.crt"))]
        gone = {each.key_fingerprint for each in (*all_found.values(), *former) if each.fingerprint in known.revoked}
        former += [each for name, each in all_found.items() if name not in found]
        roles = {name: content.members[name].role for name in found}
        first = {name: each for name in found if (each := content.members[name].formerly) is not None}
        more = content.revocations, replace(known, revoked=known.revoked | gone), tuple(former), first
        return cls(content.name, content.address, found, roles, content.hub, path, *more).check_unique()

    @classmethod
    @contextmanager
    def changing(cls, path: Path) -> Iterator[FederationMembers]:
        """The members as they stand, while nobody else changes their file or that of revoked keys."""
        with ExitStack() as held:
            folder = path.parent / "certs"
            try:
                held.enter_context(writing.lock_folder(folder if folder.exists() else path.parent))
            except OSError as error:
                raise StorageError(f"{folder} cannot be used: {error.strerror} [SO800]") from None
            yield cls.load(path)

    def check_unique(self) -> FederationMembers:
        """These members, if each has a name and a key of its own; otherwise an error."""
        keys: dict[str, str] = {}
        for name, certificate in self.certificates.items():
            if certificate.name != name:
                raise IdentityError(
                    f"{self.path}: the certificate of {name} was made for {certificate.name}, so others "
                    "would refuse it [ID006]"
                )
            for key in {certificate.key_fingerprint, self.first.get(name, certificate.key_fingerprint)}:
                if (other := keys.setdefault(key, name)) != name:
                    raise IdentityError(
                        f"{self.path}: {other} and {name} have the same key; each needs a key of its own [ID007]"
                    )
        return self

    @property
    def parties(self) -> tuple[str, ...]:
        """The members that hold tables."""
        return tuple(name for name, role in self.roles.items() if role == "party")

    @property
    def pins(self) -> dict[str, str]:
        """Everyone's fingerprint."""
        return {name: certificate.fingerprint for name, certificate in self.certificates.items()}

    def check(self, names: Iterable[str]) -> None:
        """Raise an error unless each of these is a party of the federation."""
        if strangers := sorted(set(names) - set(self.parties)):
            raise FederationError(
                f"{', '.join(strangers)} is no party of the federation {self.name!r} whom we have accepted; those are "
                f"{', '.join(sorted(self.parties)) or 'none yet'}, and "
                "`colonnade federation members` accepts others [FE038]"
            )

    def may_enter(self, person: str) -> bool:
        """Whether the hub's console shows this person anything: an operator, or one of a member's name."""
        known = {*self.roles} - {COORDINATOR}
        return person in known or (self.hub is not None and person in self.hub.operators)

    def check_listed(self, now: datetime) -> None:
        """Raise an error if the last list of keys that are no good is too old: a hub may hold newer ones back."""
        if self.revocations is not None and now - datetime.fromtimestamp(self.revoked.number * 3600, UTC) > LIST_LASTS:
            raise FederationError(
                f"no list of revoked keys of the last {LIST_LASTS.days} days has come, and {self.path.name} asks for "
                f"one: no new study is taken. Ask {', '.join(self.revocations.signers)} whether their agents run, and "
                "the hub's people what holds the lists back [FE783]"
            )

    def check_keys(self, then: Iterable[Certificate]) -> None:
        """Raise an error unless everybody still has the key of the certificate that stood when a study was agreed."""
        changed = [
            each.name
            for each in then
            if (now := self.certificates.get(each.name)) is None or now.key_fingerprint != each.key_fingerprint
        ]
        if changed:
            raise FederationError(
                f"the key of {', '.join(changed)} was called back or is another one than when this study was agreed "
                f"to, by {self.path.name}, so it does not begin: make it again with the keys of now [FE803]"
            )

    def renewed(self, certificate: Certificate, name: str) -> FederationMembers:
        """These members, one with another certificate of its key; an error if it is of another name or key."""
        if certificate.key_fingerprint != self.certificates[name].key_fingerprint:
            raise FederationError(
                f"this certificate of {name} is of another key than the one that is pinned, and a renewal is of the "
                "same key: with another key, join again by an invitation [FE800]"
            )
        return replace(self, certificates={**self.certificates, name: certificate}).check_unique()

    def key_state(self, certificate: Certificate) -> KeyState:
        """Whether the key of a certificate is that of its member now, one of before, or called back."""
        now = self.certificates.get(certificate.name)
        same = now is not None and now.key_fingerprint == certificate.key_fingerprint
        return "revoked" if self.revoked.cover(certificate) else "current" if same else "former"

    def check_new(self, name: str) -> None:
        """Raise an error unless somebody who joins may have this name."""
        taken = {*self.roles, *(() if self.hub is None else self.hub.operators)}
        if check_name(name).lower() in map(str.lower, taken) or not is_allowed_name(name):
            raise FederationError(f"{name!r} is taken in the federation {self.name!r}: choose another name [FE039]")

    def with_member(self, certificate: Certificate, role: FederationRole) -> FederationMembers:
        """These members and one more, or one of them with another key; people have compared its words."""
        name = certificate.name
        if self.revoked.cover(certificate):
            raise FederationError(f"this key of {name} was called back: it joins again with a new key [FE801]")
        if name not in self.roles:
            self.check_new(name)
        more = {**self.certificates, name: certificate}
        return replace(self, certificates=more, roles={**self.roles, name: role}).check_unique()

    def select(self, *names: str) -> FederationMembers:
        """The federation with these members alone."""
        certificates = {name: self.certificates[name] for name in names}
        return replace(self, certificates=certificates, roles={name: self.roles[name] for name in names})

    def save(self, path: str | Path) -> None:
        """Write the part of FEDERATION.toml that everybody has, and ``certs/`` beside it."""
        path = Path(path)
        parts = [f"name = {_toml_text(self.name)}\naddress = {_toml_text(self.address)}\n"]
        parts += [_member_section(name, role, self.pins[name]) for name, role in self.roles.items()]
        _check_text(text := "\n".join(parts), path)
        self._put(path, text, self.certificates)

    def put(self, name: str) -> None:
        """Write one of these members into the file from which the others were read; the rest of it stays as it is.

        A name that stands there already is changed in its place. Its earlier certificate is kept if it had another key.
        """
        certificate, folder = self.certificates[name], self.path.parent / "certs"
        try:
            raw, text = reading.read_toml(self.path), reading.read_text(self.path)
        except reading.UnreadableFile as error:
            raise FederationError(f"the federation file {self.path} cannot be read: {error} [FE040]") from None
        earlier = Certificate.load(place) if (place := folder / f"{name}.crt").exists() else certificate
        another, old = earlier.key_fingerprint != certificate.key_fingerprint, raw["members"].get(name, {})
        first = old.get("formerly", earlier.key_fingerprint if another else None)
        if old:
            added = f"\nformerly = {_toml_text(first)}" if first and "formerly" not in old else ""
            pin = re.compile(rf"""(\bpin["']?\s*=\s*["']){old["pin"]}(["'].*)""")
            text = pin.sub(rf"\g<1>{certificate.fingerprint}\g<2>{added}", text)
        else:
            text = f"{text.rstrip()}\n\n{_member_section(name, self.roles[name], certificate.fingerprint, first)}"
        wanted = {"role": self.roles[name], "pin": certificate.fingerprint} | ({"formerly": first} if first else {})
        _check_text(text, self.path, {**raw, "members": {**raw["members"], name: wanted}})
        kept = {f"{_FORMER}/{earlier.fingerprint.removeprefix('sha256:')}": earlier} if another else {}
        self._put(self.path, text, {**kept, name: certificate})

    def _put(self, path: Path, text: str, certificates: Mapping[str, Certificate]) -> None:
        folder = path.parent / "certs"
        try:
            (folder / _FORMER).mkdir(parents=True, exist_ok=True)
            files = {folder / f"{name}.crt": certificate.pem for name, certificate in certificates.items()}
            writing.write_files({**files, path.resolve(): text.encode()})  # the pins last: they need the certificates
        except OSError as error:
            raise StorageError(f"{error.filename or path} cannot be written: {error.strerror} [SO024]") from None


def is_allowed_name(name: str) -> bool:
    """Whether a member may have this name, which is one in form."""
    return name != OTHERS and not name.startswith(INVITED)


def _check_text(text: str, path: Path, wanted: Mapping[str, Any] | None = None) -> None:
    """Raise an error if a file of this text would not load, or says something else than what is ``wanted``."""
    try:
        found, why = reading.parse_toml(text), "it would say something else than was meant"
        FederationFile.model_validate(found)
        if wanted in (None, found):
            return
    except ValidationError as error:
        why = first_problem(error)
    except (reading.MalformedFile, IdentityError) as error:
        why = str(error)
    raise FederationError(
        f"{path} is not written, since it would not load: {why}. In a file that is there, write each member as a "
        "section [members.NAME] of its own, and change a role by hand [FE802]"
    )


def _member_section(name: str, role: FederationRole, pin: str, first: str | None = None) -> str:
    said = {"role": role, "pin": pin} | ({"formerly": first} if first else {})
    return "\n".join([f"[members.{_toml_text(name)}]", *(f"{key} = {_toml_text(said[key])}" for key in said), ""])


def _toml_text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)


WORD_COUNT = 6
_BITS = 11
_DOMAIN = b"colonnade six words 1"
_COST = {"n": 1 << 14, "r": 8, "p": 1, "maxmem": 1 << 26}


@lru_cache(maxsize=4096)
def six_words(fingerprint: str, *more: str) -> str:
    """Six words, with blanks between them, for a fingerprint, or for several things that belong together."""
    said = b"".join(len(part).to_bytes(4) + part for part in (text.encode() for text in (fingerprint, *more)))
    number = int.from_bytes(scrypt(said, salt=_DOMAIN, dklen=9, **_COST))
    return " ".join(word_list()[number >> _BITS * place & (1 << _BITS) - 1] for place in range(WORD_COUNT))


@cache
def word_list() -> tuple[str, ...]:
    """All words, in the order of the alphabet."""
    return tuple((resources.files("colonnade.federation") / "words.txt").read_text("ascii").split())


_SOON_DAYS = 30

OFFERED = "offered"
"""The folder, in an agent's own, in which the hub's list of members is kept for people to look at."""


@dataclass(frozen=True)
class MemberIdentity:
    """A member as people compare it: the name, the role, and the key with its pin, its words and its age."""

    name: str
    role: FederationRole
    certificate: Certificate
    known: bool = False
    """Whether we know this name with another certificate."""

    @classmethod
    def of(cls, members: FederationMembers, name: str) -> MemberIdentity:
        """A member of a federation."""
        return cls(name, members.roles[name], members.certificates[name])

    @property
    def pin(self) -> str:
        """The fingerprint of its key."""
        return self.certificate.fingerprint

    @property
    def words(self) -> str:
        """Six words of its key."""
        return six_words(self.pin)

    @property
    def since(self) -> datetime:
        """When its certificate was made."""
        return self.certificate.parsed.not_valid_before_utc + CLOCK_SKEW  # set back then, for clocks that lag

    @property
    def until(self) -> datetime:
        """Until when its certificate is good."""
        return self.certificate.parsed.not_valid_after_utc

    @property
    def days(self) -> int:
        """How old its key is."""
        return (datetime.now(UTC) - self.since).days

    @property
    def left(self) -> int:
        """For how many more days its key is good."""
        return (self.until - datetime.now(UTC)).days

    @property
    def advice(self) -> str | None:
        """A sentence where something should be done about its key."""
        if self.left < 0:
            return "It has expired: others refuse it. Make a new key now, and join again."
        return f"It expires in {self.left} days: colonnade keys renew." if self.left < _SOON_DAYS else None


def find_new_members(ours: FederationMembers, offered: FederationMembers) -> list[MemberIdentity]:
    """Those whom the hub names and we do not, or with another key; but nobody with a key that was called back."""
    return [
        MemberIdentity(name, offered.roles[name], certificate, name in ours.roles)
        for name, certificate in offered.certificates.items()
        if (name not in ours.roles or ours.certificates[name].fingerprint != certificate.fingerprint)
        and not ours.revoked.cover(certificate)
    ]


def load_new_members(folder: Path, ours: FederationMembers) -> list[MemberIdentity]:
    """Those who wait to be accepted, by what was last written down."""
    path = folder / OFFERED / "FEDERATION.toml"
    return find_new_members(ours, FederationMembers.load(path)) if path.exists() else []


def accept_member(federation: Path, newcomer: MemberIdentity) -> FederationMembers:
    """Pin a newcomer, or a member's new key, in our own FEDERATION.toml; whoever calls this has compared its words."""
    with FederationMembers.changing(federation) as ours:
        joined = ours.with_member(newcomer.certificate, newcomer.role)
        joined.put(newcomer.name)
    return joined
