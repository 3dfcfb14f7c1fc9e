"""The desk: every proposal comes to exactly one end, and only what is pinned or signed is taken."""

from __future__ import annotations

import json
import tempfile
import tracemalloc
from base64 import b64encode
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings, strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from colonnade.errors import FederationError, IdentityError
from colonnade.federation import proposal_store as desks
from colonnade.federation.attempts import FetchedResult
from colonnade.federation.hub_protocol import ResultAnswer, pack_message, read_answer
from colonnade.federation.members import (
    FederationMembers,
    MemberIdentity,
    RevokedKeys,
    accept_member,
    six_words,
    word_list,
)
from colonnade.federation.proposal_store import FINAL
from colonnade.federation.statements import (
    MOST_BYTES,
    MOST_PACKED,
    MOST_STUDY,
    AttemptEnd,
    AttemptReport,
    Proposal,
    ProposalAnswer,
    Withdrawal,
    canonical_json,
    format_moment,
    proposal_id,
    sign_content,
)
from colonnade.privacy.observers import Trust
from colonnade.wire import Certificate, Identity, certificates
from tests.support.errors import raises

from .club import EVERYBODY, NOON, PARTIES, Club, Talk, club, identity, refused, study_text


@pytest.fixture
def talk(tmp_path: Path) -> Talk:
    return Talk(tmp_path)


def test_a_study_that_all_agree_to_runs_and_is_done(talk: Talk) -> None:
    study = talk.propose()
    assert talk.state(study) == ("open", 0)
    rooms = [talk.answer(study, party)["room"] for party in PARTIES]
    assert rooms == [None, None, f"{study}.1"]
    assert talk.state(study) == ("running", 1)
    assert [(each.id, each.room, each.participants) for each in talk.desk.running_attempts()] == [
        (study, rooms[2], EVERYBODY)
    ]
    for ended in ("lost", "finished", "stopped"):  # lost may become finished, and never the other way
        talk.outcome(study, "bank", ended)
    talk.outcomes(study, "lost", who=("shop", "clinic"))
    assert talk.state(study) == ("running", 1), "the room stays open for the others"
    talk.outcome(study, "coordinator", "lost")
    assert talk.state(study) == ("done", 1)
    assert talk.desk.running_attempts() == []


def test_it_is_done_when_somebody_has_the_result_even_if_it_was_withdrawn_or_tried_again(talk: Talk) -> None:
    first, second = talk.agreed("bank", "shop"), talk.propose(name="another")
    talk.outcome(first, "coordinator", "finished")
    talk.outcome(first, "bank", "lost")
    talk.agree(second)
    talk.withdraw(second, "ana")
    talk.outcome(second, "coordinator", "finished")
    assert talk.states(first, second) == ["done", "done"]
    third = talk.agreed(name="the bank was away with the result")
    talk.outcomes(third, "lost", who=("shop", "clinic", "coordinator"))
    talk.after(seconds=300)
    assert talk.state(third) == ("running", 2)
    assert talk.outcome(third, "bank", "finished", 1)["room"] is None
    assert talk.state(third) == ("done", 2)


def test_one_no_declines_and_only_the_analyst_reads_why(talk: Talk) -> None:
    study, late = talk.propose(), talk.propose(name="nobody answers in time")
    talk.answer(study, "bank")
    talk.answer(study, "shop", yes=False, why="not this year")
    assert talk.desk.study(study, "ana")["reasons"] == {"shop": "not this year"}
    assert "not this year" not in str(talk.desk.study(study, "bank"))
    refused(("FE023", "declined"), talk.answer, study, "clinic")
    refused("FE020", talk.desk.signed_proposal, study, "bank")
    talk.propose()  # whoever recorded the proposal gains nothing by sending it again
    talk.now += timedelta(days=7)
    refused(("FE023", "expired"), talk.answer, late, "shop")
    talk.after()
    assert talk.states(study, late) == ["declined", "expired"]


def test_lost_attempts_are_tried_again_as_often_as_all_allow(talk: Talk) -> None:
    study = talk.propose()
    for party, retries in zip(PARTIES, (1, 5, 2), strict=True):
        talk.answer(study, party, retries=retries)
    talk.outcomes(study, "lost")
    assert talk.state(study) == ("running", 2)
    talk.outcomes(study, "lost", 2)
    assert talk.state(study) == ("failed", 2)
    other = talk.agreed(name="a reason of one's own ends it", retries=5)
    talk.outcome(other, "shop", "stopped")
    talk.outcomes(other, "lost", who=("bank", "clinic", "coordinator"))
    assert talk.state(other) == ("failed", 1)


