"""``[limits]``: every key reaches what it limits, and studies that name none stay the studies they were."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from colonnade.errors import StudyError
from colonnade.study import Study
from colonnade.study.limits import LimitsPart
from colonnade.wire import Hub, Identity, dial
from colonnade.wire.channel import Channel
from colonnade.wire.counters import Counters
from colonnade.wire.packet import MAX_PACKET, Kind, Packet
from colonnade.wire.stream import Inbox, Outbox
from colonnade.wire.values import MAX_FRAME
from colonnade.wire.watch import Limits
from tests.support.studies import study_text

NEW = ("attempt", "handshake", "heartbeat", "stall", "excuse", "closing", "window", "backlog")
SCHEMA = '[columns.{0}]\ntype = "number"\nlow = 0\nhigh = 1\n'


def study(folder: Path, limits: str = "") -> Study:
    for name in "ab":
        (folder / f"{name}.toml").write_text(SCHEMA.format(f"{name}x"))
    (folder / "STUDY.toml").write_text(study_text() + (f"[limits]\n{limits}\n" if limits else ""))
    return Study.load(folder / "STUDY.toml")


def test_the_digest_is_that_of_a_study_that_names_no_limits(tmp_path: Path) -> None:
    digest = study(tmp_path).digest
    named = "\n".join(f"{key} = {LimitsPart.model_fields[key].default}" for key in LimitsPart.model_fields)
    assert study(tmp_path, named).digest == digest
    assert study(tmp_path).content.limits.agreed == {"join": 120.0, "reconnect": 30.0, "silence": 600.0}


@pytest.mark.parametrize("key", LimitsPart.model_fields)
def test_participants_agree_on_every_limit(tmp_path: Path, key: str) -> None:
    changed = LimitsPart.model_fields[key].default + (-7 if key == "window" else 7)
    assert study(tmp_path, f"{key} = {changed}").digest != study(tmp_path).digest


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        ("silence = inf", "limits.silence"),
        ("join = nan", "limits.join"),
        ("join = 1e300", "limits.join"),
        ("heartbeat = 0", "limits.heartbeat"),
        ("stall = -1", "limits.stall"),
        ("window = 0", "limits.window"),
        ("window = 1.5", "limits.window"),
        ("window = 1000000", "limits.window"),
        ("window = 100", "limits backlog = 320 is too small for window = 100"),
        ("window = 65", "limits backlog = 320 is too small for window = 65"),
        ("window = 1\nbacklog = 4", "limits.backlog"),
        ("window = 16\nbacklog = 64", "limits.backlog"),
        ("window = 3\nbacklog = 259", "limits.backlog"),
        ("colour = 3", "limits.colour is not a key"),
    ],
)
def test_limits_without_sense(tmp_path: Path, limits: str, said: str) -> None:
    with pytest.raises(StudyError) as refused:
        study(tmp_path, limits)
    assert said in str(refused.value)


def test_every_key_has_its_place() -> None:
    """Each is a setting of those who dial, or of the hub, or the time for an excuse."""
    given = LimitsPart(**{key: 1 + number for number, key in enumerate(LimitsPart.model_fields)} | {"backlog": 400})
    dialled, served = given.of_participant(), given.of_hub
    assert set(dialled) <= set(dial.__kwdefaults__)
    assert set(served) <= set(Hub.__init__.__kwdefaults__)
    told = {*dialled.values(), *served.values(), given.excuse}
    assert {getattr(given, key) << (20 if key in ("window", "backlog") else 0) for key in NEW[-2:]} <= told
    assert {getattr(given, key) for key in LimitsPart.model_fields if key not in ("window", "backlog")} <= told
    assert given.of_participant(0.5)["connect_timeout"] == 0.5


def test_the_defaults_are_those_of_the_wire() -> None:
    found = LimitsPart()
    of_wire = {name: getattr(Limits, name) for name in ("attempt", "handshake", "heartbeat", "stall", "closing")}
    assert {name: getattr(found, name) for name in of_wire} == of_wire
    assert (found.window << 20, found.backlog << 20) == (Limits.window, Limits.backlog)


@pytest.mark.parametrize(("window", "backlog"), [(1, 260), (4, 260), (16, 272), (64, 320), (1024, 1280)])
def test_two_who_send_each_other_the_longest_message_at_once_go_on(window: int, backlog: int) -> None:
    """One of the two, who reads nothing: room must come from what the other one, which waits too, lets it send."""
    limits = LimitsPart(window=window, backlog=backlog).of_participant()
    outbox = Outbox(limits["window"])
    inbox = Inbox(Limits(window=limits["window"], backlog=limits["backlog"]))
    channel = Channel(
        Identity.create("a"), Identity.create("b").certificate, None, Counters.of("b"), outbox._window, b""
    )
    sealed = bytes(MAX_PACKET)
    left = MAX_FRAME
    while left:
        size = min(left, channel._piece)
        inbox.grant()
        outbox.acknowledge(*inbox.report())
        assert outbox.has_room(size)
        body = memoryview(sealed)[: size + 22 * (size // (1 << 14) + 1)]
        sequence = outbox.next_sequence
        outbox.add(body)
        inbox.add(Packet(Kind.DATA, 1, sequence, 0, 0, body))
        left -= size


RUN = """
import resource, runpy, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
sys.argv = ["colonnade", *sys.argv[1:]]
runpy.run_module("colonnade", run_name="__main__")
"""


@pytest.mark.slow
def test_a_study_runs_although_strangers_hold_connections(trial, tmp_path: Path) -> None:
    """All participants have 256 descriptors, and strangers more connections than that, which they open again."""
    made = trial(join=100)
    port = int(made.study().content.coordinator.address.rpartition(":")[2])
    over, opened = threading.Event(), []

    def hold() -> None:
        held: list[socket.socket] = []
        while not over.wait(0.005):
            end = socket.socket()
            end.settimeout(1)
            try:
                end.connect(("127.0.0.1", port))
            except OSError:
                end.close()
                continue
            held.append(end)
            opened.append(1)
            if len(held) > 300:
                held.pop(0).close()
        for end in held:
            end.close()

    strangers = threading.Thread(target=hold)
    strangers.start()
    try:
        command = [sys.executable, "-c", RUN, "run", str(made.file), "--out", str(tmp_path / "run"), "--json"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=250)
    finally:
        over.set()
        strangers.join()
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads((tmp_path / "run" / "run.json").read_text())["status"] == "finished"
    assert len(opened) > 10
