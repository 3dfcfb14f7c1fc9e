"""The desk: every proposal comes to exactly one end, whatever is said in whatever order, across restarts."""

from __future__ import annotations

import sqlite3
import tempfile
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings, strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from colonnade.errors import FederationError
from colonnade.standing.desk import Desk
from colonnade.standing.federation import HubPart
from colonnade.standing.proposal import Answer, Ended, Outcome, Withdrawal, id_of
from colonnade.standing.verdict import FINAL
from tests.support.errors import raises

from .club import NOON, Club, club

EVERYBODY = ("bank", "shop", "clinic", "coordinator")


def made(folder: Path, ours: Club, **part: object) -> Desk:
    return Desk(folder / "hub", ours.members, HubPart(**part))  # type: ignore[arg-type]


class Talk:
    """Members who speak to a desk."""

    def __init__(self, folder: Path, **part: object) -> None:
        self.club, self.folder, self.part = club(folder), folder, part
        self.desk, self.now = made(folder, self.club, **part), NOON

    def propose(self, *parties: str, name: str = "to test") -> str:
        raw = self.club.packed(*parties, purpose=name, made=self.now, deadline=self.now + timedelta(days=7))
        self.desk.propose(raw, "ana", self.now)
        return id_of(raw)

    def answer(self, study: str, party: str, yes: bool = True, retries: int = 2, why: str = "") -> dict[str, object]:
        raw = Answer(study, party, yes, why, retries, self.now).pack(self.club.keys[party])
        return self.desk.answer(raw, party, self.now)

    def agree(self, study: str, retries: int = 2) -> None:
        for party in self.desk.study(study, "ana")["parties"]:
            self.answer(study, party, retries=retries)

    def outcome(self, study: str, who: str, ended: Ended, attempt: int = 1) -> dict[str, object]:
        raw = Outcome(study, attempt, who, ended, self.now).pack(self.club.keys[who])
        return self.desk.outcome(raw, who, self.now)

    def withdraw(self, study: str, who: str) -> dict[str, object]:
        return self.desk.withdraw(Withdrawal(study, who, self.now).pack(self.club.keys[who]), who, self.now)

    def after(self, **time: float) -> None:
        self.now += timedelta(**time)
        self.desk.tick(self.now)

    def restart(self) -> None:
        present = self.desk.present
        self.desk = made(self.folder, self.club, **self.part)
        self.desk.present = present
        self.desk.resume(self.now)

    def state(self, study: str) -> tuple[str, int]:
        found = self.desk.study(study, "ana")
        return found["state"], found["attempt"]


@pytest.fixture
def talk(tmp_path: Path) -> Talk:
    return Talk(tmp_path)


def test_a_study_that_all_agree_to_runs_and_is_done(talk: Talk) -> None:
    study = talk.propose()
    assert talk.state(study) == ("open", 0)
    assert talk.answer(study, "bank")["room"] is None
    talk.answer(study, "shop")
    assert talk.answer(study, "clinic")["room"] == f"{study}.1"
    assert talk.state(study) == ("running", 1)
    assert [(each.id, each.room, each.participants) for each in talk.desk.running()] == [
        (study, f"{study}.1", EVERYBODY)
    ]
    for who in EVERYBODY[:3]:
        talk.outcome(study, who, "finished")
        assert talk.state(study)[0] == "running", "the room stays open for the others"
    talk.outcome(study, "coordinator", "finished")
    assert talk.state(study) == ("done", 1)
    assert talk.desk.running() == []


def test_it_is_done_when_the_coordinator_is(talk: Talk) -> None:
    study = talk.propose()
    talk.agree(study)
    talk.outcome(study, "coordinator", "finished")
    assert talk.state(study) == ("done", 1)
    talk.outcome(study, "bank", "lost")
    assert talk.state(study) == ("done", 1)


def test_one_no_declines_and_only_the_analyst_reads_why(talk: Talk) -> None:
    study = talk.propose()
    talk.answer(study, "bank")
    talk.answer(study, "shop", yes=False, why="not this year")
    assert talk.state(study)[0] == "declined"
    assert talk.desk.study(study, "ana")["reasons"] == {"shop": "not this year"}
    assert "not this year" not in str(talk.desk.study(study, "bank"))
    with raises(FederationError, "FE023", "declined"):
        talk.answer(study, "clinic")
    with raises(FederationError, "FE020"):
        talk.desk.packed(study, "bank")


