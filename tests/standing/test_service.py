"""The desk over real connections: questions, news that are waited for, invitations, and who may ask what."""

from __future__ import annotations

import re
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from colonnade.cli.initialise import party
from colonnade.errors import ColonnadeError, ConnectError, FederationError, IdentityError, StorageError
from colonnade.standing.agent import Agent
from colonnade.standing.checkup import examine_member
from colonnade.standing.federation import Members
from colonnade.standing.fetched import Fetched
from colonnade.standing.invitation import Invitations, Token, new_draw, sealed
from colonnade.standing.keeper import Keeper
from colonnade.standing.line import Entrance, Line
from colonnade.standing.newcomers import accept, keep, newcomers, waiting
from colonnade.standing.proposal import Answer, Proposal, Withdrawal
from colonnade.standing.signed import seal
from colonnade.standing.talk import METHOD, SERVICE, files_in, heard, packed, studies_in, unpacked, with_files
from colonnade.study.spec import is_party_file
from colonnade.wire import Identity
from tests.support.errors import raises
from tests.support.ports import free_port

from .club import club


class Standing:
    """A hub in a thread, and the lines of its members."""

    def __init__(self, folder: Path) -> None:
        self.club = club(folder, f"127.0.0.1:{free_port()}")
        path = self.club.members.path
        self.club.keys["coordinator"].save(folder)
        path.write_text(path.read_text() + "\n[hub]\n")
        self.path = path
        self.start()

    def start(self) -> None:
        self.keeper, ready = Keeper(self.path), threading.Event()
        self.thread = threading.Thread(target=self.keeper.run, args=(ready.set,))
        self.thread.start()
        assert ready.wait(60)
        self.members = Members.load(self.path)

    def stop(self) -> None:
        self.keeper.stop()
        self.thread.join(60)
        assert not self.thread.is_alive()

    def line(self, name: str) -> Line:
        return Line(self.members, self.club.keys[name])

    def proposal(self, *parties: str, **changes: object) -> Proposal:
        now = datetime.now(UTC)
        return self.club.proposal(*parties, **{"made": now, "deadline": now + timedelta(days=1), **changes})

    def invite(self, name: str = "lab", **lasts: float) -> Token:
        file = self.keeper.desk.file
        lasting = timedelta(**lasts or {"hours": 1})
        return Invitations(file).make(self.keeper.members, name, "party", lasting, datetime.now(UTC))


@pytest.fixture(scope="module")
def standing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standing]:
    found = Standing(tmp_path_factory.mktemp("hub"))
    yield found
    found.stop()


def test_a_proposal_reaches_its_parties_and_their_answers_the_analyst(standing: Standing) -> None:
    with standing.line("ana") as ana, standing.line("bank") as bank:
        since = ana.news(0, wait=0)["serial"]
        told = ana.propose(standing.proposal("bank", "shop", purpose="<script>alert(1)</script>"))
        assert [study["id"] for study in bank.news(since, wait=20)["studies"]] == [told["id"]]
        found = Proposal.unpack(bank.proposal(told["id"]), standing.members)
        assert found.id == told["id"]
        assert found.purpose == "<script>alert(1)</script>"
        since = ana.news(0, wait=0)["serial"]
        heard_of: list[dict[str, object]] = []
        waits = threading.Thread(target=lambda: heard_of.extend(ana.news(since, wait=20)["studies"]))
        waits.start()
        said = bank.answer(Answer(told["id"], "bank", False, "no", 0, datetime.now(UTC)))
        assert said["state"] == "declined"
        waits.join(30)
        assert [study["answers"] for study in heard_of] == [{"bank": False, "shop": None}]
        with raises(FederationError, "FE020"):
            bank.proposal(told["id"])
        with raises(FederationError, "FE090"):
            ana.result(told["id"])
        with raises(FederationError, "FE027"):
            ana.withdraw(Withdrawal(told["id"], "ana", datetime.now(UTC)))


def test_questions_that_are_none_are_refused_in_a_sentence(standing: Standing) -> None:
    asked = (b"", b"x", b"{}", b"[]\n", b'{"ask": "_result"}\n', b'{"ask": "enrol"}\n', bytes(1 << 22), b"{" * 9999)
    with standing.line("bank") as bank:
        for body in asked:
            header, _ = unpacked(bank._caller.ask(SERVICE, METHOD, body))
            assert set(header) == {"refused"}
    with standing.line("bank") as bank:
        for study in ("0" * 32, "../../etc/passwd", "%00"):
            with pytest.raises(FederationError):
                bank.result(study)
            with pytest.raises(FederationError):
                bank.proposal(study)


