"""A federation from nothing, by commands: a hub, an invitation, six words at both ends, a member; as real processes."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from colonnade.errors import FederationError
from colonnade.standing.federation import Members
from colonnade.standing.words import six_words, words
from colonnade.study import PartyConfig
from tests.support.errors import raises
from tests.support.ports import free_port


def started(*said: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "colonnade", *map(str, said), "--json"], stdout=subprocess.PIPE, text=True
    )


def line(process: subprocess.Popen[str]) -> dict[str, Any]:
    assert process.stdout is not None
    found: dict[str, Any] = json.loads(process.stdout.readline())
    return found


def test_a_federation_from_nothing(tmp_path: Path, colonnade: Callable[..., Any]) -> None:
    def command(*said: object, code: int = 0) -> Any:
        return colonnade(*said, "--json", code=code)

    address = f"127.0.0.1:{free_port()}"
    path = tmp_path / "hub" / "FEDERATION.toml"
    command("init", "federation", path.parent, "--name", "us two", "--address", address)
    command("init", "federation", path.parent, "--name", "us two", "--address", address, code=26)
    hub = started("hub", path)
    join = invite = ana = None
    try:
        assert line(hub)["members"] == 1
        invite = started("invite", path, "lab", "--role", "party")
        token = line(invite)["invitation"]
        command("admit", path, "lab", "--words", "x", code=26)
        join = started("join", token, "--out", tmp_path / "lab")
        theirs, ours = line(join)["words"], line(invite)["words"]
        assert theirs == ours
        command("admit", path, "lab", code=26)
        command("admit", path, "lab", "--words", "a b c d e f", code=26)
        assert command("admit", path, "lab", "--words", theirs.upper())["admitted"] == "lab"
        first = line(join)
        assert (first["federation"], first["new"]) == (str(tmp_path / "lab" / "FEDERATION.toml"), {})
        assert (join.wait(60), invite.wait(60)) == (0, 0)
        lab = Members.load(tmp_path / "lab" / "FEDERATION.toml")
        assert lab.roles == {"coordinator": "hub", "lab": "party"}
        assert (tmp_path / "lab" / "lab.key").stat().st_mode & 0o077 == 0
        assert PartyConfig.load(tmp_path / "lab" / "party.toml").standing.console
        command("join", token, "--name", "other", code=26)
        command("join", token[:-4], code=26)
        analyst = command("invite", path, "ana", "--role", "analyst", "--no-wait")["invitation"]
        again = command("join", analyst, "--out", tmp_path / "ana", "--no-wait")["words"]
        command("admit", path, "ana", "--words", again)
        ana = started("join", analyst, "--out", tmp_path / "ana")
        assert line(ana)["words"] == again
        said = line(ana)
        assert ana.wait(60) == 0
        hers = Members.load(said["federation"])
        assert hers.roles == {"coordinator": "hub", "ana": "analyst"}, "the hub's word on others pins nobody"
        assert said["members"] == hers.pins
        assert said["new"] == {"lab": {"role": "party", "words": six_words(lab.pins["lab"]), "known": False}}
        with raises(FederationError, "FE038"):
            hers.check(["lab"])
        key = tmp_path / "ana" / "ana.key"
        command("members", hers.path, "--key", key, "--accept", "lab", "--words", again, code=26)
        command("members", hers.path, "--key", key, "--accept", "lab", "--words", said["new"]["lab"]["words"])
        Members.load(hers.path).check(["lab"])
        new = command("members", lab.path, "--key", tmp_path / "lab" / "lab.key")["new"]
        assert new["ana"]["words"] == six_words(Members.load(path).pins["ana"])
        accept = ("members", lab.path, "--key", tmp_path / "lab" / "lab.key", "--accept", "ana", "--words")
        command(*accept, again, code=26)
        assert command(*accept, new["ana"]["words"])["new"] == {}
        assert Members.load(lab.path).roles["ana"] == "analyst"
        hub.send_signal(signal.SIGTERM)
        assert hub.wait(60) == 0
    finally:
        for process in (hub, join, invite, ana):
            if process is not None and process.poll() is None:
                process.kill()
                process.wait()
            if process is not None and process.stdout is not None:
                process.stdout.close()


def test_six_words() -> None:
    known = words()
    assert len(set(known)) == len(known) == 2048
    assert list(known) == sorted(known)
    assert all(word.isascii() and word.islower() and 2 < len(word) < 11 for word in known)
    said = six_words("sha256:aa", "b")
    assert six_words("sha256:a", "ab") != said
    assert len(said.split()) == 6
    assert said != six_words("sha256:aa", "c")
