"""A study on one machine: each participant in its own process, connected by TLS on loopback."""

from __future__ import annotations

import json
import math
import os
import subprocess
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from colonnade import errors
from colonnade.errors import ColonnadeError, ConnectError, Interrupted, PeerLost, PeerStopped, StudyError
from colonnade.protocols.roles import COORDINATOR, Progress, silent
from colonnade.protocols.session import spare_owners
from colonnade.study.engine.base import count_cores
from colonnade.study.fork_server import ForkServer, ProcessHandle, ProcessRequest
from colonnade.study.party_config import DigestApproval, PartyConfig
from colonnade.study.record import read_facts
from colonnade.study.spec import Study

_GRACE_SECONDS = 10.0
_LOOK_SECONDS = 0.1


@dataclass
class LocalParticipant:
    """One participant's process, the error that it reported, and its log."""

    name: str
    process: ProcessHandle
    output: TextIO
    error: dict[str, Any] | None = None
    log: list[str] = field(default_factory=list)


def run_local(
    study: Study,
    out: Path,
    *,
    progress: Progress = silent,
    approve: str | None = None,
    again: bool = False,
    forks: ForkServer | None = None,
) -> dict[str, Path]:
    """Run a study with local processes; returns all run directories, or raises the error that caused the others.

    The coordinator's key lies at ``coordinator/coordinator.key`` beside the study file and each party's
    configuration at ``NAME/party.toml``. The coordinator's run directory is ``out``, the parties' lie in it.
    ``approve`` is the digest of this study, for the parties whose policy says to ask; it is passed on to them, and so
    is ``again``, for those that took part in it before. ``forks`` starts the processes, which then need not import.
    """
    commands = local_commands(study.runnable(), out, approve, again)
    own = forks or ForkServer()
    children: dict[str, LocalParticipant] = {}
    readers: list[threading.Thread] = []
    try:
        for name, command in commands.items():
            children[name] = _start(name, command, own)
        for child in children.values():
            heard = progress if child.name == COORDINATOR else silent
            readers.append(threading.Thread(target=_read_output, args=(child, heard), daemon=True))
            readers[-1].start()
        _wait(study, children)
    finally:
        for child in children.values():  # also where not all of them were started yet
            if child.process.poll() is None:
                child.process.terminate()
        for child in children.values():
            _end(child)
        for reader in readers:
            reader.join(timeout=_GRACE_SECONDS)
        own.close()
    lost = read_facts(out).get("lost", []) if children[COORDINATOR].process.returncode == 0 else []
    if cause := first_cause({name: child for name, child in children.items() if name not in lost}):
        raise cause
    return {name: folder_of(out, name) for name in children}


