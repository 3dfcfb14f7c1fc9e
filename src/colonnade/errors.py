"""Every error that Colonnade raises on purpose, in one tree.

Each class has an exit code, documented in ``docs/errors.md``. A message is one sentence that says what is
wrong, where, and what to do; it never carries a value from a party's table, a share or a key.
"""

from __future__ import annotations


class ColonnadeError(Exception):
    """Base of all errors raised on purpose."""

    exit_code = 1
    told: str | None = None
    """What other participants are told in place of the message, where that speaks of private matters."""

    @property
    def for_peers(self) -> str:
        """The reason as the other participants may know it."""
        return self.told or str(self)


class SchemaError(ColonnadeError):
    """The public description of a table is wrong."""

    exit_code = 10
    told = "its schema cannot be used; its own log says why"


class DataError(ColonnadeError):
    """A party's own file does not fit its schema."""

    exit_code = 11
    told = "its table does not fit its schema; its own log says where"


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
    told = "its policy does not allow this study"


class BudgetError(ColonnadeError):
    """A privacy budget would be exceeded."""

    exit_code = 15
    told = "its privacy budget does not allow this study"


class LedgerError(ColonnadeError):
    """The ledger cannot be read, written or trusted."""

    exit_code = 16
    told = "its ledger cannot be used"


class PrivacyError(ColonnadeError):
    """A privacy statement was asked for that nothing proves."""

    exit_code = 17


class StorageError(ColonnadeError):
    """A file or standard output cannot be written."""

    exit_code = 18
    told = "it cannot write to its own disk"
    model: object | None = None
    """The model that could not be saved, if that is what was to be written."""


class IdentityError(ColonnadeError):
    """A key, certificate or pinned fingerprint does not match."""

    exit_code = 20


class ConnectError(ColonnadeError):
    """The coordinator cannot be reached."""

    exit_code = 21


class PeerLost(ColonnadeError):  # noqa: N818 - reads better than PeerLostError where it is caught
    """A participant was there and is gone."""

    exit_code = 22
    spare: str | None = None
    """Its name, where the others can do without it as long as nobody needs more from it."""


class PeerStopped(ColonnadeError):  # noqa: N818
    """A participant ended the study and said why."""

    exit_code = 23


class ProtocolError(ColonnadeError):
    """A message is malformed or out of turn."""

    exit_code = 24


class CapacityError(ColonnadeError):
    """The numbers would not fit the chosen arithmetic."""

    exit_code = 30


class ShareError(ColonnadeError):
    """Opened shares do not lie on one polynomial."""

    exit_code = 31


class Interrupted(BaseException):
    """The operator asked this process to stop (SIGINT, SIGTERM or SIGHUP); no error, and never swallowed as one."""

    exit_code = 130
