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
from numpy.typing import NDArray

from colonnade.errors import ProtocolError
from colonnade.mpc import PRIMES, Committee, ResidueSystem, ShareEngine, blinding, oblivious
from colonnade.mpc.fixed_point import arithmetic
from colonnade.mpc.fixed_point.arithmetic import BITS_AT_ONCE, FLAT, GUARD, NUMBERS_AT_ONCE
from colonnade.mpc.fixed_point.masks import CHUNK, LONG_LIMB, MaskSource
from colonnade.mpc.messages import BLOCK, WAVE
from colonnade.mpc.oblivious import CODE_BITS, TransferReceiver, TransferSender
from colonnade.mpc.residues import FEW, LIMB
from colonnade.mpc.shamir import CommonKeys, key_groups, split_replicated, to_polynomial_share
from colonnade.privacy.noise.local_mechanisms import Grid, round_rows
from colonnade.protocols.align.messages import key_for, keyed_hashes
from colonnade.protocols.align.ot_psi import AT_WORK
from colonnade.protocols.iteration import assign_batches
from colonnade.protocols.roles import COORDINATOR
from colonnade.protocols.rows import digest as digest_of_ids
from colonnade.randomness import KEY_BYTES, Stream
from colonnade.tables import conformance as cells
from colonnade.versions import versions_text

CompatibilityRecord = Mapping[str, str]
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
    found, words = split_replicated(system, system.to_residues(np.arange(-5.0, 5.0)), {2: Stream(_KEY)}, 1, [3])
    yield np.asarray(found).astype("<f8")
    yield words[3].astype("<i4")
    yield to_polynomial_share(system, system.to_residues(np.arange(-5.0, 5.0)), 2).astype("<f8")


def _masked() -> Iterator[Any]:
    """Seats that draw masks in another order, or wait for other messages, would open nonsense or nothing.

    What the first of three seats draws from fixed keys is compared, and what it sends.
    """
    yield b"one group reads; blocks in turn; masks in limbs, chunk by chunk; coins of three seats in two steps"
    yield np.array([FEW, BLOCK, WAVE, CHUNK, LONG_LIMB, LIMB, GUARD, FLAT, BITS_AT_ONCE, NUMBERS_AT_ONCE], dtype="<i8")
    yield np.array([arithmetic.group_bit_lengths(length, FLAT + 1) for length in range(1, 63)], dtype="<i8")
    for fraction in (16, 26, 31):
        yield np.array([*arithmetic.constants(fraction)], dtype="<i8")
    sent: list[NDArray[np.int32]] = []
    masks = MaskSource(_first_of_three(sent))
    for mask in (masks.mask(27, CHUNK + 40), masks.open_mask(27, CHUNK + 40)):
        yield mask.whole.values.astype("<i8")
        yield mask.high.values.astype("<i8")
    coins = masks.coins(2, 70)
    yield coins.numbers.values.astype("<i8")
    yield coins.bits.planes.astype("<u8")
    yield from (words.astype("<i4") for words in sent)


class _Noting:
    """A link to nobody: it notes what is sent."""

    def __init__(self, sent: list[NDArray[np.int32]]) -> None:
        self.sent = sent

    def send(self, kind: str, **fields: Any) -> None:
        self.sent.append(fields["words"])

    def recv(self, kind: str, most: int) -> dict[str, Any]:
        raise ProtocolError(f"nobody sends {kind!r} while rules are worked out [MS042]")


def _first_of_three(sent: list[NDArray[np.int32]]) -> ShareEngine:
    """The first of three seats, whose keys are fixed; what it sends is noted."""
    seats, link = ("a", "b", "c"), _Noting(sent)
    committee = Committee(seats, 1, ResidueSystem(PRIMES[:4]))
    keys = {group: sha256(_KEY + " ".join(group).encode()).digest() for group in key_groups(committee)}
    pairs = {peer: sha256(_KEY + peer.encode()).digest() for peer in seats[1:]}
    return ShareEngine("a", committee, {"b": link, "c": link}, common=CommonKeys("a", committee, keys, pairs))


def _hashes() -> Iterator[Any]:
    yield digest_of_ids(_KEY, _TEXTS)
    yield assign_batches(_TEXTS, 7, _KEY)
    yield keyed_hashes([text.encode() for text in _TEXTS], key_for("bank", _KEY))


