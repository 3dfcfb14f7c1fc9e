"""Every error that Colonnade raises on purpose, in one tree.

Each class has an exit code, documented in ``docs/reference/errors.md``. A message is one sentence that says what is
wrong, where, and what to do; it never carries a value from a party's table, a share or a key. The other participants
are told a fixed sentence in its place, unless the message is *public*.

A sentence ends with its code, such as ``[ST001]``: two letters for the class that first says it, and a number that
stays the same however the sentence is improved. ``docs/reference/error-codes.md`` lists all of them. The code stands
in the literal itself, so it goes wherever the sentence goes. Where a sentence quotes another, the code of the quoted
one is kept, at the end: it says where the trouble began.
"""

from __future__ import annotations

import re
from typing import Any

PREFIXES = (
    *("SC", "DA", "DS", "ST", "AL", "PO", "BU", "LE", "PR", "SO", "OF"),
    *("ID", "CN", "PE", "MS", "DI", "FE", "EN", "CA", "SH", "VA", "CO"),
)
"""How codes begin."""
_CODE = re.compile(
    rf" \[((?:{'|'.join(PREFIXES)})\d{{3}})\](?=$|[;:,)\x22\s]|\.(?:\s|$))"
)  # not within a name of a file

NO_PART = "it does not take part in this study; only its own log says why"
"""What the others are told by a party of which no share has left, whatever its reason: a reason may tell about data."""
CANNOT_GO_ON = "it cannot go on; its own log says why"
"""What the others are told by any other participant, unless the message is public."""

NO_RESULT = "the study ends here without a result, and what was sent stays spent"
"""How a sentence about a check ends: others may have seen something that was opened before, and the ledger counts it.
"""


def code_of(text: str) -> str | None:
    """The code of a sentence: of several, the first, which belongs to what the others quote."""
    found = _CODE.search(text)
    return None if found is None else found[1]


def without_code(text: str) -> str:
    """A sentence without its code."""
    return _CODE.sub("", text)


def one_code(text: str) -> str:
    """A sentence with one code, at its end."""
    found = code_of(text)
    return text if found is None else f"{without_code(text)} [{found}]"


def last_code(text: str) -> str:
    """The code at the very end of a text that is to be cut, with the blank before it; nothing if there is none."""
    found = _CODE.search(text, len(text) - 8) if text.endswith("]") and len(text) > 8 else None
    return "" if found is None else found[0]


class ColonnadeError(Exception):
    """Base of all errors raised on purpose."""

    exit_code = 1
    public = False
    """Whether the message says only what every participant sees or knows anyway, so that it is told as it is."""

    def __init__(self, *args: Any) -> None:
        said = [one_code(arg) if isinstance(arg, str) else arg for arg in args[:1]]
        super().__init__(*said, *args[1:])

    @property
    def code(self) -> str | None:
        """The code of the sentence, such as ``ST001``; ``None`` where it has none."""
        return code_of(str(self))

    @property
    def for_peers(self) -> str:
        """The reason as the other participants may know it, once a share of this one has left."""
        return str(self) if self.public else CANNOT_GO_ON


class SchemaError(ColonnadeError):
    """The public description of a table is wrong."""

    exit_code = 10


class DataError(ColonnadeError):
    """A party's own file does not fit its schema."""

    exit_code = 11


class DatasetError(ColonnadeError):
    """A data set cannot be made, found or fetched."""

    exit_code = 12


class StudyError(ColonnadeError):
    """The study file is wrong, or participants hold different ones."""

    exit_code = 13


class AlignmentError(StudyError):
    """Too few people are common to the parties."""

    examples: tuple[str, ...] = ()
    """Some of this party's own keys as they were compared: for its own terminal, never for a log or a peer."""


class PolicyError(ColonnadeError):
    """A party's policy does not allow the study."""

    exit_code = 14


class BudgetError(ColonnadeError):
    """A privacy budget would be exceeded."""

    exit_code = 15


class LedgerError(ColonnadeError):
    """The ledger cannot be read, written or trusted."""

    exit_code = 16


class PrivacyError(ColonnadeError):
    """A privacy statement was asked for that nothing proves."""

    exit_code = 17


class StorageError(ColonnadeError):
    """A file or standard output cannot be written."""

    exit_code = 18
    model: object | None = None
    """The model that could not be saved, if that is what was to be written."""


class ProposalError(ColonnadeError):
    """A proposed study is unknown or not in a state for what was asked, or the agent's store cannot be used."""

    exit_code = 19


class IdentityError(ColonnadeError):
    """A key, certificate or pinned fingerprint does not match."""

    exit_code = 20
    public = True


class ConnectError(ColonnadeError):
    """The coordinator cannot be reached."""

    exit_code = 21
    public = True


class PeerLost(ColonnadeError):  # noqa: N818 - reads better than PeerLostError where it is caught
    """A participant was there and is gone."""

    exit_code = 22
    public = True
    spare: str | None = None
    """Its name, where the others can do without it as long as nobody needs more from it."""


class PeerStopped(ColonnadeError):  # noqa: N818
    """A participant ended the study and said why."""

    exit_code = 23
    public = True


class ProtocolError(ColonnadeError):
    """A message is malformed or out of turn."""

    exit_code = 24
    public = True


class DisagreementError(ColonnadeError):
    """Participants hold or were told different things where all must have the same; who lied cannot be known."""

    exit_code = 25
    public = True


class FederationError(ColonnadeError):
    """The file of a federation, an invitation, a proposal or an answer to one is wrong, late or not allowed."""

    exit_code = 26


class EngineError(ColonnadeError):
    """Workers of a party cannot be started or sent something, or a library that computes cannot be used."""

    exit_code = 27


class CapacityError(ColonnadeError):
    """The numbers would not fit the chosen arithmetic."""

    exit_code = 30


class ShareError(ColonnadeError):
    """Shares do not lie on one polynomial, or another check of what seats and owners sent has failed."""

    exit_code = 31
    public = True


class Interrupted(BaseException):
    """The operator asked this process to stop (SIGINT, SIGTERM or SIGHUP); no error, and never swallowed as one."""

    exit_code = 130
