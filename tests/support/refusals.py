"""One call that must be refused, and what is said then."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.errors import _CODES, _flat, check_said


def refused(
    kind: type[Any] | tuple[type[Any], ...], said: Any, act: Callable[..., Any], /, *given: Any, **named: Any
) -> str:
    """What is said of a call that is refused: ``refused(StudyError, "ST104", Study.load, path)``.

    ``said`` is a code, a name or a piece of the sentence, or several of them: all must be there.
    """
    with pytest.raises(kind) as caught:
        act(*given, **named)
    text, words = str(caught.value), list(_flat((said,)))
    if any(_CODES.fullmatch(word) for word in words):
        check_said(text, words)
    for word in words:
        assert _CODES.fullmatch(word) or word in text, f"{word!r} is not in: {text}"
    return text