def test_those_who_never_report_are_lost_after_a_while_even_if_a_clock_jumps_back(talk: Talk) -> None:
    study = talk.agreed()
    talk.outcome(study, "coordinator", "lost")
    talk.after(days=-3650)
    assert talk.state(study) == ("running", 1)
    talk.restart()
    talk.after(seconds=299)
    assert talk.state(study) == ("running", 1)
    talk.after(seconds=1)
    assert talk.state(study) == ("running", 2)
    talk.after(hours=11)
    assert talk.state(study) == ("running", 2), "nobody has reported, so it may still run"
    talk.outcome(study, "bank", "finished", 2)
    talk.after(seconds=300)
    assert talk.state(study) == ("done", 2)
    silent = talk.agreed(name="nobody ever reports")
    talk.after(hours=13)
    assert talk.state(silent) == ("failed", 1)


def test_withdrawals(talk: Talk) -> None:
    first, second, third, fourth = (talk.propose(name=name) for name in ("one", "two", "three", "four"))
    talk.withdraw(first, "ana")
    talk.answer(second, "bank")
    talk.withdraw(second, "bank")
    assert talk.states(first, second) == ["cancelled", "declined"]
    talk.agree(third)
    assert talk.withdraw(third, "shop")["room"] is None, "nobody comes in any more"
    assert talk.desk.running_attempts()[0].stopping
    talk.outcome(third, "shop", "stopped")
    talk.outcomes(third, "lost", who=("bank", "clinic", "coordinator"))
    assert talk.state(third) == ("cancelled", 1)
    refused("FE027", talk.withdraw, third, "ana")
    talk.agree(fourth)
    talk.withdraw(fourth, "ana")
    assert talk.desk.running_attempts()[0].stopping, "whoever asked for it ends what runs"
    talk.outcomes(fourth, "lost")
    assert talk.state(fourth) == ("cancelled", 1)


def test_everybody_speaks_for_itself(talk: Talk) -> None:
    study = talk.propose("bank", "shop")
    yes = ProposalAnswer(study, "bank", True, "", 0, talk.now).pack(talk.club.keys["bank"])
    own = talk.club.packed("bank", "shop", analyst="clinic")
    talk.desk.propose(own, "clinic", talk.now)
    refused("FE030", talk.desk.propose, talk.club.packed(), "bank", talk.now)
    refused("FE030", talk.desk.answer, yes, "shop", talk.now)
    refused("FE019", talk.answer, study, "clinic")
    refused("FE019", talk.desk.signed_proposal, study, "clinic")
    refused("FE019", talk.answer, "0" * 32, "bank")
    refused("FE021", talk.answer, proposal_id(own), "clinic")
    refused("FE025", talk.outcome, study, "bank", "finished")


def test_news_are_for_those_whom_they_concern_and_what_is_said_twice_is_none(talk: Talk) -> None:
    study = talk.propose("bank", "shop")

    def told(who: str, since: int = 0) -> list[str]:
        return [each["id"] for each in talk.desk.news(who, since)["studies"]]

    assert (told("bank"), told("clinic"), told("coordinator")) == ([study], [], [study])
    serial = talk.desk.news("bank", 0)["serial"]
    assert told("bank", serial) == []
    heard: list[int] = []
    talk.desk.changed = lambda: heard.append(1)
    talk.answer(study, "shop")
    assert heard == [1]
    assert talk.desk.news("bank", serial)["studies"][0]["answers"] == {"bank": None, "shop": True}
    talk.answer(study, "shop")
    talk.propose("bank", "shop")
    assert heard == [1]
    assert talk.desk.news("bank", 1 << 60)["serial"] == talk.desk.news("bank", 0)["serial"]
    refused("FE022", talk.answer, study, "shop", yes=False)