def test_it_expires_at_its_deadline_and_late_answers_are_refused(talk: Talk) -> None:
    study = talk.propose()
    talk.answer(study, "bank")
    talk.now += timedelta(days=7)
    with raises(FederationError, "FE023", "expired"):
        talk.answer(study, "shop")
    talk.after()
    assert talk.state(study)[0] == "expired"


def test_lost_attempts_are_tried_again_as_often_as_all_allow(talk: Talk) -> None:
    study = talk.propose()
    talk.answer(study, "bank", retries=1)
    talk.answer(study, "shop", retries=5)
    talk.answer(study, "clinic", retries=2)
    for who in EVERYBODY:
        talk.outcome(study, who, "lost")
    assert talk.state(study) == ("running", 2)
    for who in EVERYBODY:
        talk.outcome(study, who, "lost", 2)
    assert talk.state(study) == ("failed", 2)


def test_a_reason_of_ones_own_ends_it(talk: Talk) -> None:
    study = talk.propose()
    talk.agree(study, retries=5)
    for who in EVERYBODY:
        talk.outcome(study, who, "stopped" if who == "shop" else "lost")
    assert talk.state(study) == ("failed", 1)


def test_those_who_never_report_are_lost_after_a_while(talk: Talk) -> None:
    study = talk.propose()
    talk.agree(study)
    talk.outcome(study, "coordinator", "lost")
    talk.after(seconds=299)
    assert talk.state(study) == ("running", 1)
    talk.after(seconds=1)
    assert talk.state(study) == ("running", 2)
    talk.after(hours=11)
    assert talk.state(study) == ("running", 2), "nobody has reported, so it may still run"
    talk.outcome(study, "bank", "finished", 2)
    talk.after(seconds=300)
    assert talk.state(study) == ("done", 2)


def test_an_attempt_of_which_nobody_reports_has_an_end(talk: Talk) -> None:
    study = talk.propose()
    talk.agree(study)
    talk.after(hours=13)
    assert talk.state(study) == ("failed", 1)


def test_an_earlier_attempt_that_finished_after_all_ends_the_study(talk: Talk) -> None:
    """The bank was away with the result; nothing may come of the second attempt."""
    study = talk.propose()
    talk.agree(study)
    for who in ("shop", "clinic", "coordinator"):
        talk.outcome(study, who, "lost")
    talk.after(seconds=300)
    assert talk.state(study) == ("running", 2)
    assert talk.outcome(study, "bank", "finished", 1)["room"] is None
    assert talk.state(study) == ("done", 2)


def test_lost_may_become_finished_and_never_the_other_way(talk: Talk) -> None:
    study = talk.propose()
    talk.agree(study)
    talk.outcome(study, "bank", "lost")
    talk.outcome(study, "bank", "finished")
    talk.outcome(study, "bank", "stopped")
    for who in EVERYBODY[1:]:
        talk.outcome(study, who, "lost")
    assert talk.state(study) == ("done", 1)


def test_withdrawals(talk: Talk) -> None:
    first, second, third = (talk.propose(name=name) for name in ("one", "two", "three"))
    talk.withdraw(first, "ana")
    assert talk.state(first)[0] == "cancelled"
    talk.answer(second, "bank")
    talk.withdraw(second, "bank")
    assert talk.state(second)[0] == "declined"
    talk.agree(third)
    assert talk.withdraw(third, "shop")["room"] is None, "nobody comes in any more"
    assert talk.desk.running()[0].stopping
    for who in EVERYBODY:
        talk.outcome(third, who, "stopped" if who == "shop" else "lost")
    assert talk.state(third) == ("cancelled", 1)
    with raises(FederationError, "FE027"):
        talk.withdraw(third, "ana")


def test_a_result_that_came_before_the_withdrawal_counts(talk: Talk) -> None:
    study = talk.propose()
    talk.agree(study)
    talk.withdraw(study, "ana")
    talk.outcome(study, "coordinator", "finished")
    assert talk.state(study)[0] == "done"


