"""Whether a Ray cluster may be used, whether it answers and lets us in; and nodes that are started here.

A cluster is trusted with the party's rows, and whoever may talk to it can run programs there. So over a network it must
ask for a token and speak TLS (``check_guarded``); without them, every node must be this machine's loopback interface.
Ray tries its ways in again and again, some of them for minutes, so we knock first (``check_answers``).

Ray waits half a minute for a node, which a busy machine may exceed. If a helper of its own takes more than about 15
seconds, its raylet ends at once, and Ray would still wait for it. So there is more time, and a node whose raylet has
ended is begun again.

Workers as actors of a Ray cluster that the party has anyway, or of one that is started here for a while.

Ray repeats nothing (``max_restarts=0``, ``max_task_retries=0``) and carries bytes that we have pickled ourselves, so
that what refuses to be pickled is refused here too. An actor runs its role in a thread; the head asks each actor for
what it says by a call that waits there (*hear*), so its answer comes at once, and so does the news of its death.
"""

from __future__ import annotations

import ipaddress
import logging
import os
import pickle
import queue
import re
import secrets
import shutil
import signal
import socket
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

from colonnade.errors import EngineError
from colonnade.study.engine.base import (
    Engine,
    WorkerHandle,
    WorkerLine,
    WorkerLoss,
    WorkerStart,
    count_cores,
    pickle_value,
    run_worker,
)

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


LOCAL = "local"
"""The address that means a cluster of our own, on this machine."""
_CONNECT_SECONDS = 5.0
_SHUTDOWN_SECONDS = 20.0
_OWN_STORE = 80 * 10**6
_OWN_TOKEN = secrets.token_hex(32)


@dataclass
class RayConnection:
    """One that its program has made before stays."""

    ours: bool
    folder: str | None = None
    """Where a cluster of our own keeps its files."""

    @classmethod
    def open(cls, address: str | None, workers: int | None) -> RayConnection:
        """Connect; an ``EngineError`` within minutes if that cannot be."""
        with _cluster_settings(address) as found:
            ray = ray_module()
            # Whoever asks something of Ray when a connection is lost would get a new cluster, open to everybody.
            hook: Any = import_module("ray._private.auto_init_hook")
            hook.enable_auto_connect = False
            if ray.is_initialized():
                check_nodes(ray)
                return cls(ours=False)
            made = cls(ours=True)
            made._hush(True)
            try:
                if found != LOCAL:
                    check_answers(found)
                settings = made._settings(found, workers)
                with warnings.catch_warnings(), _own_ending(), cut_after(START_SECONDS):
                    warnings.simplefilter("ignore")  # of Ray, about later versions of Ray
                    start_node(lambda: ray.init(**settings, log_to_driver=False, configure_logging=False))
                    check_nodes(ray)
            except EngineError:
                made.close()
                raise
            except Exception as error:
                made.close()
                what = (
                    "a Ray cluster cannot be started here"
                    if found == LOCAL
                    else f"the Ray cluster at {found} cannot be used"
                )
                raise EngineError(f"{what}: {why_not(error)} [EN013]") from None
            return made

    @property
    def lost(self) -> bool:
        """Whether it has ended by itself."""
        return not ray_module().is_initialized()

    def _settings(self, address: str, workers: int | None) -> dict[str, Any]:
        if address != LOCAL:
            return {"address": address}
        short = "/tmp" if os.path.isdir("/tmp") else None  # noqa: S108 - the paths of its sockets may not be long
        self.folder = tempfile.mkdtemp(prefix="ray-", dir=short)
        return {
            "address": LOCAL,
            "num_cpus": workers or count_cores(),
            "include_dashboard": False,
            "object_store_memory": _OWN_STORE,
            "_node_ip_address": "127.0.0.1",
            "_temp_dir": os.path.join(self.folder, "r"),  # which Ray opens to all; nobody else gets into ours
        }

    def close(self) -> None:
        """End it, and the cluster if it is ours."""
        if self.ours:
            with suppress(Exception), cut_after(_SHUTDOWN_SECONDS):  # a cluster that died first
                ray_module().shutdown()
            self._hush(False)
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)

    @staticmethod
    def _hush(wanted: bool) -> None:
        """Ray prints what befalls its processes and its lines where we print, whatever it is told of logs."""
        inside: Any = import_module("ray._private.worker")
        inside._worker_logs_enabled = not wanted
        for name in ("worker", "dataclient", "logsclient"):
            logging.getLogger(f"ray.util.client.{name}").disabled = wanted


