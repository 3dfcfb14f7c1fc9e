"""Steps, messages and sizes that others could time: the same on neighbouring tables.

Alignment is not among the protocols here: what it tells is outside every epsilon, and is listed.
"""

from __future__ import annotations

import hashlib
import os
import sys
import threading
import warnings
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import colonnade
from colonnade import randomness
from colonnade.audit import games, twins
from colonnade.audit.verdict import judge
from colonnade.kinds.glm.audit_times import StepsTaken, steps_of
from colonnade.kinds.glm.exchange import fits, programs as exchange
from colonnade.kinds.glm.kept_scores import programs as kept_scores
from colonnade.kinds.glm.kept_scores.answers import New
from colonnade.kinds.glm.kept_scores.task import Sender
from colonnade.kinds.pca.directions import programs as directions
from colonnade.kinds.polynomial import programs as polynomial
from colonnade.kinds.prediction.scores import programs as scores
from colonnade.kinds.prediction.scores.programs import Parts
from colonnade.kinds.regression.gradients import programs as gradients
from colonnade.kinds.split.adaptive import programs as adaptive
from colonnade.kinds.synthesis import mixing
from colonnade.kinds.synthesis.mixture import programs as mixture_programs
from colonnade.kinds.tables.marginals import programs as marginals
from colonnade.models.federation import Roster
from colonnade.privacy.additive import USUAL
from colonnade.protocols.moments import programs as moments
from colonnade.tables.columns import category, flag, number
from colonnade.tables.places import Places
from colonnade.tables.schema import Schema
from colonnade.wire import codec
from tests.kinds.split.adaptive import stand_ins as adaptive_made
from tests.kinds.split.embeddings import learners as embeddings
from tests.kinds.synthesis.mixture import learners as mixture, starts
from tests.support import protocols as kit

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import colonnade.testing.twins

HOME = Path(colonnade.__file__).parent
COUNTED = tuple(str(HOME / folder) for folder in ("mpc", "privacy", "protocols", "tables", "kinds"))
"""What participants compute; how often somebody looks whether a message has come is left out."""
IN_C = str(HOME / "kinds" / "synthesis" / "mixture")
"""Where owners compute densities of rows: of that, the calls of functions in C are counted too."""
_TRIES = 6
"""To or from whom, the kind of message, its size, and the functions called since the one before."""


def test_steps_are_counted_and_not_timed() -> None:
    (few, many) = (steps_of(lambda size=size: codec.encode({"a": [1] * size})) for size in (1, 9))
    assert 0 < few < many
    assert steps_of(lambda: [abs(x) for x in (1, 2, 3)]) == steps_of(lambda: None)  # not a function of ours


def test_steps_tell_nothing_and_a_fit_that_ends_early_is_caught() -> None:
    for game in games("time"):
        verdict = judge(game, 2000, 1)
        assert (verdict.word, verdict.claimed) == ("holds", 0.0)
    ((broken, game),) = twins("time")
    assert judge(game, 2000, 1, broken).word == "caught"


def test_steps_tell_nothing_where_proven_steps_are_too_many_to_be_taken_always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fits, "AT_ONCE", 0)
    (game, *_) = games("time")
    assert isinstance(game.sampler, StepsTaken)
    assert not game.sampler.more[1].any()


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

    def __init__(self, link, peer: str, marks, calls) -> None:
        self.link, self.peer, self.marks, self.calls = link, peer, marks, calls

    def send(self, kind: str, /, **fields) -> None:
        self.marks.append((f"to {self.peer}", kind, len(codec.encode(fields)), self.calls()))
        self.link.send(kind, **fields)

    def recv(self, kind: str, most: int, /):
        fields = self.link.recv(kind, most)
        self.marks.append((f"from {self.peer}", kind, 0, self.calls()))
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

        for peer, link in tuple(me._links.items()):
            me._links[peer] = Marked(link, peer, marks, lambda: calls)
        sys.setprofile(called)
        try:
            return program(me)
        finally:
            sys.setprofile(None)

    return run


