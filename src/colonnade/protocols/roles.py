"""What a participant may touch while a protocol runs.

A role holds channels, a hand in the committee, and the list of what may be revealed. Nothing leaves the
shares except through :meth:`Role.reveal`, which refuses what was not planned and paid for beforehand.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from colonnade.errors import PrivacyError
from colonnade.mpc import Committee, Hand, Link, Shares
from colonnade.mpc.residues import Integers
from colonnade.privacy.events import Event

COORDINATOR = "coordinator"

Progress = Callable[[str, int, int], None]
"""Called with the phase, the steps done and the steps in all."""


def silent(phase: str, done: int, total: int) -> None:
    """Show no progress."""


@dataclass
class Phase:
    """What one phase took: seconds on the clock, and seconds of this thread's processor time."""

    wall: float = 0.0
    cpu: float = 0.0


@dataclass
class Meter:
    """Time by phase."""

    phases: dict[str, Phase] = field(default_factory=dict)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Charge what happens inside to ``name``."""
        entry = self.phases.setdefault(name, Phase())
        wall, cpu = time.perf_counter(), time.thread_time()
        try:
            yield
        finally:
            entry.wall += time.perf_counter() - wall
            entry.cpu += time.thread_time() - cpu


class Role:
    """A participant in one protocol run.

    ``before_sharing`` is called once, before the first share leaves: the place to write down that budget is spent.
    """

    def __init__(
        self,
        name: str,
        links: Mapping[str, Link],
        committee: Committee,
        *,
        planned: Sequence[Event],
        progress: Progress = silent,
        before_sharing: Callable[[], None] | None = None,
    ) -> None:
        self.name = name
        self.hand = Hand(name, committee, links, before_sharing)
        self.meter = Meter()
        self.progress = progress
        self.revealed: list[Event] = []
        self._links = links
        self._planned = list(planned)

    def link(self, peer: str) -> Link:
        """The channel to one peer."""
        return self._links[peer]

    def reveal(
        self, shares: Shares | None, *, to: Sequence[str], event: Event, shape: Sequence[int], bound: int
    ) -> Integers | None:
        """Open an array to ``to``: the only way out of the shares.

        Every seat and every recipient calls this with the same arguments; a recipient without a seat has no
        shares to give. The shares are re-randomised first, so that the opened polynomial tells its value
        at 0 and nothing else.
        """
        if event not in self._planned:
            raise PrivacyError(f"{event.name} was not in the plan that the parties agreed to and paid for")
        self._planned.remove(event)
        degree = 2 * self.hand.committee.threshold
        masked = None
        if shares is not None:
            masked = self.hand.add([shares, self.hand.zero(tuple(shape), degree)])
            self.hand.send_opening(masked, to)
        self.revealed.append(event)
        if self.name not in to:
            return None
        return self.hand.receive_opening(shape, degree=degree, bound=bound, own=masked)


class Owner(Role):
    """A participant that holds columns."""


class Coordinator(Role):
    """The participant that relays and holds no columns."""
