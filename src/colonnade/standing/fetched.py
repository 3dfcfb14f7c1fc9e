"""A result as the hub hands it out, compared with what the parties have signed: the hub cannot make one of its own.

Every party that has finished signs the SHA-256 of its ``model.json``, which names that of the arrays beside it, and of
the other files that are for everybody. What nobody has signed, such as the report of the coordinator, is not taken.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256

from colonnade.disk import reading
from colonnade.errors import FederationError, IdentityError
from colonnade.standing.federation import Members
from colonnade.standing.proposal import AttemptReport

MODEL, ARRAYS = "model.json", "model.npz"


@dataclass(frozen=True)
class Comparison:
    """Which parties have signed the hash of a result, which another one, and which none."""

    signed: tuple[str, ...]
    differs: tuple[str, ...]
    missing: tuple[str, ...]

    @property
    def confirmed(self) -> bool:
        """Whether somebody has signed this result, and nobody another one."""
        return bool(self.signed) and not self.differs

    def __str__(self) -> str:
        said = [f"{MODEL} is what {_listed(self.signed)} signed" if self.signed else f"nobody has signed this {MODEL}"]
        said += [f"{_listed(self.differs)} signed another one"] if self.differs else []
        said += [f"no hash came from {_listed(self.missing)}"] if self.missing else []
        return "; ".join(said)

    def check(self) -> None:
        """Raise an error unless this result may be taken from the hub."""
        if not self.confirmed:
            raise FederationError(
                f"the result that the hub hands out is not taken: {self}; those who have finished have theirs [FE041]"
            )


@dataclass(frozen=True)
class Fetched:
    """The files of a result by name, and what the hub says that parties have signed."""

    study: str
    files: Mapping[str, bytes]
    finished: Sequence[bytes]

    def compare(self, parties: Collection[str], members: Members) -> Comparison:
        """Who of these parties has signed this result; an error if its files do not belong together."""
        found = self._hash(MODEL)
        hashes: dict[str, set[str]] = {party: set() for party in parties}
        for said in self._said(parties, members):
            hashes[said.participant].add(str(said.result))
        compared = Comparison(
            tuple(party for party, said in hashes.items() if said == {found}),
            tuple(party for party, said in hashes.items() if said - {found}),
            tuple(party for party, said in hashes.items() if not said),
        )
        if compared.signed and not self._arrays_belong():
            raise FederationError(f"the {ARRAYS} that the hub hands out is not the one that {MODEL} names [FE042]")
        return compared

    def signed(self, parties: Collection[str], members: Members) -> dict[str, bytes]:
        """The files that some of these parties have signed, together with this result, and none otherwise."""
        hashes: dict[str, set[str]] = {}
        for said in self._said(parties, members):
            for name, digest in said.files.items() if said.result == self._hash(MODEL) else ():
                hashes.setdefault(name, set()).add(digest)
        named = {name for name in self.files if hashes.get(name) == {self._hash(name)}}
        return {name: content for name, content in self.files.items() if name in {MODEL, ARRAYS, *named}}

    def _said(self, parties: Collection[str], members: Members) -> Iterator[AttemptReport]:
        """What these parties have said of this result; what cannot be read, or is of a stranger, is as if unsaid."""
        for raw in self.finished:
            with suppress(FederationError, IdentityError):
                said = AttemptReport.unpack(raw, members)
                if said.proposal == self.study and said.participant in parties and said.result is not None:
                    yield said

    def _hash(self, name: str) -> str:
        return sha256(self.files.get(name, b"")).hexdigest()

    def _arrays_belong(self) -> bool:
        """Whether the arrays are those that the model names."""
        try:
            content = reading.json_of(self.files[MODEL].decode())
        except (UnicodeDecodeError, reading.Malformed):
            content = None
        named = content.get("arrays") if isinstance(content, dict) else None
        return bool(named == (self._hash(ARRAYS) if ARRAYS in self.files else None))


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names)
