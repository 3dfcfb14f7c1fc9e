"""What an error said: its code, which stays the same when its sentence is improved, and the names in it.

All sentences stand with their codes in ``docs/reference/error-codes.md``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from colonnade.errors import code_of, without_code

_CODES = re.compile(r"[A-Z]{2}(?:\d{3}|\*)(?:\|[A-Z]{2}(?:\d{3}|\*))*")


def check_said(sentence: object, *said: Any) -> None:
    """Fail unless a sentence has a given code, or one of ``"ST104|ST105"``, and holds every name that is given too.

    ``"ST*"`` stands for any code of its class, where a test makes up what is wrong. Codes and names may stand in tuples
    and lists, as they do in cases of ``parametrize``.
    """
    text = str(sentence)
    given = list(_flat(said))
    codes = {code for one in given if _CODES.fullmatch(one) for code in one.split("|")}
    assert codes, f"no code is given, and the sentence is: {text}"
    found = code_of(text)
    assert found is not None, f"there is no code in: {text}"
    assert codes & {found, f"{found[:2]}*"}, f"{found} is not {' or '.join(sorted(codes))}: {text}"
    words = without_code(text)
    for name in given:
        assert _CODES.fullmatch(name) or name in words, f"{name!r} is not in: {text}"


def _flat(said: Iterable[Any]) -> Iterator[str]:
    for one in said:
        if isinstance(one, tuple | list | set | frozenset):
            yield from _flat(one)
        else:
            yield str(one)


class raises:  # noqa: N801 - reads as pytest.raises does
    """``pytest.raises``, and the error has the code and the names given: ``raises(StudyError, "ST104", "bank")``.

    No generator: its frame would keep the error, and with it what the test opened, until garbage is collected.
    """

    def __init__(self, kind: type[Any] | tuple[type[Any], ...], *said: Any) -> None:
        self._said, self._expected = said, pytest.raises(kind)

    def __enter__(self) -> pytest.ExceptionInfo[Any]:
        return self._expected.__enter__()

    def __exit__(self, kind: Any, error: Any, where: Any) -> bool:
        fits = bool(self._expected.__exit__(kind, error, where))
        if fits:
            check_said(error, *self._said)
        return fits


def refused(kind: type[Any] | tuple[type[Any], ...], /, *words: Any, **options: Any) -> str:
    """What is said of a call that is refused: ``refused(StudyError, "ST104", "bank", Study.load, path)``.

    Before the call stand its code and the names in its sentence; where the error is not ours, pieces of the sentence.
    """
    place = next(place for place, word in enumerate(words) if callable(word))
    said, call, given = words[:place], words[place], words[place + 1 :]
    with pytest.raises(kind) as caught:
        call(*given, **options)
    text, pieces = str(caught.value), list(_flat(said))
    if any(_CODES.fullmatch(piece) for piece in pieces):
        check_said(text, pieces)
    for piece in pieces:
        assert _CODES.fullmatch(piece) or piece in text, f"{piece!r} is not in: {text}"
    return text