def test_much_news_comes_in_pieces_and_an_analyst_may_not_fill_the_desk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    talk = Talk(tmp_path, proposals=3)
    monkeypatch.setattr(desks, "MAX_PROPOSALS_A_DAY", 4)
    ids = [talk.propose(name=str(n)) for n in range(3)]
    first = talk.desk.news("bank", 0, most=2)
    rest = talk.desk.news("bank", first["serial"], most=2)
    assert [len(first["studies"]), len(rest["studies"])] == [2, 1]
    assert {each["id"] for each in (*first["studies"], *rest["studies"])} == set(ids)
    refused("FE029", talk.propose, name="one more")
    talk.desk.propose(talk.club.packed(analyst="bank"), "bank", talk.now)
    talk.withdraw(ids[0], "ana")
    ids.append(talk.propose(name="one more"))
    talk.withdraw(ids[1], "ana")
    refused("FE028", talk.propose, name="the fifth of a day")
    talk.after(days=1)
    assert talk.propose(name="the next day")
    assert len(talk.desk.find_ended_before(talk.now)) == 2
    assert talk.desk.find_ended_before(talk.now - timedelta(days=2)) == set()


def test_studies_wait_for_their_turn_and_none_is_passed_over(tmp_path: Path) -> None:
    talk = Talk(tmp_path, studies_at_once=2)
    wide, pair, other = talk.propose(name="1"), talk.propose("bank", "shop", name="2"), talk.propose(name="3")
    talk.agree(pair, wide, other)
    assert talk.states(pair, wide, other) == ["running", "open", "open"]
    talk.now += timedelta(days=7)
    talk.outcome(pair, "coordinator", "finished")
    assert talk.states(wide, other) == ["running", "open"], "agreed in time, so they do not expire"
    talk.outcome(wide, "coordinator", "finished")
    assert talk.states(other) == ["running"]


def test_no_attempt_begins_without_its_parties_and_one_that_is_away_holds_up_nobody(talk: Talk) -> None:
    talk.desk.present = lambda: frozenset({"bank", "shop"})
    wide, pair = talk.agreed(name="1"), talk.agreed("bank", "shop", name="2")
    assert talk.states(wide, pair) == ["open", "running"]
    talk.desk.present = lambda: frozenset(PARTIES)
    talk.outcome(pair, "coordinator", "finished")
    assert talk.state(wide) == ("running", 1)
    talk.desk.present = lambda: frozenset({"bank", "shop"})
    talk.outcomes(wide, "lost")
    assert talk.state(wide) == ("running", 1)
    assert talk.desk.study(wide, "bank")["room"] is None, "the first attempt is over, the second has not begun"
    assert talk.desk.running_attempts() == []
    talk.desk.present = lambda: None
    talk.after(seconds=1)
    assert talk.state(wide) == ("running", 2)
    talk.desk.present = lambda: frozenset()
    talk.outcomes(wide, "lost", 2)
    talk.after(days=8)
    assert talk.states(wide) == ["failed"]


def test_a_study_that_never_gets_its_turn_expires(tmp_path: Path) -> None:
    talk = Talk(tmp_path, studies_at_once=1, hours=1)
    first, second = talk.propose(name="1"), talk.propose(name="2")
    talk.now += timedelta(days=7, hours=-2)
    talk.agree(second, first)
    talk.outcome(second, "bank", "lost")
    talk.now += timedelta(hours=3)
    talk.after()
    assert talk.states(second, first) == ["failed", "expired"]


PEOPLE = st.sampled_from(PARTIES)