def test_everybody_speaks_for_itself(talk: Talk) -> None:
    raw = talk.club.packed()
    with raises(FederationError, "FE030"):
        talk.desk.propose(raw, "bank", talk.now)
    study = talk.propose("bank", "shop")
    yes = Answer(study, "bank", True, "", 0, talk.now).pack(talk.club.keys["bank"])
    with raises(FederationError, "FE030"):
        talk.desk.answer(yes, "shop", talk.now)
    for stranger in ("clinic",):
        with raises(FederationError, "FE019"):
            talk.answer(study, stranger)
        with raises(FederationError, "FE019"):
            talk.desk.packed(study, stranger)
    with raises(FederationError, "FE019"):
        talk.answer("0" * 32, "bank")
    own = talk.club.packed("bank", "shop", analyst="clinic")
    talk.desk.propose(own, "clinic", talk.now)
    with raises(FederationError, "FE021"):
        talk.answer(id_of(own), "clinic")
    with raises(FederationError, "FE025", "1"):
        talk.outcome(study, "bank", "finished")


def test_what_is_said_twice_changes_nothing(talk: Talk) -> None:
    study = talk.propose()
    talk.propose()
    talk.answer(study, "bank")
    serial = talk.desk.news("ana", 0)["serial"]
    talk.propose()
    talk.answer(study, "bank")
    assert talk.desk.news("ana", 0)["serial"] == serial
    with raises(FederationError, "FE022"):
        talk.answer(study, "bank", yes=False)


def test_a_replayed_proposal_is_the_same_one(talk: Talk) -> None:
    """The hub, or whoever recorded it, gains nothing by sending it again after it was decided."""
    study = talk.propose()
    talk.answer(study, "bank", yes=False)
    talk.propose()
    assert talk.state(study)[0] == "declined"


def test_news_are_for_those_whom_they_concern(talk: Talk) -> None:
    study = talk.propose("bank", "shop")
    assert [each["id"] for each in talk.desk.news("bank", 0)["studies"]] == [study]
    assert talk.desk.news("clinic", 0)["studies"] == []
    assert [each["id"] for each in talk.desk.news("coordinator", 0)["studies"]] == [study]
    serial = talk.desk.news("bank", 0)["serial"]
    assert talk.desk.news("bank", serial)["studies"] == []
    heard: list[int] = []
    talk.desk.listen(lambda: heard.append(1))
    talk.answer(study, "shop")
    assert heard == [1]
    assert talk.desk.news("bank", serial)["studies"][0]["answers"] == {"bank": None, "shop": True}
    assert talk.desk.news("bank", 1 << 60)["serial"] == talk.desk.news("bank", 0)["serial"]


def test_much_news_comes_in_pieces(tmp_path: Path) -> None:
    talk = Talk(tmp_path)
    ids = {talk.propose(name=str(n)) for n in range(5)}
    first = talk.desk.news("bank", 0, most=3)
    rest = talk.desk.news("bank", first["serial"], most=3)
    assert {each["id"] for each in (*first["studies"], *rest["studies"])} == ids
    assert len(first["studies"]) == 3


def test_an_analyst_may_not_fill_the_desk(tmp_path: Path) -> None:
    talk = Talk(tmp_path, proposals=2)
    first = talk.propose(name="1")
    talk.propose(name="2")
    with raises(FederationError, "FE029"):
        talk.propose(name="3")
    talk.desk.propose(talk.club.packed(analyst="bank"), "bank", talk.now)
    talk.withdraw(first, "ana")
    talk.propose(name="3")


def test_studies_wait_for_their_turn_and_none_is_passed_over(tmp_path: Path) -> None:
    talk = Talk(tmp_path, studies_at_once=2)
    wide, pair, other = talk.propose(name="1"), talk.propose("bank", "shop", name="2"), talk.propose(name="3")
    talk.agree(pair)
    talk.agree(wide)
    talk.agree(other)
    assert [talk.state(study)[0] for study in (pair, wide, other)] == ["running", "open", "open"]
    talk.now += timedelta(days=7)
    talk.outcome(pair, "coordinator", "finished")
    assert [talk.state(study)[0] for study in (wide, other)] == ["running", "open"], (
        "agreed in time, so they do not expire"
    )
    talk.outcome(wide, "coordinator", "finished")
    assert talk.state(other)[0] == "running"


