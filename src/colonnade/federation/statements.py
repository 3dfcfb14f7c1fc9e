"""What members sign: proposals, answers, outcomes of attempts and withdrawals.

A statement is one line that names the signer, and a body of JSON that can be written in one way only. The hub passes
statements on and cannot make one. Each names, by its hash, the proposal that it is about, and begins with its kind.
A proposal is made from a study file: the pins and the address of the federation are filled in, and files collected.
"""

from __future__ import annotations

import json
import re
import tempfile
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cache, cached_property
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    TypeAdapter,
    ValidationError,
)

from colonnade.disk import reading, writing
from colonnade.errors import FederationError, IdentityError, StorageError, StudyError
from colonnade.federation.members import FederationMembers
from colonnade.protocols.roles import COORDINATOR
from colonnade.sanitize import sanitize
from colonnade.study.preflight import Preflight, preflight
from colonnade.study.spec import Study, read_toml
from colonnade.wire import Certificate, Identity

_MAGIC = "colonnade-signed-1"
_HEADER = re.compile(rb"colonnade-signed-1 ([a-z]{1,20}) ([A-Za-z0-9_.-]{1,63}) ([A-Za-z0-9+/]{85}[AQgw]==)")
"""The last digit of a signature holds two bits: with others in it the same statement would have other ids."""
_LONGEST_HEADER = 256
_MOST_SIGNS = 1 << 14
"""So many commas and brackets at most, far more than any statement has: reading a list of millions takes seconds in
which nobody else is served, and a hundred times its own memory."""
_FORM_ERRORS = ("missing", "unexpected_keyword_argument", "dataclass_type", "dict_type")


