"""How games are broken on purpose, and what is then written about them: what twins of many kinds share.

:func:`in_sampler` and :func:`in_event` make a broken game from a change to what is drawn or to what is claimed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import Field, replace
from typing import Any, ClassVar, Protocol, Self, TypeVar

from colonnade.audit import Game, Sampler
from colonnade.privacy import Event, Observer
from colonnade.privacy.noise_laws import PoissonSampled, RepeatedRelease

HALF = "half the variance of the noise"
ONE_OWNER = "only one owner adds its share"
TO_PARTY, TO_COALITION = (f"the analyst's curve shown to a {who}" for who in ("party", "coalition"))
COINS = "known coins charged as secret ones"
EVERY_EPOCH = "all epochs charged as one"


class Noised(Protocol):
    """A task with noise that can be changed."""

    @property
    def noise(self) -> int:
        """How much of it there is."""

    def with_noise(self, noise: int) -> Self:
        """The same with other noise."""


class Changeable(Sampler, Protocol):
    """A sampler that is a dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]


class ForTask(Changeable, Protocol):
    """What is drawn for a task with noise."""

    @property
    def task(self) -> Noised:
        """The task for which owners draw."""


class ByOwners(Changeable, Protocol):
    """What is drawn with the noise of some owners."""

    @property
    def noisy(self) -> tuple[str, ...]:
        """Whose noise is in it."""


Drawn = TypeVar("Drawn", bound=Sampler)
Charged = TypeVar("Charged", bound=Event)
Drawing = TypeVar("Drawing", bound=ForTask)
Noisy = TypeVar("Noisy", bound=ByOwners)


def in_sampler(kind: type[Drawn], change: Callable[[Drawn], Sampler]) -> Callable[[Game], Game]:
    """A twin whose sampler, of the given kind, is changed: what is drawn is no longer what is claimed."""

    def make(game: Game) -> Game:
        if not isinstance(game.sampler, kind):
            raise TypeError(f"{game.name} does not draw by {kind.__name__} [VA255]")
        return replace(game, sampler=change(game.sampler))

    return make


def in_event(kind: type[Charged], change: Callable[[Charged], Event]) -> Callable[[Game], Game]:
    """A twin whose one event, of the given kind, is changed: less is claimed than is drawn."""

    def make(game: Game) -> Game:
        (event,) = game.events
        if not isinstance(event, kind):
            raise TypeError(f"{game.name} is not charged as {kind.__name__} [VA256]")
        return replace(game, events=(change(event),))

    return make


def as_analyst(game: Game) -> Game:
    """A twin that shows the analyst's curve to somebody who sees more."""
    return replace(game, observer=Observer.analyst(), part=f"seen by {game.observer}")


# --- what is drawn


def quieter(sampler: Drawing, factor: int) -> Drawing:
    """The owners draw for a task with less noise; the claim keeps its own."""
    return replace(sampler, task=sampler.task.with_noise(sampler.task.noise // factor))


def one_owner(sampler: Noisy) -> Noisy:
    """Only the first of the owners draws its noise."""
    return replace(sampler, noisy=sampler.noisy[:1])


# --- what is claimed


def secret_coins(event: RepeatedRelease) -> RepeatedRelease:
    """Coins that put people into batches are known, and charged as secret ones."""
    if not isinstance(event.event, PoissonSampled):
        raise TypeError("coins are for batches [VA259]")
    return replace(event, event=replace(event.event, coins=()))


def charged_once(game: Game) -> Game | None:
    """Whatever is repeated is charged as if it happened once; ``None`` if nothing is repeated."""
    if not any(isinstance(event, RepeatedRelease) for event in game.events):
        return None
    return replace(
        game, events=tuple(event.event if isinstance(event, RepeatedRelease) else event for event in game.events)
    )
