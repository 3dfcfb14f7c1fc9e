"""FEDERATION.toml, proposals, what is said about them, and results: only what is pinned or signed is taken."""

from __future__ import annotations

import asyncio
import json
import tracemalloc
from base64 import b64encode
from dataclasses import replace
from datetime import timedelta
from hashlib import sha256
from pathlib import Path

import pytest

from colonnade.errors import FederationError, IdentityError
from colonnade.standing.federation import Members
from colonnade.standing.fetched import Fetched, statements_in
from colonnade.standing.proposal import (
    MOST_BYTES,
    MOST_PACKED,
    MOST_STUDY,
    Answer,
    Outcome,
    Proposal,
    Withdrawal,
    id_of,
)
from colonnade.standing.service import DeskService
from colonnade.standing.signed import canonical, seal, written
from colonnade.standing.talk import files_in, heard, packed
from colonnade.standing.words import six_words, words
from colonnade.wire import Identity
from tests.support.errors import raises

from .club import NOON, PARTIES, Club, Talk, club, identity, refused, study_text


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Club:
    return club(tmp_path_factory.mktemp("federation"))


def refuse(ours: Club, *said: str, **changes: object) -> None:
    """A proposal with these changes is refused with one of these codes, though its analyst has signed it."""
    with raises(FederationError, *said):
        Proposal.unpack(ours.packed(**changes), ours.members)  # type: ignore[arg-type]


def test_a_proposal_survives_its_way(ours: Club, tmp_path: Path) -> None:
    raw = ours.packed("bank", "shop")
    found = Proposal.unpack(raw, ours.members)
    assert found == ours.proposal("bank", "shop")
    assert (found.id, len(found.id)) == (id_of(raw), 32)
    assert (found.participants, found.kind) == (("bank", "shop", "coordinator"), "pca")
    path = found.write(tmp_path / "study", ours.members)
    assert path.read_bytes() == found.files["study.toml"]
    assert (tmp_path / "study/certs/shop.crt").read_bytes() == ours.members.certificates["shop"].pem
    assert not (tmp_path / "study/certs/clinic.crt").exists()
    assert Proposal.unpack(ours.packed(analyst="bank"), ours.members).analyst == "bank"
    refuse(ours, "FE068", analyst="coordinator")


def test_a_forged_proposal_is_refused(ours: Club) -> None:
    raw = ours.packed()
    header, body = raw.split(b"\n", 1)
    forged = [
        raw[:-2] + b"1}",
        raw.replace(b" ana ", b" bank ", 1),
        raw.replace(b"proposal", b"answer", 1),
        ours.proposal().pack(Identity.create("ana")),
        raw.replace(b" ana ", b" eve ", 1),
        header.replace(b" ana ", b" a/../na ", 1) + b"\n" + body,
        body,
        b"",
        header,
    ]
    for each in forged:
        refused("FE*", Proposal.unpack, each, ours.members)
    kept = {name: c for name, c in ours.members.certificates.items() if name != "ana"}
    others = Members("o", ours.members.address, kept, ours.members.roles, None, ours.members.path)
    refused(("FE096", "o"), Proposal.unpack, raw, others)  # a member of another federation is a stranger


def test_a_body_is_written_in_one_way_only(ours: Club) -> None:
    """Otherwise one signed study would have many ids, or keys that some read and others do not."""
    body = ours.packed().split(b"\n", 1)[1].decode()
    for other in (body.replace(":", ": ", 1), body.replace('"name"', '"name":"x","name"', 1), body + " "):
        content = other.encode()
        signature = ours.keys["ana"].sign(b"colonnade-signed-1 proposal ana\n" + content)
        raw = b"colonnade-signed-1 proposal ana " + b64encode(signature) + b"\n" + content
        refused("FE100", Proposal.unpack, raw, ours.members)
    assert canonical({"b": 1, "a": "ü"}) == b'{"a":"\\u00fc","b":1}'