def format_moment(moment: datetime) -> str:
    """A moment as statements and stores have it: in UTC, of a fixed length, so that texts compare as moments do."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds")


def _check_year(moment: datetime) -> datetime:
    if not 2000 <= moment.year <= 9000:
        raise ValueError("must be of the years 2000 to 9000 [VA860]")
    return moment


Moment = Annotated[AwareDatetime, AfterValidator(_check_year), PlainSerializer(format_moment)]
"""A moment of a year that leaves room: hours and days are added to it, and zones change it."""
StudyId = Annotated[str, Field(pattern="^[0-9a-f]{32}$")]
Draw = Annotated[str, Field(pattern="^[0-9a-f]{32}$")]
Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
MemberName = Annotated[str, Field(pattern=r"^[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?$")]


@cache
def type_adapter(form: Any) -> TypeAdapter[Any]:
    """What reads and writes values of a type."""
    return TypeAdapter(form)


def matches_form(form: Any, value: Any) -> bool:
    """Whether a value, which may be anything, is of this type as it stands."""
    try:
        type_adapter(form).validate_python(value, strict=True)
    except ValidationError:
        return False
    return True


def parse_json(form: Any, content: str | bytes, what: str) -> Any:
    """A value of this type from its JSON; an error if it has other fields, or impossible values in them."""
    try:
        return type_adapter(form).validate_json(content, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    if first["type"] == "json_invalid":
        raise FederationError(f"{what} cannot be read [FE099]")
    if not first["loc"] or first["type"] in _FORM_ERRORS:
        raise FederationError(f"{what} has not the fields that it must have: is it of another release? [FE101]")
    raise FederationError(f"{what} has an impossible {first['loc'][0]} [FE102]")


@dataclass(frozen=True)
class SignedStatement:
    """What one member says to the others, signed."""

    kind: ClassVar[str]
    signer_field: ClassVar[str]
    """Which field names the member who says it."""
    largest: ClassVar[int] = 1 << 14
    dated: ClassVar[bool] = True
    """Whether a certificate that had ended by then cannot have signed it."""
    unsigned: ClassVar[frozenset[str]] = frozenset()
    """Fields that follow from the signed bytes, and so are not among them."""
    __pydantic_config__ = ConfigDict(extra="forbid")

    @property
    def signer(self) -> str:
        """The member who says it."""
        return str(getattr(self, self.signer_field))

    def content(self) -> bytes:
        """The body; what has its default is left out."""
        form: Any = type(self)
        return canonical_json(type_adapter(form).dump_python(self, exclude=set(self.unsigned), exclude_defaults=True))

    def pack(self, identity: Identity) -> bytes:
        """The statement, signed by whoever says it."""
        if identity.name != self.signer:
            raise FederationError(f"{identity.name} cannot sign for {self.signer} [FE084]")
        return sign_content(self.kind, self.content(), identity)

    @classmethod
    def unpack(cls, raw: bytes, members: FederationMembers) -> Self:
        """A statement as one of these members has signed it; anything else is an error."""
        name, content = _verify_signature(cls.kind, raw, members, cls.largest)
        members.certificates[name].check_dates()
        return cls._read(name, content, members)

    @classmethod
    def unpack_earlier(cls, raw: bytes, members: FederationMembers) -> tuple[Self, Certificate]:
        """A statement as a member signed it when the certificate that is returned was good: that of now or an earlier.

        A key may have signed it before its certificate was renewed, so when that begins says nothing. Whether the key
        was called back since is for the caller to see: nobody knows when it was stolen.
        """
        signer = raw[:_LONGEST_HEADER].decode("ascii", "replace").split(" ", 3)[2:3]
        for each in (*members.certificates.values(), *members.former):
            if [each.name] == signer:
                certificates, roles = {**members.certificates, each.name: each}, {each.name: "party", **members.roles}
                then = replace(members, certificates=certificates, roles=roles)
                with suppress(FederationError, IdentityError):
                    found = cls._read(*_verify_signature(cls.kind, raw, then, cls.largest), then)
                    if cls.dated:
                        each.check_dates(
                            max(getattr(found, "made", datetime.now(UTC)), each.parsed.not_valid_before_utc)
                        )
                    return found, each
        return cls.unpack(raw, members), members.certificates[signer[0]]

    @classmethod
    def _read(cls, name: str, content: bytes, members: FederationMembers) -> Self:
        what = f"this {cls.kind} of {name}"
        found: Self = parse_json(cls, content, what)
        if found.signer != name:
            raise FederationError(f"{what} speaks for {sanitize(found.signer, 63)} [FE110]")
        if found.content() != content:
            raise FederationError(f"{what} is not written as all write it [FE100]")
        found.check(members)
        return found

    def check(self, members: FederationMembers) -> None:
        """Raise an error if it says what nobody may say."""


def canonical_json(value: Any) -> bytes:
    """JSON that is written in one way only."""
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode("ascii")


def sign_content(kind: str, content: bytes | Mapping[str, Any], identity: Identity) -> bytes:
    """A statement of this kind, signed."""
    content = content if isinstance(content, bytes) else canonical_json(content)
    signature = b64encode(identity.sign(_signed_bytes(kind, identity.name, content))).decode()
    return f"{_MAGIC} {kind} {identity.name} {signature}\n".encode() + content


def _verify_signature(kind: str, raw: bytes, members: FederationMembers, largest: int) -> tuple[str, bytes]:
    """Who signed a statement, and its body; an error if it is of another kind or signer."""
    if len(raw) > largest:
        raise FederationError(f"this {kind} has {len(raw):,} bytes, and at most {largest:,} are read [FE094]")
    end = raw.find(b"\n", 0, _LONGEST_HEADER)
    header = _HEADER.fullmatch(raw, 0, end) if end > 0 else None
    if header is None or header[1].decode() != kind:
        raise FederationError(f"this is not a signed {kind} [FE095]")
    name, content = header[2].decode(), raw[end + 1 :]
    certificate = members.certificates.get(name)
    if certificate is None:
        raise FederationError(
            f"this {kind} is signed by {name}, who is no member of the federation {members.name!r} [FE096]"
        )
    if not certificate.has_signed(b64decode(header[3]), _signed_bytes(kind, name, content)):
        raise FederationError(
            f"the signature of this {kind} is not that of {name}, whose certificate is pinned here [FE097]"
        )
    if sum(content.count(sign) for sign in (b",", b"[", b"{")) > _MOST_SIGNS:
        raise FederationError(f"this {kind} of {name} has more parts than any has: is it of another release? [FE098]")
    return name, content


def _signed_bytes(kind: str, name: str, content: bytes) -> bytes:
    return f"{_MAGIC} {kind} {name}\n".encode() + content


STUDY_FILE = "study.toml"
"""The name that the study file has in a proposal."""
MOST_FILES = 64
MOST_BYTES = 1 << 22
"""Of all files of a proposal but the model."""
MOST_MODEL = 1 << 26
MOST_PACKED = (MOST_MODEL + MOST_BYTES) * 4 // 3 + (1 << 16)
"""No proposal is longer on its way."""
MOST_STUDY = 1 << 18
"""Of the study file: it is read before anybody has agreed to anything."""
MOST_RETRIES = 5
MOST_ATTEMPTS = MOST_RETRIES + 1
MOST_PARTIES = 64
LONGEST_REASON, LONGEST_PURPOSE = 1000, 4000
LONGEST_DEADLINE = timedelta(days=366)
SKEW = timedelta(hours=24)
"""By how much clocks of members may differ."""
_FILE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_ .-]{0,99}(?:/[A-Za-z0-9_][A-Za-z0-9_ .-]{0,99}){0,5}")

AttemptEnd = Literal["finished", "stopped", "lost"]


def _decode_base64(text: Any) -> Any:
    try:
        return b64decode(text, validate=True)
    except (Base64Error, TypeError, ValueError):
        raise ValueError("must be base64 [VA281]") from None


FileContent = Annotated[
    bytes, BeforeValidator(_decode_base64), PlainSerializer(lambda content: b64encode(content).decode("ascii"))
]
"""A file of a proposal; in a statement it stands in base64."""
NO_HUBS = (
    "[coordinator] of the study names hubs, and in a federation all lanes are at its own hub: delete hubs, or run the "
    "study at hubs of its own with `colonnade coordinator`, `colonnade relay` and `colonnade party` [FE067]"
)


@dataclass(frozen=True)
class Proposal(SignedStatement):
    """A study that an analyst asks the parties to run, with all its public files; ``id`` once it was signed."""

    analyst: MemberName
    purpose: Annotated[str, Field(max_length=LONGEST_PURPOSE)]
    made: Moment
    deadline: Moment
    name: Annotated[str, Field(pattern="^[A-Za-z0-9][A-Za-z0-9 _.-]{0,79}$")]
    digest: Sha256
    files: Annotated[Mapping[str, FileContent], Field(max_length=MOST_FILES)]
    id: str = field(default="", compare=False)

    kind, signer_field, largest, unsigned = "proposal", "analyst", MOST_PACKED, frozenset({"id"})

    @classmethod
    def unpack(cls, raw: bytes, members: FederationMembers) -> Proposal:
        """A proposal as it was signed, with the pins and the address of these members; anything else is an error."""
        found = replace(super().unpack(raw, members), id=proposal_id(raw))
        found.check_pins(members)
        return found

    @cached_property
    def asked(self) -> dict[str, Any]:
        """The study file as it is written; only what follows from it here has been checked."""
        content = self.files.get(STUDY_FILE, b"")
        if len(content) > MOST_STUDY:
            raise FederationError(
                f"the study file of a proposal has at most {MOST_STUDY:,} bytes, not {len(content):,} [FE069]"
            )
        try:
            return reading.parse_toml(content.decode())
        except (UnicodeDecodeError, reading.MalformedFile):
            raise FederationError("the study file of this proposal is not valid TOML [FE070]") from None

    @property
    def parties(self) -> tuple[str, ...]:
        """Of whom it is asked, in the order of the study file."""
        return tuple(self.asked["parties"])

    @property
    def participants(self) -> tuple[str, ...]:
        """The parties, and the hub's coordinator."""
        return (*self.parties, COORDINATOR)

    @property
    def task_kind(self) -> str:
        """The kind of task that the study file names."""
        return str(self.asked["task"]["kind"])

    def check_time(self, now: datetime) -> None:
        """Raise an error if the proposal comes too late, or from a clock that is far ahead."""
        if self.deadline <= now:
            raise FederationError(
                f"the deadline of this proposal was {self.deadline:%Y-%m-%d %H:%M} UTC: propose anew [FE071]"
            )
        if self.made > now + SKEW:
            raise FederationError(
                f"this proposal was made on {self.made:%Y-%m-%d %H:%M} UTC, which is yet to come [FE072]"
            )

    def write(self, folder: Path, members: FederationMembers) -> Path:
        """Write the study with its files and certificates into a folder, and return the path of the study file."""
        everybody = (*self.participants, self.analyst)
        known = {name: members.certificates[name] for name in everybody if name in members.certificates}
        certificates = {f"certs/{name}.crt": each.pem for name, each in known.items()}
        try:
            contents = {folder / name: content for name, content in {**self.files, **certificates}.items()}
            for path in contents:
                path.parent.mkdir(parents=True, exist_ok=True)
            writing.write_files(contents)
        except OSError as error:
            raise StorageError(f"{error.filename or folder} cannot be written: {error.strerror} [SO026]") from None
        return folder / STUDY_FILE

    def check(self, members: FederationMembers) -> None:
        """Raise an error unless its files make a study."""
        role = members.roles[self.analyst]
        if role == "hub":
            raise FederationError(f"{self.analyst} may not propose studies: it is the {role} [FE068]")
        check_files(self.files)
        if self.deadline <= self.made:
            raise FederationError(
                "the deadline of this proposal had passed when it was made: choose a later deadline [FE073]"
            )
        if self.deadline > self.made + LONGEST_DEADLINE:
            raise FederationError(
                f"a deadline is at most {LONGEST_DEADLINE.days} days after a proposal was made [FE074]"
            )
        parties, task = self.asked.get("parties"), self.asked.get("task")
        if (
            not isinstance(parties, dict)
            or not 2 <= len(parties) <= MOST_PARTIES
            or self.asked.get("name") != self.name
        ):
            raise FederationError(
                f"the study file of this proposal must name {self.name!r} and 2 to {MOST_PARTIES} parties [FE075]"
            )
        if not isinstance(task, dict) or not isinstance(task.get("kind"), str) or len(task["kind"]) > 80:
            raise FederationError("the study file of this proposal names no kind of task [FE076]")
        model = task.get("model")
        beside = (model, f"{model.rpartition('.')[0]}.npz") if isinstance(model, str) else ()
        others = sum(len(content) for name, content in self.files.items() if name not in beside)
        if others > MOST_BYTES or sum(map(len, self.files.values())) - others > MOST_MODEL:
            raise FederationError(
                f"the files of a proposal have at most {MOST_BYTES:,} bytes, and its model {MOST_MODEL:,} [FE079]"
            )

    def check_pins(self, members: FederationMembers) -> None:
        """Raise an error unless it has the pins and the address of these members."""
        members.check(self.parties)
        pins, hub = self.asked.get("pins"), self.asked.get("coordinator")
        if pins != {name: members.certificates[name].fingerprint for name in self.participants}:
            raise FederationError(
                f"[pins] of the proposed study are not those of the federation {members.name!r}: compare "
                f"{members.path.name} with the analyst's; `colonnade federation propose` fills them in [FE077]"
            )
        if not isinstance(hub, dict) or hub.get("address") != members.address:
            raise FederationError(f"[coordinator] of the proposed study is not the hub of {members.name!r} [FE078]")
        if hub.get("hubs"):  # or workers would dial whatever an analyst writes there
            raise FederationError(NO_HUBS)


