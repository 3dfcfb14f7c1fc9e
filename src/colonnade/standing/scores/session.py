"""One participant of a standing question, over the wire: it meets the others, stays, and comes back if it is lost."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from time import monotonic
from typing import Any

from threadpoolctl import threadpool_limits

from colonnade.errors import ColonnadeError
from colonnade.protocols.roles import Coordinator, Owner
from colonnade.protocols.session import Place, play
from colonnade.protocols.standing import Opened
from colonnade.standing.scores.questions import Questions
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


class Participant:
    """What one participant plays in a session."""

    def __init__(self, standing: Standing) -> None:
        self.standing = standing

    def program(self, me: Any) -> None:
        """Its program."""
        raise NotImplementedError

    def ended(self, why: BaseException | None) -> None:
        """A session ended, and why if it was not the entitled party's wish; most have nothing to clear away."""

    def stop(self) -> None:
        """Nothing more is to be asked; most ask nothing."""


class CoordinatorSeat(Participant):
    """The coordinator's part."""

    def program(self, me: Coordinator) -> None:
        """Compare lists once, then keep the third seat or only stay."""
        align_as_coordinator(me, self.standing.study, Noted())
        self.standing.question.coordinator(me)


class _Owner(Participant):
    """What both kinds of owners have: the table, aligned with the others'."""

    def __init__(self, standing: Standing, config: PartyConfig) -> None:
        super().__init__(standing)
        study = standing.study
        config.check(study)
        self.config, self.question = config, standing.question
        plan = None if study.aligning is None else study.aligning.plan
        self._table = config.table(study.roster.schemas[config.name], plan)

    def aligned(self, me: Owner) -> Table:
        """The people that all hold."""
        return Matching(self.standing.study, self.config, self._table, Noted()).owner(me)


class Answering(_Owner):
    """An owner that answers what its gate lets through."""

    def __init__(self, standing: Standing, config: PartyConfig, opened: Opened) -> None:
        super().__init__(standing, config)
        config.check_budget(standing.study)
        self._opened = opened

    def program(self, me: Owner) -> None:
        """Answer questions until the session ends."""
        self.question.dealer(me, self.aligned(me), self._opened)


class Asking(_Owner):
    """The entitled party."""

    def __init__(self, standing: Standing, config: PartyConfig, questions: Questions) -> None:
        super().__init__(standing, config)
        self._questions = questions

    def program(self, me: Owner) -> None:
        """Ask what programs of this party ask, until it is stopped."""
        table = self.aligned(me)
        self._questions.expect(self.question.weigh(table))
        self.question.asker(me, table, self._questions)

    def ended(self, why: BaseException | None) -> None:
        """Tell whoever waits."""
        self._questions.end(why)

    def stop(self) -> None:
        """Let nobody wait for a question any more."""
        self._questions.stop()


def take_part(place: Place, participant: Participant, *, wait: float | None = None) -> None:
    """Play one session until the entitled party ends it, or an error does."""
    standing = participant.standing
    try:
        with threadpool_limits(limits=1, user_api="blas"):
            play(
                place,
                standing.question.session,
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

    def __init__(self, join: Join, participant: Participant, *, wait: float | None = None) -> None:
        self._join, self._participant, self._wait, self._name = join, participant, wait, participant.standing.study.name
        self._stopped = threading.Event()
        self._place: Place | None = None
        self.last: str | None = None
        """Why the last session ended, in one sentence; ``None`` before the first one ended."""
        self._thread = threading.Thread(target=self._stay, name=f"scores {self._name}", daemon=True)

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
                take_part(self._place, self._participant, wait=self._wait)
                self.last = "the entitled party ended it"
            except ColonnadeError as error:
                self.last = str(error)
                _LOG.info("a session of %s ended: %s", self._name, error)
            except Exception as error:
                self.last = "it failed by a fault of Colonnade"
                _LOG.error("a session of %s failed: %s", self._name, type(error).__name__)
            finally:
                self._place = None
            # Long enough that the others have left the old session, too, when this one comes back.
            pause = _FIRST_PAUSE if monotonic() - began > _LASTED else min(_LONGEST_PAUSE, 2 * pause)
            self._stopped.wait(pause)
