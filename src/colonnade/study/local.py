"""The same study on one machine: every participant in a process of its own, over TLS on loopback."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from colonnade import errors
from colonnade.errors import ColonnadeError, ConnectError, Interrupted, PeerLost, PeerStopped, StudyError
from colonnade.protocols.roles import COORDINATOR, Progress, silent
from colonnade.protocols.session import spare
from colonnade.study.policy import ByDigest, PartyConfig
from colonnade.study.spec import Study

_GRACE_SECONDS = 10.0
_LOOK_SECONDS = 0.1


@dataclass
class Child:
    """One participant's process, and the last word it said about itself."""

    name: str
    process: subprocess.Popen[str]
    error: dict[str, Any] | None = None
    log: list[str] = field(default_factory=list)


def run_local(
    study: Study,
    out: Path,
    *,
    progress: Progress = silent,
    ready: Callable[[], None] | None = None,
    approve: str | None = None,
) -> dict[str, Path]:
    """Run a study with local processes; the run directories of all participants, or the first cause of failure.

    The coordinator's key lies at ``coordinator/coordinator.key`` beside the study file and each party's
    configuration at ``NAME/party.toml``. The coordinator's run directory is ``out``, the parties' lie in it.
    ``approve`` is the digest of this study, for the parties whose policy says to ask; it is passed on to them.
    """
    commands = local_commands(study.runnable(), out, approve)
    children = {name: _start(name, command) for name, command in commands.items()}
    if ready:
        ready()
    readers = [
        threading.Thread(target=_listen, args=(child, progress if child.name == COORDINATOR else silent), daemon=True)
        for child in children.values()
    ]
    for reader in readers:
        reader.start()
    try:
        _wait(study, children)
    finally:
        for child in children.values():
            if child.process.poll() is None:
                child.process.terminate()
        for child, reader in zip(children.values(), readers, strict=True):
            try:
                child.process.wait(timeout=_GRACE_SECONDS)
            except subprocess.TimeoutExpired:
                child.process.kill()
                child.process.wait()
            reader.join(timeout=_GRACE_SECONDS)
            if child.process.stdout:
                child.process.stdout.close()
    lost = _went_on_without(out) if children[COORDINATOR].process.returncode == 0 else []
    if cause := first_cause({name: child for name, child in children.items() if name not in lost}):
        raise cause
    return {name: folder_of(out, name) for name in commands}


def folder_of(out: Path, name: str) -> Path:
    """Where a participant's run directory lies."""
    return out if name == COORDINATOR else out / "parties" / name


def local_configs(study: Study) -> dict[str, PartyConfig]:
    """Every party's configuration, where a trial on one machine keeps it."""
    found = {}
    for name in study.content.parties:
        path = study.folder / name / "party.toml"
        found[name] = PartyConfig.load(path)
        if found[name].name != name:
            raise StudyError(f"{path} is the configuration of another party than {name}")
    return found


def local_commands(study: Study, out: Path, approve: str | None = None) -> dict[str, list[str]]:
    """The command line of every participant, as one would type it."""
    python = [sys.executable, "-m", "colonnade"]
    key = study.folder / "coordinator" / "coordinator.key"
    tail = ["--pipe", "--out"]
    commands = {COORDINATOR: [*python, "coordinator", str(study.path), "--key", str(key), *tail, str(out)]}
    for name, config in local_configs(study).items():
        config.approved(study, study.statement, None if approve is None else ByDigest(approve))  # or nobody starts
        commands[name] = [*python, "party", str(study.path), str(config.path), *tail, str(folder_of(out, name))]
        commands[name] += [] if approve is None else ["--approve", approve]
    return commands


def first_cause(children: Mapping[str, Child]) -> ColonnadeError | None:
    """The error that the others only heard of, if any participant failed."""
    failed = [child for child in children.values() if child.process.returncode != 0]
    if not failed:
        return None
    # Whoever was still waiting for the coordinator when it ended was interrupted by us.
    echoes = (PeerStopped.__name__, PeerLost.__name__, Interrupted.__name__)
    causes = [child for child in failed if child.error and child.error["error"] not in echoes]
    # Who came too late found nobody there; that is a cause only if there is no other.
    late = [child for child in causes if child.error and child.error["error"] == ConnectError.__name__]
    first = [child for child in causes if child not in late]
    child = next(iter([*first, *(c for c in failed if not c.error), *late, *failed]))
    if child.error is None:
        how = child.process.returncode
        last = f"; its last words: {child.log[-1]}" if child.log else ""
        return PeerLost(f"{child.name} ended without a word (exit status {how}){last}")
    kind = getattr(errors, str(child.error["error"]), ColonnadeError)
    return kind(f"{child.name}: {child.error['message']}")


def _went_on_without(out: Path) -> list[str]:
    """Whom the study did not need to the end, as the coordinator wrote down."""
    return list(json.loads((out / "run.json").read_text(encoding="utf-8")).get("lost", []))


def _start(name: str, command: list[str]) -> Child:
    one_thread = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(  # noqa: S603 - our own interpreter, with paths we were given
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=os.environ | one_thread
    )
    return Child(name, process)


def _listen(child: Child, progress: Progress) -> None:
    """Read what a participant pipes: a JSON object a line, and anything else as its log."""
    for line in child.process.stdout or ():
        try:
            said = json.loads(line)
        except ValueError:
            child.log.append(line.rstrip()[:500])
            continue
        if isinstance(said, dict) and "progress" in said:
            progress(said["progress"], said["done"], said["total"])
        elif isinstance(said, dict) and "error" in said:
            child.error = said


def _wait(study: Study, children: Mapping[str, Child]) -> None:
    """Until all have ended; once one has failed, the others get the time the study gives them."""
    pending, until = dict(children), math.inf
    while pending and time.monotonic() < until:
        for name, child in list(pending.items()):
            with suppress(subprocess.TimeoutExpired):
                child.process.wait(timeout=_LOOK_SECONDS)
                del pending[name]
        until = min(until, time.monotonic() + _patience(study, children))


def _patience(study: Study, children: Mapping[str, Child]) -> float:
    """How long those who are still there are waited for, once somebody has failed."""
    if children[COORDINATOR].process.returncode not in (None, 0):
        return _GRACE_SECONDS / 2  # without the coordinator nobody can go on; those who were there know why
    failed = [child for child in children.values() if child.process.returncode not in (None, 0)]
    # A spare one that ended without a word may be outlived; if not, the others will say so.
    if any(child.error or child.name not in spare(study.task) for child in failed):
        return study.content.limits.reconnect + _GRACE_SECONDS
    return math.inf
