"""What all seats must have seen alike, and coins that nobody knows before all have seen it.

Every seat hashes what it takes as public: opened numbers, and what it was told. It sends the digest with each coin, and
goes on only if all digests are equal. A coin is drawn from one secret of every seat. A seat has sent a hash of its
secret one coin earlier, and tells the secret when it has received all that it waits for; so whoever still holds a
message back does not know the coin.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import NO_RESULT, PeerLost, ShareError
from colonnade.message_schema import receive_message
from colonnade.mpc import messages
from colonnade.mpc.committee import Committee, PeerLink
from colonnade.randomness import new_key

PublicValue = bytes | str | int | NDArray[np.generic]


class PublicTranscript:
    """A running hash of public values; equal only after equal values in the same order."""

    def __init__(self) -> None:
        self._state = sha256()

    def record(self, *values: PublicValue) -> None:
        """Add values."""
        for value in values:
            if isinstance(value, np.ndarray):
                plain = np.ascontiguousarray(value).reshape(-1).view(np.uint8)  # also where there are no numbers
                self._add(f"{value.dtype.str}{value.shape}".encode(), plain.data)
            elif isinstance(value, bytes):
                self._add(b"bytes", value)
            else:
                self._add(type(value).__name__.encode(), str(value).encode())

    def _add(self, kind: bytes, data: bytes | memoryview) -> None:
        size = len(data)
        self._state.update(b"%d %d " % (len(kind), size) + kind)
        self._state.update(data)

    @property
    def digest(self) -> bytes:
        """The hash of everything so far."""
        return self._state.digest()


def commit(secret: bytes) -> bytes:
    """The hash by which a seat binds itself to a secret."""
    return sha256(b"coin" + secret).digest()


class TranscriptAgreement:
    """One seat's transcript, and the coins that it draws with the others.

    ``lose`` is called with the error when a seat is lost; it raises it if the others cannot go on.
    """

    def __init__(
        self,
        name: str,
        committee: Committee,
        links: Mapping[str, PeerLink],
        lost: list[str],
        lose: Callable[[str, PeerLost], None],
    ) -> None:
        self.name, self.transcript = name, PublicTranscript()
        self._seats, self._links, self._lost, self._lose = committee.seats, links, lost, lose
        self._spare, self._losses, self._repeated = committee.spare, committee.max_losses, 0
        self._secret = new_key()
        self._promised: dict[str, bytes] = {}

    @property
    def promise(self) -> bytes:
        """What this seat tells the others before the first coin."""
        return commit(self._secret)

    def set_promises(self, promises: Mapping[str, bytes]) -> None:
        """Take what the other seats told before the first coin."""
        self._promised = dict(promises)
        self._note_promises(self.promise)

    def _note_promises(self, own: bytes) -> None:
        self.transcript.record(*(own if seat == self.name else self._promised.get(seat, b"") for seat in self._seats))

    def coin(self) -> bytes:
        """The key of public coins, the same at all seats: one round, or two if they could go on without some seats."""
        while True:
            key, complete = self._coin()
            if self._spare:
                # Seats may differ about who is lost, and so about the coin.
                self.agree()
            if complete:
                return key
            # Whoever is lost at a coin may have seen what it would be, so there is another one.

    def _coin(self) -> tuple[bytes, bool]:
        """A key, and whether nobody was lost and all had lost the same seats before."""
        secret, self._secret = self._secret, new_key()
        told = {"secret": secret, "next": self.promise, "digest": self.transcript.digest}
        secrets = {self.name: secret}
        answers, complete = self._exchanged("coin", told)
        for seat, answer in answers.items():
            if commit(answer["secret"]) != self._promised[seat]:
                raise ShareError(f"{seat} told another secret for a coin than it had promised: {NO_RESULT} [SH010]")
            secrets[seat], self._promised[seat] = answer["secret"], answer["next"]
        # Drawn from what was compared in this round, or bound by it; promises for later coins are not compared yet.
        drawn = [secrets.get(seat, b"") for seat in self._seats]
        key = sha256(b"coin" + told["digest"] + b"".join(b"%d " % len(one) + one for one in drawn)).digest()
        self.transcript.record(*drawn)
        self._note_promises(self.promise)
        return key, complete

    def agree(self) -> None:
        """Compare what all seats have seen, and whom they have lost: one round, or more until all have lost the same.

        Seats find a loss at different times: where numbers are opened to one of them, only this one does.
        """
        while not self._exchanged("agree", {"digest": self.transcript.digest})[1]:
            pass
        self.transcript.record(self._missing)

    def _repeat(self) -> None:
        """Count that something is exchanged again, as seats lost different ones: each that may be lost causes it once.

        Otherwise a seat that says so whenever it dislikes a coin would choose among as many as it likes.
        """
        self._repeated += 1
        if self._repeated > self._losses:
            raise ShareError(
                "seats say more often that others are lost than seats can be lost, as one of them does not follow the "
                f"protocol: {NO_RESULT} [SH011]"
            )

    @property
    def _missing(self) -> int:
        """Whom this seat has lost, as bits."""
        return sum(1 << self._seats.index(seat) for seat in self._lost)

    def _exchanged(self, kind: str, told: Mapping[str, bytes]) -> tuple[dict[str, dict[str, Any]], bool]:
        """Send a message with a digest to all other seats; returns theirs, whose digests are equal to this seat's.

        Second, it returns whether nobody was lost meanwhile and all seats had lost the same ones before.
        """
        others = [seat for seat in self._seats if seat != self.name and seat not in self._lost]
        missing = self._missing
        for seat in others:
            self._links[seat].send(kind, **told, lost=missing)
        answers: dict[str, dict[str, Any]] = {}
        due = messages.COIN_MESSAGE if kind == "coin" else messages.AGREE_MESSAGE
        for seat in others:
            try:
                answers[seat] = receive_message(self._links[seat], seat, due)
            except PeerLost as error:
                self._lose(seat, error)
        for seat, answer in answers.items():
            if answer["digest"] != told["digest"]:
                raise ShareError(
                    f"{self.name} and {seat} were told different numbers that should be the same for all, as somebody "
                    f"does not follow the protocol: {NO_RESULT} [SH012]"
                )
        alike = self._missing == missing and all(answer["lost"] == missing for answer in answers.values())
        if not alike:
            self._repeat()
        return answers, alike
