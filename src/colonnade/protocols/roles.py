"""What a participant can use while a protocol runs.

A role holds channels to the others, the arithmetic on shares, and the list of what may be revealed. Shared numbers are
opened only by :meth:`Role.reveal`, and a party sends its own numbers only by :meth:`Role.tell`; both refuse what was
not planned and paid for before.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from copy import copy
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import NO_RESULT, PeerLost, PrivacyError, ProtocolError, ShareError
from colonnade.message_schema import ArrayForm, FixedBytes, MessageSchema, receive_message
from colonnade.mpc import Committee, PeerLink, ShareEngine, Shares
from colonnade.mpc.residues import Integers, ResidueSystem
from colonnade.privacy.events import Event, unwrap
from colonnade.wire import TaskTally

COORDINATOR = "coordinator"

Progress = Callable[[str, int, int], None]
"""A function that shows progress: it gets the phase, the number of steps done and the number of all steps."""


def silent(phase: str, done: int, total: int) -> None:
    """Show no progress."""


@dataclass
class PhaseTotals:
    """What one phase took: seconds on the clock, seconds of processor time, and messages."""

    wall: float = 0.0
    cpu: float = 0.0
    rounds: int = 0
    """How often this participant began to wait for a message after it had sent one."""
    messages: int = 0
    """Messages that it sent."""
    bytes: int = 0
    """Their bytes, before sealing."""


@dataclass
class PhaseMeter:
    """Time and traffic by phase; a phase inside another is charged to both."""

    phases: dict[str, PhaseTotals] = field(default_factory=dict)
    tally: TaskTally = field(default_factory=TaskTally)
    """Where the transport counts."""
    processor: Callable[[], float] = time.thread_time
    """The clock of processor time: of this thread, or, where a participant is a process, of all its threads."""

    def phase(self, name: str) -> AbstractContextManager[None]:
        """Charge what happens inside to ``name``."""
        return _Charged(self, self.phases.get(name) or self.phases.setdefault(name, PhaseTotals()))


class _Charged:
    """A ``with`` block that is charged to a phase; small, because a round of a protocol has some."""

    __slots__ = ("_cpu", "_entry", "_messages", "_meter", "_payload", "_rounds", "_wall")

    def __init__(self, meter: PhaseMeter, entry: PhaseTotals) -> None:
        self._meter, self._entry = meter, entry

    def __enter__(self) -> None:
        said = self._meter.tally
        self._rounds, self._messages, self._payload = said.rounds, said.messages, said.payload
        self._wall, self._cpu = time.perf_counter(), self._meter.processor()

    def __exit__(self, *_: object) -> None:
        entry, said = self._entry, self._meter.tally
        entry.wall += time.perf_counter() - self._wall
        entry.cpu += self._meter.processor() - self._cpu
        entry.rounds += said.rounds - self._rounds
        entry.messages += said.messages - self._messages
        entry.bytes += said.payload - self._payload


@dataclass
class _Planned:
    """An event, and how many of its openings are left. It is found by comparison, as hashing would take long."""

    event: Event
    left: int


class Role:
    """A participant in one protocol run.

    ``before_sharing`` is called once, before the first share or told number is sent: it can write down that budget is
    spent. ``tally`` is where the transport counts what goes through the links.
    """

    def __init__(
        self,
        name: str,
        links: Mapping[str, PeerLink],
        committee: Committee,
        *,
        planned: Mapping[Event, int],
        progress: Progress = silent,
        before_sharing: Callable[[], None] | None = None,
        tally: TaskTally | None = None,
        processor: Callable[[], float] = time.thread_time,
    ) -> None:
        self.name = name
        self.engine = ShareEngine(name, committee, links, before_sharing)
        self.meter = PhaseMeter(tally=tally or TaskTally(), processor=processor)
        self.progress = progress
        self.revealed: list[Event] = []
        self._links = links
        self._planned = [_Planned(event, times) for event, times in planned.items()]
        self._alike: dict[tuple[str, ...], bytes] = {}

    def over(self, system: ResidueSystem) -> Self:
        """The same participant with shares modulo other primes; what was planned, revealed and measured is common."""
        other = copy(self)
        other.engine = self.engine.with_system(system)
        return other

    def link(self, peer: str) -> PeerLink:
        """The channel to one peer."""
        return self._links[peer]

    def reveal(
        self,
        shares: Shares | None,
        *,
        to: Sequence[str],
        event: Event,
        shape: Sequence[int],
        bound: int,
        degree: int | None = None,
        mask: Shares | None = None,
        through: str | None = None,
    ) -> Integers | None:
        """Open an array of shared numbers to the participants ``to``; no other function opens them.

        Every seat and every recipient calls this with the same arguments; a recipient without a seat gives ``None`` for
        ``shares``. A sharing of zero is added first, so that the opened polynomial shows its value at 0 and nothing
        else; ``mask`` is such a sharing that was made before, and may have shares of noise added to it. ``degree`` is
        by default that of a product of two inputs. With ``through``, this recipient opens the array and sends the
        result to the others.

        In active mode ``mask`` holds noise alone. The sharing of zero follows from all that the seat was told so far,
        so that shares of seats that were told different numbers open to random ones. Whatever must be checked before
        is settled by the caller.
        """
        self._charge(event)
        degree = self.opening_degree if degree is None else degree
        openers = to if through is None else [through]
        masked = None
        if shares is not None:
            masked = self._masked(shares, mask, tuple(shape), degree)
            self.engine.send_opening(masked, openers)
        if self.name not in to:
            return None
        if self.name in openers:
            before = len(self.engine.lost)
            # That somebody stops tells others of a number which is not theirs to know, and which they may have shifted.
            cut = self.engine.active and bool(getattr(unwrap(event), "audience", ()))
            opened = self.engine.receive_opening(shape, degree=degree, bound=bound, own=masked, cut=cut)
            for seat in self.engine.lost[before:]:
                self.progress(f"without {seat}", 1, 1)
            if through is not None:
                self.engine.send_opened(opened, to)
        else:
            opened = self.engine.receive_opened(openers[0], shape, bound)
        self.have_alike(opened, to)
        return opened

    def _masked(self, shares: Shares, mask: Shares | None, shape: tuple[int, ...], degree: int) -> Shares:
        """What a seat sends of its shares: with a sharing of zero, and with noise that was dealt before."""
        if shares.degree > degree:
            raise ValueError(f"a sharing of degree {shares.degree} is not opened at degree {degree} [VA144]")
        engine = self.engine
        if not engine.active:
            mask = engine.zero(shape, degree) if mask is None else mask
            if mask.degree != degree:
                raise ValueError(f"a mask of degree {mask.degree} does not hide an opening of degree {degree} [VA145]")
            return engine.add([shares, mask])
        terms = [shares] if mask is None else [shares, mask]
        # Of degree t, the polynomials that honest owners dealt hide everything but the value. But whoever still holds a
        # part back, such as of its noise, would choose the value: nobody opens before all seats have received.
        if degree == engine.committee.threshold or engine.committee.can_split:
            engine.compare_transcripts()
        if degree > engine.committee.threshold:
            terms.append(engine.zero(shape, degree))
        return engine.add(terms)

    def have_alike(self, values: NDArray[Any], to: Sequence[str]) -> None:
        """In active mode, note numbers that everybody in ``to`` must have alike, so that one who has others is found.

        Seats note them before they go on with them, and everybody compares them at the end (:meth:`compare_results`).
        """
        if not self.engine.active:
            return
        whom = tuple(to)
        plain = repr(values.tolist()).encode() if values.dtype == object else values.tobytes()
        found = self._alike[whom] = sha256(self._alike.get(whom, b"") + sha256(plain).digest()).digest()
        if self.engine.has_seat and {*self.engine.committee.seats} <= {*to}:
            self.engine.record_public(found)

    def compare_results(self) -> None:
        """Refuse a result of which a seat has another one, so that nobody is told something else than the others.

        Every seat sends a digest of what it knows to whoever knows it too. Nobody relies on what one participant
        compared, and one honest seat is enough to notice; so no more seats may be lost here than elsewhere.
        """
        due = {peer: digest for peer in self._links if (digest := self._known_by(peer))}
        if self.engine.has_seat:
            for peer, digest in due.items():
                self._links[peer].send("result", digest=digest)
        for seat in self.engine.committee.seats:
            if seat in due and seat not in self.engine.lost:
                try:
                    told = receive_message(self._links[seat], seat, MessageSchema("result", digest=FixedBytes(32)))
                    found = told["digest"]
                except PeerLost as error:
                    self.engine.continue_without(seat, error)
                    continue
                if found != due[seat]:
                    raise ShareError(f"{seat} and {self.name} were told different results: {NO_RESULT} [SH018]")

    def _known_by(self, peer: str) -> bytes | None:
        """A digest of all numbers that both this participant and ``peer`` must have."""
        common = [digest for whom, digest in self._alike.items() if peer in whom]
        return sha256(b"".join(common)).digest() if common else None

    def require_opened(self, opened: Integers | None) -> Integers:
        """What :meth:`reveal` gave, for a participant who must be one of its recipients."""
        if opened is None:
            raise ProtocolError(f"{self.name} is not among those who may know the result [MS040]")
        return opened

    def dealt_by(self, owner: str, shape: Sequence[int], mine: Shares | None) -> Shares:
        """The shares that an owner dealt to this seat: ``mine`` if that is this participant, else they are received."""
        return mine if owner == self.name and mine is not None else self.engine.receive(owner, shape)

    def tell(self, to: Sequence[str], kind: str, values: Integers, *, event: Event) -> None:
        """Send noised integers that this party made itself, the same to everyone in ``to``.

        Only the sender calls it, and each call is one of the openings that were planned for the event.
        """
        once = unwrap(event)
        audience, about = getattr(once, "audience", ()), getattr(once, "about", ())
        if beyond := [name for name in to if audience and name not in (*audience, self.name)]:
            raise PrivacyError(f"{event.name} was not planned to be told to {', '.join(beyond)} [PR136]")
        if about and self.name not in about:
            raise PrivacyError(f"{event.name} was planned to be told by {', '.join(about)}, not by {self.name} [PR137]")
        if values.dtype != np.int64:
            raise ValueError(f"told numbers are 64-bit integers, not {values.dtype} [VA146]")
        self._charge(event)
        self.engine.notify_before_sharing()
        for name in to:
            if name != self.name:
                self._links[name].send(kind, values=values)

    def receive_message(self, peer: str, kind: str, size: int, bound: int) -> Integers:
        """Receive ``size`` integers of at most ``bound`` in magnitude, which a peer sends by :meth:`tell`."""
        with self.meter.phase("receive"):
            due = MessageSchema(kind, values=ArrayForm(np.int64, (size,), -bound, bound))
            values: Integers = receive_message(self._links[peer], peer, due)["values"]
        return values

    @property
    def opening_degree(self) -> int:
        """The degree at which a product of two inputs is opened."""
        return 2 * self.engine.committee.threshold

    def extend_plan(self, event: Event) -> None:
        """Plan one more opening: for sessions that stay, where each question is paid for before it is answered."""
        self._planned = [entry for entry in self._planned if entry.left]
        self._planned.append(_Planned(event, 1))

    def _charge(self, event: Event) -> None:
        """Count one of the openings that were planned for this event, or refuse."""
        for entry in self._planned:
            if entry.left and entry.event == event:
                entry.left -= 1
                if event not in self.revealed:
                    self.revealed.append(event)
                return
        raise PrivacyError(f"{event.name} was not in the plan that the parties agreed to and paid for [PR138]")


class Owner(Role):
    """A participant that holds columns."""


class Coordinator(Role):
    """The participant that relays and holds no columns."""
