"""Whether a Ray cluster may be used, whether it answers and lets us in; and nodes that are started here.

A cluster is trusted with the party's rows, and whoever may talk to it can run programs there. So over a network it must
ask for a token and speak TLS (``check_guarded``); without them, every node must be this machine's loopback interface.
Ray tries its ways in again and again, some of them for minutes, so we knock first (``check_answers``).

Ray waits half a minute for a node, which a busy machine may exceed. If a helper of its own takes more than about 15
seconds, its raylet ends at once, and Ray would still wait for it. So there is more time, and a node whose raylet has
ended is begun again.
"""

from __future__ import annotations

import ipaddress
import os
import re
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

from colonnade.errors import EngineError

CLIENT_PREFIX = "ray://"
"""How the address of a client server begins."""
ANSWER_SECONDS = 30.0
"""For how long a cluster may take to answer."""
CERTIFICATES = ("RAY_TLS_SERVER_CERT", "RAY_TLS_SERVER_KEY", "RAY_TLS_CA_CERT")
_YES = ("1", "true")
_PAUSE_SECONDS = 0.5
_TOKEN = "the token that it asks for is not ours: set RAY_AUTH_MODE and RAY_AUTH_TOKEN_PATH as on its nodes [EN015]"  # noqa: S105


def check_guarded(address: str, environment: Mapping[str, str] | None = None) -> None:
    """Raise an error unless an address is of this machine's loopback interface, or reached with a token and by TLS."""
    said = os.environ if environment is None else environment
    if is_loopback(address) or not (missing := _missing(said)):
        return
    raise EngineError(
        f"the Ray cluster at {address} is reached over a network, so it must ask for a token and speak TLS: "
        f"set {', '.join(missing)} here and on every node, as Ray's own pages on security say [EN016]"
    )


def is_loopback(address: str) -> bool:
    """Whether ``host:port`` or ``ray://host:port`` names this machine by its loopback interface."""
    host, _ = split_address(address)
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def split_address(address: str) -> tuple[str, str]:
    """Host and port of an address."""
    host, _, port = address.removeprefix(CLIENT_PREFIX).rpartition(":")
    return host.strip("[]"), port


def check_nodes(ray: Any) -> None:
    """An address of loopback may be a tunnel: what counts is where the nodes are."""
    for node in ray.nodes():
        if node.get("Alive", True):
            check_guarded(f"{node['NodeManagerAddress']}:{node['NodeManagerPort']}")


def check_answers(address: str, seconds: float = ANSWER_SECONDS) -> None:
    """Raise an error unless a Ray cluster answers at an address within this time, and knows our token."""
    until = time.monotonic() + seconds
    knock = _knock_at_client_server if address.startswith(CLIENT_PREFIX) else _knock_at_head
    why = _knock_until(lambda: _listens(address, until), until) or _knock_until(lambda: knock(address, until), until)
    if why is not None:
        raise EngineError(f"the Ray cluster at {address} cannot be used: {why} [EN017]")


def why_not(error: BaseException) -> str:
    """Why Ray did not let us in, without what it says of hosts and paths."""
    found: BaseException | None = error
    while found is not None:
        if type(found).__name__ == "AuthenticationError":
            return _TOKEN
        versions = re.findall(r"^ *(?:Ray|Python): ([\w.+-]{1,40})$", str(found), re.MULTILINE)
        if "ersion mismatch" in str(found) and len(versions) == 4:
            its, ours = (f"Ray {ray} on Python {python}" for ray, python in (versions[:2], versions[2:]))
            return f"it has {its}, and this head has {ours}: install the same on all machines [EN018]"
        if isinstance(found, ConnectionAbortedError):
            return (
                "its client server could not start a process for this head: try again, and set "
                "GRPC_ENABLE_FORK_SUPPORT=0 and RAY_CLIENT_SERVER_CHECK_CHANNEL_TIMEOUT_S=120 there "
                "before `ray start` [EN019]"
            )
        found = found.__cause__
    return f"Ray raised {type(error).__name__}; `ray status` may say more [EN020]"


def _missing(said: Mapping[str, str]) -> list[str]:
    """What is not set of a token and TLS."""
    found = [] if said.get("RAY_AUTH_MODE", "").lower() == "token" else ["RAY_AUTH_MODE=token"]
    kept = Path(said.get("RAY_AUTH_TOKEN_PATH") or Path(said.get("HOME", "/")) / ".ray" / "auth_token")
    if not said.get("RAY_AUTH_TOKEN") and not kept.is_file():
        found.append("RAY_AUTH_TOKEN_PATH (a file with the token)")
    if said.get("RAY_USE_TLS", "").lower() not in _YES:
        found.append("RAY_USE_TLS=1")
    return found + [f"{name} (a file)" for name in CERTIFICATES if not os.path.isfile(said.get(name, ""))]


