"""Links of a seat that changes what it sends."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np

from colonnade.mpc import Committee, Hand

Change = Callable[[str, dict[str, Any]], dict[str, Any]]
"""What is sent in place of a message, by its kind and its fields."""


class Changing:
    """A link on which messages say something else."""

    def __init__(self, link: Any, change: Change) -> None:
        self._link, self._change = link, change

    def send(self, kind: str, **fields: Any) -> None:
        self._link.send(kind, **self._change(kind, fields))

    def recv(self, kind: str, most: int) -> dict[str, Any]:
        found: dict[str, Any] = self._link.recv(kind, most)
        return found


def listing(sent: list[str], changed: Collection[int] = ()) -> Change:
    """Lists the kinds of all messages of a seat, and changes a bit in the words of some of them."""

    def change(kind: str, fields: dict[str, Any]) -> dict[str, Any]:
        sent.append(kind)
        return fields | {"words": one_bit_flipped(fields["words"])} if len(sent) - 1 in changed else fields

    return change


def first_of(kind: str) -> Change:
    """Changes the first message of a kind: a bit of its words, or the bytes in it."""
    left = [kind]

    def change(sent: str, fields: dict[str, Any]) -> dict[str, Any]:
        if sent not in left:
            return fields
        left.clear()
        name = next(field for field in ("words", "secret", "promise") if field in fields)
        return fields | {name: one_bit_flipped(fields[name]) if name == "words" else bytes(32)}

    return change


def one_bit_flipped(words: Any) -> Any:
    """The same words with one bit changed that belongs to a share."""
    flat = np.array(words).reshape(-1)
    flat[flat.size // 2] ^= flat.dtype.type(1 << 5)
    return flat.reshape(np.shape(words))


def tampering(make: Callable[[], Change], to: str | None = None) -> Callable[..., Hand]:
    """The hand of a seat that changes what it sends, to all or to one."""

    def made(name: str, committee: Committee, links: Mapping[str, Any]) -> Hand:
        change = make()
        wrapped = {peer: Changing(link, change) for peer, link in links.items() if to in (None, peer)}
        return Hand(name, committee, {**links, **wrapped})

    return made
