"""How bytes reach the right peer, unread by others.

A name is imported when it is first used, because gRPC and cryptography take long to load.
"""

import os
from importlib import import_module
from typing import TYPE_CHECKING

# Before gRPC is loaded: it would otherwise write every refused handshake to stderr, past our own errors.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

if TYPE_CHECKING:
    from colonnade.wire.channel import Channel
    from colonnade.wire.codec import encode
    from colonnade.wire.counters import Counters, Tally
    from colonnade.wire.endpoint import Endpoint
    from colonnade.wire.hub import Hub
    from colonnade.wire.hub_carrier import dial
    from colonnade.wire.hub_probe import probe
    from colonnade.wire.identity import Certificate, Identity, check_name
    from colonnade.wire.room import Network, Room, RoomPlace
else:
    _HOMES = {
        "Certificate": "identity",
        "Channel": "channel",
        "Counters": "counters",
        "Endpoint": "endpoint",
        "Hub": "hub",
        "Identity": "identity",
        "Network": "room",
        "Room": "room",
        "RoomPlace": "room",
        "Tally": "counters",
        "check_name": "identity",
        "dial": "hub_carrier",
        "encode": "codec",
        "probe": "hub_probe",
    }

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = found = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
        return found


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
    "check_name",
    "dial",
    "encode",
    "probe",
]
