"""Results from a hub that is not trusted: what parties have signed is taken, and nothing else."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest

from colonnade.errors import FederationError
from colonnade.standing.fetched import Fetched, statements_in
from colonnade.standing.proposal import Outcome
from colonnade.standing.service import DeskService
from colonnade.standing.signed import seal, written
from colonnade.standing.talk import files_in, heard, packed
from tests.support.errors import raises

from .club import NOON, Club, club, identity
from .test_desk import Talk

STUDY, PARTIES = "cd" * 16, ("bank", "shop", "clinic")
FILES = {"model.json": b'{"learned": {}}', "privacy.json": b"{}"}
TRUE = sha256(FILES["model.json"]).hexdigest()
FORGED = {"model.json": b'{"forged": true}', "report.html": b"<h1>forged by the hub</h1>"}


@pytest.fixture
def ours(tmp_path: Path) -> Club:
    return club(tmp_path)


def said(who: str, result: str | None = TRUE, study: str = STUDY) -> bytes:
    return Outcome(study, 1, who, "finished", NOON, result).pack(identity(who))


def test_what_parties_signed_is_taken_and_whose_hash_is_missing_is_said(ours: Club) -> None:
    found = Fetched(STUDY, FILES, [said("bank"), said("shop", None)])
    compared = found.compare(PARTIES, ours.members)
    assert (compared.signed, compared.differs, compared.missing) == (("bank",), (), ("shop", "clinic"))
    compared.check()
    assert str(compared) == "model.json is what bank signed; no hash came from shop, clinic"


@pytest.mark.parametrize(
    "statements",
    [
        [],
        [said("bank"), said("shop")],
        [said("bank", None)],
        [said("coordinator", sha256(FORGED["model.json"]).hexdigest())],
        [said("bank", sha256(FORGED["model.json"]).hexdigest(), study="ef" * 16)],
        [said("bank", sha256(FORGED["model.json"]).hexdigest()).replace(b" bank ", b" shop ")],
        [said("bank", sha256(FORGED["model.json"]).hexdigest()), said("shop")],
    ],
    ids=["none", "another hash", "no hash", "of the hub", "of another study", "of another signer", "one differs"],
)
def test_what_the_hub_has_made_itself_is_not_taken(ours: Club, statements: list[bytes]) -> None:
    with raises(FederationError, "FE041"):
        Fetched(STUDY, FORGED, statements).compare(PARTIES, ours.members).check()


def test_files_beside_the_model_are_taken_only_if_a_party_signed_them(ours: Club) -> None:
    """The hub can write what it likes into a statement or a report, and nobody takes it."""

    def finished(who: str, **files: bytes) -> bytes:
        hashes = {name: sha256(content).hexdigest() for name, content in files.items()}
        return Outcome(STUDY, 1, who, "finished", NOON, TRUE, hashes).pack(identity(who))

    files = {**FILES, "privacy.json": b"epsilon 1", "card.md": b"c", "report.html": b"all is well"}
    true = {"privacy.json": b"epsilon 1", "card.md": b"c"}
    found = Fetched(STUDY, files, [finished("bank", **true), said("shop")])
    assert set(found.signed(PARTIES, ours.members)) == {"model.json", "privacy.json", "card.md"}
    forged = replace(found, files={**files, "privacy.json": b"epsilon 0"})
    assert set(forged.signed(PARTIES, ours.members)) == {"model.json", "card.md"}
    differ = replace(found, finished=[finished("bank", **true), finished("shop", **true | {"card.md": b"d"})])
    assert set(differ.signed(PARTIES, ours.members)) == {"model.json", "privacy.json"}
    of_the_hub = replace(found, finished=[said("bank"), finished("coordinator", **files)])
    assert set(of_the_hub.signed(PARTIES, ours.members)) == {"model.json"}
    for wrong in ({}, {"../x": "0" * 64}, {"a": "0"}):
        raw = seal("outcome", {"proposal": STUDY, "attempt": 1, "ended": "finished", "made": written(NOON),
                               "result": TRUE, "files": wrong}, identity("bank"))  # fmt: skip
        with raises(FederationError, "FE102", "files"):
            Outcome.unpack(raw, ours.members)


def test_arrays_are_those_that_the_model_names(ours: Club) -> None:
    model = json.dumps({"arrays": sha256(b"arrays").hexdigest()}).encode()
    found = Fetched(STUDY, {"model.json": model, "model.npz": b"arrays"}, [said("bank", sha256(model).hexdigest())])
    assert found.compare(PARTIES, ours.members).confirmed
    for files in ({"model.json": model}, {"model.json": model, "model.npz": b"others"}):
        with raises(FederationError, "FE042"):
            replace(found, files=files).compare(PARTIES, ours.members)


def test_statements_without_a_hash_stay_readable_and_a_hash_belongs_to_an_end(ours: Club) -> None:
    old = said("bank", None)
    assert b"result" not in old
    assert Outcome.unpack(old, ours.members).result is None
    assert Outcome.unpack(said("bank"), ours.members).result == TRUE
    for wrong in (replace(Outcome.unpack(old, ours.members), result="x"),):
        with raises(FederationError, "FE102", "result"):
            Outcome.unpack(wrong.pack(identity("bank")), ours.members)
    lost = Outcome(STUDY, 1, "bank", "lost", NOON, TRUE).pack(identity("bank"))
    with raises(FederationError, "FE083"):
        Outcome.unpack(lost, ours.members)
    for told in (None, [1], ["\u00e9"], ["x"] * 100_000):
        with pytest.raises(FederationError):
            statements_in(told)


def test_the_hub_hands_out_what_parties_signed(tmp_path: Path) -> None:
    talk = Talk(tmp_path)
    study = talk.propose()
    talk.agree(study)
    for who in (*PARTIES[:2], "coordinator"):
        raw = Outcome(study, 1, who, "finished", talk.now, TRUE).pack(identity(who))
        assert talk.desk.outcome(raw, who, talk.now)
    folder = tmp_path / "results" / study
    folder.mkdir(parents=True)
    for name, content in FILES.items():
        (folder / name).write_bytes(content)
    service = DeskService(talk.desk, tmp_path / "results", lambda: talk.now)
    told, behind = heard(asyncio.run(service.answer("ana", packed({"ask": "result", "study": study}))))
    found = Fetched(study, files_in(told, behind), statements_in(told["finished"]))
    compared = found.compare(PARTIES, talk.club.members)
    assert (compared.signed, compared.differs, compared.missing) == (("bank", "shop"), (), ("clinic",))
