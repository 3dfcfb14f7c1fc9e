"""Steps, messages and sizes that others could time: the same on neighbouring tables.

Alignment is not among the protocols here: what it tells is outside every epsilon, and is listed.
"""

from __future__ import annotations

import hashlib
import os
import sys
import threading
from fractions import Fraction
from functools import partial
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from colonnade import Synthesizer, randomness
from colonnade.audit import games
from colonnade.kinds.glm import losses, programs as exchange
from colonnade.kinds.glm.audit import steps_of
from colonnade.kinds.glm.kept_scores import NewRows, ScoreSender
from colonnade.kinds.prediction.programs import OwnScoreParts
from colonnade.kinds.split import adaptive_programs as adaptive
from colonnade.kinds.synthesis.mixture import programs as mixture_programs
from colonnade.kinds.synthesis.mixture.task import draft_mixture, make_learner
from colonnade.models.federation import Roster
from colonnade.tables import Schema, category, flag, number
from colonnade.tables.slots import RowSlots
from colonnade.wire import codec
from tests.kinds.split import adaptive_stand_ins as adaptive_made, embedding_learners as embeddings
from tests.kinds.synthesis.mixture import learners as mixture
from tests.support import protocols as kit

HOME = Path(randomness.__file__).parent
COUNTED = tuple(str(HOME / folder) for folder in ("mpc", "privacy", "protocols", "tables", "kinds"))
"""What participants compute; how often somebody looks whether a message has come is left out."""
IN_C = str(HOME / "kinds" / "synthesis" / "mixture")
"""Where owners compute densities of rows: of that, the calls of functions in C are counted too."""
_TRIES = 6


def test_steps_are_counted_and_not_timed() -> None:
    (few, many) = (steps_of(lambda size=size: codec.encode({"a": [1] * size})) for size in (1, 9))
    assert 0 < few < many
    assert steps_of(lambda: [abs(x) for x in (1, 2, 3)]) == steps_of(lambda: None)  # not a function of ours


def test_steps_tell_nothing_where_proven_steps_are_too_many_to_be_taken_always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(losses, "AT_ONCE", 0)
    (game, *_) = games("time")
    assert (game.epsilon(), game.sampler.more[1].any()) == (0.0, False)


class SameCoins:
    """Keys that depend on who asks and how often it asked before, so that noise takes as many draws in every run."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.mine, self.real = threading.local(), os.urandom
        patch.setattr(randomness.os, "urandom", self.draw)

    def start(self, name: str) -> None:
        self.mine.name, self.mine.count = name, 0

    def draw(self, size: int) -> bytes:
        if not hasattr(self.mine, "name"):
            return self.real(size)
        self.mine.count += 1
        return hashlib.shake_256(f"{self.mine.name} {self.mine.count}".encode()).digest(size)


class Marked:
    """A link that takes down each message with the functions that were called before it."""

    def __init__(self, link, note) -> None:
        self.link, self.note = link, note

    def send(self, kind: str, /, **fields) -> None:
        self.note("to", kind, len(codec.encode(fields)))
        self.link.send(kind, **fields)

    def recv(self, kind: str, most: int, /):
        fields = self.link.recv(kind, most)
        self.note("from", kind, 0)
        return fields


def _marked(program, marks, coins: SameCoins):
    """A program whose messages and calls are taken down."""

    def run(me):
        calls = 0
        coins.start(me.name)

        def called(frame, event: str, argument: object) -> None:
            nonlocal calls
            where = frame.f_code.co_filename
            calls += (event == "call" and where.startswith(COUNTED)) or (event == "c_call" and where.startswith(IN_C))

        def note(peer: str, *words) -> None:
            marks.append((peer, *words, calls))

        for peer, link in tuple(me._links.items()):
            me._links[peer] = Marked(link, partial(note, peer))
        sys.setprofile(called)
        try:
            return program(me)
        finally:
            sys.setprofile(None)

    return run


def _seen(module, task, held, labels, coins: SameCoins):
    """What each participant's messages and calls were, with coins that are the same in every run."""
    marks = {name: [] for name in (*task.owners, "coordinator")}
    programs = kit.programs_of(module, task, held, labels)
    kit.results(task, {name: _marked(program, marks[name], coins) for name, program in programs.items()})
    return marks


