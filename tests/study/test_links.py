"""Studies whose participants connect to each other, and hubs for lanes alone: the same result by every way."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from colonnade.cli import text_output
from colonnade.errors import ConnectError, IdentityError, StudyError
from colonnade.study import Study, preflight
from colonnade.study.connect import serve_lanes
from colonnade.study.doctor import DoctorCheck, _connection, examine
from colonnade.study.local import folder_of
from colonnade.study.party_file import NetworkSection
from colonnade.study.record import read_facts
from colonnade.study.spec import write_pins
from colonnade.tables import Schema, number
from colonnade.wire import Hub, Identity, dial
from colonnade.wire.link_offers import DirectLinkSettings
from colonnade.wire.workers import WorkerKeys, introduce
from tests.support import repeatable
from tests.support.errors import raises
from tests.support.ports import free_port
from tests.support.studies import check_words, play, study_text
from tests.wire.conftest import Wire


class Fuse(Wire):
    def __init__(self, port, most):
        self.left = most
        super().__init__(port)

    def passes(self, size):
        before, self.left = self.left, self.left - size
        return not before > 0 >= self.left


def direct(trial, **networks):
    trial.edit("STUDY.toml", r"^\[coordinator\]$", '[coordinator]\nlinks = "direct"')
    for name, network in networks.items():
        trial.edit(f"{name}/party.toml", r"\Z", f"\n[network]\n{network}\n")


def listening(port, told=None):
    return f'listen = "127.0.0.1:{port}"' + (f'\nadvertise = "127.0.0.1:{told}"' if told else "")


def again(trial):
    """The study, as if for the first time and with the same randomness: its result, and the bank's links."""
    repeatable._drawn.clear()
    out = trial.folder / f"out{len(list(trial.folder.glob('out*')))}"
    for name in trial.parties:
        (trial.folder / name / "ledger.sqlite").unlink(missing_ok=True)
    models = play(trial.study(), out)
    found = [model.components_ for model in models.values()]
    assert all(np.array_equal(each, found[0]) for each in found)
    return found[0], {name: read_facts(folder_of(out, name)).get("links", {}) for name in models}


def test_the_result_is_the_same_by_every_way(trial):
    study = trial(rows=600, match=False)
    files = {path: path.read_text() for path in (study.file, *study.folder.glob("*/party.toml"))}

    def afresh(**networks):
        for path, text in files.items():
            path.write_text(text)
        direct(study, **networks)

    by_hub, links = again(study)
    assert not any(links.values())
    before = study.study().digest
    for said, same in (("hub", True), ("direct", False)):
        study.file.write_text(files[study.file].replace("[coordinator]\n", f'[coordinator]\nlinks = "{said}"\n'))
        assert (study.study().digest == before) == same

    ports = {name: free_port() for name in study.parties}
    afresh(**{name: listening(port) for name, port in ports.items()})
    found, links = again(study)
    assert np.array_equal(found, by_hub)
    for name in study.parties:
        assert {(way["way"], way["connections"], "why" in way) for way in links[name].values()} == {
            ("direct", 1, False)
        }
    assert links["shop"]["bank"]["direct_sent"] > 10 * links["shop"]["bank"]["hub_sent"]

    afresh(shop=listening(ports["shop"]), bank=listening(ports["bank"], told=free_port()))
    found, links = again(study)  # nobody is where the bank says, and the clinic listens nowhere
    assert np.array_equal(found, by_hub)
    unreached = links["clinic"]["bank"]
    assert (unreached["way"], unreached["direct_sent"]) == ("hub", 0)
    assert "was not reached: Connection refused" in unreached["why"]
    assert links["clinic"]["shop"]["way"] == links["bank"]["shop"]["way"] == "direct"

    fuse = Fuse(ports["shop"], most=30_000)
    try:
        afresh(shop=listening(ports["shop"], told=fuse.port))
        found, links = again(study)
    finally:
        fuse.close()
    assert np.array_equal(found, by_hub)
    assert fuse.left <= 0
    assert "both" in {links[name]["shop"]["way"] for name in ("bank", "clinic", "coordinator")}
    assert any(word in json.dumps(links) for word in ("hung up", "broke", "reset"))


def test_what_a_network_section_may_say():
    assert NetworkSection().direct == DirectLinkSettings(None, None, True)
    for wrong, why in (
        ({"listen": "9400"}, "VA268"),
        ({"listen": "10.0.0.5:0"}, "VA269"),
        ({"listen": "0.0.0.0:9400"}, ("VA202", "0.0.0.0:9400")),
        ({"listen": "[::]:9400"}, ("VA202", "[::]:9400")),
        ({"advertise": "bank.example.org"}, "VA201"),
        ({"listen": "10.0.0.5:1-9", "advertise": "bank.example.org:5"}, "VA203"),
        ({"listen": "10.0.0.5:1", "advertise": "bank example"}, "VA200"),
    ):
        with raises(ValidationError, why):
            NetworkSection.model_validate(wrong)
    with pytest.raises(ValidationError, match="valid boolean"):
        NetworkSection.model_validate({"dial": "no"})
    wide = {"listen": "0.0.0.0:9400-9409", "advertise": "bank.example.org", "dial": False}
    assert NetworkSection.model_validate(wide).direct == DirectLinkSettings(
        "0.0.0.0:9400-9409", "bank.example.org", False
    )


