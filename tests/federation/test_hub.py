"""A hub over real connections: questions, news that are waited for, invitations, and who may ask what."""

from __future__ import annotations

import io
import json
import tracemalloc
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from colonnade.cli import key_commands, membership as commands, proposals as results
from colonnade.cli.initialise import party
from colonnade.errors import ConnectError, FederationError, IdentityError, StorageError
from colonnade.federation.agent import Agent
from colonnade.federation.attempts import FetchedResult
from colonnade.federation.checks import examine_member
from colonnade.federation.comparison import WordComparison, WordTries
from colonnade.federation.hub_protocol import (
    METHOD,
    SERVICE,
    EnrolmentClient,
    FederationClient,
    HubQuestion,
    NewsAnswer,
    ResultAnswer,
    StudyAnswer,
    pack_files,
    pack_message,
    read_answer,
    read_files,
    with_proven_answers,
)
from colonnade.federation.hub_server import HubServer
from colonnade.federation.invitations import InvitationToken, new_draw, seal_draw
from colonnade.federation.members import (
    FederationMembers,
    HubPart,
    accept_member,
    find_new_members,
    six_words,
    word_list,
)
from colonnade.federation.statements import Proposal, ProposalAnswer, Withdrawal, sign_content
from colonnade.study import PartyConfig
from colonnade.study.spec import is_party_file
from colonnade.wire import Identity
from tests.support.errors import raises
from tests.support.ports import free_port
from tests.support.studies import InThread
from tests.support.waiting import until

from .club import Hub, refused, retrying


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    found = Hub.of(tmp_path_factory.mktemp("hub"))
    yield found
    found.stop()


def member(hub: Hub, folder: Path, *known: str) -> Path:
    """The party file of the bank, which knows these members of the hub's federation."""
    hub.club.keys["bank"].save(folder)
    hub.members.select("coordinator", "bank", *known).save(folder / "FEDERATION.toml")
    party("bank", folder, "bank.csv", "person_id", federation="FEDERATION.toml")
    return folder / "party.toml"


# --- questions and answers


def test_a_proposal_reaches_its_parties_and_their_answers_the_analyst(hub: Hub) -> None:
    with hub.line("ana") as ana, hub.line("bank") as bank:
        since = ana.news(0, wait=0)["serial"]
        told = ana.tell(hub.proposal("bank", "shop", purpose="<script>alert(1)</script>"))
        assert [study["id"] for study in bank.news(since, wait=20)["studies"]] == [told["id"]]
        found = Proposal.unpack(bank.proposal(told["id"]), hub.members)
        assert (found.id, found.purpose) == (told["id"], "<script>alert(1)</script>")
        since = ana.news(0, wait=0)["serial"]
        with ThreadPoolExecutor() as pool:
            waits = pool.submit(ana.news, since, wait=20)
            answer = ProposalAnswer(told["id"], "bank", False, "", 0, datetime.now(UTC))
            said = bank.tell(answer)
            assert said["state"] == "declined"
            assert [study["answers"] for study in waits.result(60)["studies"]] == [{"bank": False, "shop": None}]
        said = bank.tell(replace(answer, why="not this year"))
        assert ("not this year" in str(said), said["answers"]["bank"]) == (False, False), "for the analyst alone"
        (heard,) = [study for study in ana.studies() if study["id"] == told["id"]]
        assert (heard["reasons"], heard["answers"]["bank"]) == ({"bank": "not this year"}, False)
        refused("FE020", bank.proposal, told["id"])
        refused("FE090", ana.result, told["id"])
        refused("FE027", ana.tell, Withdrawal(told["id"], "ana", datetime.now(UTC)))