def _group() -> Iterator[Any]:
    points = blinding.hash_to_group([text.encode() for text in _TEXTS])
    yield points
    yield blinding.BlindingScalar.generate(Stream(_KEY)).multiply(points)


def _transfers() -> Iterator[Any]:
    """Owners of ``ot`` that send in another order would wait for each other, or take one thing for another."""
    yield b"list; choices and offer; keys of pairs; asked, columns, challenge, sums; at work; hidden choices to all"
    yield np.array([CODE_BITS, oblivious.CHALLENGES, oblivious.PIECE, AT_WORK], dtype="<i8")
    yield np.array([sum(oblivious.piece_sizes(size)) for size in (0, 1, 1000, 100_000)], dtype="<i8")
    yield oblivious.run_context(_KEY, "bank", "shop")
    yield oblivious.hash_keys([text.encode() for text in _TEXTS], _KEY).astype("<u8")
    yield oblivious.new_secret(Stream(_KEY)).astype("<u8")
    choice, offer = TransferReceiver(_KEY, [0, 1], Stream(_KEY)), TransferSender(_KEY, Stream(_KEY))
    yield choice.points
    yield b"".join(choice.keys(offer.point, "bank"))


_EVERYBODY = {"rounding": _rounding, "streams": _streams, "parts": _parts, "masked": _masked}
_OWNERS = {"ids": cells.id_vectors, "cells": cells.cell_vectors, "hashes": _hashes}
_ALIGNED = {
    "text": cells.text_key_vectors,
    "numbers": cells.number_key_vectors,
    "dates": cells.date_key_vectors,
    "group": _group,
    "transfers": _transfers,
}
_IN_THREADS = ("group", "transfers")

_MEANING = {
    "text": "text is compared",
    "numbers": "numbers are compared",
    "dates": "dates are read",
    "ids": "ids are written and sorted",
    "cells": "cells are encoded",
    "rounding": "numbers are rounded",
    "streams": "random streams are read",
    "parts": "rows are dealt in parts",
    "masked": "numbers under masks are made and opened",
    "hashes": "ids and keys are hashed",
    "group": "keys are hashed to a group",
    "transfers": "keys are compared by transfers",
}


def compatibility_record(name: str, *, aligns: bool) -> CompatibilityRecord:
    """What a participant tells the others before a study; ``aligns`` says whether it looks for common people."""
    due: dict[str, Callable[[], Iterator[Any]]] = dict(_EVERYBODY)
    if name != COORDINATOR:
        due |= _OWNERS | (_ALIGNED if aligns else {})
    return {"rules": " ".join(f"{rule}={_digest(rule, make)}" for rule, make in due.items()), "has": versions_text()}


def compute_ahead() -> None:
    """Work out what owners will tell, before they are forked; but for what threads do, since those are not forked."""
    for rule, make in (_EVERYBODY | _OWNERS | _ALIGNED).items():
        if rule not in _IN_THREADS:
            _digest(rule, make)
    versions_text()


def compare_records(told: Mapping[str, CompatibilityRecord]) -> None:
    """Raise unless everybody follows the same rules; the coordinator compares all, and each owner it with itself."""
    found = {name: dict(re.findall(r"([a-z]+)=([0-9a-f]+)", one["rules"])) for name, one in told.items()}
    owners = [name for name in found if name != COORDINATOR]
    pairs = [(COORDINATOR, owner, {*found[COORDINATOR], *_EVERYBODY}) for owner in owners]
    pairs += [(owners[0], owner, {*found[owners[0]], *found[owner]}) for owner in owners[1:]]
    for one, other, rules in pairs:
        if differ := sorted(rule for rule in rules if found[one].get(rule) != found[other].get(rule)):
            raise ProtocolError(_sentence(one, other, differ, told))


def _sentence(one: str, other: str, rules: Iterable[str], told: Mapping[str, CompatibilityRecord]) -> str:
    how = ", ".join(f"how {_MEANING.get(rule, f'the rule {rule!r} works')}" for rule in rules)
    has = "; ".join(f"{name} has {told[name]['has']}" for name in (other, one))
    return (
        f"{other} and {one} do not follow the same rules ({how}): {has}: install the same versions everywhere [MS043]"
    )


@cache
def _digest(rule: str, make: Callable[[], Iterator[Any]]) -> str:
    state = sha256()
    for part in make():
        whole = bytes(part)
        state.update(len(whole).to_bytes(8, "little") + whole)
    return state.hexdigest()[:_DIGITS]