def ray_module() -> Any:
    """Ray, if it is installed."""
    try:
        return import_module("ray")
    except ImportError:
        raise EngineError(
            'engine = "ray" needs Ray, which is not installed here: pip install "colonnade[ray]", '
            'or engine = "processes" for workers on this machine alone [EN014]'
        ) from None


@contextmanager
def _own_ending() -> Iterator[None]:
    """Keep what this process does when it is asked to end: Ray puts its own in place."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread() and before is not None:
            signal.signal(signal.SIGTERM, before)


@contextmanager
def cut_after(seconds: float) -> Iterator[None]:
    """Cut the line to a client server after this time: Ray would wait for its answers for ever."""
    end = threading.Timer(seconds, _cut_connection)
    end.daemon = True
    end.start()
    try:
        yield
    finally:
        end.cancel()


def _cut_connection() -> None:
    client: Any = import_module("ray.util.client").ray.get_context().client_worker
    if client is not None:
        client._in_shutdown = True
        with suppress(Exception):  # it is closed already
            client.channel.close()


@contextmanager
def _cluster_settings(address: str | None) -> Iterator[str]:
    """Which cluster is meant, with Ray's settings for it, before Ray reads them."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")  # as in ``wire``, for what Ray starts here
    found = address or _running_cluster() or LOCAL
    if found == LOCAL:
        # Other users of this machine reach its ports, so even a cluster of our own asks for a token.
        own = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": _OWN_TOKEN, "RAY_USE_TLS": "0"}
        own["RAY_gcs_server_port_wait_time_s"] = str(START_SECONDS)
    else:
        own = {}
        check_guarded(found)
    before = {name: os.environ.get(name) for name in own}
    os.environ.update(own)
    try:
        ray = ray_module()
        # By a network's address if this is set, and then Ray listens on all of them.
        constants: Any = import_module("ray._private.ray_constants")
        over_network = constants.ENABLE_RAY_CLUSTER
        constants.ENABLE_RAY_CLUSTER = over_network and not (found == LOCAL or is_loopback(found))
        if not ray.is_initialized():
            import_module("ray._raylet").Config.initialize("")  # settings as they are now, if Ray was imported before
        try:
            yield found
        finally:
            constants.ENABLE_RAY_CLUSTER = over_network
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _running_cluster() -> str | None:
    """The address of a cluster that this user has started on this machine, if it answers."""
    if (said := os.environ.get("RAY_ADDRESS")) and said != "auto":
        return said
    note = Path(os.environ.get("RAY_TMPDIR", "/tmp")) / "ray" / "ray_current_cluster"  # noqa: S108 - by `ray start`
    try:
        if note.stat().st_uid != os.getuid():
            return None  # of somebody else, who would get our rows
        found = note.read_text(encoding="utf-8").strip()
        host, port = split_address(found)
        socket.create_connection((host, int(port)), _CONNECT_SECONDS).close()
    except (OSError, ValueError):
        return None
    return found


PLACE_SECONDS = 120.0
"""For how long a worker may wait for a free core of the cluster, and for a process there."""
_END_SECONDS = 20.0
_READER_SECONDS = 5.0
_CALLS_AT_ONCE = 4  # commands, one call that waits for words, and one to spare
_CONNECTION_LOST = "the connection to its Ray cluster is lost"
_UNEQUAL = "install the same Colonnade and the same Python on all of them"


class WorkerActor:
    """An actor: a worker, its commands and its words."""

    def __init__(self, birth: bytes) -> None:
        self._said: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._line = WorkerLine(self._said.put, _own_address())
        self._early: dict[int, bytes] = {}
        self._taken, self._taking = 0, threading.Lock()
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for place in (1, 2):  # Ray would keep what is printed in files of its own
            os.dup2(nowhere, place)
        found = pickle.loads(birth)  # noqa: S301 - of our own head
        threading.Thread(target=run_worker, args=(found, self._line), daemon=True).start()

    def tell(self, place: int, command: bytes) -> None:
        """Take a command; calls that are under way together may run in any order."""
        with self._taking:
            self._early[place] = command
            while self._taken in self._early:
                self._line.put(self._early.pop(self._taken))
                self._taken += 1

    def hear(self) -> list[bytes]:
        """What the worker has said, as soon as it says something."""
        found = [self._said.get()]
        with suppress(queue.Empty):
            while True:
                found.append(self._said.get_nowait())
        return found