class Desks(RuleBasedStateMachine):
    """Members say anything at any time, twice, late, across restarts; the promises of the desk hold throughout."""

    ids = Bundle("ids")

    @initialize()
    def begin(self) -> None:
        memory = Path("/dev/shm")
        self.place = tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None)
        self.talk = Talk(Path(self.place.name), studies_at_once=2, overdue=60, hours=2)
        self.ends: dict[str, str] = {}
        self.finished: dict[str, int] = {}
        self.count = 0

    @rule(target=ids, pair=st.booleans())
    def propose(self, pair: bool) -> str:
        self.count += 1
        return self.talk.propose(*(("bank", "shop") if pair else ()), name=str(self.count))

    @rule(study=ids, party=PEOPLE, yes=st.sampled_from((True, True, True, True, False)), retries=st.integers(0, 5))
    def answer(self, study: str, party: str, yes: bool, retries: int) -> None:
        self.quietly(lambda: self.talk.answer(study, party, yes, retries))

    @rule(study=ids, retries=st.integers(0, 5))
    def agree(self, study: str, retries: int) -> None:
        self.quietly(lambda: self.talk.agree(study, retries=retries))

    @rule(
        study=ids,
        who=st.sampled_from(EVERYBODY),
        ended=st.sampled_from(("finished", "stopped", "lost", "lost", "lost", "lost")),
        attempt=st.integers(1, 6),
    )
    def outcome(self, study: str, who: str, ended: AttemptEnd, attempt: int) -> None:
        if self.quietly(lambda: self.talk.outcome(study, who, ended, attempt)) and ended == "finished":
            self.finished.setdefault(study, self.talk.state(study)[1])

    @rule(study=ids)
    def all_lost(self, study: str) -> None:
        for who in EVERYBODY:
            self.quietly(lambda who=who: self.talk.outcome(study, who, "lost", self.talk.state(study)[1]))

    @rule(study=ids, who=st.sampled_from((*PARTIES, "ana")))
    def withdraw(self, study: str, who: str) -> None:
        self.quietly(lambda: self.talk.withdraw(study, who))

    @rule(seconds=st.sampled_from((1, 59, 61, 3600, 86_400, -86_400)))
    def wait(self, seconds: int) -> None:
        self.talk.after(seconds=seconds)

    @rule(present=st.sets(PEOPLE))
    def come_and_go(self, present: set[str]) -> None:
        self.talk.desk.present = lambda: frozenset(present) if present else None

    @rule()
    def restart(self) -> None:
        self.talk.restart()

    def quietly(self, act: object) -> bool:
        try:
            act()  # type: ignore[operator]
        except FederationError:
            return False
        return True

    @invariant()
    def promises(self) -> None:
        if not hasattr(self, "talk"):
            return
        busy: dict[str, int] = {}
        running = {each.id for each in self.talk.desk.running_attempts()}
        for each in self.talk.desk.news("coordinator", 0)["studies"]:
            study, state = each["id"], each["state"]
            if state in FINAL:
                assert self.ends.setdefault(study, state) == state, "an end is an end"
                assert each["room"] is None
            else:
                assert study not in self.ends
            if study in self.finished:
                assert each["attempt"] == self.finished[study], "no attempt after a finished one"
            if each["attempt"]:
                assert all(each["answers"].values()), "nothing runs without every yes"
            for party in (*each["parties"], "all") if study in running else ():
                busy[party] = busy.get(party, 0) + 1
        assert all(count <= (2 if party == "all" else 1) for party, count in busy.items())

    def teardown(self) -> None:
        """After long enough without a word, everything has ended."""
        if not hasattr(self, "talk"):
            return
        for _ in range(20):
            self.talk.after(hours=48)
        self.promises()
        assert set(self.ends) == {each["id"] for each in self.talk.desk.news("coordinator", 0)["studies"]}
        assert {self.ends[study] for study in self.finished} <= {"done", "failed", "cancelled"}
        self.place.cleanup()


@pytest.mark.parametrize(
    ("examples", "steps"), [(10, 30), pytest.param(300, 60, marks=pytest.mark.slow)], ids=["some", "many"]
)
def test_every_promise_holds_whatever_is_said(examples: int, steps: int) -> None:
    how = settings(max_examples=examples, stateful_step_count=steps, deadline=None, derandomize=True,
                   suppress_health_check=[HealthCheck.too_slow])  # fmt: skip
    run_state_machine_as_test(Desks, settings=how)


# --- FEDERATION.toml, proposals, what is said about them, and results: only what is pinned or signed is taken


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
    assert (found.id, len(found.id)) == (proposal_id(raw), 32)
    assert (found.participants, found.task_kind) == (("bank", "shop", "coordinator"), "pca")
    path = found.write(tmp_path / "study", ours.members)
    assert path.read_bytes() == found.files["study.toml"]
    assert (tmp_path / "study/certs/shop.crt").read_bytes() == ours.members.certificates["shop"].pem
    assert not (tmp_path / "study/certs/clinic.crt").exists()
    assert Proposal.unpack(ours.packed(analyst="bank"), ours.members).analyst == "bank"
    refuse(ours, "FE068", analyst="coordinator")


