"""How bytes reach the right peer so that nobody else can read them.

A name is imported when it is first used, because gRPC and cryptography take long to load.
"""

import os
from typing import TYPE_CHECKING

from colonnade.lazy import exports

# Set before gRPC is loaded; otherwise it writes every refused handshake to stderr, in addition to our own errors.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
# Of another library that starts programs by fork, as Ray does, some would die before they begin: gRPC 1.81 and later
# goes on polling in the new process, whose descriptors are closed. We fork only where gRPC has not begun.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

if TYPE_CHECKING:
    from colonnade.wire.caller import Caller as Caller
    from colonnade.wire.channel import Channel as Channel
    from colonnade.wire.codec import encode as encode
    from colonnade.wire.counters import Counters as Counters, Tally as Tally
    from colonnade.wire.endpoint import Endpoint as Endpoint
    from colonnade.wire.hub import Hub as Hub
    from colonnade.wire.hub_carrier import dial as dial
    from colonnade.wire.hub_probe import probe as probe
    from colonnade.wire.identity import Certificate as Certificate, Identity as Identity, check_name as check_name
    from colonnade.wire.quota import HubLimits as HubLimits
    from colonnade.wire.room import Network as Network, Room as Room, RoomPlace as RoomPlace
    from colonnade.wire.services import Service as Service

__all__, __getattr__, __dir__ = exports(
    __name__,
    {
        "caller": "Caller",
        "channel": "Channel",
        "codec": "encode",
        "counters": "Counters Tally",
        "endpoint": "Endpoint",
        "hub": "Hub",
        "hub_carrier": "dial",
        "hub_probe": "probe",
        "identity": "Certificate Identity check_name",
        "quota": "HubLimits",
        "room": "Network Room RoomPlace",
        "services": "Service",
    },
)
