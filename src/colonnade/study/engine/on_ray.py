"""Workers as actors of a Ray cluster that the party has anyway, or of one that is started here for a while.

Ray repeats nothing (``max_restarts=0``, ``max_task_retries=0``) and carries bytes that we have pickled ourselves, so
that what refuses to be pickled is refused here too. An actor runs its role in a thread; the head asks each actor for
what it says by a call that waits there (*hear*), so its answer comes at once, and so does the news of its death.

A cluster is trusted with the party's rows, and whoever may talk to it can run programs there. So over a network it must
ask for a token and speak TLS (``check_guarded``); without them, every node must be this machine's loopback interface.
"""

from __future__ import annotations

import ipaddress
import os
import pickle
import queue
import secrets
import shutil
import socket
import sys
import tempfile
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from colonnade.errors import EngineError
from colonnade.study.engine.contract import Engine, Gone, pickled
from colonnade.study.engine.processes import cores
from colonnade.study.engine.ray_nodes import START_SECONDS, begun
from colonnade.study.engine.worker import Birth, QueuedLine, event, live

LOCAL = "local"
"""The address that means a cluster of our own, on this machine."""
PLACE_SECONDS = 120.0
"""For how long a worker may wait for a free core of the cluster, and for a process there."""
_CONNECT_SECONDS = 5.0
_CALLS_AT_ONCE = 4  # commands, one call that waits for words, and one to spare
_OWN_STORE = 80 * 10**6
_OWN_TOKEN = secrets.token_hex(32)
_CERTIFICATES = ("RAY_TLS_SERVER_CERT", "RAY_TLS_SERVER_KEY", "RAY_TLS_CA_CERT")
_YES = ("1", "true")


class Seat:
    """An actor: a worker, its commands and its words."""

    def __init__(self, birth: bytes) -> None:
        self._said: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._line = QueuedLine(self._said.put, _own_address())
        self._early: dict[int, bytes] = {}
        self._taken, self._taking = 0, threading.Lock()
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for place in (1, 2):  # Ray would keep what is printed in files of its own
            os.dup2(nowhere, place)
        found = pickle.loads(birth)  # noqa: S301 - of our own head
        threading.Thread(target=live, args=(found, self._line), daemon=True).start()

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


@dataclass
class _Actor:
    handle: Any
    reader: threading.Thread | None = None
    sent: int = 0


