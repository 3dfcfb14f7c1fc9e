"""The desk: every proposal comes to exactly one end, whatever is said in whatever order, across restarts."""

from __future__ import annotations

import tempfile
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings, strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from colonnade.errors import FederationError
from colonnade.standing import desk as desks
from colonnade.standing.proposal import Answer, Ended, id_of
from colonnade.standing.verdict import FINAL

from .club import EVERYBODY, PARTIES, Talk, refused


@pytest.fixture
def talk(tmp_path: Path) -> Talk:
    return Talk(tmp_path)


def test_a_study_that_all_agree_to_runs_and_is_done(talk: Talk) -> None:
    study = talk.propose()
    assert talk.state(study) == ("open", 0)
    rooms = [talk.answer(study, party)["room"] for party in PARTIES]
    assert rooms == [None, None, f"{study}.1"]
    assert talk.state(study) == ("running", 1)
    assert [(each.id, each.room, each.participants) for each in talk.desk.running()] == [(study, rooms[2], EVERYBODY)]
    for ended in ("lost", "finished", "stopped"):  # lost may become finished, and never the other way
        talk.outcome(study, "bank", ended)
    talk.outcomes(study, "lost", who=("shop", "clinic"))
    assert talk.state(study) == ("running", 1), "the room stays open for the others"
    talk.outcome(study, "coordinator", "lost")
    assert talk.state(study) == ("done", 1)
    assert talk.desk.running() == []


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
    refused("FE020", talk.desk.packed, study, "bank")
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


def test_those_who_never_report_are_lost_after_a_while(talk: Talk) -> None:
    study = talk.agreed()
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
    silent = talk.agreed(name="nobody ever reports")
    talk.after(hours=13)
    assert talk.state(silent) == ("failed", 1)


def test_withdrawals(talk: Talk) -> None:
    first, second, third = (talk.propose(name=name) for name in ("one", "two", "three"))
    talk.withdraw(first, "ana")
    talk.answer(second, "bank")
    talk.withdraw(second, "bank")
    assert talk.states(first, second) == ["cancelled", "declined"]
    talk.agree(third)
    assert talk.withdraw(third, "shop")["room"] is None, "nobody comes in any more"
    assert talk.desk.running()[0].stopping
    talk.outcome(third, "shop", "stopped")
    talk.outcomes(third, "lost", who=("bank", "clinic", "coordinator"))
    assert talk.state(third) == ("cancelled", 1)
    refused("FE027", talk.withdraw, third, "ana")


def test_everybody_speaks_for_itself(talk: Talk) -> None:
    study = talk.propose("bank", "shop")
    yes = Answer(study, "bank", True, "", 0, talk.now).pack(talk.club.keys["bank"])
    own = talk.club.packed("bank", "shop", analyst="clinic")
    talk.desk.propose(own, "clinic", talk.now)
    refused("FE030", talk.desk.propose, talk.club.packed(), "bank", talk.now)
    refused("FE030", talk.desk.answer, yes, "shop", talk.now)
    refused("FE019", talk.answer, study, "clinic")
    refused("FE019", talk.desk.packed, study, "clinic")
    refused("FE019", talk.answer, "0" * 32, "bank")
    refused("FE021", talk.answer, id_of(own), "clinic")
    refused("FE025", talk.outcome, study, "bank", "finished")


def test_news_are_for_those_whom_they_concern_and_what_is_said_twice_is_none(talk: Talk) -> None:
    study = talk.propose("bank", "shop")

    def told(who: str, since: int = 0) -> list[str]:
        return [each["id"] for each in talk.desk.news(who, since)["studies"]]

    assert (told("bank"), told("clinic"), told("coordinator")) == ([study], [], [study])
    serial = talk.desk.news("bank", 0)["serial"]
    assert told("bank", serial) == []
    heard: list[int] = []
    talk.desk.listen(lambda: heard.append(1))
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
    monkeypatch.setattr(desks, "MOST_A_DAY", 4)
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
    assert len(talk.desk.ended_before(talk.now)) == 2
    assert talk.desk.ended_before(talk.now - timedelta(days=2)) == set()


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
    assert talk.desk.running() == []
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


def test_a_clock_that_jumps_back_ends_no_wait_early_and_none_late(talk: Talk) -> None:
    study = talk.agreed()
    talk.outcome(study, "bank", "lost")
    talk.after(days=-3650)
    assert talk.state(study) == ("running", 1)
    talk.restart()
    talk.after(seconds=299)
    assert talk.state(study) == ("running", 1)
    talk.after(seconds=1)
    assert talk.state(study) == ("running", 2)


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
    def outcome(self, study: str, who: str, ended: Ended, attempt: int) -> None:
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
        running = {each.id for each in self.talk.desk.running()}
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