def test_a_very_large_question_is_refused_and_costs_little(standing: Standing) -> None:
    """64 MiB of zeros behind a header: read, and refused before anything is parsed."""
    body = packed({"ask": "propose"}, bytes(1 << 26))
    tracemalloc.start()
    with raises(FederationError, "FE095", "proposal"), standing.line("ana") as ana:
        heard(ana._caller.ask(SERVICE, METHOD, body, timeout=120))
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 6 << 26, "copies of one question at both ends, all in this process, and nothing that grows from it"
    with pytest.raises(ColonnadeError), standing.line("ana") as ana:
        ana._caller.ask(SERVICE, METHOD, bytes(96 << 20), timeout=120)


def test_the_hubs_word_is_checked(standing: Standing) -> None:
    """A hub that answers nonsense is told apart from one that cannot be reached."""
    with pytest.raises(ConnectError):
        heard(packed({"later": "x"}))
    with raises(FederationError, "FE106", "<b>"):
        heard(packed({"refused": "<b>"}))
    for told in (None, [{}], [{"id": "x"}], {"a": 1}):
        with pytest.raises(FederationError):
            studies_in(told)
    files = {"b": b"22", "a": b"1"}
    assert files_in(*unpacked(with_files({}, files))) == files
    for sizes in ({"a": -1}, {"a": 99}, [], {"a": "1"}):
        with pytest.raises(FederationError):
            files_in({"files": sizes}, b"xx")


def test_somebody_joins_by_an_invitation(standing: Standing, tmp_path: Path) -> None:
    token = Token.unpack(f"  {standing.invite().pack()}\n")
    lab, draw = Identity.create("lab"), new_draw()
    with Entrance(token) as door:
        theirs = retrying(lambda: door.enrol(lab, draw))
        assert door.enrol(lab, draw) == theirs, "a lost answer is asked for again"
        with raises(FederationError, "FE050"):
            door.enrol(lab, new_draw())  # else it could look for one that makes other words
        with raises(FederationError, "FE051"):
            door.show_draw(new_draw())
        early = standing.keeper.service.invitations.find("lab")
        assert early is not None
        assert (early.state, early.words(token.hub)) == ("open", None), "nothing to compare before both have drawn"
        door.show_draw(draw)
        door.show_draw(draw)
        assert door.admitted(tmp_path / "FEDERATION.toml") is None
        with raises(FederationError, "FE050"):
            door.enrol(Identity.create("lab"), new_draw())
        invitations = standing.keeper.service.invitations
        found = invitations.find("lab")
        assert found is not None
        assert found.enrolled is not None
        hub = standing.members.certificates["coordinator"]
        words = token.words(lab.certificate, theirs, draw)
        assert words == found.words(hub)
        others = {token.words(lab.certificate, theirs, new_draw()), token.words(lab.certificate, new_draw(), draw)}
        assert words not in others, "a key that was there before makes no words by itself"
        assert len(set(words.split())) >= 4
        invitations.admit("lab", Members.load(standing.path), datetime.now(UTC))
        members = retrying(lambda: door.admitted(tmp_path / "FEDERATION.toml"), lambda found: found is not None)
        members.save(tmp_path / "FEDERATION.toml")
        with raises(FederationError, "FE050"):
            door.enrol(Identity.create("lab"), new_draw())
    now = datetime.now(UTC)
    assert token.identity.name in invitations.doors(now), "it may ask what became of it"
    assert token.identity.name not in invitations.doors(now + timedelta(hours=1)), "and then its door closes"
    assert token.expires > now + timedelta(hours=1, minutes=-1)
    joined = Members.load(tmp_path / "FEDERATION.toml")
    assert joined.roles["lab"] == "party"
    with Line(joined, lab) as line:
        assert retrying(lambda: line.news(0, wait=0))["studies"] == []
        there = line.members()
    offered = newcomers(standing.club.members, there)
    assert [(each.name, each.known) for each in offered] == [("lab", False)]
    ours = club(tmp_path / "bank").members
    keep(tmp_path / "agent", there)
    assert accept(ours.path, waiting(tmp_path / "agent", ours)[0]).roles["lab"] == "party"
    assert waiting(tmp_path / "agent", Members.load(ours.path)) == []


def test_a_proposal_with_a_stranger_is_taken_in_once_the_stranger_is_accepted(
    standing: Standing, tmp_path: Path
) -> None:
    standing.club.keys["bank"].save(tmp_path)
    standing.members.only("coordinator", "bank", "shop").save(tmp_path / "FEDERATION.toml")
    party("bank", tmp_path, "bank.csv", "person_id", federation="FEDERATION.toml")
    agent = Agent(tmp_path / "party.toml")
    with standing.line("ana") as ana, standing.line("bank") as bank:
        study = ana.propose(standing.proposal("bank", "shop"))["id"]
        agent._hear({"studies": [told for told in bank.news(0, wait=0)["studies"] if told["id"] == study]})
        agent._errands._fetch()
        assert agent.office.entries() == [], "nobody at the bank has accepted ana"
        (offered,) = (each for each in newcomers(agent.members, bank.members()) if each.name == "ana")
    accept(tmp_path / "FEDERATION.toml", offered)
    agent._reread()
    agent._errands._fetch()
    assert [(entry.id, entry.state) for entry in agent.office.entries()] == [(study, "checking")]


