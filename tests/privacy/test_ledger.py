from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from colonnade.errors import BudgetError, LedgerError
from colonnade.privacy.accountant import epsilon
from colonnade.privacy.events import NonPrivate, SkellamRelease, views
from colonnade.privacy.ledger import Ledger
from colonnade.privacy.observers import Budget, Observer, Trust
from tests.support.errors import raises

from .conftest import EVENT, TRUST as TWO

OTHER = Trust(("bank", "clinic"), ("bank", "clinic", "coordinator"), 1)
DELTA = 1e-5


def one(who: str, trust: Trust = TWO, event: SkellamRelease = EVENT, times: int = 1) -> float:
    return epsilon(views([event] * times, Observer.parse(who), trust), DELTA).epsilon


FREE = Budget("others", 1e6, DELTA)
"""Where a test is about another cap, all others together have room."""


def cap(who: str, value: float) -> list[Budget]:
    return [Budget(who, value, DELTA), FREE]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "bank.ledger"


def test_the_life_of_an_entry(path: Path) -> None:
    ledger = Ledger(path)
    entry = ledger.reserve("s1", "digest", [EVENT], TWO, cap("analyst", 10))
    assert entry.state == "reserved"
    entry = ledger.commit(ledger.mark_sent(entry))
    (stored,) = Ledger(path).entries()
    assert stored == entry
    assert (stored.study, stored.digest, stored.events, stored.trust) == ("s1", "digest", (EVENT,), TWO)
    assert ledger.spent(Observer.analyst(), DELTA) == one("analyst")
    ledger.verify()


def test_studies_compose_by_the_accountant_not_by_addition(path: Path) -> None:
    ledger = Ledger(path)
    for number in range(4):
        ledger.reserve(f"s{number}", "", [EVENT], TWO, [])
    together = ledger.spent(Observer.party("bank"), DELTA)
    assert together == one("bank", times=4) < 4 * one("bank")
    assert ledger.spent(Observer.parse("bank+shop"), DELTA) == float("inf")


def test_the_course_of_spending_ends_with_the_totals(path: Path) -> None:
    ledger = Ledger(path, owner="bank")
    assert ledger.course(DELTA) == ([], {"analyst": []})
    for number in range(5):
        entry = ledger.reserve(f"s{number}", "digest", [EVENT], TWO, cap("analyst", 50))
        if number == 2:
            ledger.release(entry)
    when, found = ledger.course(DELTA)
    assert len(when) == 4
    assert when == sorted(when)
    totals = ledger.totals(DELTA)
    assert {who: line[-1] for who, line in found.items()} == {who: totals[who] for who in found}
    assert set(found) == {"analyst", "coordinator", "bank", "shop", "others"}
    assert found["analyst"] == [one("analyst", times=k) for k in range(1, 5)]
    few, short = ledger.course(DELTA, most=2)
    assert len(few) == 2
    assert short["analyst"] == [one("analyst", times=k) for k in (2, 4)]


def test_over_budget_is_refused_with_spent_asked_left(path: Path) -> None:
    ledger = Ledger(path)
    limit = one("analyst", times=2)
    caps = [*cap("analyst", limit), *cap("party", 100)]
    for number in range(2):
        ledger.reserve(f"s{number}", "", [EVENT], TWO, caps)
    with raises(BudgetError, "BU002", "0") as refusal:
        ledger.reserve("s2", "", [EVENT], TWO, caps)
    assert "bank" not in str(refusal.value)
    assert len(ledger.entries()) == 2
    ledger.reserve("s3", "", [EVENT], TWO, cap("party", 100))


def test_every_observer_over_its_cap_is_named(path: Path) -> None:
    with pytest.raises(BudgetError) as refusal:
        Ledger(path).reserve("s", "", [EVENT], TWO, cap("everyone", one("analyst")))
    for who in ("coordinator:", "bank:", "shop:"):
        assert who in str(refusal.value)
    assert "analyst:" not in str(refusal.value)


def test_above_the_threshold_no_cap_is_kept(path: Path) -> None:
    ledger = Ledger(path)
    with raises(BudgetError, "BU002", "2", "3"):
        ledger.reserve("s", "", [EVENT], TWO, cap("bank+shop", 1000))
    with raises(BudgetError, "BU002"):
        ledger.reserve("s", "", [NonPrivate("it leaked")], TWO, cap("analyst", 1000))


def test_observers_are_followed_across_studies(path: Path) -> None:
    ledger = Ledger(path)
    there = replace(EVENT, shares=(("bank", Fraction(10**12)), ("clinic", Fraction(10**12))))
    ledger.reserve("with shop", "", [EVENT], TWO, [])
    ledger.reserve("with clinic", "", [there], OTHER, [])
    assert ledger.spent(Observer.party("bank"), DELTA) == one("bank", times=2)
    assert ledger.spent(Observer.analyst(), DELTA) == one("analyst", times=2)
    # The shop took no part in the second study but reads its result.
    shop = ledger.spent(Observer.party("shop"), DELTA)
    assert one("shop") < shop < one("shop", times=2)
    with raises(BudgetError, "BU002"):
        ledger.reserve("again", "", [EVENT], TWO, cap("party", shop * 1.001))


