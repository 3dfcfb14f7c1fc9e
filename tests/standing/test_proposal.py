"""Proposals and what is said about them: signed by whom they name, about one proposal, and safe to write to disk."""

from __future__ import annotations

import tracemalloc
from base64 import b64encode
from datetime import timedelta
from pathlib import Path

import pytest

from colonnade.errors import FederationError
from colonnade.standing.federation import Members
from colonnade.standing.proposal import MOST_BYTES, MOST_PACKED, Answer, Outcome, Proposal, Withdrawal, id_of
from colonnade.standing.signed import canonical, seal
from colonnade.wire import Identity
from tests.support.errors import raises

from .club import NOON, Club, club, study_text


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Club:
    return club(tmp_path_factory.mktemp("federation"))


def test_a_proposal_survives_its_way(ours: Club, tmp_path: Path) -> None:
    raw = ours.packed("bank", "shop")
    found = Proposal.unpack(raw, ours.members)
    assert found == ours.proposal("bank", "shop")
    assert found.id == id_of(raw)
    assert len(found.id) == 32
    assert found.participants == ("bank", "shop", "coordinator")
    assert found.kind == "pca"
    path = found.write(tmp_path / "study", ours.members)
    assert path.read_bytes() == found.files["study.toml"]
    assert (tmp_path / "study/certs/shop.crt").read_bytes() == ours.members.certificates["shop"].pem
    assert not (tmp_path / "study/certs/clinic.crt").exists()


def test_a_party_may_propose_and_the_hub_may_not(ours: Club) -> None:
    assert Proposal.unpack(ours.packed(analyst="bank"), ours.members).analyst == "bank"
    with raises(FederationError, "FE068"):
        Proposal.unpack(ours.packed(analyst="coordinator"), ours.members)


def test_a_forged_proposal_is_refused(ours: Club) -> None:
    raw = ours.packed()
    header, body = raw.split(b"\n", 1)
    stranger = Identity.create("ana")
    forged = [
        raw[:-2] + b"1}",
        raw.replace(b" ana ", b" bank ", 1),
        raw.replace(b"proposal", b"answer", 1),
        ours.proposal().pack(stranger),
        ours.packed(analyst="ana").replace(b" ana ", b" eve ", 1),
        header.replace(b" ana ", b" a/../na ", 1) + b"\n" + body,
        body,
        b"",
        header,
    ]
    for each in forged:
        with pytest.raises(FederationError):
            Proposal.unpack(each, ours.members)


def test_a_body_is_written_in_one_way_only(ours: Club) -> None:
    """Otherwise one signed study would have many ids, or keys that some read and others do not."""
    body = ours.packed().split(b"\n", 1)[1].decode()
    key = ours.keys["ana"]
    for other in (body.replace(":", ": ", 1), body.replace('"name"', '"name":"x","name"', 1), body + " "):
        content = other.encode()
        signature = key.sign(b"colonnade-signed-1 proposal ana\n" + content)
        raw = b"colonnade-signed-1 proposal ana " + b64encode(signature) + b"\n" + content
        with raises(FederationError, "FE100"):
            Proposal.unpack(raw, ours.members)


NAMES = [
    "../evil.toml",
    "/etc/passwd",
    "a/../../b",
    "a\\b",
    "certs/bank.crt",
    "Certs/bank.crt",
    "a//b",
    "a/",
    ".hidden",
    "a\nb",
    "a/b/c/d/e/f/g",
    "x" * 101,
    "STUDY.toml",
    "study.toml/x",
    "<b>",
    "nul\x00",
    "dot.",
]


@pytest.mark.parametrize("name", NAMES)
def test_file_names_stay_in_their_folder(ours: Club, name: str) -> None:
    proposal = ours.proposal()
    raw = ours.packed(files={**proposal.files, name: b""})
    with raises(FederationError, "FE080|FE081"):
        Proposal.unpack(raw, ours.members)


def test_pins_address_and_parties_are_those_of_the_federation(ours: Club) -> None:
    text = study_text(ours.members, ("bank", "shop"))
    pin = ours.members.pins
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
    }
    for changed in wrong.values():
        with pytest.raises(FederationError):
            Proposal.unpack(ours.packed(files={"study.toml": changed.encode()}), ours.members)


def test_a_study_in_lanes_may_be_proposed_and_not_with_further_hubs(ours: Club) -> None:
    text = study_text(ours.members, ("bank", "shop")) + "[lanes]\npartitions = 4\n"
    found = Proposal.unpack(ours.packed(files={"study.toml": text.encode()}), ours.members)
    assert found.asked["lanes"] == {"partitions": 4}
    address = f'address = "{ours.members.address}"'
    elsewhere = text.replace(address, f'{address}\nhubs = ["192.0.2.1:22"]')
    with raises(FederationError, "FE067"):
        Proposal.unpack(ours.packed(files={"study.toml": elsewhere.encode()}), ours.members)


