"""The registry of broken twins, and what comes of playing them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any

from colonnade.audit import Game, games, subjects
from colonnade.audit.registry import GameVerdict, game_stream
from colonnade.protocols.task import Task

MODULES = ("mechanisms", "pca", "regression", "glm", "polynomial", "prediction", "tables", "synthesis", "split")
"""Where twins register themselves, in this package."""

Make = Callable[[Game], Game | None]


@dataclass(frozen=True)
class Twin:
    """A broken game: of which game (subject, role of the observer, part), what is broken, and how it is made.

    ``make`` gives ``None`` for a task in which that cannot be broken.
    """

    subject: str
    role: str
    broken: str
    make: Make
    part: str = ""


_TWINS: list[Twin] = []


def register_twin(subject: str, role: str, broken: str, make: Make, part: str = "") -> None:
    """Enter a game that is broken on purpose and that an audit must catch; the game itself is registered before."""
    if subject not in (known.name for known in subjects()):
        raise ValueError(f"a twin of {subject!r} needs games of that name: register those first [VA004]")
    if any((twin.subject, twin.role, twin.broken, twin.part) == (subject, role, broken, part) for twin in _TWINS):
        raise ValueError(f"a twin of {subject!r} with {broken!r} is registered already [VA005]")
    _TWINS.append(Twin(subject, role, broken, make, part))


@cache
def _load() -> None:
    for module in MODULES:
        import_module(f"research.twins.{module}")


def all_twins() -> tuple[Twin, ...]:
    """Every twin that is registered."""
    _load()
    return tuple(_TWINS)


def twins(name: str, task: Task | None = None) -> tuple[tuple[str, Game], ...]:
    """The broken twins of a subject's games: what is broken, and the broken game, made from the first that fits."""
    real = games(name, task)
    found = []
    for twin in (twin for twin in all_twins() if twin.subject == name):
        fitting = [game for game in real if (game.role, game.part) == (twin.role, twin.part)]
        made = [twin.make(game) for game in fitting[:1]]
        found += [(twin.broken, game) for game in made if game is not None]
    return tuple(found)


@dataclass(frozen=True)
class TwinVerdict(GameVerdict):
    """The outcome of a broken game; ``broken`` says what was broken on purpose."""

    broken: str

    @property
    def good(self) -> bool:
        """Whether it is caught."""
        return self.result.caught

    @property
    def word(self) -> str:
        """The verdict in one word, in capitals if it is not good."""
        return "caught" if self.good else "ESCAPED"

    @property
    def label(self) -> str:
        """The game's name and what is broken in it."""
        return f"{self.game.name}: {self.broken}"

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; an infinite claim is ``null``."""
        return super().to_dict() | {"broken": self.broken}


def judge_twin(game: Game, samples: int, seed: int, broken: str) -> TwinVerdict:
    """Play a broken game with randomness of its own."""
    result = game.play(samples, game_stream(f"{seed} {game.name} {broken}"))
    return TwinVerdict(game, result, game.epsilon(result.delta), broken)
