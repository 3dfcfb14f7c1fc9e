"""What protocols that iterate have in common: batches of people, progress, noise and proofs of bounds.

Noise and masks do not depend on what a round computes. So tasks on shares deal them for many rounds at a time, and
parties that send messages draw the noise of the next message while others compute. Who is in a batch is decided by
random coins from a seed, or by a salted digest of each id. Owners that deal rows block by block prove the bounds of
some blocks together: whoever deals rows or holds shares of them adds every block to a window.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import ProtocolError
from colonnade.mpc import Shares
from colonnade.mpc.residues import Integers
from colonnade.mpc.verification.input_proofs import (
    WINDOW_ROWS,
    InputProofs,
    InputRanges,
    longest_window,
)
from colonnade.protocols.committee_task import CommitteeTask
from colonnade.protocols.roles import Progress, Role
from colonnade.randomness import Stream

Turn = TypeVar("Turn")
NoiseSampler = Callable[[str, int, int], NDArray[np.int64]]
"""A function that draws noise: it gets an owner, a variance and how many numbers."""
OwnNoise = Callable[[int], Integers]
"""A function that draws one owner's noise: it gets the number of rounds."""


class RoundCounter(Generic[Turn]):
    """Gives one round after the other and reports progress after ``every`` rounds and at the end."""

    def __init__(self, turns: Sequence[Turn], progress: Progress, phase: str, every: int = 1) -> None:
        self._turns, self._progress, self._phase, self._every = turns, progress, phase, every

    def __len__(self) -> int:
        return len(self._turns)

    def __iter__(self) -> Iterator[Turn]:
        total = len(self)
        for done, turn in enumerate(self._turns, start=1):
            yield turn
            if done % self._every == 0 or done == total:
                self._progress(self._phase, done, total)


def deal_masks_ahead(
    me: Role, owners: Sequence[str], entries: int, rounds: RoundCounter[int], ahead: int, draw: OwnNoise | None
) -> Iterator[Shares | None]:
    """For each round the shares that a seat adds to the opened numbers; ``None`` for a participant without a seat.

    They are the noise of every owner and a fresh sharing of zero, dealt for ``ahead`` rounds at a time. ``draw`` makes
    this owner's own noise. In active mode they are noise alone: a sharing of zero then follows from what was opened in
    all rounds before.
    """
    masks = None
    for number in rounds:
        if number % ahead == 0:
            masks = _deal_masks(me, owners, (min(ahead, len(rounds) - number), entries), draw)
        yield None if masks is None else Shares(masks.values[:, number % ahead], masks.degree)


def _deal_masks(me: Role, owners: Sequence[str], shape: tuple[int, int], draw: OwnNoise | None) -> Shares | None:
    mine = None
    if draw is not None:
        with me.meter.phase("noise"):
            drawn = draw(shape[0])
        with me.meter.phase("deal"):
            mine = me.engine.deal(drawn)
    if not me.engine.has_seat:
        return None
    with me.meter.phase("receive"):
        noise = [me.dealt_by(name, shape, mine) for name in owners]
        if not me.engine.active:
            return me.engine.add([*noise, me.engine.zero(shape, me.opening_degree)])
        me.engine.compare_transcripts()  # nobody chooses its noise after it has seen what it is added to
        return me.engine.add(noise)


class PreparedNoise:
    """Noise for an owner's next message, drawn while others compute; it is used once."""

    def __init__(self, name: str, variance: int, draw: NoiseSampler) -> None:
        self._one = (name, variance)
        self._draw, self._ready = draw, np.zeros(0, dtype=np.int64)

    def prepare(self, count: int) -> None:
        """Draw noise for a message of ``count`` numbers."""
        self._ready = self._draw(*self._one, count)

    def __call__(self, name: str, variance: int, count: int) -> NDArray[np.int64]:
        """The noise that was drawn, if it was drawn for such a message."""
        if (name, variance) != self._one or len(self._ready) != count:
            raise ProtocolError("noise was drawn for another message than the one that is sent [MS041]")
        ready, self._ready = self._ready, np.zeros(0, dtype=np.int64)
        return ready


COIN = 2**32
_COINS = 1 << 18  # tossed at a time

Batches = Iterator[NDArray[np.int64]]


class BatchedTask(Protocol):
    """What is asked of a task whose rounds are about batches of people."""

    @property
    def sampling(self) -> str:
        """``poisson``, ``assign_batches`` or ``all``."""

    @property
    def rounds(self) -> int:
        """How many batches are taken in all."""

    @property
    def threshold(self) -> int:
        """A person is in a drawn batch when its 32-bit coin is below this number."""

    @property
    def batches(self) -> int:
        """How many disjoint batches there are."""


