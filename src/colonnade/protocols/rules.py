"""The rules that participants must apply alike, compared before anything is sent that rests on them.

Each participant runs the rules that it will apply over fixed values, and tells a digest of what each gives, with the
versions of its libraries. Wherever two differ, the study ends with a sentence that names the rule and both versions:
otherwise people would be lost, or numbers be wrong, and nobody would know.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from hashlib import sha256
from typing import Any

import numpy as np

from colonnade.errors import ProtocolError
from colonnade.mpc import PRIMES, ResidueSystem, blinding
from colonnade.mpc.parts import on_polynomial, split
from colonnade.mpc.residues import FEW
from colonnade.mpc.vocabulary import BLOCK, WAVE
from colonnade.privacy.noise.grid import Grid
from colonnade.privacy.noise.rounding import round_rows
from colonnade.protocols.align.tags import key_for, keyed
from colonnade.protocols.batches import disjoint
from colonnade.protocols.roles import COORDINATOR
from colonnade.protocols.rows import digest as digest_of_ids
from colonnade.randomness import KEY_BYTES, Stream
from colonnade.tables import rules as cells
from colonnade.versions import in_words

Told = Mapping[str, str]
"""What a participant tells: the digest of each rule, and its versions."""

_KEY = bytes(range(KEY_BYTES))
_TEXTS = ("", "a", "á", "person 1", "\U0001f600" * 40)
_DIGITS = 16


def _rounding() -> Iterator[Any]:
    ties = np.array([[-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 0.49999999999999994, 2.0**52 + 0.5, -1e-300]])
    for mode in ("nearest", "toward-zero", "stochastic"):
        yield round_rows(ties, mode, 0, Stream(_KEY)).astype("<i8")
    yield Grid(30).quantise([0.1, -1 / 3, 2.0**-31, 3 * 2.0**-31, 5e-324, 1e9]).astype("<i8")


def _streams() -> Iterator[Any]:
    stream = Stream(_KEY)
    yield stream.bytes(5)
    yield stream.uint32((2, 3)).astype("<u4")
    yield stream.uint64(3).astype("<u8")
    yield ResidueSystem(PRIMES[:3]).uniform((50,), stream).astype("<f8")


def _parts() -> Iterator[Any]:
    """Three seats that are not checked hold parts of rows; a seat that holds shares of them would open nonsense."""
    yield b"moments of three seats: V V after, U X before, V U between"
    system = ResidueSystem(PRIMES[:2])
    found, words = split(system, system.split(np.arange(-5.0, 5.0)), {2: Stream(_KEY)}, 1, [3])
    yield np.asarray(found).astype("<f8")
    yield words[3].astype("<i4")
    yield on_polynomial(system, system.split(np.arange(-5.0, 5.0)), 2).astype("<f8")


def _masked() -> Iterator[Any]:
    """Who reads what is opened under masks follows from these sizes; other seats would wait for other messages."""
    yield b"one group reads; blocks in turn"
    yield np.array([FEW, BLOCK, WAVE], dtype="<i8")


def _hashes() -> Iterator[Any]:
    yield digest_of_ids(_KEY, _TEXTS)
    yield disjoint(_TEXTS, 7, _KEY)
    yield keyed([text.encode() for text in _TEXTS], key_for("bank", _KEY))


def _group() -> Iterator[Any]:
    points = blinding.hashed([text.encode() for text in _TEXTS])
    yield points
    yield blinding.Blind.fresh(Stream(_KEY)).on(points)


_EVERYBODY = {"rounding": _rounding, "streams": _streams, "parts": _parts, "masked": _masked}
_OWNERS = {"ids": cells.ids, "cells": cells.cells, "hashes": _hashes}
_ALIGNED = {"text": cells.text, "numbers": cells.numbers, "dates": cells.dates, "group": _group}
_IN_THREADS = ("group",)

_MEANING = {
    "text": "text is compared",
    "numbers": "numbers are compared",
    "dates": "dates are read",
    "ids": "ids are written and sorted",
    "cells": "cells are encoded",
    "rounding": "numbers are rounded",
    "streams": "random streams are read",
    "parts": "rows are dealt in parts",
    "masked": "numbers under masks are opened",
    "hashes": "ids and keys are hashed",
    "group": "keys are hashed to a group",
}


def told_by(name: str, *, aligns: bool) -> Told:
    """What a participant tells the others before a study; ``aligns`` says whether it looks for common people."""
    due: dict[str, Callable[[], Iterator[Any]]] = dict(_EVERYBODY)
    if name != COORDINATOR:
        due |= _OWNERS | (_ALIGNED if aligns else {})
    return {"rules": " ".join(f"{rule}={_digest(rule, make)}" for rule, make in due.items()), "has": in_words()}


def work_out() -> None:
    """Work out what owners will tell, before they are forked; but for what threads do, since those are not forked."""
    for rule, make in (_EVERYBODY | _OWNERS | _ALIGNED).items():
        if rule not in _IN_THREADS:
            _digest(rule, make)
    in_words()


def compare(told: Mapping[str, Told]) -> None:
    """Raise, in the coordinator, unless everybody follows the same rules; it tells everyone what it found."""
    found = {name: dict(re.findall(r"([a-z]+)=([0-9a-f]+)", one["rules"])) for name, one in told.items()}
    owners = [name for name in found if name != COORDINATOR]
    pairs = [(COORDINATOR, owner, {*found[COORDINATOR]}) for owner in owners]
    pairs += [(owners[0], owner, {*found[owners[0]], *found[owner]}) for owner in owners[1:]]
    for one, other, rules in pairs:
        if differ := sorted(rule for rule in rules if found[one].get(rule) != found[other].get(rule)):
            raise ProtocolError(_sentence(one, other, differ, told))


def _sentence(one: str, other: str, rules: Iterable[str], told: Mapping[str, Told]) -> str:
    how = ", ".join(f"how {_MEANING.get(rule, f'the rule {rule!r} works')}" for rule in rules)
    has = "; ".join(f"{name} has {told[name]['has']}" for name in (other, one))
    return f"{other} and {one} do not follow the same rules ({how}): {has}: install the same versions everywhere"


@cache
def _digest(rule: str, make: Callable[[], Iterator[Any]]) -> str:
    state = sha256()
    for part in make():
        whole = bytes(part)
        state.update(len(whole).to_bytes(8, "little") + whole)
    return state.hexdigest()[:_DIGITS]
