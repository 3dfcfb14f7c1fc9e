"""One participant of a standing question, over the wire: it meets the others, stays, and comes back if it is lost."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from colonnade.errors import ColonnadeError
from colonnade.models.beliefs import Belief
from colonnade.models.hearing import Heard
from colonnade.protocols.roles import Coordinator, Owner
from colonnade.protocols.scores import standing as protocol
from colonnade.protocols.scores.programs import Parts
from colonnade.protocols.scores.standing import Answer, Opened, Places, StandingScores
from colonnade.protocols.session import Place, play
from colonnade.standing.scores.questions import Questions, Row
from colonnade.standing.scores.settings import Standing
from colonnade.study import PartyConfig
from colonnade.study.alignment.play import Matching, align_as_coordinator
from colonnade.tables import Table

_LOG = logging.getLogger("colonnade.scores")
_FIRST_PAUSE, _LONGEST_PAUSE, _LASTED, _GOODBYE = 0.5, 15.0, 60.0, 2.0

Join = Callable[[], Place]
"""How a participant gets its place in a new session."""


class Noted:
    """What is noted of an alignment goes to the log: counts and settings, and nothing about anybody."""

    def note(self, what: str, **details: Any) -> None:
        """One thing that happened."""
        _LOG.info("%s", what)

    def add(self, **facts: Any) -> None:
        """Facts for a record, which a session that stays open has none of."""


class Participant(Protocol):
    """What one participant plays in a session."""

    def program(self, me: Any) -> None:
        """Its program."""

    def ended(self, why: BaseException | None) -> None:
        """A session ended, and why if it was not the entitled party's wish."""

    def stop(self) -> None:
        """Nothing more is to be asked."""


class Seat:
    """The coordinator's part."""

    def __init__(self, standing: Standing) -> None:
        self._standing, self._open = standing, StandingScores(standing.task)

    def program(self, me: Coordinator) -> None:
        """Compare lists once, then keep the third seat or only stay."""
        align_as_coordinator(me, self._standing.study, Noted())
        protocol.coordinator(me, self._open)

    def ended(self, why: BaseException | None) -> None:
        """Nothing to clear away."""

    def stop(self) -> None:
        """It asks nothing."""


class _Owner:
    """What both kinds of owners have: the table, aligned with the others', as parts of scores."""

    def __init__(self, standing: Standing, config: PartyConfig) -> None:
        study = standing.study
        config.check(study)
        self.standing, self.config, self.model = standing, config, standing.model
        self._open = StandingScores(standing.task)
        self._table = _table(standing, config)

    def aligned(self, me: Owner) -> tuple[Table, Parts]:
        """The people that all hold, and this party's part of their scores."""
        table = Matching(self.standing.study, self.config, self._table, Noted()).owner(me)
        return table, self.model.parts(me.name, table)


class Answering(_Owner):
    """An owner that answers what its gate lets through."""

    def __init__(self, standing: Standing, config: PartyConfig, opened: Opened) -> None:
        super().__init__(standing, config)
        config.check_budget(standing.study)
        self._opened = opened

    def program(self, me: Owner) -> None:
        """Answer questions until the session ends."""
        _, parts = self.aligned(me)
        protocol.dealer(me, parts, self._open, self._opened)

    def ended(self, why: BaseException | None) -> None:
        """Nothing to clear away: what was counted stays counted."""

    def stop(self) -> None:
        """It asks nothing."""


