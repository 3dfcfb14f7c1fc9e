"""Workers of a party: keys that are born in a worker, and the signed introduction by which others know it.

A worker makes an Ed25519 identity under its party's name, for sessions with other workers, and a P-256 key, for its
connection to a hub. Neither leaves it. Its *request* is public; its head, who has the party's identity, answers with an
*introduction*: the worker's certificate, a certificate for its connections, and a signature that says in which study
and until when it speaks for the party. The other workers check that against the certificate that the study pins, so
whoever passes introductions on need not be trusted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NoReturn

from colonnade.errors import IdentityError, ProtocolError
from colonnade.message_schema import BoundedBytes, FixedBytes, Integer, MessageSchema
from colonnade.wire import certificates
from colonnade.wire.codec import check_size, decode_message, encode
from colonnade.wire.endpoint import Endpoint
from colonnade.wire.hub_connection import dial
from colonnade.wire.identity import (
    LONGEST_STAY,
    Certificate,
    ConnectionCertificate,
    Identity,
    WorkerAdmission,
    check_until,
)
from colonnade.wire.study_sessions import lane_room, lane_topic

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

MOST_BYTES = 1 << 13
"""The most bytes of a request and of an introduction."""
_LAST = int(datetime(9999, 12, 31, tzinfo=UTC).timestamp())
_REQUEST = MessageSchema("worker-request", worker=BoundedBytes(MOST_BYTES), connection=BoundedBytes(MOST_BYTES))
_INTRODUCTION = MessageSchema(
    "worker-introduction",
    worker=BoundedBytes(MOST_BYTES),
    connection=BoundedBytes(MOST_BYTES),
    until=Integer(0, _LAST),
    signature=FixedBytes(64),
)
_SIGNED_PREFIX = b"colonnade worker introduction 2\0"


class WorkerKeys:
    """The private keys of one worker."""

    def __init__(self, identity: Identity, key: EllipticCurvePrivateKey) -> None:
        self._identity, self._key = identity, key
        asked = certificates.request(identity.name, key)
        self.request = encode([_REQUEST.kind, {"worker": identity.certificate.der, "connection": asked}])
        """What the head is asked to sign; public."""

    @classmethod
    def create(cls, name: str) -> WorkerKeys:
        """New keys of a worker of the party ``name``; to be called where they are used."""
        return cls(Identity.create(name, days=30), certificates.connection_key())

    @property
    def name(self) -> str:
        """The name of the party."""
        return self._identity.name

    @property
    def certificate(self) -> Certificate:
        """The worker's own certificate, which sessions of lanes pin."""
        return self._identity.certificate

    def __repr__(self) -> str:
        return f"WorkerKeys({self.name!r}, {self.certificate.fingerprint!r})"

    def __reduce__(self) -> NoReturn:
        """Refused: the keys stay in the worker in which they were born."""
        raise TypeError(
            f"the private keys of a worker of {self.name} are neither copied nor sent: make new ones there [VA273]"
        )

    def admission(self, introduction: bytes, base: Certificate, topic: bytes) -> WorkerAdmission:
        """What this worker shows hubs, from the introduction that its head gave it; an error if it is of another."""
        found = WorkerIntroduction.parse(introduction, base.name)
        if found.check(base, topic).der != self.certificate.der:
            raise IdentityError(
                f"the introduction that was given to a worker of {self.name} is that of another worker [ID047]"
            )
        try:
            chain = certificates.chain_for_lanes(found.connection, self._key, base.parsed)
        except ValueError:
            raise IdentityError(
                f"the introduction of a worker of {self.name} has no certificate for its connections [ID048]"
            ) from None
        return WorkerAdmission(base, ConnectionCertificate(certificates.key_pem(self._key), chain), found.until)

    def join_lane(
        self,
        address: str,
        partition: int,
        attempt: int,
        introductions: Mapping[str, bytes],
        bases: Mapping[str, Certificate],
        topic: bytes,
        /,
        *,
        home: str = "",
        hub_name: str = "coordinator",
        **settings: Any,
    ) -> Endpoint:
        """Meet the workers of the other participants in a lane at the hub at ``address``.

        ``bases`` are the certificates that the study pins, ``topic`` is that of the study's own sessions, ``home`` its
        room at a hub that has several, and ``settings`` are those of :func:`dial`, also for direct connections.
        """
        if missing := sorted(bases.keys() ^ introductions.keys()):
            raise IdentityError(
                f"a lane needs one worker of every participant, and of no other: see {missing[0]} [ID049]"
            )
        workers = {name: check_introduction(introductions[name], base, topic) for name, base in bases.items()}
        about = lane_topic(topic, partition, attempt, workers)
        return dial(
            address,
            self._identity,
            workers,
            topic=about,
            room=lane_room(partition, attempt, about, home),
            hub=bases[hub_name],
            guest=self.admission(introductions[self.name], bases[self.name], topic),
            **settings,
        )