def proposal_id(raw: bytes) -> str:
    """The id of a proposal: 32 hexadecimal digits of the hash of its signed bytes."""
    return sha256(raw).hexdigest()[:32]


def check_files(names: Mapping[str, Any]) -> None:
    """Raise an error unless all these can be names of files below one folder, on every system and at the same time."""
    for name in names:
        parts = name.split("/")
        if not _FILE.fullmatch(name) or any(part.endswith((".", " ")) for part in parts) or parts[0].lower() == "certs":
            raise FederationError(
                f"a proposal holds no file named {sanitize(name, 200)!r}: use letters, digits, '_' and '-' [FE080]"
            )
    lower = {name.lower() for name in names}
    folders = {"/".join(name.split("/")[:depth]) for name in lower for depth in range(1, name.count("/") + 1)}
    if len(lower) < len(names) or lower & folders:
        raise FederationError("two files of this proposal would have the same place [FE081]")


@dataclass(frozen=True)
class ProposalAnswer(SignedStatement):
    """What a party says to a proposal; ``why`` is what a person wrote to the analyst."""

    proposal: StudyId
    party: MemberName
    yes: bool
    why: Annotated[str, Field(max_length=LONGEST_REASON)]
    retries: Annotated[int, Field(ge=0, le=MOST_RETRIES)]
    made: Moment

    kind, signer_field = "answer", "party"

    def check(self, members: FederationMembers) -> None:
        """Raise an error unless a party says it."""
        members.check([self.party])


