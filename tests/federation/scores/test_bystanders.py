"""An owner whom nothing is asked of stands by as long as the lists are equal, and counts those that are not."""

from __future__ import annotations

from pathlib import Path

import pytest

from colonnade.federation.scores.kept_answers import KeptAnswers
from colonnade.federation.scores.session import StandingStudy, make_owner
from colonnade.privacy import Ledger
from colonnade.protocols.roles import COORDINATOR
from colonnade.tables import population
from tests.federation.scores.test_session import COLUMNS, NOISY, ROWS, Place, play_session
from tests.support.errors import check_said

WITH_CLINIC = COLUMNS | {"clinic": ["bmi", "glucose"]}


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A bank, a shop, and a clinic whose columns the model has no weights for; all of them hold everybody."""
    made = Place.make(tmp_path / "s", WITH_CLINIC)
    population(ROWS).write(made.folder / "tables")
    for name in WITH_CLINIC:
        made.allow(name, exact="")
    return made


def test_an_owner_that_is_not_asked_counts_no_list_again_that_was_found_equal(place: Place) -> None:
    path, table = place.folder / "clinic" / "party.toml", place.folder / "tables" / "bank.csv"
    path.write_text(f"{path.read_text()}\n[policy.alignments]\nat_most = 2\nat_most_each = 2\n")
    standing = StandingStudy.of(place.study("levels", ('answers = "levels"\n', NOISY[1]), align=False))
    assert standing.question.session.bystanders == ("clinic", COORDINATOR)
    clinic, right = place.config("clinic"), table.read_text()
    answers, book = KeptAnswers(standing, clinic, clinic.path.parent / "agent"), Ledger(clinic.ledger)
    stands_by = make_owner(standing, clinic, answers.open_session)
    for _ in range(4):
        assert play_session(place, standing, clinic=stands_by) == (ROWS, {})
        assert book.count_alignments(days=30) == 1
    for counted in (1, 2):
        table.write_text("\n".join(right.splitlines()[:-counted]) + "\n")
        assert "clinic" in play_session(place, standing, clinic=stands_by)[1]
        assert book.count_alignments(days=30) == counted
    table.write_text(right)
    matched, wrong = play_session(place, standing, clinic=stands_by)
    answers.close()
    assert matched == 0
    check_said(wrong["clinic"], "PO701")