def batch_secret(task: BatchedTask, key: bytes, ids: Sequence[str]) -> bytes:
    """The secret that determines all batches: the seed of the coins, or everyone's batch."""
    return assign_batches(ids, task.batches, key).tobytes() if task.sampling == "disjoint" else key


def iterate_batches(task: BatchedTask, rows: int, drawn: bytes) -> Batches:
    """For each round the positions of its people: by fresh coins, from the disjoint batches in turn, or everybody."""
    if task.sampling == "all":
        everybody = np.arange(rows)
        yield from (everybody for _ in range(task.rounds))
        return
    if task.sampling == "disjoint":
        place = np.frombuffer(drawn, dtype="<u4")
        members = [np.flatnonzero(place == index) for index in range(task.batches)]
        yield from (members[number % task.batches] for number in range(task.rounds))
        return
    coins, some = Stream(drawn), max(1, _COINS // max(1, rows))
    memory = np.empty(min(some, task.rounds) * rows, dtype="<u4")
    for start in range(0, task.rounds, some):
        count = min(some, task.rounds - start)
        tossed = memory[: count * rows]
        coins.into(tossed)
        tosses = tossed <= np.uint32(task.threshold - 1)
        # One search for all of these rounds: a call costs more than the numbers of one round.
        found = np.flatnonzero(tosses)
        ends = np.searchsorted(found, np.arange(1, count + 1) * rows)
        begun = 0
        for number, end in enumerate(ends.tolist()):
            yield found[begun:end] - number * rows
            begun = end


def assign_batches(ids: Sequence[str], batches: int, salt: bytes) -> NDArray[np.uint32]:
    """Each person's batch, from its id and the salt only: nobody changes the batch when another person leaves."""
    digests = b"".join(hashlib.blake2b(one.encode(), digest_size=8, key=salt).digest() for one in ids)
    return (np.frombuffer(digests, dtype="<u8") % np.uint64(batches)).astype("<u4")


_HELD = 2**28  # bytes of shares of rows that a seat keeps until their bounds are proven
_RESIDUES = 32  # bytes of a number, modulo as many primes as there mostly are


def rows_proven(task: CommitteeTask, rows: int, block_rows: int) -> int:
    """Of how many rows owners prove the bounds together, if there are at most so many, dealt in blocks.

    Windows are as long as memory and proofs allow, and all owners have the same.
    """
    width = sum(group.columns for own in task.proof_groups.values() for group in own)
    longest = min(rows, WINDOW_ROWS, max(block_rows, _HELD // (_RESIDUES * max(1, width))))
    fitting = longest_window(task.proof_groups.values(), len(task.for_sums.primes), longest, task.projections)
    return min(rows, max(1, fitting // block_rows) * block_rows)


class RoundProofs:
    """The window that is open: blocks that were dealt since the last proof."""

    def __init__(self, me: Role, proven: Mapping[str, InputRanges]) -> None:
        self._me, self._proven = me, proven
        self._takes_part = bool(proven) and (me.engine.has_seat or me.name in proven)
        self._most = min((each.rows for each in proven.values()), default=0)
        self._begin()

    def _begin(self) -> None:
        self._sizes: list[int] = []
        self._own: list[Integers] = []
        self._dealt: dict[str, list[Shares]] = {owner: [] for owner in self._proven}

    def add(self, rows: int, own: Integers | None, dealt: Mapping[str, Shares]) -> None:
        """A block was dealt: this owner's own whole numbers, and at a seat the shares of all owners."""
        if not self._takes_part:
            return
        if sum(self._sizes) + rows > self._most:
            self.end()
        self._sizes.append(rows)
        if own is not None:
            self._own.append(own)
        for owner, blocks in self._dealt.items():
            if owner in dealt:
                blocks.append(dealt[owner])

    def end(self) -> None:
        """Prove, and verify at a seat, what was dealt since the last proof; seats settle their claims later."""
        if not self._sizes:
            return
        engine = self._me.engine
        own = self._own if engine.name in self._proven else None
        with self._me.meter.phase("prove"):
            proofs = InputProofs(engine, self._proven)
            proofs.window(self._sizes, own=own, dealt=self._dealt if engine.has_seat else None)
            if engine.has_seat:
                engine.claims.settle_if_full()
        self._begin()