NAMES = [
    "../evil.toml", "/etc/passwd", "a/../../b", "a\\b", "certs/bank.crt", "Certs/bank.crt", "a//b", "a/", ".hidden",
    "a\nb", "a/b/c/d/e/f/g", "x" * 101, "STUDY.toml", "study.toml/x", "<b>", "nul\x00", "dot.",
]  # fmt: skip


def test_file_names_stay_in_their_folder(ours: Club) -> None:
    for name in NAMES:
        refuse(ours, "FE080|FE081", files={**ours.proposal().files, name: b""})


def test_pins_address_and_parties_are_those_of_the_federation(ours: Club) -> None:
    text = study_text(ours.members, ("bank", "shop"))
    pin, address = ours.members.pins, f'address = "{ours.members.address}"'
    lanes = text + "[lanes]\npartitions = 4\n"
    wrong = {
        "pins": text.replace(pin["bank"], pin["clinic"]),
        "no pins": text.partition("[pins]")[0],
        "address": text.replace(ours.members.address, "127.0.0.1:9301"),
        "party": text.replace("parties.", "parties.x"),
        "analyst as a party": study_text(ours.members, ("bank", "ana")),
        "one": study_text(ours.members, ("bank",)),
        "name": text.replace("a study", "another"),
        "kind": text.replace("[task]", "[other]"),
        "toml": text + "[[[",
        "further hubs": lanes.replace(address, f'{address}\nhubs = ["192.0.2.1:22"]'),
    }
    for why, changed in wrong.items():
        refuse(ours, "FE067" if why == "further hubs" else "FE*", files={"study.toml": changed.encode()})
    found = Proposal.unpack(ours.packed(files={"study.toml": lanes.encode()}), ours.members)
    assert found.asked["lanes"] == {"partitions": 4}


def test_sizes_and_moments_are_bounded(ours: Club) -> None:
    files, large = dict(ours.proposal().files), bytes(MOST_BYTES + 1)
    refuse(ours, "FE079", files={**files, "schemas/x.toml": large})
    refuse(ours, "FE102", "files", files={**files, **{f"f{i}": b"" for i in range(64)}})
    for size, code in ((1 << 26, ("FE095", "proposal")), (MOST_PACKED + 1, ("FE094",))):
        refused(code, Proposal.unpack, bytes(size), ours.members)
    refuse(ours, "FE069", files={"study.toml": files["study.toml"] + b"#" * MOST_STUDY})
    files["study.toml"] = files["study.toml"].replace(b"[task]\n", b'[task]\nmodel = "m/model.json"\n')
    assert Proposal.unpack(ours.packed(files={**files, "m/model.json": large}), ours.members), "a model may be larger"
    refuse(ours, "FE079", files={**files, "m/other.json": large})
    for deadline in (NOON, NOON + timedelta(days=400)):
        refuse(ours, "FE073|FE074", deadline=deadline)
    found = Proposal.unpack(ours.packed(), ours.members)
    found.check_time(NOON)
    for moment, code in ((found.deadline, "FE071"), (NOON - timedelta(days=2), "FE072")):
        refused(code, found.check_time, moment)


def test_a_statement_of_millions_of_parts_is_refused_before_it_is_read(ours: Club) -> None:
    raw = seal("proposal", {"files": [[] for _ in range(300_000)]}, ours.keys["ana"])
    tracemalloc.start()
    refused("FE098", Proposal.unpack, raw, ours.members)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 4 * len(raw)  # read, it would take dozens of times as much


def test_answers_outcomes_and_withdrawals_survive_and_cannot_be_forged(ours: Club) -> None:
    about = Proposal.unpack(ours.packed(), ours.members).id
    said = {
        "bank": Answer(about, "bank", True, "", 2, NOON),
        "coordinator": Outcome(about, 1, "coordinator", "finished", NOON),
        "ana": Withdrawal(about, "ana", NOON),
    }
    for signer, each in said.items():
        raw = each.pack(ours.keys[signer])
        assert type(each).unpack(raw, ours.members) == each
        for other in {Answer, Outcome, Withdrawal} - {type(each)}:
            refused("FE095", other.unpack, raw, ours.members)
        refused("FE084", each.pack, ours.keys["clinic"])
        refused("FE097", type(each).unpack, raw.replace(f" {signer} ".encode(), b" clinic ", 1), ours.members)
    refused("FE038", Answer.unpack, Answer("0" * 32, "ana", True, "", 0, NOON).pack(ours.keys["ana"]), ours.members)


