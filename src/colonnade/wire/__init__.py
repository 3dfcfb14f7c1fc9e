"""How bytes reach the right peer, unread by others."""

import os

# Before gRPC is loaded: it would otherwise write every refused handshake to stderr, past our own errors.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

from colonnade.wire.channel import Channel
from colonnade.wire.codec import Value, decode, encode
from colonnade.wire.counters import Counters, Tally, Traffic
from colonnade.wire.dial import dial
from colonnade.wire.endpoint import Endpoint
from colonnade.wire.hub import Hub
from colonnade.wire.identity import Certificate, Identity, check_name, fingerprint
from colonnade.wire.probe import probe
from colonnade.wire.room import Network, Room, RoomPlace

__all__ = [
    "Certificate",
    "Channel",
    "Counters",
    "Endpoint",
    "Hub",
    "Identity",
    "Network",
    "Room",
    "RoomPlace",
    "Tally",
    "Traffic",
    "Value",
    "check_name",
    "decode",
    "dial",
    "encode",
    "fingerprint",
    "probe",
]