class OnRay(Engine):
    """Workers on Ray: at an address, or without one on a cluster of this machine, which is started if there is none."""

    def __init__(self, address: str | None = None, memory: int | None = None, patience: float = PLACE_SECONDS) -> None:
        super().__init__()
        self._address, self._memory, self._patience = address, memory, patience
        self._lock = threading.Lock()
        self._actors: dict[int, _Actor] = {}
        self._birth: bytes | None = None
        self._next = 0
        self._connection: _Connection | None = None
        self._stopped = False

    def start(self, role: str, arguments: Sequence[Any] = (), workers: int | None = None) -> list[int]:
        """Connect, and start workers; as many as the cluster has cores, if no number is given."""
        if self._birth is not None:
            raise EngineError("an engine is started once")
        birth = pickled(Birth.of(role, tuple(arguments), self._memory), "a role")
        self._connection = _Connection.made(self._address, workers)
        self._birth = birth
        try:
            count = workers or max(1, int(_ray().cluster_resources().get("CPU", 1)))
            return [self._begin(birth) for _ in range(count)]
        except BaseException:
            self.stop()
            raise

    def send(self, worker: int, command: Any) -> None:
        """Send a command."""
        frame = pickled(command, "a command")
        with self._lock:  # nothing is called after the connection has ended: Ray would make another
            if (actor := self._actors.get(worker)) is not None:
                with suppress(_ray().exceptions.RayError):  # that it is gone is said by its reader
                    actor.handle.tell.remote(actor.sent, frame)
                actor.sent += 1

    def replace(self, worker: int) -> int:
        """End a worker, and start another."""
        if self._birth is None:
            raise EngineError("an engine without workers has none to replace")
        with self._lock:
            actor = self._actors.pop(worker, None)
        if actor is not None:
            _kill(actor)
        return self._begin(self._birth)

    def stop(self) -> None:
        """End all workers, and the cluster if it is ours."""
        with self._lock:
            self._stopped = True
            actors = list(self._actors.values())
            self._actors.clear()
        for actor in actors:
            _kill(actor)
        for actor in actors:
            if actor.reader is not None:
                actor.reader.join(_CONNECT_SECONDS)
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _begin(self, birth: bytes) -> int:
        # One core each, and as much memory as it may have, so that Ray puts no more workers onto a node than fit.
        most = {} if self._memory is None else {"memory": self._memory}
        seat = (
            _ray()
            .remote(Seat)
            .options(num_cpus=1, max_restarts=0, max_task_retries=0, max_concurrency=_CALLS_AT_ONCE, **most)
        )
        with self._lock:
            if self._stopped:
                raise EngineError("an engine that was stopped starts no worker")
            actor = _Actor(seat.remote(birth))
            worker, self._next = self._next, self._next + 1
            self._actors[worker] = actor
            actor.reader = threading.Thread(target=self._listen, args=(worker, actor), daemon=True)
            actor.reader.start()
        return worker

    def _listen(self, worker: int, actor: _Actor) -> None:
        """Put what a worker says into the queue, until it is gone."""
        ray = _ray()
        patience: float | None = self._patience
        last: Gone | None = None
        while last is None and self._has(worker, actor):
            try:
                frames = ray.get(actor.handle.hear.remote(), timeout=patience)
            except ray.exceptions.GetTimeoutError:
                last = Gone(worker, f"the cluster had no room for it within {self._patience:.0f} seconds")
            except (
                Exception
            ) as error:  # what Ray says names hosts and paths, and a client whose line is cut has its own
                last = _lost(worker, error)
            else:
                last = self._told(worker, actor, frames)
            patience = None
        if last is None or not self._has(worker, actor):
            return  # its user ended it, and lets go of it
        _kill(actor)
        with self._lock:  # so that its user, who may end it meanwhile, hears nothing of it afterwards
            if self._actors.get(worker) is actor:
                del self._actors[worker]
                self.events.put(last)

    def _has(self, worker: int, actor: _Actor) -> bool:
        with self._lock:
            return self._actors.get(worker) is actor

    def _told(self, worker: int, actor: _Actor, frames: list[bytes]) -> Gone | None:
        for frame in frames:
            heard = event(worker, frame)
            if isinstance(heard, Gone):
                return heard
            with self._lock:
                if heard is not None and self._actors.get(worker) is actor:
                    self.events.put(heard)
        return None


@dataclass
class _Connection:
    """The one connection of this process to Ray; one that its program has made before stays."""

    ours: bool
    folder: str | None = None
    """Where a cluster of our own keeps its files."""

    @classmethod
    def made(cls, address: str | None, workers: int | None) -> _Connection:
        with _settled(address) as found:
            ray = _ray()
            if ray.is_initialized():
                _check_nodes(ray)
                return cls(ours=False)
            made = cls(ours=True)
            made._hush(True)
            try:
                settings = made._settings(found, workers)
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # of Ray, about later versions of Ray
                    begun(lambda: ray.init(**settings, log_to_driver=False, configure_logging=False))
                _check_nodes(ray)
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
                raise EngineError(f"{what} ({type(error).__name__}); `ray status` may say more") from None
            return made

    def _settings(self, address: str, workers: int | None) -> dict[str, Any]:
        if address != LOCAL:
            return {"address": address}
        short = "/tmp" if os.path.isdir("/tmp") else None  # noqa: S108 - the paths of its sockets may not be long
        self.folder = tempfile.mkdtemp(prefix="ray-", dir=short)
        return {
            "address": LOCAL,
            "num_cpus": workers or cores(),
            "include_dashboard": False,
            "object_store_memory": _OWN_STORE,
            "_node_ip_address": "127.0.0.1",
            "_temp_dir": os.path.join(self.folder, "r"),  # which Ray opens to all; nobody else gets into ours
        }

    def close(self) -> None:
        if self.ours:
            with suppress(Exception):  # a cluster that died first
                _ray().shutdown()
            self._hush(False)
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)

    @staticmethod
    def _hush(wanted: bool) -> None:
        """Ray prints what befalls its processes onto our standard output, whatever it is told of logs."""
        inside: Any = import_module("ray._private.worker")
        inside._worker_logs_enabled = not wanted


