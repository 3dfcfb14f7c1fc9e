"""Owners that deal rows beyond their bounds and hide what would show of themselves: only proofs of rows stop them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from colonnade.errors import PeerStopped, ShareError
from colonnade.kinds.polynomial import programs as polynomial
from colonnade.kinds.polynomial.expressions import parse
from colonnade.kinds.polynomial.task import NamedColumns, Polynomials, freeze_terms
from colonnade.mpc import Shares
from colonnade.mpc.verification import input_proofs
from colonnade.mpc.verification.input_proofs import InputProver
from colonnade.privacy import Trust
from colonnade.privacy.observers import Security
from colonnade.protocols.moments import programs as moments
from colonnade.protocols.moments.task import Moments
from colonnade.protocols.roles import COORDINATOR
from colonnade.protocols.rows import ColumnBlock
from colonnade.tables.slots import RowSlots
from research.cheats import catalogue, known, trials
from research.cheats.catalogue import CHEATS
from research.cheats.deviation import Dealt, perform
from research.cheats.liars import CutShort
from research.cheats.overdealing import (
    PROVERS,
    PROVERS_OF_SMALL,
    VARIANTS,
    Overdealing,
    cells_of_victims,
    overdealing_owner,
)
from research.cheats.trials import Job, Row, all_scenes, play
from tests.support.studies import Trial, check_ended

PROVEN = ("proven moments", "proven hidden members", "proven marginals", "proven gradients", "proven directions")
SEEN_BY_PROOFS = {
    "a check of products of shares failed",
    "the proof of * that its numbers are within their bounds is wrong",
}
FLAGS = {"a flag of 2", "a flag of -1", "a flag that is 0 and 1"}
CODES, NORMS = {"a code with two ones"}, {"two cells whose norm is right modulo one prime", "a row one unit too long"}
UNFITTING = {
    "proven moments": FLAGS | CODES,
    "proven hidden members": CODES,
    "proven marginals": NORMS,
    "proven gradients": CODES,
    "proven directions": FLAGS | CODES,
}
"""What no owner of a scene has, and so cannot deal wrongly."""


@pytest.fixture(autouse=True)
def nobody_counts_occasions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where rows are proven a run deals two blocks or more, in each of which rows can be beyond their bounds."""
    monkeypatch.setattr(trials, "occasions", lambda job: 2)


