"""Games: an attacker with samples of two neighbouring tables, against what the events promise; and their verdicts."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from colonnade.audit.lower_bounds import DELTA, AuditResult, Floats, profile_audit
from colonnade.errors import StudyError
from colonnade.models import registry
from colonnade.privacy import Event, Observer, Trust, View, accountant
from colonnade.privacy.events import exchange_key, views
from colonnade.protocols.task import Task
from colonnade.randomness import Stream

_CHUNK = 1 << 15


class Sampler(Protocol):
    """Draws a statistic of what an observer sees when the table is the first or the second neighbour."""

    def __call__(self, neighbour: int, count: int, stream: Stream, /) -> NDArray[Any]:
        """Draw ``count`` independent values of the statistic."""


@dataclass(frozen=True)
class Game:
    """One observer of one protocol, two neighbouring tables, and a statistic of what the observer sees.

    ``story`` says which two tables and which statistic; ``part`` is the name of one of several games of an observer.
    """

    subject: str
    observer: Observer
    story: str
    events: tuple[Event, ...]
    trust: Trust
    sampler: Sampler
    part: str = ""

    @property
    def name(self) -> str:
        """``pca/bank``, and the part where there is one."""
        return "/".join(filter(None, (self.subject, self.observer.label, self.part)))

    @property
    def role(self) -> str:
        """Analyst, coordinator, party or coalition."""
        return ("analyst", "coordinator", "party", "coalition")[self.observer.rank]

    @property
    def seen(self) -> tuple[View, ...]:
        """The events as the observer sees them."""
        return views(self.events, self.observer, self.trust)

    def claim(self, epsilons: Floats) -> Floats:
        """The promised delta at each epsilon."""
        return np.array(_profile(self.seen, tuple(epsilons.tolist())))

    def epsilon(self, delta: float = DELTA) -> float:
        """The promised epsilon at one delta."""
        return accountant.epsilon(self.seen, delta).epsilon

    def sample(self, neighbour: int, count: int, stream: Stream) -> NDArray[Any]:
        """Draw ``count`` values of the statistic, piece by piece so that memory stays small."""
        sizes = [min(_CHUNK, count - start) for start in range(0, count, _CHUNK)]
        return np.concatenate([self.sampler(neighbour, size, stream) for size in sizes])

    def play(self, count: int, stream: Stream) -> AuditResult:
        """Sample both neighbours and compare the claim with the samples."""
        p, q = self.sample(0, count, stream), self.sample(1, count, stream)
        return profile_audit(self.claim, p, q)


@lru_cache(maxsize=256)
def _profile(seen: tuple[View, ...], epsilons: tuple[float, ...]) -> tuple[float, ...]:
    return tuple(accountant.profile(seen, epsilons).tolist())


Build = Callable[[Any], Iterable[Game]]
Names = tuple[str, ...]


@dataclass(frozen=True)
class AuditSubject:
    """What can be audited, a model or a mechanism: a task to play with, and the games about any such task."""

    name: str
    summary: str
    plan: Callable[[], Any]
    build: Build


_SUBJECTS: dict[str, AuditSubject] = {}


def register(name: str, summary: str, plan: Callable[[], Any]) -> Callable[[Build], Build]:
    """Enter games under a name, by which tasks of studies call for them (``Task.games``).

    ``plan`` makes the task that is played when no study brings its own.
    """

    def enter(build: Build) -> Build:
        if name in _SUBJECTS:
            raise ValueError(f"games named {name!r} are registered already [VA003]")
        _SUBJECTS[name] = AuditSubject(name, summary, plan, build)
        return build

    return enter


def subjects() -> tuple[AuditSubject, ...]:
    """Everything that can be audited, in the order of kinds."""
    return tuple(_subjects().values())


def _subjects() -> dict[str, AuditSubject]:
    """All subjects by name, after the games of every kind have registered themselves."""
    modules = registry.game_modules()
    for module in modules:
        registry.resolve(module)
    # Whoever imported one of these modules before has registered its games first.
    place = {module: at for at, module in enumerate(modules)}
    known = sorted(_SUBJECTS.values(), key=lambda one: place.get(one.build.__module__, len(place)))
    return {one.name: one for one in known}


def subject(task: Task) -> str:
    """The name of the games about a study's task."""
    if task.games not in _subjects():
        raise StudyError(
            "there is no game about this study: an exact answer promises nothing to whoever receives it, and other "
            "kinds of task cannot be audited yet [ST014]"
        )
    return task.games


def games(name: str, task: Task | None = None) -> tuple[Game, ...]:
    """The games of a model or mechanism, about the given task or about the registered one."""
    known = _subjects().get(name)
    if known is None:
        raise StudyError(
            f"there are no games named {name!r}; choose from {', '.join(_SUBJECTS)}, or a STUDY.toml [ST015]"
        )
    found = tuple(known.build(known.plan() if task is None else task))
    if not found:
        raise StudyError(
            f"{name} is registered but gives no games for this task: let its row yield at least one [ST016]"
        )
    return found


def observers(task: Task, also: Callable[[str], object] = lambda owner: None) -> Iterator[tuple[Observer, Names]]:
    """Who may look at a task without breaking its threshold, and the owners whose noise each cannot subtract.

    Of several observers in the same position only one is given; ``also`` maps an owner to what else sets it apart.
    """
    key = exchange_key([(event, task.trust) for event in task.events])
    for observer in task.trust.standard_observers(lambda owner: (key(owner), also(owner))):
        if task.trust.broken(observer) is None:
            yield observer, tuple(owner for owner in task.owners if owner not in observer.names)


def describe_neighbours(observer: Observer) -> str:
    """The two tables that an observer must not tell apart, in words."""
    return "no row, or one" if observer == Observer.analyst() else "a row, or another in the others' columns,"


_FAR = 9.99


@dataclass(frozen=True)
class GameVerdict:
    """The outcome of one game."""

    game: Game
    result: AuditResult
    claimed: float

    @property
    def good(self) -> bool:
        """Whether the promise holds."""
        return not self.result.caught

    @property
    def word(self) -> str:
        """The verdict in one word, in capitals if it is not good."""
        return "holds" if self.good else "REFUTED"

    @property
    def label(self) -> str:
        """What the game is called where outcomes are listed."""
        return self.game.name

    @property
    def reach(self) -> str:
        """How much of the promise was shown, in percent; rounded so that only a refuted promise is at 100 or more."""
        share = self.result.reach
        if share >= _FAR:
            return f">{_FAR:.0%}"
        return f"{math.ceil(100 * share) if self.result.caught else math.floor(100 * share)}%"

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; an infinite claim is ``null``."""
        return {
            "game": self.game.name,
            "observer": self.game.observer.label,
            "adjacency": self.game.trust.adjacency(self.game.observer).value,
            "story": self.game.story,
            "claimed_epsilon": self.claimed if math.isfinite(self.claimed) else None,
            "verdict": self.word,
            "good": self.good,
            **self.result.to_dict(),
        }


def judge(game: Game, samples: int, seed: int) -> GameVerdict:
    """Play a game with randomness of its own, so that its outcome does not depend on what else is played."""
    result = game.play(samples, game_stream(f"{seed} {game.name} "))
    return GameVerdict(game, result, game.epsilon(result.delta))


def game_stream(words: str) -> Stream:
    """The randomness of a game. Games are about made-up people, so others may know the seed."""
    return Stream(hashlib.sha256(f"colonnade audit {words}".encode()).digest())
