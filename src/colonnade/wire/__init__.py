"""How bytes reach the right peer so that nobody else can read them.

A name is imported when it is first used, because gRPC and cryptography take long to load.
"""

import os
from importlib import import_module
from typing import TYPE_CHECKING

# Set before gRPC is loaded; otherwise it writes every refused handshake to stderr, in addition to our own errors.
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
    _NAMES = {
        "channel": "Channel",
        "codec": "encode",
        "counters": "Counters Tally",
        "endpoint": "Endpoint",
        "hub": "Hub",
        "hub_carrier": "dial",
        "hub_probe": "probe",
        "identity": "Certificate Identity check_name",
        "room": "Network Room RoomPlace",
    }
    _HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}

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