def _end(child: LocalParticipant) -> None:
    """Wait until a participant has ended, and not for ever."""
    try:
        child.process.wait(timeout=_GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        child.process.kill()
        child.process.wait()


def folder_of(out: Path, name: str) -> Path:
    """Where a participant's run directory lies."""
    return out if name == COORDINATOR else out / "parties" / name


def local_configs(study: Study) -> dict[str, PartyConfig]:
    """The configuration of each party, from its folder beside the study file."""
    found = {}
    for name in study.content.parties:
        path = study.folder / name / "party.toml"
        if not path.exists():
            raise StudyError(
                f"there is no configuration of {name} at {path}: for a trial on one machine `colonnade init trial "
                f"{study.path}` makes what is missing [ST562]"
            )
        found[name] = PartyConfig.load(path)
        if found[name].name != name:
            raise StudyError(f"{path} is the configuration of another party than {name} [ST563]")
    return found


def local_commands(study: Study, out: Path, approve: str | None = None, again: bool = False) -> dict[str, list[str]]:
    """The command of each participant, with its arguments."""
    key = study.folder / "coordinator" / "coordinator.key"
    tail = ["--pipe", "--out"]
    commands = {COORDINATOR: ["coordinator", str(study.path), "--key", str(key), *tail, str(out)]}
    configs = local_configs(study)
    for name, config in configs.items():
        # A study that is not approved leads to an error here, before any process starts.
        config.approve(study, study.statement, None if approve is None else DigestApproval(approve))
        commands[name] = ["party", str(study.path), str(config.path), *tail, str(folder_of(out, name))]
        commands[name] += [] if approve is None else ["--approve", approve]
        commands[name] += ["--again"] if again else []
    if study.content.lanes is not None:
        for name, count in _workers(configs).items():
            commands[name] += ["--workers", str(count)]
    return commands


def _workers(configs: Mapping[str, PartyConfig]) -> dict[str, int]:
    """How many workers each participant has on this machine: as its file says, or its part of the cores.

    A lane needs one of everybody, so the coordinator has as many as anyone.
    """
    usual = max(1, round(count_cores() / (1 + len(configs))))
    found = {name: config.content.compute.workers or usual for name, config in configs.items()}
    return found | {COORDINATOR: max(found.values())}


def first_cause(children: Mapping[str, LocalParticipant]) -> ColonnadeError | None:
    """The error that caused the failure of the others; ``None`` if no participant failed."""
    failed = [child for child in children.values() if child.process.returncode != 0]
    if not failed:
        return None
    # Participants that still waited for the coordinator when it ended were interrupted by this process.
    echoes = (PeerStopped.__name__, PeerLost.__name__, Interrupted.__name__)
    causes = [child for child in failed if child.error and child.error["error"] not in echoes]
    # A participant that came too late could not connect; that is the cause only if there is no other error.
    late = [child for child in causes if child.error and child.error["error"] == ConnectError.__name__]
    first = [child for child in causes if child not in late]
    child = next(iter([*first, *(c for c in failed if not c.error), *late, *failed]))
    if child.error is None:
        how = child.process.returncode
        last = f"; its last words: {child.log[-1]}" if child.log else ""
        return PeerLost(f"{child.name} ended without a word (exit status {how}){last} [PE009]")
    kind = getattr(errors, str(child.error["error"]), ColonnadeError)
    return kind(f"{child.name}: {child.error['message']}")


def _start(name: str, command: list[str], forks: ForkServer) -> LocalParticipant:
    reading, writing = os.pipe()
    nowhere = os.open(os.devnull, os.O_RDONLY)
    try:
        process = forks.start(ProcessRequest(command, nowhere, writing))
    except BaseException:
        os.close(reading)
        raise
    finally:
        os.close(writing)
        os.close(nowhere)
    return LocalParticipant(name, process, open(reading, encoding="utf-8", errors="replace"))


def _read_output(child: LocalParticipant, progress: Progress) -> None:
    """Read a participant's output to its end: JSON objects, one on each line; all other lines are its log."""
    with child.output:
        for line in child.output:
            try:
                said = json.loads(line)
            except ValueError:
                child.log.append(line.rstrip()[:500])
                continue
            if isinstance(said, dict) and "progress" in said:
                progress(said["progress"], said["done"], said["total"])
            elif isinstance(said, dict) and "error" in said:
                child.error = said


def _wait(study: Study, children: Mapping[str, LocalParticipant]) -> None:
    """Wait until all have ended; after a failure, only for the time that the study allows."""
    pending, until = dict(children), math.inf
    while pending and time.monotonic() < until:
        for name, child in list(pending.items()):
            with suppress(subprocess.TimeoutExpired):
                child.process.wait(timeout=_LOOK_SECONDS)
                del pending[name]
        until = min(until, time.monotonic() + _patience(study, children))


def _patience(study: Study, children: Mapping[str, LocalParticipant]) -> float:
    """How many seconds to wait for the participants that still run, after one has failed."""
    if children[COORDINATOR].process.returncode not in (None, 0):
        return _GRACE_SECONDS / 2  # without the coordinator nobody can go on
    failed = [child for child in children.values() if child.process.returncode not in (None, 0)]
    # The study may go on without a spare party that ended silently; if it cannot, the others will report it.
    if any(child.error or child.name not in spare_owners(study.task) for child in failed):
        return study.content.limits.reconnect + _GRACE_SECONDS
    return math.inf