class Asking(_Owner):
    """The entitled party."""

    def __init__(self, standing: Standing, config: PartyConfig, questions: Questions) -> None:
        super().__init__(standing, config)
        self._questions = questions

    def program(self, me: Owner) -> None:
        """Ask what programs of this party ask, until it is stopped."""
        table, parts = self.aligned(me)
        foreseen = self.model.foreseen(table, self.standing.task)

        def weigh(answer: Answer, places: Places) -> list[Row]:
            kept = ~answer.verdict.refused
            opened = answer.opened
            told = replace(opened, ids=(), others=opened.others[kept], own=opened.own[kept])
            at = places[kept]
            beliefs = {name: Belief(one.mean[at], one.variance[at], one.doubt) for name, one in foreseen.items()}
            names = (name for name, one in zip(opened.ids, kept.tolist(), strict=True) if one)
            return _rows(tuple(names), *self.model.weighed(Heard(told, beliefs)))

        self._questions.expect(weigh)
        protocol.asker(me, parts, self._open, self._questions)

    def ended(self, why: BaseException | None) -> None:
        """Tell whoever waits."""
        self._questions.end(why)

    def stop(self) -> None:
        """Let nobody wait for a question any more."""
        self._questions.stop()


def _rows(ids: tuple[str, ...], scores: NDArray[np.float64], predictions: NDArray[Any], beside: Any) -> list[Row]:
    """What a caller is told of each person."""
    columns: dict[str, list[Any]] = {"id": list(ids), "prediction": predictions.tolist(), "scores": scores.tolist()}
    if beside.probabilities is not None:
        columns["probabilities"] = beside.probabilities.tolist()
    if beside.deviations is not None and beside.deviations.any():
        columns["deviations"] = beside.deviations.tolist()
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _table(standing: Standing, config: PartyConfig) -> Table:
    aligning = standing.study.aligning
    return config.table(standing.study.roster.schemas[config.name], None if aligning is None else aligning.plan)


def take_part(place: Place, standing: Standing, participant: Participant, *, wait: float | None = None) -> None:
    """Play one session until the entitled party ends it, or an error does."""
    try:
        with threadpool_limits(limits=1, user_api="blas"):
            play(
                place,
                StandingScores(standing.task),
                participant.program,
                wait=wait,
                aligns=standing.study.aligning is not None,
            )
    except BaseException as why:
        participant.ended(why)
        raise
    participant.ended(None)


class Stay:
    """A thread that takes part in one session after the other until it is stopped."""

    def __init__(self, join: Join, standing: Standing, participant: Participant, *, wait: float | None = None) -> None:
        self._join, self._standing, self._participant, self._wait = join, standing, participant, wait
        self._stopped = threading.Event()
        self._place: Place | None = None
        self.last: str | None = None
        """Why the last session ended, in one sentence; ``None`` before the first one ended."""
        self._thread = threading.Thread(target=self._stay, name=f"scores {standing.study.name}", daemon=True)

    @property
    def open(self) -> bool:
        """Whether this participant is in the room now; others may still be waited for."""
        return self._place is not None

    def start(self) -> Stay:
        """Begin."""
        self._thread.start()
        return self

    def stop(self, timeout: float = 10.0) -> None:
        """Leave the session, and wait until it has ended here."""
        self._stopped.set()
        self._participant.stop()
        if isinstance(self._participant, Asking):
            self._thread.join(_GOODBYE)  # it ends the session for all, if all are there
        place = self._place
        if place is not None:
            place.abort("it was stopped by its operator")
        self._thread.join(timeout)

    def _stay(self) -> None:
        pause = _FIRST_PAUSE
        while not self._stopped.is_set():
            began = monotonic()
            try:
                self._place = self._join()
                take_part(self._place, self._standing, self._participant, wait=self._wait)
                self.last = "the entitled party ended it"
            except ColonnadeError as error:
                self.last = str(error)
                _LOG.info("a session of %s ended: %s", self._standing.study.name, error)
            except Exception as error:
                self.last = "it failed by a fault of Colonnade"
                _LOG.error("a session of %s failed: %s", self._standing.study.name, type(error).__name__)
            finally:
                self._place = None
            # Long enough that the others have left the old session, too, when this one comes back.
            pause = _FIRST_PAUSE if monotonic() - began > _LASTED else min(_LONGEST_PAUSE, 2 * pause)
            self._stopped.wait(pause)


def counts_file(folder: Path) -> Path:
    """Where an owner counts what it answered."""
    return folder / "scores.db"
