"""The fork server: a process with one thread that has imported what participants need, and becomes one on request.

A request names a command, and brings descriptors: standard input, output, a pipe for the exit status, and one that the
process only holds. Nothing is kept from one request to the next. No key, table or connection is ever opened here, so a
forked process inherits none of another participant.
"""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import socket
import sys
from contextlib import suppress
from importlib import import_module
from typing import Any

from colonnade.cli import main as command
from colonnade.study.forks import LONGEST_REQUEST, MOST_DESCRIPTORS, limit

_LIBRARIES = ("grpc.aio", "flint", "scipy.special", "pyarrow.csv", "cryptography.x509")
_AHEAD = (
    *("cli.app", "cli.approve", "cli.publish", "cli.show", "standing.assess", "study.alignment.store", "study.run"),
    *("models.pca", "models.regression.linear", "models.regression.logistic", "models.glm.model"),
    *("report.components", "report.regression", "report.exchange", "wire.certificates", "wire.hub_carrier"),
    *("privacy.noise.laws", "privacy.noise.strips"),
)
"""What most participants import; any other module is imported by whoever needs it."""


def main() -> None:
    """Import, then fork whenever that is asked; a forked process returns here, and runs its command as if started."""
    control = socket.socket(fileno=int(sys.argv[1]))
    control.set_inheritable(False)
    usual = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGHUP)}
    for number in usual:
        signal.signal(number, signal.SIG_IGN)  # whoever started us ends us, by closing the socket
    prepare()
    serve(control)
    for number, handler in usual.items():
        signal.signal(number, handler)
    command()


def prepare() -> None:
    """Import what every participant does, and leave it out of garbage collections, which would copy its pages."""
    from colonnade.cli.lean import without_pandas

    for name in _LIBRARIES:
        import_module(name)
    for name in _AHEAD:
        import_module(f"colonnade.{name}")
    import_module("colonnade.cli.app").built()
    without_pandas()
    gc.collect()
    gc.freeze()


def serve(control: socket.socket) -> None:
    """Fork on request until the other end is closed; returns in forked processes only."""
    running: dict[int, tuple[int, int]] = {}  # by the handle: the process, and where to tell its exit status
    watch = select.poll()
    watch.register(control, select.POLLIN)
    while True:
        for ready, _ in watch.poll():
            if ready != control.fileno():
                watch.unregister(ready)
                _tell_end(ready, *running.pop(ready))
                continue
            message, given, *_ = socket.recv_fds(control, LONGEST_REQUEST, MOST_DESCRIPTORS)
            if not message:
                sys.exit()
            try:
                pid = _forked()
            except OSError:
                pid = None
            if pid == 0:
                for descriptor in (control.detach(), given[2], *running, *(told for _, told in running.values())):
                    os.close(descriptor)
                _become(json.loads(message), given[0], given[1])
                return
            handles = []
            if pid is not None:
                handles = [os.pidfd_open(pid)]
                running[handles[0]] = pid, os.dup(given[2])
                watch.register(handles[0], select.POLLIN)
            for descriptor in given:
                os.close(descriptor)
            with suppress(OSError):  # nobody is there to be told
                socket.send_fds(control, [b"%d" % (pid or 0)], handles)


def _forked() -> int:
    if len(os.listdir("/proc/self/task")) > 1:
        raise OSError("a process with several threads is not forked: a lock of another thread would stay closed")
    return os.fork()


def _tell_end(handle: int, pid: int, told: int) -> None:
    _, status = os.waitpid(pid, 0)
    with suppress(OSError):
        os.write(told, b"%d" % os.waitstatus_to_exitcode(status))
    os.close(told)
    os.close(handle)


def _become(request: dict[str, Any], stdin: int, output: int) -> None:
    """Make of a forked process what a new one would be."""
    import numpy as np

    if request["own_session"]:
        os.setsid()
    for place, source in enumerate((stdin, output, output)):
        os.dup2(source, place)
    for descriptor in {stdin, output}:
        os.close(descriptor)
    os.chdir(request["folder"])
    for kind, most in request["limits"]:
        limit(kind, most)
    np.random.seed()  # noqa: NPY002 - numpy's own generator, which libraries may use, is copied by a fork
    sys.argv = ["colonnade", *request["command"]]


if __name__ == "__main__":
    main()
