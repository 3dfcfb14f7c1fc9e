"""The one connection of this process to Ray: to a cluster that the party has, or to one that is started for a while."""

from __future__ import annotations

import logging
import os
import secrets
import shutil
import signal
import socket
import sys
import tempfile
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from colonnade.errors import EngineError
from colonnade.study.engine.processes import cores
from colonnade.study.engine.ray_door import (
    check_answers,
    check_guarded,
    check_nodes,
    is_loopback,
    place_of,
    why_not,
)
from colonnade.study.engine.ray_nodes import START_SECONDS, begun

LOCAL = "local"
"""The address that means a cluster of our own, on this machine."""
_CONNECT_SECONDS = 5.0
_END_SECONDS = 20.0
_OWN_STORE = 80 * 10**6
_OWN_TOKEN = secrets.token_hex(32)


@dataclass
class Connection:
    """One that its program has made before stays."""

    ours: bool
    folder: str | None = None
    """Where a cluster of our own keeps its files."""

    @classmethod
    def made(cls, address: str | None, workers: int | None) -> Connection:
        """Connect; an ``EngineError`` within minutes if that cannot be."""
        with _settled(address) as found:
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
                    begun(lambda: ray.init(**settings, log_to_driver=False, configure_logging=False))
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
            "num_cpus": workers or cores(),
            "include_dashboard": False,
            "object_store_memory": _OWN_STORE,
            "_node_ip_address": "127.0.0.1",
            "_temp_dir": os.path.join(self.folder, "r"),  # which Ray opens to all; nobody else gets into ours
        }

    def close(self) -> None:
        """End it, and the cluster if it is ours."""
        if self.ours:
            with suppress(Exception), cut_after(_END_SECONDS):  # a cluster that died first
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
    end = threading.Timer(seconds, _cut)
    end.daemon = True
    end.start()
    try:
        yield
    finally:
        end.cancel()


def _cut() -> None:
    client: Any = import_module("ray.util.client").ray.get_context().client_worker
    if client is not None:
        client._in_shutdown = True
        with suppress(Exception):  # it is closed already
            client.channel.close()


@contextmanager
def _settled(address: str | None) -> Iterator[str]:
    """Which cluster is meant, with Ray's settings for it, before Ray reads them."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")  # as in ``wire``, for what Ray starts here
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


def _running() -> str | None:
    """The address of a cluster that this user has started on this machine, if it answers."""
    if (said := os.environ.get("RAY_ADDRESS")) and said != "auto":
        return said
    note = Path(os.environ.get("RAY_TMPDIR", "/tmp")) / "ray" / "ray_current_cluster"  # noqa: S108 - by `ray start`
    try:
        if sys.platform == "win32" or note.stat().st_uid != os.getuid():
            return None  # of somebody else, who would get our rows
        found = note.read_text(encoding="utf-8").strip()
        host, port = place_of(found)
        socket.create_connection((host, int(port)), _CONNECT_SECONDS).close()
    except (OSError, ValueError):
        return None
    return found