def _alike(one, other):
    """What was seen of both, which must be the same.

    Threads that other tests left behind share caches with these runs, and may change a count now and then. What depends
    on a table changes it every time, since coins are the same.
    """
    one()  # what is computed once and kept is computed now
    for _ in range(_TRIES):
        first, second = one(), other()
        if first == second:
            break
    assert first == second
    return first


class Published:
    """The programs of adaptive embeddings, with linear encoders and a linear head."""

    @staticmethod
    def owner(me, rows, labels, task):
        if labels is not None:
            return adaptive.owner(me, None, rows, task, adaptive_made.head_of(labels, task.classes, 8))
        return adaptive.owner(me, embeddings.Product(rows.values, 4), rows, task)

    coordinator = staticmethod(adaptive.coordinator)


CASES = {
    "moments": kit.moments_task(),
    "directions": kit.directions_task(),
    "directions to a label": kit.directions_task(labels=(0, 1, 2, 3)),
    "hidden": kit.hidden_moments_task(3),
    "marginals": kit.marginals_task(),
    "hidden marginals": kit.marginals_task(hidden=True),
    "gradients": kit.gradients_task(sampling="disjoint"),
    "drawn": kit.gradients_task(),
    "mixture": mixture.mixture_task(),
    "mixture in turn": mixture.mixture_task(sampling="disjoint", vectors="linear"),
    "polynomial": kit.polynomial_task((2, 1), ["o0.c0 * o1.c0"]),
    "alternating": kit.exchange_task("alternating"),
    "gradient": kit.exchange_task("gradient"),
    "released": kit.exchange_task("alternating", release=True),
    "scores": kit.scores_task(3),
    "kept scores": kit.kept_scores_task(ScoreSender("right", 3, 1.0, 0.9, 0.01)),
    "embeddings": embeddings.embeddings_task(training="labels", stage=True),
    "embeddings in rounds": embeddings.embeddings_task(training="rounds", label_odds=Fraction(3)),
    "adaptive embeddings": adaptive_made.adaptive_task(classes=2, confidence=0.4),
}
LEARNERS = {
    "mixture": mixture,
    "mixture in turn": mixture,
    "embeddings": embeddings,
    "embeddings in rounds": embeddings,
    "adaptive embeddings": Published,
}
"""Programs with the learners of tests; of other tasks, those beside the task."""