def row(scene: str, cheat: str, seats: int = 3, count: int = 1, deviating: int = 1) -> Row:
    return play(Job(scene, cheat, seats, (seats - 1) // 2, True, count, 11, deviating))


def proven_by(prover: type[InputProver], monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows beyond bounds are proven in this way alone."""
    for name in ("PROVERS", "PROVERS_OF_SMALL"):
        monkeypatch.setattr(catalogue, name, (prover,))


def test_every_scene_with_proofs_is_played() -> None:
    assert set(PROVEN) <= {name for name, scene in all_scenes().items() if scene.proven}
    assert {cheat.name for cheat in CHEATS if cheat.needs == "proofs"} == set(VARIANTS)
    assert len(VARIANTS) >= 10


@pytest.mark.parametrize("scene", PROVEN)
def test_rows_beyond_their_bounds_are_seen_before_anything_is_opened(scene: str) -> None:
    """All that is derived from them fits them, so that nothing but the proof can see it; own squares are hidden."""
    played = [row(scene, name) for name in VARIANTS if name not in UNFITTING[scene]]
    assert len(played) >= 10
    for one in played:
        assert (one.caught, one.missed, one.early, one.faults) == (1, 0, 0, 0), (one.cheat, one.reasons)
        assert set(one.reasons) <= SEEN_BY_PROOFS, (one.cheat, one.reasons)


@pytest.mark.parametrize("prover", PROVERS_OF_SMALL, ids=lambda prover: prover.__name__)
def test_however_such_rows_are_proven(prover: type, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row that is one unit too long, and a flag of 2, whose proof may be an honest owner's but for one equation."""
    proven_by(prover, monkeypatch)
    for scene, name in (("proven moments", "a row one unit too long"), ("proven marginals", "a flag of 2")):
        found = row(scene, name)
        assert (found.caught, found.early) == (1, 0), (scene, found.reasons)
        assert set(found.reasons) <= SEEN_BY_PROOFS


@pytest.mark.parametrize("prover", PROVERS, ids=lambda prover: prover.__name__)
def test_however_large_cells_are_proven(prover: type, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "cells beyond their bounds in every block"
    proven_by(prover, monkeypatch)
    for scene in ("proven hidden members", "proven directions"):
        found = row(scene, name)
        assert (found.caught, found.early) == (1, 0), (scene, found.reasons)
        assert set(found.reasons) <= SEEN_BY_PROOFS


@pytest.mark.parametrize("scene", ["proven moments", "proven gradients"])
def test_two_owners_that_overdeal_are_seen_like_one(scene: str) -> None:
    found = row(scene, "a cell a thousand times its bound", seats=5, deviating=2)
    assert (found.caught, found.early, found.faults) == (1, 0, 0)
    assert set(found.reasons) <= SEEN_BY_PROOFS


@pytest.mark.parametrize(
    ("scene", "cheat"),
    [
        ("moments", "a cell twice its bound"),
        ("moments", "a row one unit too long"),
        ("moments", "a cell of half the modulus"),
        ("hidden members", "a flag of 2"),
        ("marginals", "a code with two ones"),
        ("marginals", "a flag of -1"),
        ("gradients", "a flag of 2"),
        ("gradients", "a cell twice its bound"),
        ("directions", "a cell twice its bound"),
    ],
)
def test_without_proofs_nobody_notices_them(scene: str, cheat: str) -> None:
    """What is dealt and what follows from it are of one piece, so that checks of products alone see nothing."""
    found = row(scene, cheat, count=4)
    assert (found.caught, found.faults) == (0, 0), found.reasons
    assert found.missed > 0, "an opened number is another than the table's owners would open"


def test_the_games_notice_proofs_that_do_not_look_at_equations(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row one unit too long is short, so that all its sums have bits: its equation alone is wrong."""
    name = "a row one unit too long"
    proven_by(CutShort, monkeypatch)
    assert row("proven moments", name).caught == 1
    monkeypatch.setattr(input_proofs.InputVerifier, "claim", lambda self, *given: None)
    monkeypatch.setattr(
        input_proofs.InputVerifier,
        "fold",
        lambda self, second: Shares(np.zeros((len(self.system.primes), 1)), self.degree),
    )
    assert row("proven moments", name).missed == 1


# --- what such an owner reads


def test_a_hidden_square_reads_the_rows_of_victims_where_seats_check_products_too() -> None:
    """Epsilon 1 and 50,000 people; a cell is read wrongly only if noise is five deviations large."""
    for found in (known.beyond_bounds(), known.beyond_bounds(security="active", inputs="unproven")):
        assert (found.read, found.cells) == (16, 16)
        assert set(found.outcome.accepted) == {"bank", "shop", "coordinator"}


def test_proofs_of_rows_stop_it_before_an_opening() -> None:
    stopped = known.beyond_bounds(10_000, security="active", inputs="proven")
    assert (stopped.read, stopped.opened) == (0, False)
    assert not stopped.outcome.accepted
    assert isinstance(stopped.outcome.reason, ShareError)
    assert "the proof of mallory that its numbers are within their bounds is wrong" in str(stopped.outcome.reason)


@pytest.mark.parametrize("security", ["semi-honest", "active"])
@pytest.mark.parametrize("hidden", [False, True])
def test_nothing_shows_of_the_own_columns(hidden: bool, security: Security) -> None:
    """The result is that of the table's rows, but for the products of the large cell with others' columns."""
    owners, rows = ("bank", "shop", "mallory"), 6
    blocks = tuple(ColumnBlock(owner, ("c0",), 1.0) for owner in owners)
    task = Moments(blocks, Trust(owners, owners, 1, security), 16, 8, rows_at_most=100, noise=3, hidden=hidden)
    whole = {owner: np.full((rows, 1), 10 + number) for number, owner in enumerate(owners)}
    places = RowSlots(np.arange(rows), rows, bytes(16)) if hidden else None
    tables = {owner: Dealt(values / 16, places) for owner, values in whole.items()}
    cheat = overdealing_owner(moments, Overdealing(cells_of_victims([1], 512)))

    def program(name: str, owner: Callable[..., Any]) -> Callable[[Any], Any]:
        return lambda me: owner(me, tables[name], task)

    programs = {name: program(name, cheat if name == "mallory" else moments.owner) for name in owners}
    outcome = perform(task, programs | {COORDINATOR: lambda me: moments.coordinator(me, task)}, "mallory")
    opened = outcome.accepted["bank"].opened
    if hidden:
        whole = {owner: np.hstack([values, np.ones_like(values)]) for owner, values in whole.items()}
    beyond = np.abs(opened - moments.reference(whole, task)) > 100
    places_of = np.column_stack(np.triu_indices(task.width))
    assert places_of[beyond].tolist() == [[0, 2], [1, 2]]


def test_factors_of_polynomials_follow_from_the_changed_rows() -> None:
    """x^2 of a cell of 512 times another owner's cell is opened, and checks of products see nothing wrong."""
    trust = Trust(("bank", "shop", "mallory"), ("bank", "shop", "mallory"), 1, "active")
    holdings = tuple(NamedColumns(owner, ("c0",), 1.0, 1, (False,)) for owner in trust.owners)
    names = [f"{owner}.c0" for owner in trust.owners]
    asked = tuple(freeze_terms(parse(text, names)) for text in ("mallory.c0 ** 2 * bank.c0", "shop.c0 * bank.c0"))
    task = Polynomials(holdings, trust, asked, gamma=16, rows_at_most=100_000, noise=3)
    tables = {owner: Dealt(np.full((6, 1), 10 / 16)) for owner in trust.owners}
    cheat = overdealing_owner(polynomial, Overdealing(cells_of_victims([1], 512)))
    programs: dict[str, Callable[[Any], Any]] = {
        name: lambda me, name=name: polynomial.owner(me, tables[name], task) for name in ("bank", "shop")
    }
    programs |= {"mallory": lambda me: cheat(me, tables["mallory"], task)}
    outcome = perform(task, programs | {COORDINATOR: lambda me: polynomial.coordinator(me, task)}, "mallory")
    exact = np.array(polynomial.reference({name: np.full((6, 1), 10) for name in trust.owners}, task))
    beyond = outcome.accepted["bank"].opened - exact
    assert np.abs(beyond - [(512**2 - 100) * 10, 0]).max() < 100


# --- the same in a study of real processes

OVERDEALS = """
import json, sys
from pathlib import Path

sys.path.insert(0, {root!r})
import numpy as np
from colonnade.cli import main
from colonnade.protocols.moments import programs
from research.cheats.overdealing import Overdealing, cells_of_victims, overdealing_owner

how = Overdealing(cells_of_victims((), 0))
cheat = overdealing_owner(programs, how)

def owner(me, table, task):
    number, own = task.rows_at_most // 8 * task.gamma, task.span(me.name)
    how.beyond = cells_of_victims(range(own.stop - own.start), number)
    result = cheat(me, table, task)
    full = np.zeros((task.width, task.width))
    full[np.triu_indices(task.width)] = result.opened / task.weights
    read = dict(zip(table.ids, (full[: own.start, own].T / number).tolist()))
    (Path(sys.argv[-1]) / "read.json").write_text(json.dumps(read))
    return result

programs.owner = owner
main()
"""


@pytest.fixture
def trial(tmp_path: Path) -> Iterator[Trial]:
    made = Trial(tmp_path, 200, match=False)
    columns = {"bank": ["age"], "shop": ["visits"], "clinic": made.study().roster.schemas["clinic"].names[:8]}
    made.edit("STUDY.toml", "rows_at_most = 100_000", 'method = "moments"\ngamma = 64\nrows_at_most = 1_000_000')
    for name, chosen in columns.items():
        made.edit("STUDY.toml", rf'schema = "schemas/{name}.toml"', rf"\g<0>\ncolumns = {json.dumps(list(chosen))}")
    yield made
    made.clean_up()


def encoded_cells(trial: Trial, name: str) -> dict[str, float]:
    """Everybody's number in the one column of a party."""
    table = trial.config(name).table(trial.study().roster.schemas[name], None, None)
    return dict(zip(table.ids, next(table.blocks(200))[:, 0].tolist(), strict=True))


@pytest.mark.system
@pytest.mark.parametrize("inputs", ["unproven", "proven"])
def test_a_party_that_overdeals_in_a_study_over_tls(trial: Trial, inputs: str) -> None:
    """It reads a row of each of eight people; with proofs the study ends before anything is opened."""
    trial.edit("STUDY.toml", "^name", f'security = "active"\ninputs = "{inputs}"\nname')
    trial.start("coordinator", "bank", "shop")
    trial.start("clinic", script=OVERDEALS.format(root=str(Path(__file__).parents[2])))
    ended, read = trial.ends(), trial.out("clinic") / "read.json"
    if inputs == "unproven":
        assert {one.code for one in ended.values()} == {0}, ended
        found, held = json.loads(read.read_text()), [encoded_cells(trial, name) for name in ("bank", "shop")]
        assert len(found) == 8
        for person, cells in found.items():  # these were rounded at random before they were dealt
            assert all(abs(round(cell) - 64 * own[person]) < 1 for cell, own in zip(cells, held, strict=True))
        return
    check_ended(ended, ["coordinator", "bank", "shop"], [ShareError, PeerStopped], "the study ends here")
    sentences = [ended[name].sentence for name in ("bank", "shop")]
    assert any("the proof of clinic that its numbers are within their bounds is wrong" in one for one in sentences)
    assert not read.exists()
    assert not [name for name in ended if (trial.out(name) / "model.json").exists()]
    trial.check_states("sent")