def test_no_attempt_begins_without_its_parties_and_one_that_is_away_holds_up_nobody(talk: Talk) -> None:
    talk.desk.present = lambda: frozenset({"bank", "shop"})
    wide, pair = talk.propose(name="1"), talk.propose("bank", "shop", name="2")
    talk.agree(wide)
    talk.agree(pair)
    assert [talk.state(study)[0] for study in (wide, pair)] == ["open", "running"]
    talk.desk.present = lambda: frozenset({"bank", "shop", "clinic"})
    talk.outcome(pair, "coordinator", "finished")
    assert talk.state(wide) == ("running", 1)
    talk.desk.present = lambda: frozenset({"bank", "shop"})
    for who in EVERYBODY:
        talk.outcome(wide, who, "lost")
    assert talk.state(wide) == ("running", 1)
    assert talk.desk.study(wide, "bank")["room"] is None, "the first attempt is over, the second has not begun"
    assert talk.desk.running() == []
    other = talk.propose("bank", "shop", name="3")
    talk.agree(other)
    assert talk.state(other)[0] == "running"
    talk.desk.present = lambda: None
    talk.outcome(other, "coordinator", "finished")
    assert talk.state(wide) == ("running", 2)
    talk.desk.present = lambda: frozenset()
    for who in EVERYBODY:
        talk.outcome(wide, who, "lost", 2)
    talk.after(days=8)
    assert talk.state(wide)[0] == "failed"


def test_a_study_that_never_gets_its_turn_expires(tmp_path: Path) -> None:
    talk = Talk(tmp_path, studies_at_once=1, hours=1)
    first, second = talk.propose(name="1"), talk.propose(name="2")
    talk.now += timedelta(days=7, hours=-2)
    talk.agree(second)
    talk.agree(first)
    talk.outcome(second, "bank", "lost")
    talk.now += timedelta(hours=3)
    talk.after()
    assert talk.state(second)[0] == "failed"
    assert talk.state(first)[0] == "expired"


def test_a_clock_that_jumps_back_ends_no_wait_early_and_none_late(talk: Talk) -> None:
    study = talk.propose()
    talk.agree(study)
    talk.outcome(study, "bank", "lost")
    talk.now -= timedelta(days=3650)
    talk.desk.tick(talk.now)
    assert talk.state(study) == ("running", 1)
    talk.restart()
    talk.after(seconds=299)
    assert talk.state(study) == ("running", 1)
    talk.after(seconds=1)
    assert talk.state(study) == ("running", 2)


def test_another_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "hub").mkdir()
    with sqlite3.connect(tmp_path / "hub" / "desk.db") as file:
        file.execute("CREATE TABLE other (x)")
    with raises(FederationError, "FE103"):
        Talk(tmp_path)


PEOPLE = st.sampled_from(("bank", "shop", "clinic"))


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
        self.quietly(lambda: self.talk.agree(study, retries))

    @rule(
        study=ids,
        who=st.sampled_from(EVERYBODY),
        ended=st.sampled_from(("finished", "stopped", "lost", "lost", "lost", "lost")),
        attempt=st.integers(1, 6),
    )
    def outcome(self, study: str, who: str, ended: Ended, attempt: int) -> None:
        if self.quietly(lambda: self.talk.outcome(study, who, ended, attempt)) and ended == "finished":
            self.finished.setdefault(study, self.talk.state(study)[1])

    @rule(study=ids)
    def all_lost(self, study: str) -> None:
        for who in EVERYBODY:
            self.quietly(lambda who=who: self.talk.outcome(study, who, "lost", self.talk.state(study)[1]))

    @rule(study=ids, who=st.sampled_from(("bank", "shop", "clinic", "ana")))
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
        studies = self.talk.desk.news("coordinator", 0)["studies"]
        busy: dict[str, int] = {}
        for each in studies:
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
            if each["id"] in {running.id for running in self.talk.desk.running()}:
                for party in (*each["parties"], "all"):
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
        for study in self.finished:
            assert self.ends[study] in ("done", "failed", "cancelled")
        self.place.cleanup()


HOWEVER_LONG = settings(
    stateful_step_count=30, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)


def test_every_promise_holds_whatever_is_said() -> None:
    run_state_machine_as_test(Desks, settings=settings(HOWEVER_LONG, max_examples=10))


@pytest.mark.slow
def test_every_promise_holds_for_much_longer() -> None:
    run_state_machine_as_test(Desks, settings=settings(HOWEVER_LONG, max_examples=300, stateful_step_count=60))