class _Actor(WorkerHandle):
    def __init__(self, handle: Any) -> None:
        self.handle = handle
        self._sent, self._sending = 0, threading.Lock()

    def send(self, frame: bytes) -> None:
        """Send a command."""
        with self._sending:
            with suppress(Exception):  # that it is gone, or our connection, is said by its reader
                self.handle.tell.remote(self._sent, frame)
            self._sent += 1

    def kill(self) -> None:
        """End it."""
        with suppress(Exception):  # it is gone, or its cluster is
            ray_module().kill(self.handle, no_restart=True)


class RayEngine(Engine[_Actor]):
    """Workers on Ray: at an address, or without one on a cluster of this machine, which is started if there is none.

    There are as many as the cluster has cores, if no number is given.
    """

    def __init__(self, address: str | None = None, memory: int | None = None, patience: float = PLACE_SECONDS) -> None:
        super().__init__(memory)
        self._address, self._patience = address, patience
        self._connection: RayConnection | None = None

    def _open(self, workers: int | None) -> int:
        self._connection = RayConnection.open(self._address, workers)
        return workers or max(1, int(ray_module().cluster_resources().get("CPU", 1)))

    def _make(self, birth: WorkerStart) -> _Actor:
        # One core each, and as much memory as it may have, so that Ray puts no more workers onto a node than fit.
        most = {} if self._memory is None else {"memory": self._memory}
        try:
            seat = (
                ray_module()
                .remote(WorkerActor)
                .options(num_cpus=1, max_restarts=0, max_task_retries=0, max_concurrency=_CALLS_AT_ONCE, **most)
            )
            return _Actor(seat.remote(pickle_value(birth, "a role")))
        except ImportError:  # of a client server, which has to import what it passes on
            raise EngineError(f"no worker can begin on the machines of the Ray cluster: {_UNEQUAL} [EN004]") from None
        except Exception as error:
            why = (
                _CONNECTION_LOST
                if self._connection is None or self._connection.lost
                else f"Ray raised {type(error).__name__}"
            )
            raise EngineError(f"no worker can be started: {why} [EN005]") from None

    def _listen(self, worker: int, actor: _Actor) -> None:
        ray = ray_module()
        patience: float | None = self._patience
        last: WorkerLoss | None = None
        while last is None and self._has(worker, actor):
            try:
                frames = ray.get(actor.handle.hear.remote(), timeout=patience)
            except ray.exceptions.GetTimeoutError:
                last = WorkerLoss(worker, f"the cluster had no room for it within {self._patience:.0f} seconds")
            except Exception as error:  # what Ray says names hosts and paths
                last = _loss_of(worker, error, self._connection)
            else:
                heard = (self._take(worker, actor, frame) for frame in frames)
                last = next((word for word in heard if word is not None), None)
            patience = None
        if last is not None and self._has(worker, actor):  # else its user ended it, and lets go of it
            actor.kill()
            self._lose(worker, actor, last)

    def _end(self, actors: Sequence[_Actor]) -> None:
        with cut_after(_END_SECONDS) if self._stopped else nullcontext():
            for actor in actors:
                actor.kill()
            if self._stopped:
                for actor in actors:
                    if actor.reader is not None:
                        actor.reader.join(_READER_SECONDS)
                connection, self._connection = self._connection, None
                if connection is not None:
                    connection.close()


def _own_address() -> str | None:
    """The address of the node that this actor runs on; none where all nodes are on the loopback interface."""
    found = str(ray_module().util.get_node_ip_address())
    return None if is_loopback(f"{found}:0") else found


def _loss_of(worker: int, error: Exception, connection: RayConnection | None) -> WorkerLoss:
    if connection is not None and connection.lost:
        return WorkerLoss(worker, _CONNECTION_LOST, "raised")
    # A client server that cannot import our classes says so by the error itself.
    if getattr(error, "actor_init_failed", False) or isinstance(error, ImportError):
        why = f"it could not begin on its machine: {_UNEQUAL}"
        return WorkerLoss(worker, why, "raised")
    return WorkerLoss(worker, "its actor or its machine is gone")