def test_release_is_only_possible_before_anything_was_sent(path: Path) -> None:
    ledger = Ledger(path)
    entry = ledger.reserve("s", "", [EVENT], TWO, [])
    assert ledger.release(entry).state == "released"
    assert ledger.spent(Observer.analyst(), DELTA) == 0
    for step in (ledger.mark_sent, ledger.commit, ledger.release):
        with raises(LedgerError, "LE006", "released"):
            step(entry)
    sent = ledger.mark_sent(ledger.reserve("s", "", [EVENT], TWO, []))
    with raises(LedgerError, "LE006", "sent", "released"):
        ledger.release(sent)
    ledger.commit(sent)
    with raises(LedgerError, "LE006", "committed", "sent"):
        ledger.mark_sent(sent)
    with raises(LedgerError, "LE005", "99"):
        ledger.commit(replace(sent, id=99))
    with raises(LedgerError, "LE002"):
        ledger.reserve("s", "", [], TWO, [])
    ledger.verify()


def test_the_file_is_append_only_private_and_durable(path: Path) -> None:
    ledger = Ledger(path)
    ledger.reserve("s", "", [EVENT], TWO, [])
    assert path.stat().st_mode & 0o077 == 0
    base = sqlite3.connect(path)
    for statement in ("DELETE FROM entries", "UPDATE entries SET events = '[]'", "DELETE FROM changes",
                      "UPDATE changes SET state = 'released'"):  # fmt: skip
        with pytest.raises(sqlite3.IntegrityError, match="append-only"):
            base.execute(statement)
    assert base.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    base.close()


def test_threads_cannot_spend_the_same_remainder(path: Path) -> None:
    ledger, caps = Ledger(path), cap("analyst", one("analyst", times=3))

    def attempt(number: int) -> bool:
        try:
            ledger.reserve(f"s{number}", "", [EVENT], TWO, caps)
        except BudgetError:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(attempt, range(12))) == 3
    assert len(ledger.entries()) == 3


PRELUDE = """
import os, signal, sys
from fractions import Fraction
from colonnade.errors import BudgetError
from colonnade.privacy.events import from_json
from colonnade.privacy.ledger import Ledger
from colonnade.privacy.observers import Budget, Trust
ledger, event, trust = Ledger(sys.argv[1]), from_json(sys.argv[2]), Trust.from_json(sys.argv[3])
"""


def _child(path: Path, body: str) -> subprocess.Popen[str]:
    code = PRELUDE + textwrap.dedent(body)
    command = [sys.executable, "-c", code, str(path), EVENT.to_json(), TWO.to_json()]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=dict(os.environ))


def test_processes_cannot_spend_the_same_remainder(path: Path) -> None:
    body = f"""
    print("ready", flush=True)
    sys.stdin.readline()
    try:
        caps = [Budget("analyst", {one("analyst") * 1.01}, {DELTA}), Budget("others", 1e6, {DELTA})]
        ledger.reserve("s", "", [event], trust, caps)
        print("passed")
    except BudgetError:
        print("refused")
    """
    children = [_child(path, body) for _ in range(4)]
    for child in children:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
    for child in children:
        assert child.stdin is not None
        child.stdin.write("go\n")
        child.stdin.flush()
    said = sorted(child.communicate(timeout=60)[0].strip() for child in children)
    assert said == ["passed", "refused", "refused", "refused"]
    assert len(Ledger(path).entries()) == 1


@pytest.mark.parametrize(
    ("steps", "state"),
    [
        ("entry = ledger.reserve('s', '', [event], trust, [])", "reserved"),
        ("entry = ledger.mark_sent(ledger.reserve('s', '', [event], trust, []))", "sent"),
    ],
)
def test_a_killed_process_gives_nothing_back(path: Path, steps: str, state: str) -> None:
    child = _child(path, f"{steps}\nos.kill(os.getpid(), signal.SIGKILL)")
    child.communicate(timeout=60)
    assert child.returncode == -signal.SIGKILL
    ledger = Ledger(path)
    ledger.verify()
    assert [entry.state for entry in ledger.entries()] == [state]
    assert ledger.spent(Observer.analyst(), DELTA) == one("analyst")
    with pytest.raises(BudgetError):
        ledger.reserve("s", "", [EVENT], TWO, cap("analyst", one("analyst") * 1.01))