def test_sizes_are_bounded(ours: Club) -> None:
    proposal = ours.proposal()
    large = {"schemas/x.toml": bytes(MOST_BYTES)}
    with raises(FederationError, "FE079"):
        Proposal.unpack(ours.packed(files={**proposal.files, **large}), ours.members)
    many = {f"f{i}": b"" for i in range(64)}
    with raises(FederationError, "FE102", "files"):
        Proposal.unpack(ours.packed(files={**proposal.files, **many}), ours.members)
    with raises(FederationError, "FE095", "proposal"):
        Proposal.unpack(bytes(1 << 26), ours.members)
    with raises(FederationError, "FE094"):
        Proposal.unpack(bytes(MOST_PACKED + 1), ours.members)
    columns = "columns = [" + ",".join(f'"c{i}"' for i in range(1_000_000)) + "]"
    text = study_text(ours.members, ("bank", "shop")).replace("[parties.", f"{columns}\n[parties.", 1)
    with raises(FederationError, "FE069"):
        Proposal.unpack(ours.packed(files={"study.toml": text.encode()}), ours.members)


def test_a_statement_of_millions_of_parts_is_refused_before_it_is_read(ours: Club) -> None:
    ana = ours.keys["ana"]
    raw = seal("proposal", {"files": [[] for _ in range(300_000)]}, ana)
    tracemalloc.start()
    with raises(FederationError, "FE098"):
        Proposal.unpack(raw, ours.members)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 4 * len(raw)  # read, it would take dozens of times as much


def test_a_model_may_be_larger(ours: Club) -> None:
    files = dict(ours.proposal().files)
    files["study.toml"] = files["study.toml"].replace(b"[task]\n", b'[task]\nmodel = "m/model.json"\n')
    assert Proposal.unpack(ours.packed(files={**files, "m/model.json": bytes(MOST_BYTES + 1)}), ours.members)
    with raises(FederationError, "FE079"):
        Proposal.unpack(ours.packed(files={**files, "m/other.json": bytes(MOST_BYTES + 1)}), ours.members)


def test_moments(ours: Club) -> None:
    found = Proposal.unpack(ours.packed(), ours.members)
    found.check_time(NOON)
    with raises(FederationError, "FE071"):
        found.check_time(found.deadline)
    with raises(FederationError, "FE072"):
        found.check_time(NOON - timedelta(days=2))
    for deadline in (NOON, NOON + timedelta(days=400)):
        with raises(FederationError, "FE073|FE074"):
            Proposal.unpack(ours.packed(deadline=deadline), ours.members)


def test_answers_outcomes_and_withdrawals_survive_and_cannot_be_forged(ours: Club) -> None:
    about = Proposal.unpack(ours.packed(), ours.members).id
    said = [
        Answer(about, "bank", True, "", 2, NOON),
        Outcome(about, 1, "coordinator", "finished", NOON),
        Withdrawal(about, "ana", NOON),
    ]
    for each, signer in zip(said, ("bank", "coordinator", "ana"), strict=True):
        raw = each.pack(ours.keys[signer])
        assert type(each).unpack(raw, ours.members) == each
        for other in said:
            if type(other) is not type(each):
                with raises(FederationError, "FE095"):
                    type(other).unpack(raw, ours.members)
        with raises(FederationError, "FE084"):
            each.pack(ours.keys["clinic"])
        with raises(FederationError, "FE097"):
            type(each).unpack(raw.replace(f" {signer} ".encode(), b" clinic ", 1), ours.members)


@pytest.mark.parametrize(
    "body",
    [
        {"proposal": "0" * 32, "attempt": 0, "ended": "lost"},
        {"proposal": "0" * 32, "attempt": 7, "ended": "lost"},
        {"proposal": "0" * 32, "attempt": True, "ended": "lost"},
        {"proposal": "0" * 32, "attempt": 1, "ended": ["lost"]},
        {"proposal": "0" * 31, "attempt": 1, "ended": "lost"},
        {"proposal": "0" * 32, "attempt": 1, "ended": "lost", "why": "a cell"},
    ],
)
def test_an_outcome_of_another_form_is_refused(ours: Club, body: dict[str, object]) -> None:
    raw = seal("outcome", body | {"made": "2030-01-02T12:00:00.000+00:00"}, ours.keys["bank"])
    with raises(FederationError, "FE101|FE102"):
        Outcome.unpack(raw, ours.members)
    assert canonical({"b": 1, "a": "ü"}) == b'{"a":"\\u00fc","b":1}'


def test_an_answer_of_an_analyst_is_none(ours: Club) -> None:
    with raises(FederationError, "FE038"):
        Answer.unpack(Answer("0" * 32, "ana", True, "", 0, NOON).pack(ours.keys["ana"]), ours.members)


def test_members_of_another_federation_are_strangers(ours: Club) -> None:
    kept = {name: c for name, c in ours.members.certificates.items() if name != "ana"}
    others = Members("o", ours.members.address, kept, ours.members.roles, None, ours.members.path)
    with raises(FederationError, "FE096", "o"):
        Proposal.unpack(ours.packed(), others)