WRONG_OUTCOMES = [
    {"attempt": 0},
    {"attempt": 7},
    {"attempt": True},
    {"ended": ["lost"]},
    {"proposal": "0" * 31},
    {"why": "a cell"},
    {"ended": "finished", "result": "x"},
    *({"ended": "finished", "result": "0" * 64, "files": wrong} for wrong in ({}, {"../x": "0" * 64}, {"a": "0"})),
    {"result": "0" * 64},
]


def test_an_outcome_of_another_form_is_refused(ours: Club) -> None:
    plain = {"proposal": "0" * 32, "attempt": 1, "ended": "lost", "made": written(NOON)}
    assert Outcome.unpack(seal("outcome", plain, ours.keys["bank"]), ours.members).result is None
    for wrong in WRONG_OUTCOMES:
        refused("FE083|FE101|FE102", Outcome.unpack, seal("outcome", plain | wrong, ours.keys["bank"]), ours.members)


STUDY = "cd" * 16
FILES = {"model.json": b'{"learned": {}}', "privacy.json": b"{}"}
TRUE = sha256(FILES["model.json"]).hexdigest()
FORGED_FILES = {"model.json": b'{"forged": true}', "report.html": b"<h1>forged by the hub</h1>"}
FORGED = sha256(FORGED_FILES["model.json"]).hexdigest()


def said(who: str, result: str | None = TRUE, study: str = STUDY, **files: bytes) -> bytes:
    hashes = {name: sha256(content).hexdigest() for name, content in files.items()}
    return Outcome(study, 1, who, "finished", NOON, result, hashes or None).pack(identity(who))


def test_what_parties_signed_is_taken_and_whose_hash_is_missing_is_said(ours: Club) -> None:
    compared = Fetched(STUDY, FILES, [said("bank"), said("shop", None)]).compare(PARTIES, ours.members)
    assert (compared.signed, compared.differs, compared.missing) == (("bank",), (), ("shop", "clinic"))
    compared.check()
    for told in (None, [1], ["\u00e9"], ["x"] * 100_000):
        refused("FE*", statements_in, told)


def test_what_the_hub_has_made_itself_is_not_taken(ours: Club) -> None:
    statements = {
        "none": [],
        "another hash": [said("bank"), said("shop")],
        "no hash": [said("bank", None)],
        "of the hub": [said("coordinator", FORGED)],
        "of another study": [said("bank", FORGED, study="ef" * 16)],
        "of another signer": [said("bank", FORGED).replace(b" bank ", b" shop ")],
        "one differs": [said("bank", FORGED), said("shop")],
    }
    for each in statements.values():
        with raises(FederationError, "FE041"):
            Fetched(STUDY, FORGED_FILES, each).compare(PARTIES, ours.members).check()


def test_files_beside_the_model_are_taken_only_if_a_party_signed_them(ours: Club) -> None:
    """The hub can write what it likes into a statement or a report, and nobody takes it."""
    files = {**FILES, "privacy.json": b"epsilon 1", "card.md": b"c", "report.html": b"all is well"}
    true = {"privacy.json": b"epsilon 1", "card.md": b"c"}
    found = Fetched(STUDY, files, [said("bank", **true), said("shop")])
    taken = [
        (found, {"privacy.json", "card.md"}),
        (replace(found, files={**files, "privacy.json": b"epsilon 0"}), {"card.md"}),
        (replace(found, finished=[said("bank", **true), said("shop", **true | {"card.md": b"d"})]), {"privacy.json"}),
        (replace(found, finished=[said("bank"), said("coordinator", **files)]), set()),
    ]
    for fetched, beside in taken:
        assert set(fetched.signed(PARTIES, ours.members)) == {"model.json", *beside}


