"""A call that is refused, in one line."""

from __future__ import annotations

from typing import Any

from tests.support.errors import raises


def refused(kind: type[Any] | tuple[type[Any], ...], *words: Any, **options: Any) -> None:
    """``refused(PrivacyError, "PR042", "61", Grid, 61)``: the call after the code and names ends in such an error."""
    place = next(k for k, word in enumerate(words) if callable(word))
    with raises(kind, *words[:place]):
        words[place](*words[place + 1 :], **options)
