"""Why an attempt failed, in words, and what to do: by the classes of errors that docs/reference/errors.md explains."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from colonnade import errors
from colonnade.report import words

_WHAT_TO_DO: Mapping[type[errors.ColonnadeError], str] = {
    errors.SchemaError: "The schema of the study is wrong: tell the analyst what the sentence says.",
    errors.DataError: "Our table does not fit: look at Our table, mend the file, and ask the analyst to propose again.",
    errors.StudyError: "The study's file is wrong, or members hold different ones: tell the analyst.",
    errors.PolicyError: "Our policy does not allow it: change party.toml if you agree, or leave it.",
    errors.BudgetError: "A cap would be exceeded: see Ledger. Wait for a period to pass, or raise the cap.",
    errors.LedgerError: "The ledger cannot be used: press Verify on the page Ledger, and restore a copy if it fails.",
    errors.PrivacyError: "A promise was asked for that nothing proves: tell the analyst.",
    errors.StorageError: "A file could not be written: make room on the disk, and see that it is ours.",
    errors.IdentityError: "A key or certificate is not the one that was agreed on: see People and keys.",
    errors.ConnectError: "The hub was not reached: run Doctor. It is tried again by itself where retries are allowed.",
    errors.PeerLost: "Somebody was lost on the way. It is tried again by itself where all allow retries.",
    errors.PeerStopped: "Another participant ended it: ask that one.",
    errors.ProtocolError: "A message was not as agreed: all should run the same release of Colonnade.",
    errors.DisagreementError: "Participants hold different things: compare releases and files with the others.",
    errors.CapacityError: "The numbers are too large for the study's arithmetic: tell the analyst.",
    errors.ShareError: "A check of the computation failed: somebody deviated, or a machine is faulty. Ask the others.",
}
_OTHERWISE = "Read the sentence, or the log of the attempt; Doctor looks at the usual causes."


@dataclass(frozen=True)
class Failure:
    """Why an attempt ended, and what to do about it."""

    sentence: str
    advice: str
    code: int | None
    """The exit code; its chapter in docs/reference/errors.md has more."""


def explained(message: str | None, record: Mapping[str, Any]) -> Failure | None:
    """What a person reads of an attempt that did not end well; ``None`` where it did, or still runs."""
    sentence = message or record.get("message")
    if not sentence or record.get("status") == "finished":
        return None
    found = words.number(record.get("exit_code"))
    code = None if found is None else int(found)
    advice = next((text for cls, text in _WHAT_TO_DO.items() if cls.exit_code == code), _OTHERWISE)
    return Failure(str(sentence), advice, code)
