"""FEDERATION.toml: read, written, added to, and refused where it contradicts itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from colonnade.errors import FederationError, IdentityError
from colonnade.standing.federation import HubPart, Members, size_of
from colonnade.standing.verdict import FINAL, STATES
from colonnade.standing.words import six_words, words
from colonnade.wire import Identity
from tests.support.errors import raises

from .club import PARTIES, club, identity


def test_it_is_read_as_it_was_written_and_the_hubs_part_is_its_own(tmp_path: Path) -> None:
    ours = club(tmp_path).members
    found = Members.load(ours.path)
    assert (found.name, found.address, found.roles, found.pins) == (ours.name, ours.address, ours.roles, ours.pins)
    assert (found.parties, found.analysts, found.hub) == (PARTIES, (*PARTIES, "ana"), None)
    assert found.digest == ours.digest
    part = '\n[hub]\nkey = "k/coordinator.key"  # ours\nmemory = "2 GB"\nlanes = 8\n[hub.compute]\nworkers = 4\n'
    ours.path.write_text(ours.path.read_text() + part)
    found = Members.load(ours.path)
    assert found.hub is not None
    assert (found.hub.memory, found.hub.lanes) == (2 * 10**9, 8)
    assert (found.hub.compute.workers, found.hub.compute.engine) == (4, "processes")
    assert found.digest == ours.digest
    found.with_member(identity("new").certificate, "party").append("new")
    again = Members.load(ours.path)
    assert (again.hub, again.roles["new"]) == (found.hub, "party")
    assert again.digest != ours.digest
    assert "# ours" in ours.path.read_text()


def test_a_new_member_needs_a_name_and_a_key_of_its_own(tmp_path: Path) -> None:
    members = club(tmp_path).members
    for taken in ("bank", "others"):
        with raises(FederationError, "FE039"):
            members.with_member(Identity.create(taken).certificate, "party")
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
WRONG_HUB = {
    "lanes = 0": ("FE036", "hub.lanes"),
    "[hub.compute]\nworkers = 0": ("FE036", "hub.compute.workers"),
    '[hub.compute]\nengine = "somewhere"': ("VA182", "hub.compute.engine"),
    '[hub.compute]\nengine = "ray"': ("VA159", "ray", "hub.compute"),
    '[hub.compute]\nspool = "/tmp"': ("FE036", "hub.compute.spool"),
}


def test_a_wrong_file_is_refused_in_a_sentence(tmp_path: Path) -> None:
    path = club(tmp_path).members.path
    text = path.read_text()
    for old, new in WRONG.items():
        path.write_text(text.replace(old, new))
        with raises(FederationError, "ID031|VA158|VA161|VA162|VA195|VA235", "FEDERATION.toml"):
            Members.load(path)
    for part, sentence in WRONG_HUB.items():
        path.write_text(f"{text}\n[hub]\n{part}\n")
        with raises(FederationError, sentence):
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


def test_six_words() -> None:
    known = words()
    assert len(set(known)) == len(known) == 2048
    assert list(known) == sorted(known)
    assert all(word.isascii() and word.islower() and 2 < len(word) < 11 for word in known)
    said = six_words("sha256:aa", "b")
    assert len(said.split()) == 6
    assert said not in (six_words("sha256:a", "ab"), six_words("sha256:aa", "c"))