def test_a_reservation_killed_half_way_leaves_a_usable_ledger(path: Path) -> None:
    body = """
    with ledger._file.writing() as base:
        columns = "(study, digest, created, events, trust)"
        base.execute(f"INSERT INTO entries {columns} VALUES ('s', '', '', '[]', '{{}}')")
        os.kill(os.getpid(), signal.SIGKILL)
    """
    child = _child(path, body)
    child.communicate(timeout=60)
    assert child.returncode == -signal.SIGKILL
    ledger = Ledger(path)
    ledger.verify()
    assert ledger.entries() == ()


def _garbage(path: Path) -> None:
    path.write_bytes(os.urandom(9000))


def _foreign(path: Path) -> None:
    base = sqlite3.connect(path)
    base.execute("CREATE TABLE diary (line TEXT)")
    base.commit()
    base.close()


def _newer(path: Path) -> None:
    Ledger(path)
    base = sqlite3.connect(path)
    base.execute("PRAGMA user_version = 99")
    base.close()


@pytest.mark.parametrize("spoil", [_garbage, _foreign, _newer])
def test_files_that_are_not_ours_are_refused_and_left_alone(path: Path, spoil: Callable[[Path], None]) -> None:
    spoil(path)
    before = path.read_bytes()
    with pytest.raises(LedgerError):
        Ledger(path)
    assert path.read_bytes() == before


def test_damage_is_found(path: Path) -> None:
    ledger = Ledger(path)
    for number in range(40):
        ledger.reserve(f"s{number}", "", [EVENT], TWO, [])
    base = sqlite3.connect(path)
    base.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    base.close()
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(LedgerError):
        ledger.verify()
    path.write_bytes(b"")
    for action in (ledger.verify, ledger.entries, lambda: ledger.spent(Observer.analyst(), DELTA)):
        with raises(LedgerError, "LE013"):
            action()
    path.unlink()
    with raises(LedgerError, "LE012"):
        ledger.entries()


def test_an_unreadable_entry_is_not_counted_as_nothing(path: Path) -> None:
    ledger = Ledger(path)
    ledger.reserve("s", "", [EVENT], TWO, [])
    base = sqlite3.connect(path, isolation_level=None)
    base.execute("DROP TRIGGER entries_stay")
    base.execute("UPDATE entries SET events = '[{}]'")
    base.close()
    for action in (ledger.entries, lambda: ledger.spent(Observer.analyst(), DELTA)):
        with raises(LedgerError, "PR027"):
            action()


def test_the_observer_furthest_over_its_cap_comes_first(path: Path) -> None:
    caps = [*cap("analyst", one("analyst") / 1.1), *cap("shop", one("shop") / 3), *cap("coordinator", 100)]
    with raises(BudgetError, "BU002", "0.0000") as refusal:
        Ledger(path).reserve("s", "", [EVENT], TWO, caps)
    assert "coordinator" not in str(refusal.value)


def test_asking_first_writes_nothing(path: Path) -> None:
    ledger = Ledger(path)
    ledger.check("s", [EVENT], TWO, cap("analyst", one("analyst") * 1.01))
    with raises(BudgetError, "BU002", "analyst"):
        ledger.check("s", [EVENT], TWO, cap("analyst", one("analyst") / 2))
    assert ledger.entries() == ()


def test_what_is_left_of_each_cap(path: Path) -> None:
    ledger = Ledger(path)
    caps = [Budget("analyst", 100, DELTA), Budget("party", 50, DELTA)]
    before = [(left.who, left.spent, left.left) for left in ledger.left(caps)]
    assert before == [("analyst", 0, 100), ("party", 0, 50), ("others", 0, 50)]
    ledger.reserve("s", "", [EVENT], TWO, caps)
    found = {left.who: left for left in ledger.left(caps)}
    assert set(found) == {"analyst", "bank", "shop", "others"}
    assert found["others"].spent == one("bank")
    assert found["bank"].spent == one("bank")
    assert 0 <= 50 - one("bank") - found["bank"].left <= 1e-4


def test_a_folder_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with raises(LedgerError, "LE017"):
        Ledger(tmp_path / "missing" / "x.ledger")


def test_an_analyst_who_knows_the_number_of_rows_of_one_study_is_held_to_replacing_in_all(path: Path) -> None:
    alone = Trust(("bank", "shop"), (), 0)
    ledger = Ledger(path)
    ledger.reserve("s1", "", [EVENT], TWO, cap("everyone", 100))
    assert ledger.spent(Observer.analyst(), DELTA) == one("analyst")
    ledger.reserve("s2", "", [EVENT], alone, cap("everyone", 100))
    # Each sees all noise at the replace sensitivity, as the coordinator always did.
    assert ledger.spent(Observer.analyst(), DELTA) == one("coordinator", times=2) > one("analyst", times=2)
    with raises(BudgetError, "BU002"):
        ledger.reserve("s3", "", [EVENT], TWO, cap("analyst", one("coordinator", times=2)))
    assert [left.who for left in ledger.left(cap("analyst", 100), [])] == ["analyst", "others"]