def test_a_forged_proposal_and_a_body_that_is_written_in_another_way_are_refused(ours: Club) -> None:
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
    others = FederationMembers("o", ours.members.address, kept, ours.members.roles, None, ours.members.path)
    refused(("FE096", "o"), Proposal.unpack, raw, others)  # a member of another federation is a stranger
    # Otherwise one signed study would have many ids, or keys that some read and others do not.
    text = body.decode()
    for other in (text.replace(":", ": ", 1), text.replace('"name"', '"name":"x","name"', 1), text + " "):
        content = other.encode()
        signature = ours.keys["ana"].sign(b"colonnade-signed-1 proposal ana\n" + content)
        again = b"colonnade-signed-1 proposal ana " + b64encode(signature) + b"\n" + content
        refused("FE100", Proposal.unpack, again, ours.members)
    assert canonical_json({"b": 1, "a": "ü"}) == b'{"a":"\\u00fc","b":1}'


NAMES = [
    "../evil.toml", "/etc/passwd", "a/../../b", "a\\b", "certs/bank.crt", "Certs/bank.crt", "a//b", "a/", ".hidden",
    "a\nb", "a/b/c/d/e/f/g", "x" * 101, "STUDY.toml", "study.toml/x", "<b>", "nul\x00", "dot.",
]  # fmt: skip


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


def test_names_stay_in_their_folder_and_sizes_and_moments_are_bounded(ours: Club) -> None:
    files, large = dict(ours.proposal().files), bytes(MOST_BYTES + 1)
    for name in NAMES:
        refuse(ours, "FE080|FE081", files={**files, name: b""})
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
    refuse(ours, "FE102", "made", made=datetime(9999, 6, 1, tzinfo=UTC))
    with raises(IdentityError, "ID020"):
        Certificate.from_pem(certificates.create("bank", 365 * 7500)[1])
    found = Proposal.unpack(ours.packed(), ours.members)
    found.check_time(NOON)
    for moment, code in ((found.deadline, "FE071"), (NOON - timedelta(days=2), "FE072")):
        refused(code, found.check_time, moment)


def test_a_statement_of_millions_of_parts_is_refused_before_it_is_read(ours: Club) -> None:
    raw = sign_content("proposal", {"files": [[] for _ in range(300_000)]}, ours.keys["ana"])
    tracemalloc.start()
    refused("FE098", Proposal.unpack, raw, ours.members)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 4 * len(raw)  # read, it would take dozens of times as much


def test_answers_outcomes_and_withdrawals_survive_and_cannot_be_forged(ours: Club) -> None:
    about = Proposal.unpack(ours.packed(), ours.members).id
    said = {
        "bank": ProposalAnswer(about, "bank", True, "", 2, NOON),
        "coordinator": AttemptReport(about, 1, "coordinator", "finished", NOON),
        "ana": Withdrawal(about, "ana", NOON),
    }
    for signer, each in said.items():
        raw = each.pack(ours.keys[signer])
        assert type(each).unpack(raw, ours.members) == each
        for other in {ProposalAnswer, AttemptReport, Withdrawal} - {type(each)}:
            refused("FE095", other.unpack, raw, ours.members)
        head, body = raw.split(b"==", 1)
        for digit in b"AQgw" + bytes([head[-1] + 1]):  # the last digit of 64 bytes has four bits of nothing
            if digit != head[-1]:
                with raises(FederationError, "FE095|FE097"):
                    type(each).unpack(head[:-1] + bytes([digit]) + b"==" + body, ours.members)
        refused("FE084", each.pack, ours.keys["clinic"])
        refused("FE097", type(each).unpack, raw.replace(f" {signer} ".encode(), b" clinic ", 1), ours.members)
    refused(
        "FE038",
        ProposalAnswer.unpack,
        ProposalAnswer("0" * 32, "ana", True, "", 0, NOON).pack(ours.keys["ana"]),
        ours.members,
    )


WRONG_OUTCOMES = [
    {"attempt": 0},
    {"attempt": 7},
    {"attempt": True},
    {"ended": ["lost"]},
    {"proposal": "0" * 31},
    {"why": "a cell"},
    {"participant": "shop"},
    {"ended": "finished", "result": "x"},
    *({"ended": "finished", "result": "0" * 64, "files": wrong} for wrong in ({}, {"../x": "0" * 64}, {"a": "0"})),
    {"result": "0" * 64},
    *({"made": f"{day}T00:00:00.000{zone}"} for day, zone in (("0001-01-01", "+23:59"), ("9999-12-31", "-23:59"))),
]