def check_guarded(address: str, environment: Mapping[str, str] | None = None) -> None:
    """Raise an error unless an address is of this machine's loopback interface, or reached with a token and by TLS."""
    said = os.environ if environment is None else environment
    if is_loopback(address) or not (missing := _missing(said)):
        return
    raise EngineError(
        f"the Ray cluster at {address} is reached over a network, so it must ask for a token and speak TLS: "
        f"set {', '.join(missing)} here and on every node, as Ray's own pages on security say"
    )


def is_loopback(address: str) -> bool:
    """Whether ``host:port`` or ``ray://host:port`` names this machine by its loopback interface."""
    host = address.removeprefix("ray://").rpartition(":")[0].strip("[]")
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _missing(said: Mapping[str, str]) -> list[str]:
    """What is not set of a token and TLS."""
    found = [] if said.get("RAY_AUTH_MODE", "").lower() == "token" else ["RAY_AUTH_MODE=token"]
    kept = Path(said.get("RAY_AUTH_TOKEN_PATH") or Path(said.get("HOME", "/")) / ".ray" / "auth_token")
    if not said.get("RAY_AUTH_TOKEN") and not kept.is_file():
        found.append("RAY_AUTH_TOKEN_PATH (a file with the token)")
    if said.get("RAY_USE_TLS", "").lower() not in _YES:
        found.append("RAY_USE_TLS=1")
    return found + [f"{name} (a file)" for name in _CERTIFICATES if not os.path.isfile(said.get(name, ""))]


def _check_nodes(ray: Any) -> None:
    """An address of loopback may be a tunnel: what counts is where the nodes are."""
    for node in ray.nodes():
        if node.get("Alive", True):
            check_guarded(f"{node['NodeManagerAddress']}:{node['NodeManagerPort']}")


def _ray() -> Any:
    try:
        return import_module("ray")
    except ImportError:
        raise EngineError(
            'engine = "ray" needs Ray, which is not installed here: pip install "colonnade[ray]", '
            'or engine = "processes" for workers on this machine alone'
        ) from None


@contextmanager
def _settled(address: str | None) -> Iterator[str]:
    """Which cluster is meant, with Ray's settings for it, before Ray reads them."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    found = address or _running() or LOCAL
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
        ray = _ray()
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


def _own_address() -> str | None:
    """The address of the node that this actor runs on; none where all nodes are on the loopback interface."""
    found = str(_ray().util.get_node_ip_address())
    return None if is_loopback(f"{found}:0") else found


def _running() -> str | None:
    """The address of a cluster that this user has started on this machine, if it answers."""
    if said := os.environ.get("RAY_ADDRESS"):
        return said
    note = Path(os.environ.get("RAY_TMPDIR", "/tmp")) / "ray" / "ray_current_cluster"  # noqa: S108 - by `ray start`
    try:
        if sys.platform == "win32" or note.stat().st_uid != os.getuid():
            return None  # of somebody else, who would get our rows
        found = note.read_text(encoding="utf-8").strip()
        host, _, port = found.rpartition(":")
        socket.create_connection((host.strip("[]"), int(port)), _CONNECT_SECONDS).close()
    except (OSError, ValueError):
        return None
    return found


def _lost(worker: int, error: Exception) -> Gone:
    if getattr(error, "actor_init_failed", False):
        why = "it could not begin on its machine: install the same Colonnade and the same Python on all of them"
        return Gone(worker, why, "raised")
    return Gone(worker, "its actor or its machine is gone")


def _kill(actor: _Actor) -> None:
    with suppress(Exception):  # it is gone, or its cluster is
        _ray().kill(actor.handle, no_restart=True)
