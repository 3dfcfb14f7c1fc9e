"""The fork server: a process with one thread that has imported what participants need, and becomes one on request.

A request names a command, and brings descriptors: standard input, output, a pipe for the exit status, and one that the
process only holds. Another names a study file, which is public: it is planned once, and all later processes have it.
Nothing else is kept from one request to the next. No key, table, ledger or connection is ever opened here, so a forked
process inherits none of another participant.

``colonnade run`` and ``colonnade demo`` have imported most of it themselves, so their server is a copy of them, made
before they look at anything that belongs to a participant (``copied``).
"""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import socket
import sys
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from colonnade.cli.process import BeginAgain, began
from colonnade.models import registry
from colonnade.study.forks import ENDING, LONGEST_REQUEST, MOST_DESCRIPTORS, Forks, environment, limit, threads

if TYPE_CHECKING:
    from colonnade.study import Study

_LIBRARIES = (
    *("grpc.aio", "flint", "nacl.bindings"),
    *("scipy.special", "pyarrow.csv", "cryptography.x509", "encodings.idna"),
)
_PARTICIPANT = (
    *("cli.approve", "cli.publish", "cli.show", "study.alignment.store", "study.run"),
    *("wire.certificates", "wire.hub_carrier", "privacy.noise.laws", "privacy.noise.strips"),
)
"""What every participant imports; any other module is imported by whoever needs it."""


def copied(study: Study | None = None, kinds: Iterable[str] = ()) -> Forks:
    """A fork server that is a copy of this process, which has looked at public files only; with a study, if loaded.

    A participant that is forked from it unwinds the command that runs here, and begins again in ``cli.main``. In a
    program that did not begin there, such as a test, the server is started anew. What studies of these ``kinds``
    import is imported before, for a command that needs it as much as its participants.
    """
    if not began():
        return Forks()
    if study is not None:
        study.hand_on()
    if kinds:
        prepare(kinds)
    return Forks.of_this_process(partial(_serve_as_copy, study))


def _serve_as_copy(study: Study | None, control: socket.socket) -> NoReturn:
    usual = deaf()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
    try:
        os.environ.update(environment())
        prepare(() if study is None else (study.content.task.kind,))
        if study is not None:
            _prepare_noise(study)
        serve(control)
    except BaseException:  # the command that was copied must not go on here
        os._exit(1)
    hearing(usual)
    raise BeginAgain


def deaf() -> dict[int, Any]:
    """Leave to whoever started us what a terminal says; they end us by closing the socket."""
    usual = {number: signal.getsignal(number) for number in ENDING}
    for number in ENDING:
        signal.signal(number, signal.SIG_DFL if number == signal.SIGTERM else signal.SIG_IGN)
    return usual


def hearing(usual: dict[int, Any]) -> None:
    """Hear again what a terminal says, as usual."""
    for number, handler in usual.items():
        signal.signal(number, handler)


def prepare(kinds: Iterable[str] = ()) -> None:
    """Import what every participant does, and those in studies of these kinds.

    It is left out of garbage collections, which would copy its pages. Rules that participants compare are worked out
    here too: they are about fixed values, and the same for all.
    """
    gc.disable()
    for name in _LIBRARIES:
        with suppress(ImportError, OSError):  # whoever needs it says why it cannot be imported
            import_module(name)
    for name in _PARTICIPANT:
        import_module(f"colonnade.{name}")
    for kind in kinds:
        registry.load(kind)
        registry.section_of(kind)
    import_module("colonnade.cli.lean").without_pandas()
    import_module("colonnade.protocols.rules").work_out()
    gc.freeze()
    gc.enable()


def serve(control: socket.socket) -> None:
    """Fork on request until the other end is closed; returns in forked processes only."""
    running: dict[int, tuple[int, int]] = {}  # by the handle: the process, and where to tell its exit status
    watch = select.poll()
    watch.register(control, select.POLLIN)
    while True:
        for ready, event in watch.poll():
            if ready != control.fileno():
                watch.unregister(ready)
                _tell_end(ready, *running.pop(ready))
                continue
            if event & select.POLLHUP:
                os._exit(0)  # what was asked before is wanted by nobody
            message, given, *_ = socket.recv_fds(control, LONGEST_REQUEST, MOST_DESCRIPTORS)
            if not message:
                os._exit(0)
            request = json.loads(message)
            if "study" in request:
                _plan(Path(request["study"]))
                continue
            try:
                pid = _forked()
            except OSError:
                pid = None
            if pid == 0:
                for descriptor in (control.detach(), given[2], *running, *(told for _, told in running.values())):
                    os.close(descriptor)
                _become(request, given[0], given[1])
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


def _plan(study: Path) -> None:
    """Load a study for all later processes; one that cannot be loaded is left to them, who say why."""
    from colonnade.study import Study

    with suppress(Exception):
        loaded = Study.load(study)
        loaded.hand_on()
        registry.section_of(loaded.content.task.kind)
        _prepare_noise(loaded)


def _prepare_noise(study: Study) -> None:
    """Make the tables of a study's noise, which are public, for all later processes."""
    with suppress(Exception):  # a study that cannot be run is left to them, who say why
        study.task.prepare()
    gc.freeze()


def _forked() -> int:
    if threads() > 1:
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
    for stream in filter(None, (sys.stdout, sys.stderr)):
        stream.reconfigure(line_buffering=True)
    os.chdir(request["folder"])
    for kind, most in request["limits"]:
        limit(kind, most)
    np.random.seed()  # noqa: NPY002 - numpy's own generator, which libraries may use, is copied by a fork
    sys.argv = ["colonnade", *request["command"]]