def test_an_outcome_of_another_form_is_refused(ours: Club) -> None:
    plain = {"proposal": "0" * 32, "attempt": 1, "participant": "bank", "ended": "lost", "made": format_moment(NOON)}
    assert AttemptReport.unpack(sign_content("outcome", plain, ours.keys["bank"]), ours.members).result is None
    for wrong in WRONG_OUTCOMES:
        refused(
            "FE110|FE083|FE100|FE101|FE102",
            AttemptReport.unpack,
            sign_content("outcome", plain | wrong, ours.keys["bank"]),
            ours.members,
        )


STUDY = "cd" * 16
FILES = {"model.json": b'{"learned": {}}', "privacy.json": b"{}"}
TRUE = sha256(FILES["model.json"]).hexdigest()
FORGED_FILES = {"model.json": b'{"forged": true}', "report.html": b"<h1>forged by the hub</h1>"}
FORGED = sha256(FORGED_FILES["model.json"]).hexdigest()


THREE = Trust(PARTIES, PARTIES, 1)


def said(who: str, result: str | None = TRUE, study: str = STUDY, lost: tuple[str, ...] = (), **files: bytes) -> bytes:
    hashes = {name: sha256(content).hexdigest() for name, content in files.items()}
    return AttemptReport(study, 1, who, "finished", NOON, result, hashes, lost).pack(identity(who))


def test_what_parties_signed_is_taken_and_what_the_hub_has_made_itself_is_not(ours: Club) -> None:
    everybody = [said(party) for party in PARTIES]
    compared = FetchedResult(STUDY, FILES, everybody).compare(THREE, ours.members)
    assert (compared.signed, compared.differs, compared.missing) == (PARTIES, (), ())
    compared.check()
    for told in (None, [1], ["\u00e9"], ["x"] * 100_000):
        refused("FE*", read_answer, pack_message({"files": {}, "finished": told}), ResultAnswer)
    statements = {
        "none": [],
        "another hash": everybody,
        "no hash": [said(party, None) for party in PARTIES],
        "of the hub": [said("coordinator", FORGED)],
        "of another study": [said(party, FORGED, study="ef" * 16) for party in PARTIES],
        "of another signer": [said("bank", FORGED).replace(b" bank ", f" {party} ".encode()) for party in PARTIES],
        "one differs": [said("bank", FORGED), said("shop", FORGED), said("clinic")],
        "one says both": [*(said(party, FORGED) for party in PARTIES), said("clinic")],
    }
    for each in statements.values():
        with raises(FederationError, "FE041"):
            FetchedResult(STUDY, FORGED_FILES, each).compare(THREE, ours.members).check()


TWO = Trust(("bank", "shop"), ("bank", "shop", "coordinator"), 1)
FEW_SEATS = Trust((*PARTIES, "lab"), ("bank", "coordinator", "shop"), 1)
PLANTED: dict[str, tuple[Trust, str | None, dict[str, tuple[str, ...]], tuple[str, ...]]] = {
    "one signs, and the hub withholds the others": (THREE, None, {"bank": ()}, ("shop", "clinic")),
    "two of three": (THREE, None, {"bank": (), "shop": ()}, ("clinic",)),
    "one says that the others were lost": (THREE, None, {"bank": ("clinic", "shop")}, ("shop", "clinic")),
    "one of two says that the third was lost": (THREE, None, {"bank": (), "shop": ("clinic",)}, ("clinic",)),
    "at one of two, and the coordinator has a seat": (TWO, "bank", {"shop": ()}, ()),
    "at one of three": (THREE, "bank", {"shop": ("clinic",)}, ("clinic",)),
    "two without a seat": (FEW_SEATS, "bank", {"clinic": ("shop",), "lab": ("shop",)}, ("shop",)),
}
"""How the owners are arranged, who asks the hub, who signs and says that these were lost, and who is missing."""


@pytest.mark.parametrize("attack", PLANTED)
def test_a_hub_and_one_party_plant_no_model(ours: Club, attack: str) -> None:
    """They withhold what others have signed, or claim that these were lost."""
    trust, asks, signers, missing = PLANTED[attack]
    keys = {"lab": Identity.create("lab", days=20_000), **{name: identity(name) for name in PARTIES}}
    members = replace(ours.members, certificates={name: key.certificate for name, key in keys.items()})
    finished = [
        AttemptReport(STUDY, 1, who, "finished", NOON, FORGED, lost=lost).pack(keys[who])
        for who, lost in signers.items()
    ]
    finished += [AttemptReport(STUDY, 1, "coordinator", "finished", NOON, FORGED).pack(identity("coordinator"))]
    compared = FetchedResult(STUDY, FORGED_FILES, finished).compare(trust, members, asks)
    assert compared.missing == missing
    with raises(FederationError, "FE041", *missing):
        compared.check()


