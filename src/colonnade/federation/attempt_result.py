"""How an attempt ended, and its result: as its process left it, and as the hub hands it out.

Every party that has finished signs the hashes of the files that are for everybody. What nobody has signed, such as the
report of the coordinator, is not taken from the hub.
"""

from __future__ import annotations

import signal
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from colonnade.disk import reading
from colonnade.errors import (
    ConnectError,
    FederationError,
    IdentityError,
    Interrupted,
    PeerLost,
    PeerStopped,
    StudyError,
)
from colonnade.federation.members import FederationMembers
from colonnade.federation.processes import read_last_objects
from colonnade.federation.statements import MOST_FILES, AttemptEnd, AttemptReport, MemberName, Sha256, matches_form
from colonnade.study.record import read_facts
from colonnade.study.spec import digest_of

MODEL, ARRAYS = "model.json", "model.npz"


@dataclass(frozen=True)
class ResultComparison:
    """Which parties have signed the hash of a result, which another one, and which none."""

    signed: tuple[str, ...]
    differs: tuple[str, ...]
    missing: tuple[str, ...]

    @property
    def confirmed(self) -> bool:
        """Whether somebody has signed this result, and nobody another one."""
        return bool(self.signed) and not self.differs

    def __str__(self) -> str:
        said = [
            f"{MODEL} is what {', '.join(self.signed)} signed" if self.signed else f"nobody has signed this {MODEL}"
        ]
        said += [f"{', '.join(self.differs)} signed another one"] if self.differs else []
        said += [f"no hash came from {', '.join(self.missing)}"] if self.missing else []
        return "; ".join(said)

    def check(self) -> None:
        """Raise an error unless this result may be taken from the hub."""
        if not self.confirmed:
            raise FederationError(
                f"the result that the hub hands out is not taken: {self}; those who have finished have theirs [FE041]"
            )


@dataclass(frozen=True)
class FetchedResult:
    """The files of a result by name, and what the hub says that parties have signed."""

    study: str
    files: Mapping[str, bytes]
    finished: Sequence[bytes]

    def compare(self, parties: Collection[str], members: FederationMembers) -> ResultComparison:
        """Who of these parties has signed this result; an error if its files do not belong together."""
        found = self._hash(MODEL)
        hashes: dict[str, set[str]] = {party: set() for party in parties}
        for said in self._reports(parties, members):
            hashes[said.participant].add(str(said.result))
        compared = ResultComparison(
            tuple(party for party, said in hashes.items() if said == {found}),
            tuple(party for party, said in hashes.items() if said - {found}),
            tuple(party for party, said in hashes.items() if not said),
        )
        if compared.signed and not self._arrays_belong():
            raise FederationError(f"the {ARRAYS} that the hub hands out is not the one that {MODEL} names [FE042]")
        return compared

    def signed_files(self, parties: Collection[str], members: FederationMembers) -> dict[str, bytes]:
        """The files that some of these parties have signed, together with this result, and none otherwise."""
        hashes: dict[str, set[str]] = {}
        for said in self._reports(parties, members):
            for name, digest in said.files.items() if said.result == self._hash(MODEL) else ():
                hashes.setdefault(name, set()).add(digest)
        named = {name for name in self.files if hashes.get(name) == {self._hash(name)}}
        return {name: content for name, content in self.files.items() if name in {MODEL, ARRAYS, *named}}

    def _reports(self, parties: Collection[str], members: FederationMembers) -> Iterator[AttemptReport]:
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
            content = reading.parse_json(self.files[MODEL].decode())
        except (UnicodeDecodeError, reading.MalformedFile):
            content = None
        named = content.get("arrays") if isinstance(content, dict) else None
        return bool(named == (self._hash(ARRAYS) if ARRAYS in self.files else None))


_LOST = frozenset(error.exit_code for error in (ConnectError, PeerLost, PeerStopped, Interrupted))


def find_outcome(folder: Path, status: int | None) -> tuple[AttemptEnd, str | None]:
    """How it ended, and a sentence for this participant alone; ``status`` is ``None`` where nobody saw it end.

    It has finished once it holds the result, whatever happened afterwards: there must be no second one. It was lost
    where a peer, the hub or the process itself was lost, or a peer stopped, so that trying again may help; else it
    stopped for a reason of its own, which would be the same the next time.
    """
    code, message = _last_failure(folder)
    if (folder / "model.json").exists():
        return "finished", message
    if status == -signal.SIGXCPU:
        return "stopped", "it took more processor time than a study may have here [CO046]"
    if code is None:
        return "lost", message or "the process ended without a word [CO047]"
    return ("lost" if code in _LOST else "stopped"), message


def result_digest(folder: Path) -> str | None:
    """The hash of a result that is for everybody, as the process noted it once the result was on disk.

    There is none of a result for one party alone: whoever guesses what it says could try the guess against the hash.
    """
    try:
        found = read_facts(folder).get("result")
    except StudyError:
        return None
    return found if matches_form(Sha256, found) else None


def published_files(folder: Path) -> list[str]:
    """The files beside the model that a run has written for its readers; only names, and nothing outside its folder."""
    try:
        return [name for name in map(str, read_facts(folder).get("published", ())) if matches_form(MemberName, name)]
    except StudyError:
        return []


def file_digests(folder: Path) -> dict[str, str]:
    """The hashes of the files beside a result that is for everybody: the statement, and what was published."""
    names = ["privacy.json", *published_files(folder)][:MOST_FILES]
    with suppress(StudyError):
        return {name: digest_of(folder / name) for name in names if (folder / name).exists()}
    return {}


def _last_failure(folder: Path) -> tuple[int | None, str | None]:
    """Exit code and sentence of the run's record where it says how it ended; else of the last error it printed."""
    try:
        facts = read_facts(folder)
    except StudyError:
        facts = {}
    if facts.get("status") != "failed":
        facts = next(
            (line for line in reversed([*read_last_objects(folder)]) if {"error", "exit_code"} <= line.keys()), {}
        )
    code, message = facts.get("exit_code"), facts.get("message")
    return code if isinstance(code, int) else None, message if isinstance(message, str) else None