@pytest.mark.parametrize("name", CASES)
def test_neighbouring_tables_give_the_same_messages_sizes_and_calls(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the other one a person is at the other end of everything."""
    task = CASES[name]
    module = LEARNERS.get(name) or import_module(type(task).__module__.replace(".task", ".programs"))
    held, labels = _held(name, task)
    turned, flipped = {owner: rows.copy() for owner, rows in held.items()}, None
    for rows in turned.values():
        rows[3] = 1 - rows[3] if rows.dtype == np.int64 else -rows[3]  # codes are 0 and 1
    if labels is not None:
        flipped = labels.copy()
        flipped[3] = 1 - flipped[3]
    coins = SameCoins(monkeypatch)
    first = _alike(
        lambda: _seen(module, task, _wrapped(name, held), labels, coins),
        lambda: _seen(module, task, _wrapped(name, turned), flipped, coins),
    )
    assert all(first[owner][-1][-1] > 20 for owner in task.owners)


def _held(name: str, task):
    """Rows of every owner, and labels where somebody has them."""
    rng, count = np.random.default_rng(4), getattr(task, "rows", 40)
    flags = rng.random(count) < 0.5
    if "embeddings" in name:
        return {owner: rng.normal(size=(count, 3)) for owner in task.owners}, flags.astype(int)
    if "mixture" in name:
        known = mixture.flags(getattr(task, "second", task), count)
        return {owner: 2 * rows - 1 for owner, rows in known.items()}, None
    if "marginals" in name:
        return {owner: rng.integers(0, 2, (count, len(task.held_by(owner)))) for owner in task.owners}, None
    if "scores" in name:
        width = 3 if "kept" in name else task.classes
        return {owner: rng.uniform(-0.5, 0.5, (count, width)) for owner in task.owners}, None
    blocks = getattr(task, "blocks", None) or task.holdings
    held = {b.owner: rng.uniform(-0.5, 0.5, (count, len(b.columns))) / len(b.columns) for b in blocks}
    shapes = dict.fromkeys(("alternating", "gradient", "released"), (count,)) | dict.fromkeys(
        ("gradients", "drawn"), (count, 1)
    )
    return held, flags.astype(float).reshape(shapes[name]) if name in shapes else None


def _wrapped(name: str, held):
    """The rows as the protocol takes them."""
    ids = tuple(f"{k:04d}" for k in range(len(next(iter(held.values())))))
    if name == "scores":
        return {owner: OwnScoreParts(ids, rows) for owner, rows in held.items()}
    if name == "kept scores":
        return {owner: NewRows(ids, rows, np.ones(3)) for owner, rows in held.items()}
    if "hidden" in name:  # each owner's people are in other slots of the universe
        slots = {owner: np.arange(len(ids)) * 2 + place for place, owner in enumerate(held)}
        size = 2 * len(ids) + len(held)
        return {owner: kit.Rows(rows, places=RowSlots(slots[owner], size, bytes(16))) for owner, rows in held.items()}
    return dict(held)


class Learned:
    """The programs of a mixture with the learner that studies make."""

    @staticmethod
    def owner(me, rows, task):
        return mixture_programs.owner(me, rows, task, make_learner(task))

    @staticmethod
    def coordinator(me, task):
        return mixture_programs.coordinator(me, task, make_learner(task))


PATCHY = Schema(
    {
        "age": number(0, 100, missing="none"),
        "city": category(["a", "b", "c"], missing="none"),
        "sort": category(["x", "y"]),
        "member": flag(),
    }
)
LEARNED = {
    "linear": {},
    "joint": {"clipping": "joint"},
    "gaussian": {"families": {"bank.age": "gaussian:8"}},
    "bins": {"sampling": "disjoint", "families": {"bank.age": "bins:4"}},
    "expectation": {"inference": "expectation"},
}


PLACES = ["age", "city", "sort"]


@pytest.mark.parametrize(
    ("name", "place"), [*(("linear", place) for place in PLACES), *zip([*LEARNED][1:], PLACES * 2, strict=False)]
)
def test_a_missing_cell_changes_no_message_size_or_call(name: str, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody lacks a cell in the first table; in the second one person does, or has one that is none of its values."""
    model = Synthesizer(
        method="mixture", epsilon=1.0, rows=40, components=3, inference="variational", iterations=2, batch=10,
        clip=1.0, rows_at_most=1000,
    ).set_params(**LEARNED[name])  # fmt: skip
    roster = Roster.of(dict.fromkeys(("bank", "shop", "clinic"), PATCHY))
    task = draft_mixture(model.get_params(), roster)
    rng, count, held = np.random.default_rng(5), 30, {}
    for owner in task.owners:
        rows = held[owner] = np.zeros((count, PATCHY.encoded_width))
        rows[:, PATCHY.encoded_slices["age"].start] = rng.uniform(-1, 1, count)
        for column, size in (("city", 3), ("sort", 2)):
            rows[np.arange(count), PATCHY.encoded_slices[column].start + rng.integers(0, size, count)] = 1
        rows[:, PATCHY.encoded_slices["member"].start] = rng.integers(0, 2, count)
    gone, coins = held | {"bank": held["bank"].copy()}, SameCoins(monkeypatch)
    gone["bank"][3, PATCHY.encoded_slices[place]] = (0, 1) if place == "age" else 0
    _alike(lambda: _seen(Learned, task, held, None, coins), lambda: _seen(Learned, task, gone, None, coins))


def test_a_step_more_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    task = CASES["alternating"]
    given = (exchange, task, *_held("alternating", task), SameCoins(monkeypatch))
    _, before = _seen(*given), _seen(*given)
    monkeypatch.setattr(losses, "NEWTON_STEPS", losses.NEWTON_STEPS + 1)
    after = _seen(*given)
    assert before["shop"] == after["shop"]
    assert before["bank"] != after["bank"]
