"""FEDERATION.toml: read, written, added to, and refused where it contradicts itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from colonnade.errors import FederationError, IdentityError
from colonnade.standing.federation import HubPart, Members, size_of
from colonnade.standing.verdict import FINAL, STATES
from colonnade.wire import Identity
from tests.support.errors import raises

from .club import club, identity


def test_it_is_read_as_it_was_written(tmp_path: Path) -> None:
    ours = club(tmp_path).members
    found = Members.load(tmp_path / "FEDERATION.toml")
    assert (found.name, found.address, found.roles, found.pins) == (ours.name, ours.address, ours.roles, ours.pins)
    assert found.parties == ("bank", "shop", "clinic")
    assert found.analysts == ("bank", "shop", "clinic", "ana")
    assert found.hub is None
    assert found.digest == ours.digest


def test_the_hubs_part_is_its_own(tmp_path: Path) -> None:
    path = club(tmp_path).members.path
    digest = Members.load(path).digest
    path.write_text(path.read_text() + '\n[hub]\nkey = "k/coordinator.key"  # ours\nmemory = "2 GB"\n')
    found = Members.load(path)
    assert found.hub is not None
    assert found.hub.memory == 2 * 10**9
    assert found.digest == digest
    found.with_member(identity("new").certificate, "party").append("new")
    again = Members.load(path)
    assert again.hub == found.hub
    assert again.roles["new"] == "party"
    assert again.digest != digest
    assert "# ours" in path.read_text()


def test_the_hub_says_where_workers_of_its_coordinators_run(tmp_path: Path) -> None:
    path = club(tmp_path).members.path
    text = path.read_text()
    path.write_text(text + "\n[hub]\nlanes = 8\n[hub.compute]\nworkers = 4\n")
    found = Members.load(path).hub
    assert found is not None
    assert (found.lanes, found.compute.workers, found.compute.engine) == (8, 4, "processes")
    wrong = {
        "lanes = 0": ("FE036", "hub.lanes"),
        "[hub.compute]\nworkers = 0": ("FE036", "hub.compute.workers"),
        '[hub.compute]\nengine = "somewhere"': ("VA182", "hub.compute.engine"),
        '[hub.compute]\nengine = "ray"': ("VA159", "ray", "hub.compute"),
        '[hub.compute]\nspool = "/tmp"': ("FE036", "hub.compute.spool"),
    }
    for said, sentence in wrong.items():
        path.write_text(f"{text}\n[hub]\n{said}\n")
        with raises(FederationError, sentence):
            Members.load(path)


def test_a_new_member_needs_a_name_and_a_key_of_its_own(tmp_path: Path) -> None:
    members = club(tmp_path).members
    with raises(FederationError, "FE039"):
        members.with_member(Identity.create("bank").certificate, "party")
    with raises(FederationError, "FE039"):
        members.with_member(Identity.create("others").certificate, "party")
    for strangers in (["ana"], ["coordinator"], ["bank", "eve"]):
        with raises(FederationError, "FE038"):
            members.check(strangers)


WRONG = {
    'role = "hub"': 'role = "party"',
    'role = "analyst"': 'role = "hub"',
    '[members."bank"]': '[members."b<b>ank"]',
    '[members."shop"]': '[members."others"]',
    'address = "127.0.0.1:9300"': 'address = "127.0.0.1"',
    'name = "three organisations"': 'nam = "three"',
    "sha256:": "sha256:x",
    '[members."coordinator"]': '[members."dave"]',
}


@pytest.mark.parametrize("old", WRONG)
def test_a_wrong_file_is_refused_in_a_sentence(tmp_path: Path, old: str) -> None:
    path = club(tmp_path).members.path
    path.write_text(path.read_text().replace(old, WRONG[old]))
    with raises(FederationError, "ID031|VA158|VA161|VA162|VA195|VA235", "FEDERATION.toml"):
        Members.load(path)


def test_a_certificate_must_be_the_pinned_one_and_carry_its_name(tmp_path: Path) -> None:
    path = club(tmp_path).members.path
    text, shop = path.read_text(), (tmp_path / "certs/shop.crt").read_bytes()
    (tmp_path / "certs/bank.crt").write_bytes(shop)
    with pytest.raises(IdentityError):
        Members.load(path)
    path.write_text(text.replace(identity("bank").fingerprint, identity("shop").fingerprint))
    with raises(IdentityError, "ID006", "shop"):
        Members.load(path)


def test_the_page_names_every_state_and_every_key() -> None:
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "federation.md").read_text("utf-8")
    for name in (*STATES, *HubPart.model_fields, *Members.__dataclass_fields__.keys() & {"name", "address"}):
        assert f"`{name}`" in page or f"\n{name} = " in page, name
    assert set(FINAL) == {"done", "declined", "expired", "cancelled", "failed"}


def test_sizes() -> None:
    assert [size_of(given) for given in ("4 GB", "1.5GB", "512 MiB", "7", 9)] == [4 * 10**9, 15 * 10**8, 1 << 29, 7, 9]
    for wrong in ("four", "1 TB", "-1", ""):
        with raises(ValueError, "VA157"):
            size_of(wrong)
