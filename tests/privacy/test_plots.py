"""Pictures of statements and ledgers: every row has its bar, and what is not promised or not proven looks so."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from colonnade.errors import LedgerError, PrivacyError
from colonnade.privacy.events import NonPrivate
from colonnade.privacy.ledger import Ledger
from colonnade.privacy.observers import Observer
from colonnade.privacy.pictures import promises, spending
from colonnade.privacy.rows import rounded_up
from colonnade.privacy.statement import Statement
from tests.pictures.reading import lengths, notes, places, written
from tests.support.errors import raises

from .conftest import EVENT, TRUST

DELTA = 1e-5
START = datetime(2031, 1, 10, tzinfo=UTC)


def test_every_row_has_a_bar_under_what_it_cannot_tell() -> None:
    statement = Statement.of([EVENT], TRUST, DELTA)
    (ax,) = statement.plot().axes
    rows = (*statement.rows, *statement.missing_noise)
    assert sorted(places(ax).values()) == sorted(row.who for row in rows)
    found = lengths(ax)
    for who in ("bank", "shop"):
        assert found[who] == statement.epsilon(who)
    texts = written(ax)
    for relation in {row.adjacency.value for row in rows}:
        assert f"cannot tell: {relation}" in texts
    assert "if 1 owner draws no noise, each as above" in texts
    for row in rows:
        assert (rounded_up(row.epsilon, 3) if row.epsilon < 1e9 else "no promise") in texts
    assert "epsilon, rounded up, at delta 1e-05" in notes(ax)
    assert "not on one scale" in notes(ax)


def test_what_is_not_promised_is_hatched_from_end_to_end() -> None:
    statement = Statement.of([EVENT], TRUST, DELTA)
    (ax,) = statement.plot().axes
    names, longest = places(ax), max(patch.get_width() for patch in ax.patches)
    hatched = {names[round(each.get_y() + 0.31)]: each.get_width() for each in ax.patches if each.get_hatch()}
    assert hatched == {row.who: longest for row in (*statement.rows, *statement.missing_noise) if row.epsilon > 1e9}
    assert "hatched from end to end: nothing is promised" in notes(ax)


def test_what_is_not_proven_is_hatched_and_says_so() -> None:
    statement = Statement.of([replace(EVENT, unproven="a step is missing")], TRUST, DELTA)
    (ax,) = statement.plot().axes
    assert f"{rounded_up(statement.epsilon('bank'), 3)}, as published, not proven" in written(ax)
    assert all(patch.get_hatch() for patch in ax.patches)
    assert "hatched bar: as published, not proven" in notes(ax)


def test_a_leak_has_no_bar_at_all() -> None:
    (ax,) = Statement.of([NonPrivate("rows were posted")], TRUST, DELTA).plot().axes
    assert all(patch.get_hatch() for patch in ax.patches)
    assert {text for text in written(ax) if not text.startswith(("cannot tell", "if "))} == {"no promise"}


def test_events_are_drawn_one_by_one_and_together() -> None:
    first, second = EVENT, replace(EVENT, name="more moments")
    statement = Statement.of([first, second], TRUST, DELTA)
    (ax,) = statement.plot(events=True).axes
    alone = Statement.of([first], TRUST, DELTA)
    texts = written(ax)
    for who in ("analyst", "bank"):
        assert rounded_up(alone.epsilon(who), 3) in texts
        assert rounded_up(statement.epsilon(who), 3) in texts
    groups = [text for text in texts if "cannot tell" in text]
    assert "bank, shop (cannot tell: replace one person's columns held by others)" in groups, "alike are drawn once"
    assert list(places(ax).values()) == ["moments", "more moments", "all together"] * len(groups)


def test_of_many_rows_the_first_are_drawn() -> None:
    row = Statement.of([EVENT], TRUST, DELTA).rows[0]
    (panel,) = promises([replace(row, epsilon=float(k)) for k in range(1, 31)]).panels
    assert len(panel.bars) == 24  # type: ignore[attr-defined]
    assert "the first 24 of 30 rows are drawn" in panel.note  # type: ignore[attr-defined]


def year(path: Path, studies: int) -> tuple[Ledger, list[datetime]]:
    """A ledger with a study a month."""
    now = [START]
    ledger = Ledger(path / "ledger.sqlite", owner="bank", clock=lambda: now[0])
    for _ in range(studies):
        entry = ledger.reserve("s", "", [EVENT], TRUST, ())
        ledger.commit(ledger.mark_sent(entry))
        now[0] += timedelta(days=30)
    return ledger, now


def test_a_ledger_is_drawn_over_time_with_its_caps(tmp_path: Path) -> None:
    ledger, now = year(tmp_path, 4)
    (ax,) = ledger.plot(caps={"analyst": 2.0}).axes
    line = next(each for each in ax.lines if each.get_label().startswith("analyst"))
    when, found = ledger.course(DELTA)
    assert list(line.get_ydata()) == [0.0, *found["analyst"], found["analyst"][-1]]
    assert line.get_ydata()[-1] == ledger.spent(Observer.analyst(), DELTA)
    assert list(line.get_xdata()) == [when[0], *when, now[0]]
    assert "cap of analyst: 2" in written(ax)
    assert ax.get_ylabel() == "epsilon in all, at delta 1e-05"


def test_other_deltas_and_one_cap_for_all(tmp_path: Path) -> None:
    ledger, _ = year(tmp_path, 1)
    (ax,) = ledger.plot(delta=1e-7, caps=3.0).axes
    assert "cap of everyone: 3" in written(ax)
    assert ax.get_ylabel() == "epsilon in all, at delta 1e-07"
    with pytest.raises(PrivacyError):
        ledger.plot(caps={})


def test_a_ledger_without_studies_has_no_picture(tmp_path: Path) -> None:
    ledger, now = year(tmp_path, 0)
    ledger.release(ledger.reserve("s", "", [EVENT], TRUST, ()))
    with raises(LedgerError, "LE003"):
        ledger.plot()
    assert now == [START]


def test_who_was_told_things_exactly_has_no_line() -> None:
    (panel,) = spending([START], {"analyst": [1.0], "bank": [1.0], "shop": [float("inf")]}, START, DELTA, {}).panels
    assert [line.label for line in panel.lines] == ["analyst, bank"]  # type: ignore[attr-defined]
    assert "nothing is promised: shop" in panel.note  # type: ignore[attr-defined]