def test_doctor_and_preflight_speak_of_links(trial, monkeypatch):
    study = trial(match=False)
    monkeypatch.chdir(study.folder)

    def checks():
        return {check.what: check for check in examine(study.file, study.folder / "bank" / "party.toml")}

    assert not {"listening", "links"} & checks().keys()
    assert "links" not in preflight(study.study()).to_dict()
    port = free_port()
    direct(study, bank=listening(port, told=4711))
    assert checks()["listening"].detail == f"127.0.0.1:{port} is free; peers are told 127.0.0.1:4711"
    assert "known after a run" in checks()["links"].detail
    with socket.create_server(("127.0.0.1", port)):
        assert (checks()["listening"].level, "another program" in checks()["listening"].detail) == ("bad", True)
    assert "the coordinator relays the rest" in text_output.preflight(preflight(study.study()))
    run = folder_of(Path("runs") / study.study().name, "bank")
    run.mkdir(parents=True)
    links = {"shop": {"way": "direct"}, "clinic": {"way": "hub", "why": "neither of the two listens"}}
    (run / "run.json").write_text(json.dumps({"started": "then", "links": links}))
    said = "in the run of then: shop directly; clinic through the hub (neither of the two listens)"
    assert checks()["links"] == DoctorCheck("links", "unsure", said)


# --- `colonnade relay`: a hub for lanes alone, in a process of its own


@pytest.fixture
def meeting(tmp_path):
    identities = {name: Identity.create(name) for name in ("a", "b", "coordinator")}
    for name, who in identities.items():
        key, _ = who.save(tmp_path / name)
        (tmp_path / "certs").mkdir(exist_ok=True)
        (tmp_path / "certs" / f"{name}.crt").write_bytes(who.certificate.pem)
        Schema({f"x{name}": number(0, 1)}).save(tmp_path / f"{name}.toml")

    def study(*hubs):
        path = tmp_path / "STUDY.toml"
        path.write_text(study_text().replace(":7000", f':7000"\nhubs = {json.dumps(hubs)}\n#'))
        write_pins(path, {name: who.fingerprint for name, who in identities.items()})
        return Study.load(path)

    config: Any = SimpleNamespace(name="a", key=tmp_path / "a" / "a.key")
    return SimpleNamespace(identities=identities, folder=tmp_path, study=study, key=key, config=config)


@pytest.mark.system
def test_workers_meet_at_a_relay_until_it_is_told_to_stop(meeting):
    study = meeting.study(f"127.0.0.1:{free_port()}")
    words = ["relay", study.path, "--key", meeting.key, "--json"]
    command = [sys.executable, "-m", "colonnade", *map(str, words)]
    topic, bases = study.digest.encode(), study.certificates()
    until = datetime.now(UTC) + timedelta(hours=1)
    keys = {name: WorkerKeys.create(name) for name in bases}
    passed_on = {name: introduce(meeting.identities[name], made.request, topic, until) for name, made in keys.items()}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            facts = json.loads(process.stdout.readline())
            address = study.content.coordinator.lane_hubs[1]
            assert facts == {"relay": address, "study": "s"}
            places = [
                made.join_lane(address, 3, 1, passed_on, bases, topic, reconnect_grace=0.5) for made in keys.values()
            ]
            first, second, third = places
            first.channel("b").send("word", word="to b")
            assert second.channel("a").recv("word") == {"word": "to b"}
            third.wait_for_peers()
            with raises(ConnectError, "CN041"):
                dial(address, meeting.identities["a"], bases, connect_timeout=0.1)  # it is no hub of the study itself
            process.send_signal(signal.SIGTERM)
            assert process.communicate(timeout=60) == ("", "")
            assert process.returncode == 0
            with pytest.raises(ConnectError):
                first.channel("b").recv("word")
            with ThreadPoolExecutor(len(places)) as threads:
                list(threads.map(lambda place: place.close(), places))
        finally:
            process.kill()


def test_a_hub_that_is_not_up_hides_nothing_of_another(meeting):
    port = free_port()
    study = meeting.study(f"127.0.0.1:{port}")
    away = _connection(study, meeting.config)
    assert away.level == "unsure"
    check_words(away.detail, "127.0.0.1:7000", f"nothing listens at 127.0.0.1:{port}")
    with serve_lanes(study, meeting.key) as hub:
        first, further = (check for check in examine(study.path, None) if check.what == "port")
    assert "127.0.0.1:7000" in first.detail
    assert (further.level, further.detail) == ("good", f"something listens at {hub.address}")
    impostor = Identity.create("coordinator")
    with Hub(impostor, study.certificates(), f"127.0.0.1:{port}"):
        wrong = _connection(study, meeting.config)
    assert wrong.level == "bad"
    assert f"whoever answers at 127.0.0.1:{port} is not coordinator" in wrong.detail


def test_what_a_relay_cannot_serve(meeting):
    hubs = ("127.0.0.1:1", "127.0.0.1:2")
    for study, given, error, said in (
        ((), (meeting.key,), StudyError, "ST580"),
        (hubs, (meeting.key,), StudyError, ("ST581", "2", "--listen")),
        (hubs, (meeting.config.key, "127.0.0.1:0"), IdentityError, ("ID008", "coordinator")),
    ):
        with raises(error, said), serve_lanes(meeting.study(*study), *given):
            pass
    with serve_lanes(meeting.study(*hubs), meeting.key, "127.0.0.1:0") as hub:
        assert hub.rooms == {}
