"""Links of a seat that changes what it sends."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np

from colonnade.mpc import Committee, Hand


class Tampering:
    """A link that lists the kinds of messages of a seat over all its links, and changes shares in some of them."""

    def __init__(
        self, link: Any, sent: list[str], changed: Collection[int] = (), how: Callable[[Any], Any] | None = None
    ) -> None:
        self._link, self._sent, self._changed, self._how = link, sent, changed, how or one_bit_flipped

    def send(self, kind: str, **fields: Any) -> None:
        if len(self._sent) in self._changed:
            fields = {**fields, "words": self._how(fields["words"])}
        self._sent.append(kind)
        self._link.send(kind, **fields)

    def recv(self, kind: str, most: int) -> dict[str, Any]:
        found: dict[str, Any] = self._link.recv(kind, most)
        return found


def one_bit_flipped(words: Any) -> Any:
    """The same words with one bit changed that belongs to a share."""
    flat = np.array(words).reshape(-1)
    flat[flat.size // 2] ^= flat.dtype.type(1 << 5)
    return flat.reshape(np.shape(words))


def tampering(sent: list[str], changed: Collection[int] = ()) -> Callable[..., Hand]:
    """The hand of a seat that lists what it sends, and changes some of it."""

    def made(name: str, committee: Committee, links: Mapping[str, Any]) -> Hand:
        return Hand(name, committee, {peer: Tampering(link, sent, changed) for peer, link in links.items()})

    return made