class _SilentError(Exception):
    """There was no answer, and there may be one; with the sentence if there is none."""


class _RefusedError(Exception):
    """There was an answer that will stay the same, with the sentence."""


def _knock_until(knock: Callable[[], None], until: float) -> str | None:
    """Knock until there is an answer; why there is none."""
    while True:
        try:
            knock()
            return None
        except _RefusedError as error:
            return str(error)
        except _SilentError as error:
            if time.monotonic() + _PAUSE_SECONDS > until:
                return str(error)
            time.sleep(_PAUSE_SECONDS)


def _seconds_left(until: float) -> float:
    return max(1.0, until - time.monotonic())


def _listens(address: str, until: float) -> None:
    host, port = split_address(address)
    try:
        socket.create_connection((host, int(port)), _seconds_left(until)).close()
    except (OSError, ValueError):
        raise _SilentError(
            "nothing listens there; compare the address with what `ray start` printed, and look whether it runs [EN021]"
        ) from None


def _knock_at_client_server(address: str, until: float) -> None:
    grpc: Any = import_module("grpc")
    words: Any = import_module("ray.core.generated.ray_client_pb2")
    stubs: Any = import_module("ray.core.generated.ray_client_pb2_grpc")
    ping = words.ClusterInfoRequest(type=words.ClusterInfoType.PING)
    channel = import_module("ray._private.grpc_utils").init_grpc_channel(address.removeprefix(CLIENT_PREFIX))
    try:
        stubs.RayletDriverStub(channel).ClusterInfo(
            ping, timeout=_seconds_left(until), metadata=[("client_id", "knock")]
        )
    except grpc.RpcError as error:
        if error.code() == grpc.StatusCode.UNAUTHENTICATED:
            raise _RefusedError(_TOKEN) from None
        if error.code() == grpc.StatusCode.UNIMPLEMENTED:
            raise _RefusedError(
                "another port of Ray listens there; that of its client server is 10001 unless set [EN022]"
            ) from None
        raise _SilentError(
            "no client server of Ray answers there; look at the port (10001 unless set), and whether both ends have "
            "TLS or both have none [EN023]"
        ) from None
    finally:
        channel.close()


def _knock_at_head(address: str, until: float) -> None:
    raylet: Any = import_module("ray._raylet")
    try:
        raylet.GcsClient(address=address)
    except Exception as error:
        if type(error).__name__ == "AuthenticationError":
            raise _RefusedError(_TOKEN) from None
        raise _SilentError(
            "no head node of Ray answers there; look at the port, and whether both ends have TLS [EN024]"
        ) from None


Made = TypeVar("Made")

START_SECONDS = 120
"""For how long a node of a cluster that is started here may take to begin, all tries together."""
TRIES = 5
_LOOK_SECONDS = 0.1


class RayletError(Exception):
    """The raylet of a node that is being started has ended."""


def start_node(start: Callable[[], Made], seconds: float = START_SECONDS) -> Made:
    """What ``start`` makes, with one node that it starts in this process, or none; it may be called several times."""
    until, tries = time.monotonic() + seconds, 0
    while True:
        tries += 1
        with _patient(until) as nodes:
            try:
                return start()
            except RayletError:
                for node in nodes:
                    with suppress(Exception):  # some of its processes are gone
                        node.kill_all_processes(check_alive=False, allow_graceful=False)
                if tries == TRIES or time.monotonic() > until:
                    raise


@contextmanager
def _patient(until: float) -> Iterator[list[Any]]:
    """Wait for a node until then, or until its raylet has ended; yields nodes that are being started."""
    services: Any = import_module("ray._private.services")
    node: Any = import_module("ray._private.node").Node
    look_once, start_raylet = services.get_node, node.start_raylet
    nodes: list[Any] = []

    def started(self: Any, *given: Any, **named: Any) -> Any:
        nodes.append(self)
        return start_raylet(self, *given, **named)

    def get_node(*given: Any, **named: Any) -> Any:
        while True:
            try:
                return look_once(*given, **named)
            except RuntimeError:  # it is not there yet
                if not nodes:
                    raise
                raylets = [found for node in nodes for found in node.all_processes.get("raylet", ())]
                if any(found.process.poll() is not None for found in raylets):
                    raise RayletError from None
                if time.monotonic() > until:
                    raise
                time.sleep(_LOOK_SECONDS)

    services.get_node, node.start_raylet = get_node, started
    try:
        yield nodes
    finally:
        services.get_node, node.start_raylet = look_once, start_raylet