@dataclass(frozen=True)
class WorkerIntroduction:
    """What a head says of a worker, as it was read; it holds only after :meth:`check`."""

    worker: Certificate
    connection: bytes
    """The certificate for connections to hubs, as DER."""
    until: datetime
    signature: bytes

    @classmethod
    def parse(cls, raw: bytes, name: str) -> WorkerIntroduction:
        """The parts of an introduction in the name of this party; nothing is believed yet."""
        what = f"the introduction of a worker of {name}"
        fields = _read_fields(raw, _INTRODUCTION, what)
        until = datetime.fromtimestamp(fields["until"], UTC)
        worker = Certificate.from_der(fields["worker"], what)
        return cls(worker, fields["connection"], until, fields["signature"])

    def to_bytes(self) -> bytes:
        """The introduction as it is sent."""
        fields = {"worker": self.worker.der, "connection": self.connection, "signature": self.signature}
        return encode([_INTRODUCTION.kind, fields | {"until": round(self.until.timestamp())}])

    def check(self, base: Certificate, topic: bytes, now: datetime | None = None) -> Certificate:
        """The worker's certificate; an error unless the pinned identity signed it, for this study and this time."""
        now = now or datetime.now(UTC)
        name = base.name
        if self.worker.name != name:
            raise IdentityError(f"a worker of {self.worker.name} was introduced where one of {name} was due [ID053]")
        base.check_dates(now)
        if not base.has_signed(self.signature, _statement(self.worker, self.connection, topic, self.until)):
            raise IdentityError(
                f"the introduction of a worker of {name} was not signed for this study by the identity that the study "
                f"pins ({base.fingerprint}) [ID054]"
            )
        check_until(name, self.until, now)
        self.worker.check_dates(now)
        return self.worker


def introduce(identity: Identity, request: bytes, topic: bytes, until: datetime) -> bytes:
    """The introduction of a worker of our own, in the study of this topic; at most ``LONGEST_STAY`` from now.

    The request must come from a worker of ours, in a way that nobody else can use: whoever is introduced can speak for
    this party in lanes.
    """
    now, name = datetime.now(UTC), identity.name
    until = until.astimezone(UTC).replace(microsecond=0)
    if not now < until <= now + LONGEST_STAY:
        hours = LONGEST_STAY // timedelta(hours=1)
        raise IdentityError(
            f"a worker of {name} can be introduced for at most {hours} hours, and not for the past [ID055]"
        )
    what = f"the request of a worker of {name}"
    fields = _read_fields(request, _REQUEST, what)
    worker = Certificate.from_der(fields["worker"], what)
    if worker.name != name:
        raise IdentityError(f"{what} is in the name of {worker.name} [ID057]")
    if worker.key_fingerprint == identity.certificate.key_fingerprint:
        raise IdentityError(f"{what} has the key of {name} itself, and a worker must have its own [ID058]")
    try:
        connection = identity.issue_for_worker(fields["connection"], until)
    except ValueError:
        raise IdentityError(f"{what} asks for no certificate that a worker can have [ID059]") from None
    signature = identity.sign(_statement(worker, connection, topic, until))
    return WorkerIntroduction(worker, connection, until, signature).to_bytes()


def check_introduction(raw: bytes, base: Certificate, topic: bytes, now: datetime | None = None) -> Certificate:
    """The certificate of a worker, if the identity ``base`` has introduced it for the study of this topic."""
    return WorkerIntroduction.parse(raw, base.name).check(base, topic, now)


def _statement(worker: Certificate, connection: bytes, topic: bytes, until: datetime) -> bytes:
    """What is signed: for which purpose, in which study, whose worker, which, with what connection, until when."""
    study, own, shown = (sha256(part).digest() for part in (topic, worker.der, connection))
    return _SIGNED_PREFIX + encode([study, worker.name, own, shown, round(until.timestamp())])


def _read_fields(raw: bytes, due: MessageSchema, what: str) -> dict[str, Any]:
    """The fields of a request or an introduction; nothing in them is believed yet."""
    try:
        check_size(len(raw), due.kind, what, MOST_BYTES)
        fields = decode_message(raw, due.kind, what)
        due.check(fields, what)
    except ProtocolError:
        raise IdentityError(f"{what} cannot be read [ID050]") from None
    return fields
