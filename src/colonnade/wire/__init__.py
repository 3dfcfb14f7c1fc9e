"""How bytes reach the right peer so that nobody else can read them.

A name is imported when it is first used, because gRPC and cryptography take long to load.
"""

import os
from typing import TYPE_CHECKING

from colonnade.lazy import lazy_exports

# Set before gRPC is loaded; otherwise it writes every refused handshake to stderr, in addition to our own errors.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
# Of another library that starts programs by fork, as Ray does, some would die before they begin: gRPC 1.81 and later
# goes on polling in the new process, whose descriptors are closed. We fork only where gRPC has not begun.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

if TYPE_CHECKING:
    from colonnade.wire.codec import encode as encode
    from colonnade.wire.endpoint import Endpoint as Endpoint, SealedChannel as SealedChannel
    from colonnade.wire.hub import Hub as Hub, HubService as HubService
    from colonnade.wire.hub_connection import HubClient as HubClient, dial as dial, probe as probe
    from colonnade.wire.identity import Certificate as Certificate, Identity as Identity, check_name as check_name
    from colonnade.wire.in_memory_network import (
        InMemoryEndpoint as InMemoryEndpoint,
        InMemoryNetwork as InMemoryNetwork,
        SimulatedNetwork as SimulatedNetwork,
    )
    from colonnade.wire.peer_liveness import TaskTally as TaskTally, TrafficCounters as TrafficCounters
    from colonnade.wire.quota import HubLimits as HubLimits

__all__, __getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "codec": "encode",
        "endpoint": "SealedChannel Endpoint",
        "hub": "Hub HubService",
        "hub_connection": "HubClient dial probe",
        "identity": "Certificate Identity check_name",
        "in_memory_network": "SimulatedNetwork InMemoryNetwork InMemoryEndpoint",
        "quota": "HubLimits",
        "peer_liveness": "TrafficCounters TaskTally",
    },
)