def test_a_key_is_changed_by_taking_the_old_one_out_and_joining_again(tmp_path: Path) -> None:
    def take_out(path: Path, name: str) -> None:
        text, section = path.read_text(), rf'\[members\."{name}"\]\nrole = .*\npin = .*\n'
        assert len(re.findall(section, text)) == 1
        path.write_text(re.sub(section, "", text))

    standing = Standing(tmp_path / "hub")
    try:
        shop, new = tmp_path / "shop" / "FEDERATION.toml", Identity.create("bank")
        standing.members.save(shop)
        with raises(FederationError, "FE039"):
            standing.invite("bank")
        take_out(standing.path, "bank")
        retrying(lambda: standing.keeper.members, lambda found: "bank" not in found.roles)
        with standing.line("bank") as old, pytest.raises((IdentityError, ConnectError)):
            old.news(0, wait=0)
        with Entrance(standing.invite("bank")) as door:
            draw = new_draw()
            retrying(lambda: door.enrol(new, draw))
            door.show_draw(draw)
            standing.keeper.service.invitations.admit("bank", Members.load(standing.path), datetime.now(UTC))
            joined = retrying(lambda: door.admitted(tmp_path / "new" / "FEDERATION.toml"), lambda found: found)
        with Line(joined, new) as line:
            assert retrying(lambda: line.news(0, wait=0))["studies"] == []
        with standing.line("bank") as old, pytest.raises((IdentityError, ConnectError)):
            old.news(0, wait=0)
        with standing.line("shop") as line:
            offered = line.members()
        (changed,) = newcomers(Members.load(shop), offered)
        assert (changed.name, changed.known) == ("bank", True)
        with raises(FederationError, "FE066", "bank"):
            accept(shop, changed)
        take_out(shop, "bank")
        (changed,) = newcomers(Members.load(shop), offered)
        accept(shop, changed)
        assert Members.load(shop).pins["bank"] == new.fingerprint
    finally:
        standing.stop()


def test_an_invitation_is_good_for_one_name_one_key_and_a_while(standing: Standing) -> None:
    token = standing.invite("one")
    other = standing.invite("two")
    one = Identity.create("one")
    with Entrance(token) as door:
        retrying(lambda: door.admitted(Path("x")))
        with raises(FederationError, "FE049", "one"):
            door.enrol(Identity.create("two"), new_draw())
        with raises(FederationError, "FE054"):
            door._ask({"ask": "enrol"}, other.proof(one, new_draw()))
        bank = standing.club.keys["bank"].certificate
        stolen = {"invitation": token.id, "hub": token.hub.fingerprint, "certificate": bank.pem.decode()}
        stolen["sealed"] = sealed(new_draw())
        for signer in (Identity.create("bank"), one):
            with pytest.raises(FederationError):
                door._ask({"ask": "enrol"}, seal("enrolment", stolen, signer))
        with raises(FederationError, "FE088"):
            door._ask({"ask": "news", "since": 0, "wait": 0})
        with raises(FederationError, "FE088"):
            door._ask({"ask": "members"})
    renewed = standing.invite("one")
    with Entrance(token) as door, pytest.raises((FederationError, IdentityError, ConnectError)):
        door.enrol(one, new_draw())
    invitations = standing.keeper.service.invitations
    late = datetime.now(UTC) + timedelta(hours=2)
    with raises(FederationError, "FE048"):
        invitations.enrol(renewed.identity.name, renewed.proof(one, new_draw()), standing.members, late)
    with raises(FederationError, "FE045"):
        renewed.check_time(late)
    with raises(FederationError, "FE052"):
        invitations.admit("one", standing.members, datetime.now(UTC))
    for wrong in ("bank", "others", "invitation.x", "coordinator"):
        with raises(FederationError, "FE039"):
            standing.invite(wrong)
    with raises(FederationError, "FE046"):
        standing.invite("three", days=40)
    for text in ("", "hello", token.pack()[:-9], "colonnade-invitation-" + "x" * 9000):
        with raises(FederationError, "FE044"):
            Token.unpack(text)


