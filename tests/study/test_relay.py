"""``colonnade relay``: a hub for lanes alone, in a process of its own."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from colonnade.errors import ConnectError, IdentityError, StudyError
from colonnade.study import Study
from colonnade.study.doctor import _connection, examine
from colonnade.study.relay import relay
from colonnade.study.spec import write_pins
from colonnade.tables import Schema, number
from colonnade.wire import Hub, Identity, dial
from colonnade.wire.workers import WorkerKeys, introduce
from tests.support.errors import raises
from tests.support.ports import free_port
from tests.support.studies import check_words, study_text


@pytest.fixture
def trial(tmp_path: Path) -> SimpleNamespace:
    identities = {name: Identity.create(name) for name in ("a", "b", "coordinator")}
    for name, who in identities.items():
        key, _ = who.save(tmp_path / name)
        (tmp_path / "certs").mkdir(exist_ok=True)
        (tmp_path / "certs" / f"{name}.crt").write_bytes(who.certificate.pem)
        Schema({f"x{name}": number(0, 1)}).save(tmp_path / f"{name}.toml")

    def study(*hubs: str) -> Study:
        path = tmp_path / "STUDY.toml"
        path.write_text(study_text().replace(":7000", f':7000"\nhubs = {json.dumps(hubs)}\n#'))
        write_pins(path, {name: who.fingerprint for name, who in identities.items()})
        return Study.load(path)

    config: Any = SimpleNamespace(name="a", key=tmp_path / "a" / "a.key")
    return SimpleNamespace(identities=identities, folder=tmp_path, study=study, key=key, config=config)


@pytest.mark.system
def test_workers_meet_at_a_relay_until_it_is_told_to_stop(trial: Any) -> None:
    study = trial.study(f"127.0.0.1:{free_port()}")
    words = ["relay", study.path, "--key", trial.key, "--json"]
    command = [sys.executable, "-m", "colonnade", *map(str, words)]
    topic, bases = study.digest.encode(), study.certificates()
    until = datetime.now(UTC) + timedelta(hours=1)
    keys = {name: WorkerKeys.create(name) for name in bases}
    passed_on = {name: introduce(trial.identities[name], made.request, topic, until) for name, made in keys.items()}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
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
                dial(address, trial.identities["a"], bases, connect_timeout=0.1)  # it is no hub of the study itself
            process.send_signal(signal.SIGTERM)
            assert process.communicate(timeout=60) == ("", "")
            assert process.returncode == 0
            with pytest.raises(ConnectError):
                first.channel("b").recv("word")
            with ThreadPoolExecutor(len(places)) as threads:
                list(threads.map(lambda place: place.close(), places))
        finally:
            process.kill()


def test_the_doctor_looks_at_every_hub(trial: Any) -> None:
    study = trial.study(f"127.0.0.1:{free_port()}")
    with relay(study, trial.key) as hub:
        first, further = (check for check in examine(study.path, None) if check.what == "port")
    assert "127.0.0.1:7000" in first.detail
    assert (further.level, further.detail) == ("good", f"something listens at {hub.address}")


def test_a_hub_that_is_not_up_hides_nothing_of_another(trial: Any) -> None:
    port = free_port()
    study = trial.study(f"127.0.0.1:{port}")
    away = _connection(study, trial.config)
    assert away.level == "unsure"
    check_words(away.detail, "127.0.0.1:7000", f"nothing listens at 127.0.0.1:{port}")
    impostor = Identity.create("coordinator")
    with Hub(impostor, study.certificates(), f"127.0.0.1:{port}"):
        wrong = _connection(study, trial.config)
    assert wrong.level == "bad"
    assert f"whoever answers at 127.0.0.1:{port} is not coordinator" in wrong.detail


def test_what_a_relay_cannot_serve(trial: Any) -> None:
    hubs = ("127.0.0.1:1", "127.0.0.1:2")
    for study, given, error, said in (
        ((), (trial.key,), StudyError, "ST580"),
        (hubs, (trial.key,), StudyError, ("ST581", "2", "--listen")),
        (hubs, (trial.config.key, "127.0.0.1:0"), IdentityError, ("ID008", "coordinator")),
    ):
        with raises(error, said), relay(trial.study(*study), *given):
            pass
    with relay(trial.study(*hubs), trial.key, "127.0.0.1:0") as hub:
        assert hub.rooms == {}