def _seen(module, task, held, labels, coins: SameCoins):
    """What each participant's messages and calls were, with coins that are the same in every run."""
    marks = {}
    programs = {}
    for name, program in kit.programs_of(module, task, held, labels).items():
        programs[name] = _marked(program, marks.setdefault(name, []), coins)
    kit.results(task, programs)
    return marks


def _alike(one, other):
    """What was seen of both, which must be the same.

    Threads that other tests left behind share caches with these runs, and may change a count now and then. What depends
    on a table changes it every time, since coins are the same.
    """
    for _ in range(_TRIES):
        first, second = one(), other()
        if first == second:
            break
    assert first == second
    return first


def _turned(held, row: int):
    """The same tables, with one person at the other end of everything."""
    other = {name: 1 - rows if rows.dtype == np.int64 else -rows for name, rows in held.items()}  # codes are 0 and 1
    return {
        name: np.concatenate([rows[:row], other[name][row : row + 1], rows[row + 1 :]]) for name, rows in held.items()
    }


class Published:
    """The programs of adaptive embeddings, with linear encoders and a linear head."""

    @staticmethod
    def owner(me, rows, labels, task):
        if labels is not None:
            return adaptive.owner(me, None, rows, task, adaptive_made.head_of(labels, task.classes, 8))
        return adaptive.owner(me, embeddings.Product(rows.values, 4), rows, task)

    coordinator = staticmethod(adaptive.coordinator)


CASES = {
    "moments": (moments, kit.moments_task()),
    "directions": (directions, kit.directions_task()),
    "directions to a label": (directions, kit.directions_task(labels=(0, 1, 2, 3))),
    "hidden": (moments, kit.hidden_moments_task(3)),
    "marginals": (marginals, kit.marginals_task()),
    "hidden marginals": (marginals, kit.marginals_task(hidden=True)),
    "gradients": (gradients, kit.gradients_task(sampling="disjoint")),
    "drawn": (gradients, kit.gradients_task()),
    "mixture": (mixture, mixture.mixture_task()),
    "mixture in turn": (mixture, mixture.mixture_task(sampling="disjoint", vectors="linear")),
    "mixture from marginals": (starts, starts.started_task()),
    "polynomial": (polynomial, kit.polynomial_task((2, 1), ["o0.c0 * o1.c0"])),
    "alternating": (exchange, kit.exchange_task("alternating")),
    "gradient": (exchange, kit.exchange_task("gradient")),
    "released": (exchange, kit.exchange_task("alternating", release=True)),
    "scores": (scores, kit.scores_task(3)),
    "kept scores": (kept_scores, kit.kept_scores_task(Sender("right", 3, 1.0, 0.9, 0.01))),
    "embeddings": (embeddings, embeddings.embeddings_task(training="labels", stage=True)),
    "embeddings in rounds": (embeddings, embeddings.embeddings_task(training="rounds", label_odds=Fraction(3))),
    "adaptive embeddings": (Published, adaptive_made.adaptive_task(classes=2, confidence=0.4)),
}