def test_answers_that_a_hub_makes_up_are_none(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody has answered, and the hub says that all have; it shows what others signed, or about another study."""
    asked = [hub.proposal("bank", "shop", "clinic", purpose=purpose) for purpose in ("one", "another")]
    with hub.line("ana") as ana, hub.line("shop") as shop, hub.line("bank") as bank:
        one, another = (ana.tell(each)["id"] for each in asked)
        shop.tell(ProposalAnswer(another, "shop", True, "", 0, datetime.now(UTC)))
        store, shown = hub.keeper.proposals, bank.request(NewsAnswer, HubQuestion("news"))[0]["studies"]
        signed = shown[-1]["signed"]["shop"]
        describe = store._describe
        answer = ProposalAnswer(one, "bank", True, "", 0, datetime.now(UTC)).pack(hub.club.keys["bank"])
        lies = ["", signed, answer.decode(), answer.decode().replace(" bank ", " shop ", 1), "yes", ""]

        def lying(*given: Any) -> dict[str, Any]:
            told = describe(*given)
            if told["id"] != one:
                return told
            everybody = dict.fromkeys(told["parties"], True)
            shown = dict.fromkeys(("shop", "clinic"), lies[0])
            return told | {"state": "done", "answers": everybody, "signed": shown}

        monkeypatch.setattr(store, "_describe", lying)
        while len(lies) > 1:
            del lies[0]
            (told,) = [study for study in bank.studies() if study["id"] == one]
            assert told["answers"] == {"bank": None, "shop": None, "clinic": None}
        path = member(hub, tmp_path, "ana", "shop", "clinic")
        agent = Agent(path)
        agent._sync._fetch_proposal(another)
        monkeypatch.setattr(store, "_describe", describe)
        agent._sync._fetch_proposal(one)
        agent.store.record_assessment(one, {"refused": None}, "waiting", None)
        agent.store.decline(one, "eva", "no")
        monkeypatch.setattr(store, "_describe", lying)
        agent._process_news(bank.news(0, wait=0))
    found = {entry.id: entry for entry in agent.store.entries()}
    assert (found[one].state, set(found[one].answers.values())) == ("declined", {None}), "what our own person decided"
    assert found[another].answers == {"bank": None, "shop": True, "clinic": None}, "what the shop has signed"


def test_questions_that_are_none_are_refused_in_a_sentence(hub: Hub) -> None:
    asked = (b"", b"x", b"{}", b"[]\n", b'{"ask": "_result"}\n', b'{"ask": "enrol"}\n', bytes(1 << 22), b"{" * 9999)
    with hub.line("bank") as bank:
        for body in asked:
            assert "refused" in json.loads(bank.ask(SERVICE, METHOD, body))
        # The line of a question is short, because everybody waits while the hub reads it.
        refused("FE104", read_answer, bank.ask(SERVICE, METHOD, b'{"ask":[' + b"[]," * 2000 + b"[]]}\n"))
    with hub.line("bank") as bank:
        for study in ("0" * 32, "../../etc/passwd", "%00"):
            for ask in (bank.result, bank.proposal):
                with pytest.raises(FederationError):
                    ask(study)
    with FederationClient(hub.members, Identity.create("bank")) as line, pytest.raises((IdentityError, ConnectError)):
        line.news(0, wait=0)  # a stranger with a name of ours


def test_a_very_large_question_is_refused_and_costs_little(hub: Hub) -> None:
    """64 MiB of zeros behind a header: read, and refused before anything is parsed."""
    body = HubQuestion("propose").pack(bytes(1 << 26))
    tracemalloc.start()
    with raises(FederationError, "FE095", "proposal"), hub.line("ana") as ana:
        read_answer(ana.ask(SERVICE, METHOD, body, timeout=120))
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 6 << 26, "copies of one question at both ends, all in this process, and nothing that grows from it"


def test_the_hubs_word_is_checked() -> None:
    """A hub that answers nonsense is told apart from one that cannot be reached."""
    with pytest.raises(ConnectError):
        read_answer(pack_message({"later": "x"}))
    refused(("FE106", "<b>"), read_answer, pack_message({"refused": "<b>"}))
    for told in (None, [{}], [{"id": "x"}], {"a": 1}):
        refused("FE*", read_answer, pack_message({"serial": 1, "studies": told}), NewsAnswer)
    when = "{}-01-02T03:04:05.000+00:00"
    study = {"id": "ab" * 16, "name": "x", "kind": "pca", "digest": "0" * 64, "analyst": "ana", "purpose": ""}
    study |= {"state": "open", "attempt": 0, "made": when.format(2030), "deadline": when.format(2031), "ended": None}
    study |= {"parties": ["bank"], "answers": {"bank": None}, "withdrawn": None, "room": None, "serial": 1}
    more = {**study, "more": "x" * 100_000}
    assert read_answer(pack_message({"study": more, "more": 1}), StudyAnswer)[0] == {"study": study}, "what is unknown"
    assert with_proven_answers({**study, "signed": {}}, members=None) == study  # type: ignore[arg-type]
    many = {f"m{number}": True for number in range(65)}
    for wrong in ({"answers": many}, {"signed": dict.fromkeys(many, "")}, {"reasons": {"bank": "x" * 1001}},
                  {"ended": when.format(9999)}, {"made": when.format("0000")}):  # fmt: skip
        refused("FE108", read_answer, pack_message({"study": study | wrong}), StudyAnswer)
    refused("FE108", read_answer, pack_message({"serial": 1, "studies": [study] * 81}), NewsAnswer)
    files = {"b": b"22", "a": b"1"}
    assert read_files(*read_answer(pack_files({"finished": []}, files), ResultAnswer)) == files
    for sizes in ({"a": -1}, {"../a": 1}, [], {"a": "1"}):
        refused("FE*", read_answer, pack_message({"finished": [], "files": sizes}, b"xx"), ResultAnswer)


def test_all_studies_are_told_however_many_there_are(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    told = [{"id": f"{number:032x}", "serial": number} for number in range(1, 501)]

    def news(_: FederationClient, since: int = 0, wait: float = 0.0) -> dict[str, Any]:
        some = told[since : since + 200]
        return {"serial": since + len(some), "studies": some}

    monkeypatch.setattr(FederationClient, "news", news)
    with hub.line("ana") as line:
        assert line.studies() == told
        monkeypatch.setattr(FederationClient, "news", lambda _, since, **__: {"serial": since + 1, "studies": told[:1]})
        refused("FE860", line.studies)


def test_files_of_a_result_overwrite_nothing_and_have_the_names_of_results(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = hub.path.parent
    hub.club.keys["ana"].save(folder)
    before = {path: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    sent = {"FEDERATION.toml": b"pins of the hub's choice", "ana.key": b"gone", "model.json": b"{}"}
    monkeypatch.setattr(
        FederationClient, "studies", lambda _: [{"id": "ab" * 16, "name": "x", "parties": ["bank", "shop"]}]
    )
    monkeypatch.setattr(FederationClient, "result", lambda *_: FetchedResult("ab" * 16, sent, []))
    own = (True, hub.path, folder / "ana.key", True)
    refused("FE011", results.result, ["ab"], folder, *own)
    sent = {"model.json": b"{}", "synthetic-2.csv": b"", "report.html": b""}
    with raises(StorageError, "SO015"):
        results.result(["ab"], folder, *own)
    assert {path: path.read_bytes() for path in before} == before
    results.result(["ab"], tmp_path / "new", *own)
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "new").iterdir()}
    assert modes == dict.fromkeys(sent, 0o600), "nobody else of this machine reads a result, or its report"


def test_the_doctor_of_a_member_needs_no_study(hub: Hub, tmp_path: Path) -> None:
    path = member(hub, tmp_path)
    (tmp_path / "bank.csv").write_text("person_id,age\np1,30\n")
    files = [path, tmp_path / "FEDERATION.toml", tmp_path / "nothing.toml"]
    assert [is_party_file(file) for file in files] == [True, False, False]

    def levels() -> dict[str, str]:
        return {check.what: check.level for check in examine_member(path)}

    found = levels()
    assert {found[what] for what in ("party", "key", "table", "federation", "hub")} == {"good"}
    assert found["members"] == "unsure", "the hub names others whom nobody here has accepted"
    assert {"ledger", "clock", "versions"} <= set(found)
    files[1].write_text(files[1].read_text().replace(hub.members.address, "127.0.0.1:9"))
    assert levels()["hub"] == "bad"
    hub.members.select("coordinator", "shop").save(files[1])
    assert levels()["federation"] == "bad"
    path.write_text("name = 1")
    assert levels() == {"party": "bad"}


def test_a_proposal_with_a_stranger_is_taken_in_once_the_stranger_is_accepted(hub: Hub, tmp_path: Path) -> None:
    agent = Agent(member(hub, tmp_path, "shop"))
    with hub.line("ana") as ana, hub.line("bank") as bank:
        study = ana.tell(hub.proposal("bank", "shop"))["id"]
        agent._process_news({"studies": [told for told in bank.news(0, wait=0)["studies"] if told["id"] == study]})
        agent._sync._fetch()
        assert agent.store.entries() == [], "nobody at the bank has accepted ana"
        (offered,) = (each for each in find_new_members(agent.members, bank.members()) if each.name == "ana")
    accept_member(tmp_path / "FEDERATION.toml", offered)
    agent._reread()
    agent._sync._fetch()
    assert [(entry.id, entry.state) for entry in agent.store.entries()] == [(study, "checking")]


# --- invitations


def test_somebody_joins_by_an_invitation(hub: Hub, tmp_path: Path) -> None:
    token = InvitationToken.unpack(f"  {hub.invite().pack()}\n")
    lab, draw, now = Identity.create("lab"), new_draw(), datetime.now(UTC)
    with EnrolmentClient(token) as door:
        theirs = retrying(lambda: door.enrol(lab, draw))
        assert door.enrol(lab, draw) == theirs, "a lost answer is asked for again"
        refused("FE050", door.enrol, lab, new_draw())  # else it could look for one that makes other words
        refused("FE051", door.show_draw, new_draw())
        early = hub.invitations.find("lab")
        assert (early.state, early.words(token.hub)) == ("open", None), "nothing to compare before both have drawn"
        for _ in range(2):
            door.show_draw(draw)
        assert door.admitted(tmp_path / "FEDERATION.toml") is None
        words = token.words(lab.certificate, theirs, draw)
        assert words == hub.invitations.find("lab").words(hub.members.certificates["coordinator"])
        others = {token.words(lab.certificate, theirs, new_draw()), token.words(lab.certificate, new_draw(), draw)}
        others.add(replace(token, role="analyst").words(lab.certificate, theirs, draw))
        assert words not in others, "a key that was there before makes no words by itself"
        refused("FE050", door.enrol, Identity.create("lab"), new_draw())
        hub.invitations.admit("lab", FederationMembers.load(hub.path), now)
        retrying(lambda: door.admitted(tmp_path / "FEDERATION.toml"), lambda found: found is not None)
        refused("FE050", door.enrol, Identity.create("lab"), new_draw())
    assert token.identity.name in hub.invitations.open_identities(now), "it may ask what became of it"
    assert token.identity.name not in hub.invitations.open_identities(now + timedelta(hours=1)), (
        "and then its door closes"
    )


def test_an_invitation_is_good_for_one_name_one_key_and_a_while(hub: Hub) -> None:
    token, other, one = hub.invite("one"), hub.invite("two"), Identity.create("one")
    bank = hub.club.keys["bank"].certificate.pem.decode()
    stolen = {
        "invitation": token.id,
        "hub": token.hub.fingerprint,
        "certificate": bank,
        "sealed": seal_draw(new_draw()),
    }
    with EnrolmentClient(token) as door:
        retrying(lambda: door.admitted(Path("x")))
        refused(("FE049", "one"), door.enrol, Identity.create("two"), new_draw())
        refused("FE054", door.request, StudyAnswer, HubQuestion("enrol"), other.sign_enrolment(one, new_draw()))
        for signer in (Identity.create("bank"), one):
            refused("FE*", door.request, StudyAnswer, HubQuestion("enrol"), sign_content("enrolment", stolen, signer))
        for asked in (HubQuestion("news"), HubQuestion("members")):
            refused("FE088", door.request, StudyAnswer, asked)
    renewed, late = hub.invite("one"), datetime.now(UTC) + timedelta(hours=2)
    with EnrolmentClient(token) as door, pytest.raises((FederationError, IdentityError, ConnectError)):
        door.enrol(one, new_draw())
    refused(
        "FE048",
        hub.invitations.enrol,
        renewed.identity.name,
        renewed.sign_enrolment(one, new_draw()),
        hub.members,
        late,
    )
    refused("FE045", renewed.check_time, late)
    refused("FE052", hub.invitations.admit, "one", hub.members, datetime.now(UTC))
    for wrong in ("bank", "others", "invitation.x", "coordinator"):
        refused("FE039", hub.invite, wrong)
    with_olga = replace(hub.members, hub=HubPart(operators=("Olga",)))
    refused("FE039", with_olga.check_new, "olga")  # the file could not be read any more
    refused("FE046", hub.invite, "three", days=40)
    content = json.loads(urlsafe_b64decode(token.pack().removeprefix("colonnade-invitation-") + "=="))
    content["expires"] = content["expires"].removesuffix("+00:00")
    anywhere = "colonnade-invitation-" + urlsafe_b64encode(json.dumps(content).encode()).decode()
    for text in ("", "hello", token.pack()[:-9], "colonnade-invitation-" + "x" * 9000, anywhere):
        refused("FE044", InvitationToken.unpack, text)


def test_a_key_is_changed_by_calling_the_old_one_back_and_joining_again_and_a_restart_forgets_nothing(
    tmp_path: Path,
) -> None:
    def knock() -> None:
        with hub.line("bank") as old, pytest.raises((IdentityError, ConnectError)):
            old.news(0, wait=0)

    hub = Hub.of(tmp_path / "hub")
    try:
        old = hub.members.certificates["bank"].key_fingerprint
        shop, new, draw = tmp_path / "shop" / "FEDERATION.toml", Identity.create("bank"), new_draw()
        hub.members.save(shop)
        key_commands.revoke(hub.path, "bank", tmp_path / "hub" / "coordinator.key")
        retrying(lambda: hub.keeper.members, lambda found: "bank" not in found.roles)
        knock()
        token = hub.invite("bank")
        with hub.line("ana") as ana, EnrolmentClient(token) as door:
            told = ana.tell(hub.proposal("shop", "clinic"))
            theirs = retrying(lambda: door.enrol(new, draw))
        refused("FE109", HubServer(hub.path).alone().__enter__)
        hub.stop()
        hub.start()
        with hub.line("shop") as line:
            assert [study["id"] for study in line.news(0, wait=0)["studies"]] == [told["id"]]
        with EnrolmentClient(token) as door:
            refused("FE050", retrying, lambda: door.enrol(Identity.create("bank"), new_draw()))
            assert door.enrol(new, draw) == theirs
            door.show_draw(draw)
            hub.invitations.admit("bank", FederationMembers.load(hub.path), datetime.now(UTC))
            joined = retrying(lambda: door.admitted(tmp_path / "new" / "FEDERATION.toml"), lambda found: found)
        with FederationClient(joined, new) as line:
            assert retrying(lambda: line.news(0, wait=0))["studies"] == []
        knock()
        with hub.line("shop") as line:
            offered = line.members()
        (changed,) = find_new_members(FederationMembers.load(shop), offered)
        assert (changed.name, changed.known) == ("bank", True)
        accept_member(shop, changed)
        for path in (shop, hub.path):
            found = FederationMembers.load(path)
            assert (found.pins["bank"], found.first["bank"]) == (new.fingerprint, old)
    finally:
        hub.stop()


class Typed(io.StringIO):
    """What a person types at a terminal, line by line."""

    def isatty(self) -> bool:
        return True


def other_words(asked: WordComparison) -> str:
    """All but the last of the words that are asked for, and then another one."""
    right = [asked.words.split()[at] for at in asked.asked]
    return " ".join([*right[:-1], next(word for word in word_list() if word not in asked.words)])


@pytest.mark.parametrize("end", ["hub", "newcomer"])
def test_a_wrong_word_three_times_ends_the_invitation_whatever_is_started_again(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    name, is_hub = f"three-{end}", end == "hub"
    token = hub.invite(name)
    retrying(lambda: commands.join(token.pack(), None, tmp_path, None, True, True) or True)
    held = hub.invitations.find(name)
    asked = WordComparison.of_invitation(held.words(token.hub), hub=is_hub)
    theirs = WordComparison.of_invitation(asked.words, hub=not is_hub)
    assert {*asked.asked} | {*theirs.asked} == {*range(6)}, "each end reads out what the other is asked for"
    assert not {asked.words.split()[at] for at in asked.asked} & {*asked.shown.split()}

    def type_words(text: str) -> None:
        monkeypatch.setattr("sys.stdin", Typed(f"{text}\n"))
        if is_hub:
            commands.admit(hub.path, name)
        else:
            commands.join(token.pack(), None, tmp_path, None, True)

    with raises((FederationError, IdentityError), "FE780"):
        type_words("")  # no try is used up
    for code in (("FE003", "ID780"), ("FE003", "ID780")):
        with raises((FederationError, IdentityError), "|".join((*code, "FE780"))):
            type_words(other_words(asked))
    with raises((FederationError, IdentityError), "FE003|ID780"):
        type_words(f"{other_words(asked)}\n{other_words(asked)}")
    right = " ".join(word[:4] for word in (asked.words.split()[at] for at in asked.asked))
    if is_hub:
        with raises(FederationError, "FE003"):
            type_words(right)
    else:
        assert WordTries(tmp_path).compare(f"join {token.id}", asked, right) == 0, "nothing is compared any more"
    retrying(lambda: hub.invitations.find(name).state, lambda state: state == "refused")
    refused("FE052", hub.invitations.admit, name, FederationMembers.load(hub.path), datetime.now(UTC))


def test_the_beginnings_of_the_words_asked_for_admit(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    token = hub.invite("typed")
    retrying(lambda: commands.join(token.pack(), None, tmp_path, None, True, True) or True)
    asked = WordComparison.of_invitation(hub.invitations.find("typed").words(token.hub), hub=True)
    for said in ("", *asked.words.split(), asked.shown):
        assert not asked.fits(said)
    assert asked.fits(asked.words)
    monkeypatch.setattr("sys.stdin", Typed(" ".join(asked.words.split()[at] for at in asked.asked)))
    commands.admit(hub.path, "typed")
    assert "typed" in FederationMembers.load(hub.path).roles


def test_a_federation_from_nothing(
    tmp_path: Path, colonnade: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By commands: a hub, an invitation, six words at both ends that wait for each other, and a member."""
    said: list[dict[str, Any]] = []

    def command(*words: object, code: int = 0) -> Any:
        return colonnade(*words, "--json", code=code)

    monkeypatch.setattr(commands, "_LOOK_SECONDS", 0.05)
    path, begin = tmp_path / "hub" / "FEDERATION.toml", ("--name", "us two", "--address", f"127.0.0.1:{free_port()}")
    command("federation", "create", path.parent, *begin)
    command("federation", "create", path.parent, *begin, code=26)
    hub = Hub(path)
    try:
        with monkeypatch.context() as patch:  # what two commands say that run at the same time
            patch.setattr(commands, "emit", said.append)
            invite = InThread(lambda: commands.invite(path, "lab", "party", 1.0, False, True))
            token = until(lambda: said and said[0], "an invitation")["invitation"]
            refused("FE052", commands.admit, path, "lab", "x", True)
            lab = tmp_path / "lab"
            commands.join(token, None, lab, None, True, True)
            until(lambda: len(said) > 2, "words at both ends")
            theirs, ours = (facts["words"] for facts in said[1:])
            assert theirs == ours
            join = InThread(lambda: commands.join(token, None, lab, None, False, True, theirs))
            for words, code in ((None, "FE009"), ("a b c d e f", "FE003")):
                refused(code, commands.admit, path, "lab", words, True)
            commands.admit(path, "lab", theirs.upper(), True)
            assert (invite.communicate(60), join.communicate(60)) == (("", ""), ("", ""))
        assert (said[-1]["federation"], said[-1]["new"]) == (str(tmp_path / "lab" / "FEDERATION.toml"), {})
        lab = FederationMembers.load(tmp_path / "lab" / "FEDERATION.toml")
        assert lab.roles == {"coordinator": "hub", "lab": "party"}
        assert (tmp_path / "lab" / "lab.key").stat().st_mode & 0o077 == 0
        assert PartyConfig.load(tmp_path / "lab" / "party.toml").agent_section.console
        command("federation", "join", token, "--name", "other", code=26)
        analyst = command("federation", "invite", path, "ana", "--role", "analyst", "--no-wait")["invitation"]
        again = command("federation", "join", analyst, "--out", tmp_path / "ana", "--no-wait")["words"]
        assert command("federation", "admit", path, "ana", "--words", again)["admitted"] == "ana"
        shown, out = WordComparison.of_invitation(again, hub=False).shown, ("--out", tmp_path / "ana")
        for more, code in (((), 26), (("--no-wait",), 0), (("--words", "a b c d e f"), 20)):
            assert shown in colonnade("federation", "join", analyst, *out, *more, code=code), "the same when run again"
            left = {file.name for file in (tmp_path / "ana").iterdir()} - {"words.db"}
            assert left == {"ana.key", "ana.crt", "ana.joining"}, "admitted, and nothing pinned: no words were compared"
        colonnade("federation", "join", analyst, *out, "--words", again)
        hers = FederationMembers.load(tmp_path / "ana" / "FEDERATION.toml")
        assert hers.roles == {"coordinator": "hub", "ana": "analyst"}, "the hub's word on others pins nobody"
        for name, other, role in (("ana", "lab", "party"), ("lab", "ana", "analyst")):
            own = (
                "federation",
                "members",
                tmp_path / name / "FEDERATION.toml",
                "--key",
                tmp_path / name / f"{name}.key",
            )
            words = six_words(FederationMembers.load(path).pins[other])
            assert command(*own)["new"] == {other: {"role": role, "words": words, "known": False}}
            assert f"--accept {other}" in colonnade(*own)
            command(*own, "--accept", other, "--words", again, code=26)
            assert command(*own, "--accept", other, "--words", words)["new"] == {}
        FederationMembers.load(hers.path).check(["lab"])
        assert FederationMembers.load(lab.path).roles["ana"] == "analyst"
    finally:
        hub.stop()
