"""Trials: each cheat in each scene, many times, and what came of it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cache
from multiprocessing import get_context
from typing import Any

import numpy as np

from colonnade.errors import ColonnadeError, PeerLost, PeerStopped, without_code
from colonnade.mpc import ShareEngine
from research.cheats import (
    scenes_of_pca,
    scenes_of_polynomial,
    scenes_of_prediction,
    scenes_of_regression,
    scenes_of_tables,
)
from research.cheats.catalogue import CHEATS, Cheat
from research.cheats.liars import PROOF
from research.cheats.plays import PLAYS
from research.cheats.scenes import COMMITTEES, SCENES as OPERATIONS, Act, Scene, seats_of
from research.cheats.stage import StagePlace
from research.cheats.tamper import Tamper

HONEST = "nobody cheats"
_CHUNK = 25
_OF_KINDS = (scenes_of_pca, scenes_of_regression, scenes_of_polynomial, scenes_of_prediction, scenes_of_tables)
_BY_NAME = {cheat.name: cheat for cheat in CHEATS}


def all_scenes() -> dict[str, Scene]:
    """Every scene by its name: operations of the committee, then protocols, those of kinds included."""
    plays = [*PLAYS, *(scene for module in _OF_KINDS for scene in module.SCENES)]
    plays.sort(key=lambda scene: (scene.proven, scene.place))
    found = {scene.name: scene for scene in (*OPERATIONS, PROOF, *plays)}
    if len(found) < len(OPERATIONS) + 1 + len(plays):
        raise ValueError("two scenes have one name: give those of a kind names of their own [VA278]")
    return found


@dataclass
class Row:
    """What came of one cheat in one scene with one committee."""

    scene: str
    cheat: str
    seats: int
    threshold: int
    checked: bool
    """Whether seats check each other; else the row is a twin, in which the cheat should have an effect."""
    deviating: int = 1
    """How many seats deviate."""
    allowed: bool = False
    """Whether the protocol does not forbid it, because the privacy statement counts on it."""
    trials: int = 0
    caught: int = 0
    """Trials in which no honest participant ended with a result."""
    idle: int = 0
    """Trials in which everybody ended with the honest result, because what was changed made no difference."""
    missed: int = 0
    """Trials in which an honest participant ended with another result, or the cheater had what it may never have."""
    early: int = 0
    """Trials that were caught only after honest seats had begun to open a result, and should have been before."""
    faults: int = 0
    """Trials in which a program failed with an error that is none of ours."""
    reasons: Counter[str] = field(default_factory=Counter)
    """By what they were caught, and how often."""

    def add(self, other: Row) -> None:
        """Add the trials of another row of the same cheat."""
        for name in ("trials", "caught", "idle", "missed", "early", "faults"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.reasons += other.reasons

    @property
    def honest(self) -> bool:
        """Whether nobody cheats in it."""
        return self.cheat == HONEST

    @property
    def good(self) -> bool:
        """Whether it is as it must be: no miss, no false alarm; in a twin nothing is asked."""
        if self.honest:
            return self.idle == self.trials
        if self.allowed or not self.checked:
            return not self.faults
        return not (self.missed or self.early or self.faults)

    @property
    def without_effect(self) -> bool:
        """Whether no trial changed anything for anybody: such a line shows nothing about checks."""
        return not self.honest and self.idle == self.trials

    @property
    def reason(self) -> str:
        """The check that caught it most often."""
        return self.reasons.most_common(1)[0][0] if self.reasons else ""

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "scene": self.scene, "cheat": self.cheat, "seats": self.seats, "threshold": self.threshold,
            "deviating": self.deviating, "checked": self.checked, "allowed": self.allowed, "trials": self.trials,
            "caught": self.caught, "without_effect": self.idle, "missed": self.missed, "opened_before": self.early,
            "faults": self.faults, "by": dict(self.reasons.most_common()), "good": self.good,
        }  # fmt: skip


@dataclass(frozen=True)
class Job:
    """Some trials of one cheat in one scene, both by their names."""

    scene: str
    cheat: str
    seats: int
    threshold: int
    checked: bool
    trials: int
    seed: int
    deviating: int = 1

    @property
    def cheaters(self) -> tuple[str, ...]:
        """Who deviates: the first seats, or the last that deals in a product."""
        if self.deviation is None:
            return ()
        dealers = seats_of(2 * self.threshold + 1)
        return dealers[-1:] if self.deviation.last else dealers[: self.deviating]

    @property
    def of(self) -> Scene:
        """The scene."""
        return all_scenes()[self.scene]

    @property
    def deviation(self) -> Cheat | None:
        """The cheat, unless nobody cheats."""
        return _BY_NAME.get(self.cheat)

    @property
    def act(self) -> Act:
        """The scene with this committee."""
        return self.of.act(self.seats, self.threshold, self.checked)

    @property
    def row(self) -> Row:
        """Its row, before any trial."""
        allowed = self.deviation is not None and self.deviation.needs == "nothing"
        return Row(self.scene, self.cheat, self.seats, self.threshold, self.checked, self.deviating, allowed)


def applies(cheat: Cheat, scene: Scene, seats: int, threshold: int) -> bool:
    """Whether seats of such a committee can see the cheat at all."""
    if cheat.needs == "spare":
        return seats > 2 * threshold + 1
    if cheat.needs == "lies":
        return scene is PROOF
    return cheat.needs != "proofs" or (scene.proven and scene is not PROOF)


@cache
def occasions(job: Job) -> int:
    """How often a run offers the cheat, in a run in which it is not used."""
    return _trial(job, np.random.default_rng(0), -1, Row("", "", 0, 0, True))


def play(job: Job) -> Row:
    """All trials of a job."""
    row, rng = job.row, np.random.default_rng(job.seed)
    count = 1 if job.deviation is None else occasions(replace(job, trials=0, seed=0))
    for _ in range(job.trials if count else 0):
        _trial(job, rng, int(rng.integers(count)), row)
    return row


def _trial(job: Job, rng: np.random.Generator, target: int, row: Row) -> int:
    """One run, noted in the row; returns how many occasions there were."""
    cheat, cheaters = job.deviation, job.cheaters
    tampers: dict[str, Tamper] = {}
    opened_by: list[bool] = []
    alike = int(rng.integers(2**32))

    def prepare(hand: ShareEngine, place: StagePlace) -> None:
        if cheat is not None and place.name in cheaters:
            if place.name not in tampers:
                # All that deviate choose alike, so that they change the same number where they can.
                tampers[place.name] = Tamper(place, np.random.default_rng(alike), target, cheaters)
            tampers[place.name].adopt(hand)
            cheat.install(tampers[place.name])
        elif cheat is not None:
            _watch(hand, lambda: opened_by.append(any(one.happened for one in tampers.values())))

    ended, deals = job.act.run(cheaters, prepare)
    won = any(one.won for one in tampers.values())
    _judge(job, ended, deals, won, any(opened_by), row)
    return tampers[cheaters[0]].occasions if tampers else 0


def _watch(hand: ShareEngine, note: Any) -> None:
    """Have it noted when an honest seat sends a share of a result."""
    real, settling = hand.send_opening, hand.open_residues
    inside: list[bool] = []

    def send_opening(shares: Any, to: Sequence[str]) -> None:
        if not inside:
            note()
        real(shares, to)

    def open_residues(*given: Any, **named: Any) -> Any:
        inside.append(True)
        try:
            return settling(*given, **named)
        finally:
            inside.pop()

    setattr(hand, "send_opening", send_opening)  # noqa: B010 - one participant's own method
    setattr(hand, "open_residues", open_residues)  # noqa: B010


def _judge(job: Job, ended: dict[str, Any], deals: dict[str, list[Any]], won: bool, opened: bool, row: Row) -> None:
    row.trials += 1
    act, scene = job.act, job.of
    honest = {name: found for name, found in ended.items() if name not in job.cheaters}
    errors = [found for found in honest.values() if isinstance(found, BaseException)]
    if any(not isinstance(error, ColonnadeError) for error in errors):
        row.faults += 1
        row.reasons[next(repr(error) for error in errors if not isinstance(error, ColonnadeError))] += 1
        return
    results = [found for found in honest.values() if not isinstance(found, BaseException)]
    known = [(value, result) for result in results if (value := act.value(result)) is not None]
    wrong = any(not np.array_equal(value, act.expected(deals, result)) for value, result in known)
    if wrong or (won and not errors):
        row.missed += 1
    elif errors:
        row.caught += 1
        cheat = job.deviation
        row.early += opened and cheat is not None and cheat.early and (scene.depth > 1 or cheat.needs == "proofs")
        row.reasons[described(errors)] += 1
    elif known:
        row.idle += 1
    else:
        row.caught += 1


def described(errors: Sequence[BaseException]) -> str:
    """Why the run ended, in the words of the first participant that noticed it by itself, without names."""
    first = min(errors, key=lambda error: (isinstance(error, PeerStopped), isinstance(error, PeerLost)))
    text = re.sub(r"\b(o\d+|coordinator)(, (o\d+|coordinator))*( and (o\d+))?\b", "*", without_code(str(first)))
    return re.split("[:;]|, and nothing|, as ", text)[0]


def jobs(
    scenes: Iterable[Scene],
    trials: int,
    *,
    committees: Sequence[tuple[int, int]] = COMMITTEES,
    cheats: Sequence[Cheat] = CHEATS,
    twins: bool = False,
    seed: int = 0,
) -> list[Job]:
    """Everything to be played: honest runs, cheats, and with ``twins`` the same cheats where nobody checks.

    One seat deviates, and then as many at once as the threshold says.
    """
    found = []
    for scene in scenes:
        for seats, threshold in committees:
            fitting = [c for c in cheats if applies(c, scene, seats, threshold)]
            found.append(Job(scene.name, HONEST, seats, threshold, scene.checked, trials, 0))
            if scene.checked:
                found += [Job(scene.name, cheat.name, seats, threshold, True, trials, 0) for cheat in fitting]
            if scene.checked and threshold > 1:
                several = [cheat for cheat in fitting if not cheat.alone]
                found += [Job(scene.name, c.name, seats, threshold, True, trials, 0, threshold) for c in several]
            if twins:
                few = max(1, trials // 10)
                found += [Job(scene.name, cheat.name, seats, threshold, False, few, 0) for cheat in fitting]
    return [replace(job, seed=seed * 1_000_003 + number) for number, job in enumerate(found)]


def play_all(todo: Sequence[Job], processes: int = 1) -> Iterator[tuple[int, Row]]:
    """The row of every job, with its number, as they come; parts of a job are played side by side."""
    parts = [
        (number, replace(job, trials=size, seed=hash((job.seed, start)) & 0x7FFFFFFF))
        for number, job in enumerate(todo)
        for start, size in _cut(job.trials)
    ]
    if processes == 1:
        for number, job in parts:
            yield number, play(job)
        return
    # A fork would copy locks that other threads of this process hold.
    with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        rows = pool.map(play, [job for _, job in parts], chunksize=1)
        yield from zip((number for number, _ in parts), rows, strict=True)


def _cut(trials: int) -> list[tuple[int, int]]:
    return [(start, min(_CHUNK, trials - start)) for start in range(0, trials, _CHUNK)]