@dataclass(frozen=True)
class AttemptReport(SignedStatement):
    """How an attempt ended for one participant. It never says why: a reason may depend on a cell.

    ``finished``: it holds the result, also where it took that from the hub with the signatures of the others.
    ``lost``: a peer, the hub or the process itself was lost. ``stopped``: for a reason of its own.
    """

    proposal: StudyId
    attempt: Annotated[int, Field(ge=1, le=MOST_ATTEMPTS)]
    participant: MemberName
    ended: AttemptEnd
    made: Moment
    result: Sha256 | None = None
    """The SHA-256 of ``model.json``, of who has finished and holds the result that is for everybody."""
    files: Annotated[Mapping[MemberName, Sha256], Field(max_length=MOST_FILES)] = field(default_factory=dict)
    """The SHA-256 of each file beside it that is for everybody too."""
    lost: Annotated[tuple[MemberName, ...], Field(max_length=MOST_PARTIES)] = ()
    """Owners without whom the others went on: their signatures are missing, and the hub's word for that is none."""

    kind, signer_field = "outcome", "participant"

    def check(self, members: FederationMembers) -> None:
        """Raise an error if it names a result of an attempt that has not finished."""
        if (self.result and self.ended != "finished") or ((self.files or self.lost) and not self.result):
            raise FederationError(f"this outcome of {self.signer} names a result though it has not finished [FE083]")