def test_arrays_are_those_that_the_model_names(ours: Club) -> None:
    model = json.dumps({"arrays": sha256(b"arrays").hexdigest()}).encode()
    found = Fetched(STUDY, {"model.json": model, "model.npz": b"arrays"}, [said("bank", sha256(model).hexdigest())])
    assert found.compare(PARTIES, ours.members).confirmed
    for files in ({"model.json": model}, {"model.json": model, "model.npz": b"others"}):
        refused("FE042", replace(found, files=files).compare, PARTIES, ours.members)


def test_the_hub_hands_out_what_parties_signed(tmp_path: Path) -> None:
    talk = Talk(tmp_path)
    study = talk.agreed()
    for who in ("bank", "shop", "coordinator"):
        assert talk.outcome(study, who, "finished", result=TRUE)
    folder = tmp_path / "results" / study
    folder.mkdir(parents=True)
    for name, content in FILES.items():
        (folder / name).write_bytes(content)
    service = DeskService(talk.desk, tmp_path / "results", lambda: talk.now)
    told, behind = heard(asyncio.run(service.answer("ana", packed({"ask": "result", "study": study}))))
    found = Fetched(study, files_in(told, behind), statements_in(told["finished"]))
    compared = found.compare(PARTIES, talk.club.members)
    assert (compared.signed, compared.differs, compared.missing) == (("bank", "shop"), (), ("clinic",))


# --- FEDERATION.toml


def test_it_is_read_as_it_was_written_and_the_hubs_part_is_its_own(tmp_path: Path) -> None:
    ours = club(tmp_path).members
    found = Members.load(ours.path)
    assert (found.name, found.address, found.roles, found.pins) == (ours.name, ours.address, ours.roles, ours.pins)
    assert (found.parties, found.analysts, found.hub) == (PARTIES, (*PARTIES, "ana"), None)
    part = '\n[hub]\nkey = "k/coordinator.key"  # ours\nmemory = "2 GB"\nlanes = 8\n[hub.compute]\nworkers = 4\n'
    ours.path.write_text(ours.path.read_text() + part)
    found = Members.load(ours.path)
    assert (found.hub.memory, found.hub.lanes) == (2 * 10**9, 8)
    assert (found.hub.compute.workers, found.hub.compute.engine) == (4, "processes")
    assert found.digest == ours.digest
    found.with_member(identity("new").certificate, "party").append("new")
    again = Members.load(ours.path)
    assert (again.hub, again.roles["new"]) == (found.hub, "party")
    assert again.digest != ours.digest
    assert "# ours" in ours.path.read_text()
    for taken in ("bank", "others"):
        refused("FE039", found.with_member, Identity.create(taken).certificate, "party")
    for strangers in (["ana"], ["coordinator"], ["bank", "eve"]):
        refused("FE038", found.check, strangers)


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
    'memory = "four"': ("FE036|VA157", "hub.memory"),
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
        refused(("ID031|VA158|VA161|VA162|VA195|VA235", "FEDERATION.toml"), Members.load, path)
    for part, sentence in WRONG_HUB.items():
        path.write_text(f"{text}\n[hub]\n{part}\n")
        refused(sentence, Members.load, path)
    (tmp_path / "certs/bank.crt").write_bytes((tmp_path / "certs/shop.crt").read_bytes())
    for changed in (text, text.replace(identity("bank").fingerprint, identity("shop").fingerprint)):
        path.write_text(changed)  # a certificate is the pinned one, and carries its name
        with raises(IdentityError, "ID*"):
            Members.load(path)


def test_six_words() -> None:
    known = words()
    assert len(set(known)) == len(known) == 2048
    assert all(word.isascii() and word.islower() and 2 < len(word) < 11 for word in known)
    said = six_words("sha256:aa", "b")
    assert len(said.split()) == 6
    assert said not in (six_words("sha256:a", "ab"), six_words("sha256:aa", "c"))
