"""Studies whose participants connect to each other: the same result, whatever becomes of the connections."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from colonnade.cli import show
from colonnade.study import preflight
from colonnade.study.doctor import Check, examine
from colonnade.study.local import folder_of
from colonnade.study.network import NetworkPart
from colonnade.study.record import read_facts
from colonnade.wire.direct import Direct
from tests.support import repeatable
from tests.support.errors import raises
from tests.support.ports import free_port
from tests.support.studies import play
from tests.wire.conftest import Wire


class Fuse(Wire):
    """A cable that breaks, once, after so many bytes."""

    def __init__(self, port: int, most: int) -> None:
        self.left = most
        super().__init__(port)

    def passes(self, size: int) -> bool:
        before, self.left = self.left, self.left - size
        return not before > 0 >= self.left


def direct(trial: Any, **networks: str) -> None:
    """Let the study's participants connect, and these parties listen."""
    trial.edit("STUDY.toml", r"^\[coordinator\]$", '[coordinator]\nlinks = "direct"')
    for name, network in networks.items():
        trial.edit(f"{name}/party.toml", r"\Z", f"\n[network]\n{network}\n")


def listening(port: int, told: int | None = None) -> str:
    return f'listen = "127.0.0.1:{port}"' + (f'\nadvertise = "127.0.0.1:{told}"' if told else "")


def again(trial: Any) -> tuple[Any, dict[str, Any]]:
    """The study, as if for the first time and with the same randomness: its result, and the bank's links."""
    repeatable._drawn.clear()
    out = trial.folder / f"out{len(list(trial.folder.glob('out*')))}"
    for name in trial.parties:
        (trial.folder / name / "ledger.sqlite").unlink(missing_ok=True)
    models = play(trial.study(), out)
    found = [model.components_ for model in models.values()]
    assert all(np.array_equal(each, found[0]) for each in found)
    return found[0], {name: read_facts(folder_of(out, name)).get("links", {}) for name in models}


def test_the_result_is_the_same_by_every_way(trial: Any) -> None:
    study = trial(rows=2000, match=False)
    files = {path: path.read_text() for path in (study.file, *study.folder.glob("*/party.toml"))}

    def afresh(**networks: str) -> None:
        for path, text in files.items():
            path.write_text(text)
        direct(study, **networks)

    by_hub, links = again(study)
    assert not any(links.values())

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

    fuse = Fuse(ports["shop"], most=100_000)
    try:
        afresh(shop=listening(ports["shop"], told=fuse.port))
        found, links = again(study)
    finally:
        fuse.close()
    assert np.array_equal(found, by_hub)
    assert fuse.left <= 0
    assert "both" in {links[name]["shop"]["way"] for name in ("bank", "clinic", "coordinator")}
    assert any(word in json.dumps(links) for word in ("hung up", "broke", "reset"))


def test_a_file_that_says_nothing_of_links_is_the_study_that_it_was(trial: Any) -> None:
    study = trial(match=False)
    before = study.study().digest
    study.edit("STUDY.toml", r"^\[coordinator\]$", '[coordinator]\nlinks = "hub"')
    assert study.study().digest == before
    study.edit("STUDY.toml", 'links = "hub"', 'links = "direct"')
    assert study.study().digest != before
    assert study.study().content.coordinator.links == "direct"
    study.edit("STUDY.toml", 'links = "direct"', 'links = "none"')
    with raises(Exception, "ST595", "coordinator.links"):
        study.study()


def test_what_a_network_section_may_say() -> None:
    assert NetworkPart().direct == Direct(None, None, True)
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
            NetworkPart.model_validate(wrong)
    with pytest.raises(ValidationError, match="valid boolean"):
        NetworkPart.model_validate({"dial": "no"})
    wide = {"listen": "0.0.0.0:9400-9409", "advertise": "bank.example.org", "dial": False}
    assert NetworkPart.model_validate(wide).direct == Direct("0.0.0.0:9400-9409", "bank.example.org", False)


def test_doctor_and_preflight_speak_of_links(trial: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    study = trial(match=False)
    monkeypatch.chdir(study.folder)

    def checks() -> dict[str, Check]:
        return {check.what: check for check in examine(study.file, study.folder / "bank" / "party.toml")}

    assert not {"listening", "links"} & checks().keys()
    before = preflight(study.study())
    assert "links" not in show.preflight(before)
    assert "links" not in before.to_dict()
    port = free_port()
    direct(study, bank=listening(port, told=4711))
    found = checks()
    assert found["listening"].detail == f"127.0.0.1:{port} is free; peers are told 127.0.0.1:4711"
    assert "known after a run" in found["links"].detail
    with socket.create_server(("127.0.0.1", port)):
        assert (checks()["listening"].level, "another program" in checks()["listening"].detail) == ("bad", True)
    assert preflight(study.study()).to_dict()["links"] == "direct"
    assert "the coordinator relays the rest" in show.preflight(preflight(study.study()))
    run = folder_of(Path("runs") / study.study().name, "bank")
    run.mkdir(parents=True)
    links = {"shop": {"way": "direct"}, "clinic": {"way": "hub", "why": "neither of the two listens"}}
    (run / "run.json").write_text(json.dumps({"started": "then", "links": links}))
    said = "in the run of then: shop directly; clinic through the hub (neither of the two listens)"
    assert checks()["links"] == Check("links", "unsure", said)