def test_a_result_without_those_who_were_lost_is_taken_if_enough_with_a_seat_name_them(ours: Club) -> None:
    for trust, asks, lost in ((THREE, None, "clinic"), (THREE, "clinic", ""), (THREE, "bank", "")):
        signers = [party for party in PARTIES if party not in (asks, lost)]
        reports = [said(party, lost=(lost,) if lost else ()) for party in signers]
        found = FetchedResult(STUDY, FILES, reports)
        compared = found.compare(trust, ours.members, asks)
        compared.check()
        assert compared.signed == tuple(signers)
        assert ("lost" in str(compared)) == bool(lost)
        if asks:  # who takes it signs it, so that the next one who asks finds the names of all
            ours_too = found.taken_by(asks, 1, compared, FILES)
            assert (ours_too.result, set(ours_too.files)) == (TRUE, {"privacy.json"})
            whole = replace(found, finished=[*reports, ours_too.pack(identity(asks))])
            assert whole.compare(trust, ours.members).missing == ()
    refused(
        "FE083", AttemptReport.unpack,
        AttemptReport(STUDY, 1, "bank", "lost", NOON, lost=("shop",)).pack(identity("bank")), ours.members,
    )  # fmt: skip


def test_an_earlier_result_is_verified_by_the_keys_of_then_and_a_key_that_was_called_back_is_named(
    tmp_path: Path,
) -> None:
    ours, path = club(tmp_path), tmp_path / "FEDERATION.toml"
    found, raw = FetchedResult(STUDY, FILES, [said(party) for party in PARTIES]), ours.packed()
    accept_member(path, MemberIdentity("bank", "party", Identity.create("bank", days=20_000).certificate))
    members = FederationMembers.load(path)
    compared, pin = found.compare(THREE, members), identity("bank").fingerprint
    assert (compared.confirmed, compared.former, compared.revoked) == (True, {"bank": pin}, ())
    assert str(compared) == f"{found.compare(THREE, ours.members)}; bank signed with an earlier key, {pin}"
    compared = found.compare(THREE, members, "clinic")
    assert (compared.missing, compared.confirmed) == (("bank",), False), "of a run of now nobody signs with such a key"
    assert pin in str(compared), "why its signature is missing"
    forged = FetchedResult(STUDY, FILES, [*found.finished[1:], AttemptReport(
        STUDY, 1, "bank", "finished", NOON, TRUE).pack(Identity.create("bank", days=20_000))])  # fmt: skip
    assert forged.compare(THREE, members).missing == ("bank",), "a key that nobody has accepted is none of then"
    RevokedKeys(revoked=frozenset(identity(name).certificate.key_fingerprint for name in ("bank", "shop"))).save(
        tmp_path
    )
    compared = found.compare(THREE, members := FederationMembers.load(path))
    assert (compared.confirmed, compared.revoked) == (True, ("bank", "shop"))
    assert "called back since" in str(compared)
    assert found.compare(THREE, members, "clinic").missing == ("bank", "shop"), "an agent takes nothing by such keys"
    assert found.compare(THREE, members, "clinic").revoked == ("bank", "shop"), "and says why they are missing"
    earlier, signer = Proposal.unpack_earlier(raw, members)
    assert (earlier.parties, signer.name) == (PARTIES, "ana")
    assert earlier.write(tmp_path / "s", members).exists()
    refused("FE038", Proposal.unpack, raw, members)


def test_what_was_signed_before_a_renewal_is_verified_after_another_key_took_its_place(tmp_path: Path) -> None:
    path = club(tmp_path).members.path
    signed, late = NOON.replace(year=2020), NOON.replace(year=2090)
    reports = [
        AttemptReport(STUDY, 1, "bank", "finished", made, TRUE).pack(identity("bank")) for made in (signed, late)
    ]
    renewed = identity("bank").renewed(365).certificate
    with FederationMembers.changing(path) as members:
        members.renewed(renewed, "bank").put("bank")
    assert AttemptReport.unpack_earlier(reports[0], FederationMembers.load(path))[1] == renewed
    members = accept_member(path, MemberIdentity("bank", "party", Identity.create("bank").certificate))
    members = FederationMembers.load(path)
    said, certificate = AttemptReport.unpack_earlier(reports[0], members)
    assert (said.made, certificate.fingerprint) == (signed, renewed.fingerprint)
    refused("FE097", AttemptReport.unpack_earlier, reports[1], members)
    assert FetchedResult(STUDY, FILES, reports).compare(THREE, members).signed == ("bank",)