@pytest.mark.parametrize("name", CASES)
def test_neighbouring_tables_give_the_same_messages_sizes_and_calls(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, task = CASES[name]
    rng = np.random.default_rng(4)
    held, labels = _held(name, task, rng)
    coins = SameCoins(monkeypatch)
    given, other = _wrapped(name, task, held), _wrapped(name, task, _turned(held, 3))
    _seen(module, task, given, labels, coins)  # what is computed once and kept is computed now
    flipped = None if labels is None else _flipped(labels)
    first = _alike(
        lambda: _seen(module, task, given, labels, coins), lambda: _seen(module, task, other, flipped, coins)
    )
    assert all(marks[-1][-1] > 20 for name, marks in first.items() if name in task.owners)


def _held(name: str, task, rng: np.random.Generator):
    """Rows of every owner, and labels where somebody has them."""
    count = getattr(task, "rows", 40)
    if name == "kept scores":
        return {owner: rng.uniform(-0.5, 0.5, (count, 3)) for owner in task.owners}, None
    if name == "scores":
        return {owner: rng.uniform(-0.5, 0.5, (count, task.classes)) for owner in task.owners}, None
    if name in ("marginals", "hidden marginals"):
        return {owner: rng.integers(0, 2, (count, len(task.held_by(owner)))) for owner in task.owners}, None
    if name in ("mixture", "mixture in turn"):
        return {owner: 2 * rows - 1 for owner, rows in mixture.flags(task, count).items()}, None
    if name == "mixture from marginals":
        return {owner: 2 * rows - 1 for owner, rows in mixture.flags(task.second, count).items()}, None
    if "embeddings" in name:
        return {owner: rng.normal(size=(count, 3)) for owner in task.owners}, rng.integers(0, 2, count)
    blocks = getattr(task, "blocks", None) or task.holdings
    held = {b.owner: rng.uniform(-0.5, 0.5, (count, len(b.columns))) / len(b.columns) for b in blocks}
    if name in ("alternating", "gradient", "released"):
        return held, (rng.random(count) < 0.5).astype(float)
    if name in ("gradients", "drawn"):
        return held, (rng.random((count, 1)) < 0.5).astype(float)
    return held, None


def _wrapped(name: str, task, held):
    """The rows as the protocol takes them."""
    ids = tuple(f"{k:04d}" for k in range(len(next(iter(held.values())))))
    if name == "scores":
        return {owner: Parts(ids, rows) for owner, rows in held.items()}
    if name == "kept scores":
        return {owner: New(ids, rows, np.ones(3)) for owner, rows in held.items()}
    if name in ("hidden", "hidden marginals"):  # each owner's people are in other slots of the universe
        slots = {owner: np.arange(len(ids)) * 2 + place for place, owner in enumerate(held)}
        size = 2 * len(ids) + len(held)
        return {owner: kit.Rows(rows, places=Places(slots[owner], size, bytes(16))) for owner, rows in held.items()}
    return dict(held)


class Learned:
    """The programs of a mixture with the learner that studies make."""

    @staticmethod
    def owner(me, rows, task):
        return mixture_programs.owner(me, rows, task, mixing.learner_of(task))

    @staticmethod
    def coordinator(me, task):
        return mixture_programs.coordinator(me, task, mixing.learner_of(task))


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
    settings = mixing.Settings(
        rows=40, components=3, inference="variational", rounds=2, batch=10, sampling="poisson", clip=1.0,
        clipping="local", learning_rate=0.02, families={}, law=USUAL, rows_at_most=1000,
    )  # fmt: skip
    task = mixing.draft(
        replace(settings, **LEARNED[name]), Roster.of(dict.fromkeys(("bank", "shop", "clinic"), PATCHY))
    )
    held = _patchy(task, 30)
    gone = held | {"bank": held["bank"].copy()}
    cell = gone["bank"][3, PATCHY.places[place]]
    cell[:] = (0, 1) if place == "age" else 0
    coins = SameCoins(monkeypatch)
    _seen(Learned, task, held, None, coins)
    _alike(lambda: _seen(Learned, task, held, None, coins), lambda: _seen(Learned, task, gone, None, coins))


def _patchy(task, count: int):
    """Encoded rows in which every cell has a value."""
    rng, held = np.random.default_rng(5), {}
    for owner in task.owners:
        rows = held[owner] = np.zeros((count, PATCHY.encoded_width))
        rows[:, PATCHY.places["age"].start] = rng.uniform(-1, 1, count)
        for name, size in (("city", 3), ("sort", 2)):
            rows[np.arange(count), PATCHY.places[name].start + rng.integers(0, size, count)] = 1
        rows[:, PATCHY.places["member"].start] = rng.integers(0, 2, count)
    return held


def _flipped(labels):
    other = labels.copy()
    other[3] = 1 - other[3]
    return other


def test_a_step_more_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    module, task = CASES["alternating"]
    held, labels = _held("alternating", task, np.random.default_rng(4))
    coins = SameCoins(monkeypatch)
    _seen(module, task, held, labels, coins)
    found = [_seen(module, task, held, labels, coins)]
    monkeypatch.setattr(fits, "NEWTON_STEPS", fits.NEWTON_STEPS + 1)
    found.append(_seen(module, task, held, labels, coins))
    assert found[0]["shop"] == found[1]["shop"]
    assert found[0]["bank"] != found[1]["bank"]