@dataclass(frozen=True)
class Withdrawal(SignedStatement):
    """The analyst takes a proposal back, or a party its yes."""

    proposal: StudyId
    by: MemberName
    made: Moment

    kind, signer_field = "withdrawal", "by"


_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_FILLED = ("coordinator", "pins")


def make_proposal(
    path: Path, members: FederationMembers, analyst: str, purpose: str, deadline: datetime
) -> tuple[Proposal, Preflight]:
    """A study as a proposal to this federation, and what it would cost; the study file may lack pins and address."""
    raw = read_toml(path, "study file")
    parties = raw.get("parties")
    if not isinstance(parties, dict) or "task" not in raw:
        raise StudyError(f"{path} is no study file: it needs [task] and [parties.NAME] [ST539]")
    said = raw.get("coordinator")
    if isinstance(said, dict) and said.get("hubs"):
        raise StudyError(f"{path}: {NO_HUBS} [ST540]")
    members.check(parties)
    pins = {name: members.pins[name] for name in (*parties, COORDINATOR)}
    text = fill_in_pins(reading.read_text(path), raw, members.address, pins)
    files = {STUDY_FILE: text.encode(), **_named_files(path, raw)}
    check_files(files)
    made = datetime.now(UTC)
    with tempfile.TemporaryDirectory(prefix="colonnade-") as name:
        bare = Proposal(analyst, purpose, made, deadline, str(raw.get("name", "")), "0" * 64, files)
        try:
            study = Study.load(bare.write(Path(name), members)).runnable()
            cost, digest = preflight(study), study.digest
        except StudyError as error:
            raise StudyError(str(error).replace(str(Path(name) / STUDY_FILE), str(path))) from None
    return Proposal(analyst, purpose, made, deadline, study.name, digest, files), cost


def fill_in_pins(text: str, raw: dict[str, Any], address: str, pins: dict[str, str]) -> str:
    """A study file with other pins and another address; everything else in it stays as it is written."""
    kept, inside = [], False
    for line in text.splitlines():
        if header := re.match(r"\s*\[+\s*([^\]]+?)\s*\]", line):
            inside = header[1].split(".")[0].strip("\"' ") in _FILLED
        if not inside:
            kept.append(line)
    said = raw.get("coordinator")
    hub = {"address": address} | ({"links": said["links"]} if isinstance(said, dict) and "links" in said else {})
    lines = [*kept, "", "[coordinator]", *(f"{key} = {json.dumps(value)}" for key, value in hub.items()), "", "[pins]"]
    lines += [f"{json.dumps(name)} = {json.dumps(pin)}" for name, pin in pins.items()]
    made = "\n".join(lines) + "\n"
    wanted = {key: value for key, value in raw.items() if key not in _FILLED}
    try:
        found = reading.parse_toml(made)
    except reading.MalformedFile:
        found = {}
    if found != wanted | {"coordinator": hub, "pins": pins}:
        raise StudyError(
            "the pins cannot be written into this study file: write [coordinator] and [pins] as tables of their own, "
            "at its end [ST541]"
        )
    return made


def _named_files(path: Path, raw: dict[str, Any]) -> dict[str, bytes]:
    """The files that a study file names."""
    named = [party.get("schema") for party in raw["parties"].values() if isinstance(party, dict)]
    model = raw["task"].get("model") if isinstance(raw["task"], dict) else None
    found: dict[str, bytes] = {}
    for name in [name for name in (*named, model) if isinstance(name, str)]:
        places = [name, str(Path(name).with_suffix(".npz"))] if name == model else [name]
        for place in places:
            if place == name or (path.parent / place).exists():
                found[place] = _read_file(path.parent / place)
    return found


def _read_file(path: Path) -> bytes:
    try:
        return reading.read_bytes(path, MOST_MODEL)
    except reading.UnreadableFile as error:
        raise StudyError(f"{path} cannot be read: {error} [ST542]") from None


def parse_deadline(text: str) -> datetime:
    """A moment, from a time to wait such as ``7d`` or ``12h``, or a date such as ``2030-01-31``."""
    if found := re.fullmatch(r"(\d{1,6})([mhdw])", text.strip()):
        return datetime.now(UTC) + timedelta(**{_UNITS[found[2]]: int(found[1])})
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        raise FederationError(
            f"{text[:40]!r} is no deadline: say how long, such as 30m, 12h or 7d, or a date such as 2030-01-31 [FE085]"
        ) from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