def test_files_beside_the_model_are_taken_only_if_all_signed_them_or_the_model_names_them(ours: Club) -> None:
    """The hub can write what it likes into a statement or a report, and nobody takes it."""
    files = {**FILES, "privacy.json": b"epsilon 1", "card.md": b"c", "report.html": b"all is well"}
    true = {"privacy.json": b"epsilon 1", "card.md": b"c"}
    others = [said(party, **true) for party in PARTIES[1:]]
    found = FetchedResult(STUDY, files, [said("bank", **true), *others])
    taken = [
        (found, {"privacy.json", "card.md"}),
        (replace(found, files={**files, "privacy.json": b"epsilon 0"}), {"card.md"}),
        (replace(found, finished=[said("bank", **true | {"card.md": b"d"}), *others]), {"privacy.json"}),
        (replace(found, finished=[said("bank"), *others, said("coordinator", **files)]), set()),
    ]
    for fetched, beside in taken:
        compared = fetched.compare(THREE, ours.members)
        assert set(fetched.signed_files(compared, ours.members)) == {"model.json", *beside}
    model = json.dumps({"arrays": sha256(b"arrays").hexdigest()}).encode()
    signed = [said(party, sha256(model).hexdigest()) for party in PARTIES]
    found = FetchedResult(STUDY, {"model.json": model, "model.npz": b"arrays"}, signed)
    assert found.compare(THREE, ours.members).confirmed
    for files in ({"model.json": model}, {"model.json": model, "model.npz": b"others"}):
        refused("FE042", replace(found, files=files).compare, THREE, ours.members)


# --- FEDERATION.toml


def test_it_is_read_as_it_was_written_and_the_hubs_part_is_its_own(tmp_path: Path) -> None:
    ours = club(tmp_path).members
    found = FederationMembers.load(ours.path)
    assert (found.name, found.address, found.roles, found.pins) == (ours.name, ours.address, ours.roles, ours.pins)
    assert (found.parties, found.hub) == (PARTIES, None)
    part = '\n[hub]\nkey = "k/coordinator.key"  # ours\nmemory = "2 GB"\nlanes = 8\n[hub.compute]\nworkers = 4\n'
    ours.path.write_text(ours.path.read_text() + part)
    found = FederationMembers.load(ours.path)
    assert (found.hub.memory, found.hub.lanes) == (2 * 10**9, 8)
    assert (found.hub.compute.workers, found.hub.compute.engine) == (4, "processes")
    found.with_member(identity("new").certificate, "party").put("new")
    again = FederationMembers.load(ours.path)
    assert (again.hub, again.roles["new"]) == (found.hub, "party")
    assert "# ours" in ours.path.read_text()
    for taken in ("bank", "others"):
        refused("FE039", found.check_new, taken)
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
    'operators = ["olga", "Ana"]': ("VA722", "hub.operators", "ana"),
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
        refused(("ID031|VA158|VA161|VA162|VA195|VA235", "FEDERATION.toml"), FederationMembers.load, path)
    for part, sentence in WRONG_HUB.items():
        path.write_text(f"{text}\n[hub]\n{part}\n")
        refused(sentence, FederationMembers.load, path)
    (tmp_path / "certs/bank.crt").write_bytes((tmp_path / "certs/shop.crt").read_bytes())
    for changed in (text, text.replace(identity("bank").fingerprint, identity("shop").fingerprint)):
        path.write_text(changed)  # a certificate is the pinned one, and carries its name
        with raises(IdentityError, "ID*"):
            FederationMembers.load(path)


def test_six_words() -> None:
    known = word_list()
    assert len(set(known)) == len(known) == 2048
    assert all(word.isascii() and word.islower() and 2 < len(word) < 11 for word in known)
    said = six_words("sha256:aa", "b")
    assert len(said.split()) == 6
    assert said not in (six_words("sha256:a", "ab"), six_words("sha256:aa", "c"))