def test_the_doctor_of_a_member_needs_no_study(standing: Standing, tmp_path: Path) -> None:
    standing.club.keys["bank"].save(tmp_path)
    standing.members.only("coordinator", "bank").save(tmp_path / "FEDERATION.toml")
    party("bank", tmp_path, "bank.csv", "person_id", federation="FEDERATION.toml")
    (tmp_path / "bank.csv").write_text("person_id,age\np1,30\n")
    assert is_party_file(tmp_path / "party.toml")
    assert not is_party_file(tmp_path / "FEDERATION.toml")
    assert not is_party_file(tmp_path / "nothing.toml")

    def levels() -> dict[str, str]:
        return {check.what: check.level for check in examine_member(tmp_path / "party.toml")}

    found = levels()
    assert {found[what] for what in ("party", "key", "table", "federation", "hub")} == {"good"}
    assert found["members"] == "unsure", "the hub names others whom nobody here has accepted"
    assert {"ledger", "clock", "versions"} <= set(found)
    text = (tmp_path / "FEDERATION.toml").read_text()
    (tmp_path / "FEDERATION.toml").write_text(text.replace(standing.members.address, "127.0.0.1:9"))
    assert levels()["hub"] == "bad"
    standing.members.only("coordinator", "shop").save(tmp_path / "FEDERATION.toml")
    assert levels()["federation"] == "bad"
    (tmp_path / "party.toml").write_text("name = 1")
    assert levels() == {"party": "bad"}


def test_a_stranger_gets_no_answer(standing: Standing) -> None:
    with Line(standing.members, Identity.create("bank")) as line, pytest.raises((IdentityError, ConnectError)):
        line.news(0, wait=0)


def test_a_restart_forgets_nothing(tmp_path: Path) -> None:
    standing = Standing(tmp_path)
    try:
        token = standing.invite()
        lab, draw = Identity.create("lab"), new_draw()
        with standing.line("ana") as ana:
            told = ana.propose(standing.proposal())
        with Entrance(token) as door:
            theirs = retrying(lambda: door.enrol(lab, draw))
        with raises(FederationError, "FE056"):
            Keeper(standing.path).run()
        standing.stop()
        standing.start()
        with Entrance(token) as door:
            with raises(FederationError, "FE050"):
                retrying(lambda: door.enrol(Identity.create("lab"), new_draw()))
            assert door.enrol(lab, draw) == theirs
        with standing.line("bank") as bank:
            assert [study["id"] for study in bank.news(0, wait=0)["studies"]] == [told["id"]]
    finally:
        standing.stop()


def retrying(ask: Callable[[], Any], until: Callable[[Any], bool] = lambda _: True) -> Any:
    """Ask until the hub has seen what has just changed in its file: it looks five times a second."""
    for _ in range(600):
        try:
            if until(found := ask()):
                return found
        except (IdentityError, ConnectError):
            pass
        threading.Event().wait(0.1)
    raise AssertionError("the hub has not seen it")


def test_the_line_of_a_question_is_short_because_everybody_waits_while_the_hub_reads_it(standing: Standing) -> None:
    with standing.line("ana") as line:
        header = b'{"ask":[' + b"[]," * 2000 + b"[]]}\n"
        with raises(FederationError, "FE104"):
            heard(line._caller.ask(SERVICE, METHOD, header, timeout=30.0))
        assert line.news(0, wait=0.0)["serial"] >= 0


def test_files_of_a_result_overwrite_nothing_and_have_the_names_of_results(
    standing: Standing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from colonnade.cli import standing as command

    folder, keys = standing.path.parent, standing.club.keys
    keys["ana"].save(folder)
    before = {path: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    sent = {"FEDERATION.toml": b"pins of the hub's choice", "ana.key": b"gone", "model.json": b"{}"}
    monkeypatch.setattr(Line, "studies", lambda _: [{"id": "ab" * 16, "name": "x", "parties": ["bank"]}])
    monkeypatch.setattr(Line, "result", lambda *_: Fetched("ab" * 16, sent, []))
    own = (True, standing.path, folder / "ana.key", True)
    with raises(FederationError, "FE011"):
        command.result(["ab"], folder, *own)
    sent = {"model.json": b"{}", "synthetic-2.csv": b"", "card.md": b""}
    with raises(StorageError, "SO015"):
        command.result(["ab"], folder, *own)
    assert {path: path.read_bytes() for path in before} == before
    command.result(["ab"], tmp_path / "new", *own)
    assert {path.name for path in (tmp_path / "new").iterdir()} == set(sent)


def test_all_studies_are_told_however_many_there_are(standing: Standing, monkeypatch: pytest.MonkeyPatch) -> None:
    told = [{"id": f"{number:032x}", "serial": number} for number in range(1, 501)]

    def news(_: Line, since: int = 0, wait: float = 0.0) -> dict[str, Any]:
        some = [study for study in told if study["serial"] > since][:200]  # type: ignore[operator]
        return {"serial": some[-1]["serial"] if some else since, "studies": some}

    monkeypatch.setattr(Line, "news", news)
    with standing.line("ana") as line:
        assert line.studies() == told
