"""Do all owners hold the same? They compare it among themselves, and learn yes or no and nothing else.

Any two owners that talk to each other share a key. An owner's share is the sum (XOR) over its keys of a keyed hash of
what it holds. If all hold the same, every hash occurs twice and the shares cancel; otherwise the shares of the honest
owners are uniform. So whoever told different things to different owners learns that they differ and nothing else, and
cannot make the sum come out: everybody commits to its share before it sees another's
(``docs/theory/active-messages.md``).

Numbers that all of some participants have seen anyway are compared more simply, by :func:`compare_digests`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from colonnade.errors import DisagreementError, ProtocolError
from colonnade.message_schema import receive_message
from colonnade.protocols import session_messages
from colonnade.protocols.roles import Role
from colonnade.randomness import new_key

_PURPOSE = b"owners compare"  # keys may serve for other hashes too
_SHARE_BYTES = session_messages.SHARE_BYTES


@dataclass(frozen=True)
class PairwiseKeys:
    """All owners, those of them that talk to everybody and judge, and the keys that this owner shares with others."""

    owners: tuple[str, ...]
    judges: tuple[str, ...]
    keys: Mapping[str, bytes] = field(repr=False)

    @classmethod
    def of(cls, me: Role, owners: Sequence[str], seats: Sequence[str]) -> PairwiseKeys:
        """Share a fresh key with every owner that this one talks to; without seats everybody talks to everybody."""
        judges = tuple(owner for owner in owners if owner in seats) or tuple(owners)
        peers = [name for name in owners if name != me.name and (me.name in judges or name in judges)]
        here = owners.index(me.name)
        keys = {peer: new_key() for peer in peers if here < owners.index(peer)}
        for peer, key in keys.items():
            me.link(peer).send("pair-key", key=key)
        for peer in peers:
            if peer not in keys:
                keys[peer] = receive_message(me.link(peer), peer, session_messages.PAIR_KEY)["key"]
        return cls(tuple(owners), judges, keys)

    def share(self, held: bytes) -> bytes:
        """This owner's share, for what it holds."""
        hashes = (
            hashlib.blake2b(held, key=key, person=_PURPOSE, digest_size=_SHARE_BYTES) for key in self.keys.values()
        )
        total = 0
        for each in hashes:
            total ^= int.from_bytes(each.digest(), "little")
        return total.to_bytes(_SHARE_BYTES, "little")


class EqualityComparison:
    """One comparison: the commitment to the share leaves at once, the share itself in :meth:`show`."""

    def __init__(self, me: Role, circle: PairwiseKeys, held: bytes) -> None:
        self._me, self._circle = me, circle
        self._judging = me.name in circle.judges
        self._others = [name for name in circle.owners if name != me.name]
        self._other_judges = [name for name in circle.judges if name != me.name]
        self._share, self._salt = circle.share(held), new_key()
        self._commitments: dict[str, bytes] = {}
        for judge in self._other_judges:
            me.link(judge).send("compared", commitment=_commitment(me.name, self._share, self._salt))

    def show(self) -> None:
        """Show the own share to those who judge; one who judges itself waits until every other share is settled."""
        if self._judging:
            for name in self._others:
                self._commitments[name] = receive_message(self._me.link(name), name, session_messages.COMPARED)[
                    "commitment"
                ]
        for judge in self._other_judges:
            self._me.link(judge).send("compared-share", share=self._share, salt=self._salt)

    def require(self, otherwise: str) -> None:
        """Go on if all owners hold the same; else every honest judge stops the study with the sentence given."""
        if not self._judging:
            for judge in self._circle.judges:
                receive_message(self._me.link(judge), judge, session_messages.ALIKE)
            return
        total = int.from_bytes(self._share, "little")
        for name in self._others:
            shown = receive_message(self._me.link(name), name, session_messages.COMPARED_SHARE)
            if _commitment(name, shown["share"], shown["salt"]) != self._commitments[name]:
                raise ProtocolError(f"{name} sent another share in 'compared-share' than it had committed to [MS009]")
            total ^= int.from_bytes(shown["share"], "little")
        if total:
            raise DisagreementError(otherwise)
        for name in self._others:
            if name not in self._circle.judges:
                self._me.link(name).send("alike")


def compare_digests(me: Role, everyone: Sequence[str], heard: bytes, what: str) -> None:
    """Stop unless all of ``everyone`` heard the same; only a digest travels, of numbers that all of them may know."""
    own = hashlib.sha256(heard).digest()
    others = [name for name in everyone if name != me.name]
    for name in others:
        me.link(name).send("heard-alike", digest=own)
    answers = [receive_message(me.link(name), name, session_messages.HEARD_ALIKE)["digest"] for name in others]
    if any(answer != own for answer in answers):
        raise DisagreementError(
            f"participants were told different {what}, so somebody does not follow the protocol: "
            "nothing is kept of it [DI001]"
        )


def _commitment(name: str, share: bytes, salt: bytes) -> bytes:
    return hashlib.sha256(salt + share + name.encode()).digest()
