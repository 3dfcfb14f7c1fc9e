"""What members say to each other about a study: a proposal, answers to it, outcomes of attempts, a withdrawal.

Each is signed by whoever says it. The id of a proposal is the hash of its signed bytes, and all else names that id; so
nobody can pass an answer to one proposal off as an answer to another.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, cast, get_args

from colonnade.disk import reading, writing
from colonnade.errors import FederationError, StorageError
from colonnade.protocols.roles import COORDINATOR
from colonnade.standing.federation import Members
from colonnade.standing.signed import (
    is_count,
    is_flag,
    is_hash,
    is_id,
    is_moment,
    is_name,
    is_text,
    read_moment,
    seal,
    shown,
    unseal,
    written,
)
from colonnade.wire import Identity

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
_MOST_STATEMENT = 1 << 14
_FILE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_ .-]{0,99}(?:/[A-Za-z0-9_][A-Za-z0-9_ .-]{0,99}){0,5}")
_STUDY_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 _.-]{0,79}")

Ended = Literal["finished", "stopped", "lost"]
NO_HUBS = (
    "[coordinator] of the study names hubs, and in a federation all lanes are at its own hub: delete hubs, or run the "
    "study at hubs of its own with `colonnade coordinator`, `colonnade relay` and `colonnade party` [FE067]"
)


@dataclass(frozen=True)
class Proposal:
    """A study that an analyst asks the parties to run, with all its public files; ``id`` once it was signed."""

    analyst: str
    purpose: str
    made: datetime
    deadline: datetime
    name: str
    digest: str
    files: Mapping[str, bytes]
    id: str = field(default="", compare=False)

    def pack(self, identity: Identity) -> bytes:
        """The proposal, signed by its analyst."""
        body = {
            "purpose": self.purpose,
            "made": written(self.made),
            "deadline": written(self.deadline),
            "name": self.name,
            "digest": self.digest,
            "files": {name: b64encode(content).decode() for name, content in self.files.items()},
        }
        return seal("proposal", body, _own(identity, self.analyst))

    @classmethod
    def unpack(cls, raw: bytes, members: Members) -> Proposal:
        """A proposal as it was signed, with the pins and the address of these members; anything else is an error."""
        form = {
            "purpose": is_text(LONGEST_PURPOSE),
            "made": is_moment,
            "deadline": is_moment,
            "name": lambda value: isinstance(value, str) and _STUDY_NAME.fullmatch(value) is not None,
            "digest": lambda value: isinstance(value, str) and re.fullmatch("[0-9a-f]{64}", value) is not None,
            "files": lambda value: isinstance(value, dict) and STUDY_FILE in value and len(value) <= MOST_FILES,
        }
        analyst, body = unseal("proposal", raw, members, form, MOST_PACKED)
        if analyst not in members.analysts:
            raise FederationError(f"{analyst} may not propose studies: it is the {members.roles[analyst]} [FE068]")
        found = cls(
            analyst,
            body["purpose"],
            read_moment(body["made"]),
            read_moment(body["deadline"]),
            body["name"],
            body["digest"],
            _unpacked(body["files"]),
            id_of(raw),
        )
        found._check(members)
        return found

    @cached_property
    def asked(self) -> dict[str, Any]:
        """The study file as it is written; only what follows from it here has been checked."""
        content = self.files[STUDY_FILE]
        if len(content) > MOST_STUDY:
            raise FederationError(
                f"the study file of a proposal has at most {MOST_STUDY:,} bytes, not {len(content):,} [FE069]"
            )
        try:
            return reading.toml_of(content.decode())
        except (UnicodeDecodeError, reading.Malformed):
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
    def kind(self) -> str:
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

    def write(self, folder: Path, members: Members) -> Path:
        """Write the study with its files and certificates into a folder, and return the path of the study file."""
        certificates = {f"certs/{name}.crt": members.certificates[name].pem for name in self.participants}
        try:
            contents = {folder / name: content for name, content in {**self.files, **certificates}.items()}
            for path in contents:
                path.parent.mkdir(parents=True, exist_ok=True)
            writing.put(contents)
        except OSError as error:
            raise StorageError(f"{error.filename or folder} cannot be written: {error.strerror} [SO026]") from None
        return folder / STUDY_FILE

    def _check(self, members: Members) -> None:
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
        members.check(parties)
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
        model = task.get("model")
        beside = (model, f"{model.rpartition('.')[0]}.npz") if isinstance(model, str) else ()
        others = sum(len(content) for name, content in self.files.items() if name not in beside)
        if others > MOST_BYTES or sum(map(len, self.files.values())) - others > MOST_MODEL:
            raise FederationError(
                f"the files of a proposal have at most {MOST_BYTES:,} bytes, and its model {MOST_MODEL:,} [FE079]"
            )


def id_of(raw: bytes) -> str:
    """The id of a proposal: 32 hexadecimal digits of the hash of its signed bytes."""
    return sha256(raw).hexdigest()[:32]


def check_files(names: Mapping[str, Any]) -> None:
    """Raise an error unless all these can be names of files below one folder, on every system and at the same time."""
    for name in names:
        parts = name.split("/")
        if not _FILE.fullmatch(name) or any(part.endswith((".", " ")) for part in parts) or parts[0].lower() == "certs":
            raise FederationError(
                f"a proposal holds no file named {shown(name)!r}: use letters, digits, '_' and '-' [FE080]"
            )
    lower = {name.lower() for name in names}
    folders = {"/".join(name.split("/")[:depth]) for name in lower for depth in range(1, name.count("/") + 1)}
    if len(lower) < len(names) or lower & folders:
        raise FederationError("two files of this proposal would have the same place [FE081]")


def _unpacked(files: Mapping[str, Any]) -> dict[str, bytes]:
    check_files(files)
    try:
        return {name: b64decode(cast("str", content), validate=True) for name, content in files.items()}
    except (Base64Error, TypeError, ValueError):
        raise FederationError("a file of this proposal cannot be read [FE082]") from None


@dataclass(frozen=True)
class Answer:
    """What a party says to a proposal; ``why`` is what a person wrote to the analyst."""

    proposal: str
    party: str
    yes: bool
    why: str
    retries: int
    made: datetime

    def pack(self, identity: Identity) -> bytes:
        """The answer, signed by its party."""
        body = {"proposal": self.proposal, "yes": self.yes, "why": self.why, "retries": self.retries}
        return seal("answer", body | {"made": written(self.made)}, _own(identity, self.party))

    @classmethod
    def unpack(cls, raw: bytes, members: Members) -> Answer:
        """An answer as it was signed; anything else is an error."""
        form = {"proposal": is_id, "yes": is_flag, "why": is_text(LONGEST_REASON), "made": is_moment}
        signer, body = unseal("answer", raw, members, {**form, "retries": is_count(MOST_RETRIES)}, _MOST_STATEMENT)
        members.check([signer])
        return cls(party=signer, **body | {"made": read_moment(body["made"])})


@dataclass(frozen=True)
class Outcome:
    """How an attempt ended for one participant. It never says why: a reason may depend on a cell.

    ``lost``: a peer, the hub or the process itself was lost. ``stopped``: for a reason of its own.
    """

    proposal: str
    attempt: int
    participant: str
    ended: Ended
    made: datetime
    result: str | None = None
    """The SHA-256 of ``model.json``, of who has finished and holds the result that is for everybody."""
    files: Mapping[str, str] = field(default_factory=dict)
    """The SHA-256 of each file beside it that is for everybody too."""

    def pack(self, identity: Identity) -> bytes:
        """The outcome, signed by its participant."""
        body = {"proposal": self.proposal, "attempt": self.attempt, "ended": self.ended, "made": written(self.made)}
        body |= {} if self.result is None else {"result": self.result}
        body |= {"files": dict(self.files)} if self.files else {}
        return seal("outcome", body, _own(identity, self.participant))

    @classmethod
    def unpack(cls, raw: bytes, members: Members) -> Outcome:
        """An outcome as it was signed; anything else is an error."""
        form = {"proposal": is_id, "attempt": is_count(MOST_ATTEMPTS, 1), "made": is_moment}
        ends = {"ended": lambda value: isinstance(value, str) and value in get_args(Ended)}
        beside = {"result": is_hash, "files": _are_hashes}
        signer, body = unseal("outcome", raw, members, {**form, **ends}, _MOST_STATEMENT, beside)
        if ("result" in body and body["ended"] != "finished") or ("files" in body and "result" not in body):
            raise FederationError(f"this outcome of {signer} names a result though it has not finished [FE083]")
        return cls(participant=signer, **body | {"made": read_moment(body["made"])})


def _are_hashes(value: Any) -> bool:
    """Whether a value names files with their hashes."""
    return (
        isinstance(value, dict)
        and 0 < len(value) <= MOST_FILES
        and all(map(is_name, value))
        and all(map(is_hash, value.values()))
    )


@dataclass(frozen=True)
class Withdrawal:
    """The analyst takes a proposal back, or a party its yes."""

    proposal: str
    by: str
    made: datetime

    def pack(self, identity: Identity) -> bytes:
        """The withdrawal, signed."""
        return seal("withdrawal", {"proposal": self.proposal, "made": written(self.made)}, _own(identity, self.by))

    @classmethod
    def unpack(cls, raw: bytes, members: Members) -> Withdrawal:
        """A withdrawal as it was signed; anything else is an error."""
        form = {"proposal": is_id, "made": is_moment}
        signer, body = unseal("withdrawal", raw, members, form, _MOST_STATEMENT)
        return cls(body["proposal"], signer, read_moment(body["made"]))


def _own(identity: Identity, name: str) -> Identity:
    if identity.name != name:
        raise FederationError(f"{identity.name} cannot sign for {name} [FE084]")
    return identity
