"""The cheats: what one seat or owner does otherwise than the protocol says, each at one occasion of a run.

``needs`` says what makes it a cheat that the seats can see: ``seats`` that check each other, ``spare`` seats (else
whatever is dealt is a sharing of something, and so an input), ``proofs`` of what owners deal, or the scene of a proof
alone (``lies``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from colonnade.mpc import Shares
from colonnade.mpc.residues import Residues
from colonnade.mpc.shamir import evaluate_at, lagrange_weights
from colonnade.randomness import new_key
from research.cheats.deviation import Array, replace_method
from research.cheats.late import asks_again, bits_after_opening, noise_after_opening, part_after_opening
from research.cheats.liars import liars
from research.cheats.overdealing import PROVERS, PROVERS_OF_SMALL, VARIANTS, Beyond, Overdealing, overdealing_owner
from research.cheats.tamper import Tamper

Needs = Literal["seats", "spare", "proofs", "lies", "nothing"]
_LOWERING = ("lower", "product")


@dataclass(frozen=True)
class Cheat:
    """A cheat, by its name; ``install`` prepares the deviating participant."""

    name: str
    about: Literal["messages", "computation", "checks", "late", "told", "inputs", "noise"]
    install: Callable[[Tamper], None]
    needs: Needs = "seats"
    early: bool = False
    """Whether it must be caught before any of the result is opened: products in a row depend on it, or it is of rows
    that are proven."""
    alone: bool = False
    """Whether others that deviate too could add nothing to it."""
    last: bool = False
    """Whether the last of the seats that deal in a product does it, for whom nobody waits before it deals itself."""


def _outside(tamper: Tamper, *operations: str) -> Callable[[], bool]:
    """Whether the participant is in one of these operations, and not in a check."""
    return lambda: not tamper.checking and bool(set(operations) & set(tamper.within))


def _share(change: Callable[[Tamper, Array], Array], *operations: str) -> Callable[[Tamper], None]:
    """Change one share that is sent in these operations."""

    def install(tamper: Tamper) -> None:
        def changed(peer: str, kind: str, fields: dict[str, Any]) -> dict[str, Any]:
            return fields | {"words": change(tamper, fields["words"])}

        tamper.on_messages(("share", "opening"), changed, _outside(tamper, *operations))

    return install


def _in_checks(kinds: tuple[str, ...]) -> Callable[[Tamper], None]:
    """Change one share that is sent while claims are settled."""

    def install(tamper: Tamper) -> None:
        def changed(peer: str, kind: str, fields: dict[str, Any]) -> dict[str, Any]:
            return fields | {"words": tamper.off_words(fields["words"])}

        tamper.on_messages(kinds, changed, lambda: tamper.checking)

    return install


def _bits(kind: str) -> Callable[[Tamper], None]:
    """Turn one bit of a share of bits."""

    def install(tamper: Tamper) -> None:
        def outgoing(peer: str, given: str, fields: dict[str, Any]) -> tuple[tuple[str, dict[str, Any]], ...]:
            words = fields.get("words")
            if given == kind and words is not None and words.dtype == np.uint64 and words.size and tamper.now():
                words = np.array(words)
                words.reshape(-1)[int(tamper.rng.integers(words.size))] ^= np.uint64(1) << np.uint64(
                    tamper.rng.integers(64)
                )
                fields = fields | {"words": words}
            return ((given, fields),)

        tamper.on_outgoing(outgoing)

    return install


def _again(tamper: Tamper) -> None:
    """Send a share that was sent before, if one of this size was; otherwise that share turned around."""
    earlier: dict[tuple[str, Any], Array] = {}
    fitting = _outside(tamper, *_LOWERING, "send_opening")

    def outgoing(peer: str, kind: str, fields: dict[str, Any]) -> tuple[tuple[str, dict[str, Any]], ...]:
        words = fields.get("words")
        if kind in ("share", "opening") and words is not None and fitting():
            old = earlier.get((peer, words.shape))
            if old is not None and not np.array_equal(old, words) and tamper.now():
                fields = fields | {"words": old}
        if words is not None:
            earlier[peer, words.shape] = words
        return ((kind, fields),)

    tamper.on_outgoing(outgoing)


def _another(kind: str, field: str) -> Callable[[Tamper], None]:
    """Other bytes in one field of a message."""

    def install(tamper: Tamper) -> None:
        tamper.on_messages((kind,), lambda peer, kind, fields: fields | {field: new_key()})

    return install


def _another_key(tamper: Tamper) -> None:
    """Another key of a group for one of its members."""

    def changed(peer: str, kind: str, fields: dict[str, Any]) -> dict[str, Any]:
        keys = list(fields["keys"])
        keys[int(tamper.rng.integers(1, len(keys)))] = new_key()
        return {"keys": keys}

    tamper.on_messages(("keys",), changed)


def _dealt_otherwise(tamper: Tamper) -> None:
    """A sharing of another number where a degree is lowered: consistent, and wrong by 1 modulo every prime."""

    def lowered(real: Callable[..., Shares]) -> Callable[..., Shares]:
        def changed(shares: Shares) -> Shares:
            if not tamper.checking and tamper.now():
                shares = Shares(tamper.off(shares.values, whole=True), shares.degree)
            return real(shares)

        return changed

    replace_method(tamper.hand, "_lowered", lowered)


def _rushing(tamper: Tamper) -> None:
    """A wrong product, and in every later opening of a check the share that lets the others see a zero.

    The participant waits until it has everybody's shares before it sends its own.
    """
    hand, wrong = tamper.hand, tamper.one_wrong_product()

    def opened(real: Callable[..., Residues]) -> Callable[..., Residues]:
        def changed(values: Residues, degree: int | None = None) -> Residues:
            committee = hand.committee
            at = committee.threshold if degree is None else degree
            if not wrong() or at == committee.threshold:
                return real(values, degree)
            found = hand._gathered(values.shape[1:], at, Shares(values, at))
            points = tuple(committee.point(seat) for seat in committee.seats[: at + 1])
            me = points.index(committee.point(hand.name))
            honest = [
                np.zeros_like(values) if place == me else found[committee.seats[place]] for place in range(at + 1)
            ]
            rest = evaluate_at(hand.system, honest, points, 0)
            factors = [pow(-lagrange_weights(prime, points, 0)[me], -1, prime) for prime in hand.system.primes]
            column = np.array(factors, dtype=np.float64).reshape(-1, *[1] * (values.ndim - 1))
            hand.send_opening(Shares(hand.system.reduce(rest * column), at), committee.seats)
            return np.zeros_like(values)

        return changed

    replace_method(hand, "open_residues", opened)


def _results(*names: str, checks: bool = False) -> Callable[[Tamper], None]:
    return lambda tamper: tamper.on_results(names, checks=checks)


def _one_residue(tamper: Tamper, words: Array) -> Array:
    return tamper.off_words(words)


def _one_everywhere(tamper: Tamper, words: Array) -> Array:
    return tamper.off_words(words, whole=True)


def _zeros(tamper: Tamper, words: Array) -> Array:
    return np.zeros_like(words)


def _told(kind: str, field: str) -> Callable[[Tamper], None]:
    """Other numbers for one receiver of a message that all should get alike."""

    def install(tamper: Tamper) -> None:
        def changed(peer: str, kind: str, fields: dict[str, Any]) -> dict[str, Any]:
            value = fields[field]
            if isinstance(value, bytes):
                return fields | {field: new_key()[: len(value)].ljust(len(value), b"\0")}
            other = np.array(value)
            flat = other.reshape(-1)
            flat[int(tamper.rng.integers(flat.size))] += 1
            return fields | {field: other}

        tamper.on_messages((kind,), changed)

    return install


def _overdeals(beyond: Beyond) -> Callable[[Tamper], None]:
    """Rows beyond their bounds with all that follows from them, proven in one of several ways."""

    def install(tamper: Tamper) -> None:
        if "overdealing" not in tamper.common:  # several hands are of one owner, who has one program
            provers = PROVERS_OF_SMALL if beyond.small else PROVERS
            prover = provers[int(tamper.rng.integers(len(provers)))]
            tamper.common["overdealing"] = Overdealing(beyond, prover, tamper.now, tamper.rng)
        how = tamper.common["overdealing"]
        setattr(tamper.hand, "overdeals", lambda module: overdealing_owner(module, how))  # noqa: B010 - read by scenes

    return install


def _own_numbers(tamper: Tamper) -> None:
    """One more in a number that the owner adds up itself; where that is noise, it may."""

    def deal(real: Callable[..., Any]) -> Callable[..., Any]:
        def changed(values: Array, **how: Any) -> Any:
            if not how and values.dtype == np.int64 and values.size and tamper.now():
                values = np.array(values)
                values.reshape(-1)[int(tamper.rng.integers(values.size))] += 1
            return real(values, **how)

        return changed

    replace_method(tamper.hand, "deal", deal)


def _opened_otherwise(tamper: Tamper) -> None:
    """One more in a number that the participant opens, for itself and for all whom it tells."""

    def opened(real: Callable[..., Array]) -> Callable[..., Array]:
        def changed(*given: Any, **named: Any) -> Array:
            found = real(*given, **named)
            if found.size and tamper.now():
                found = np.array(found)
                found.reshape(-1)[int(tamper.rng.integers(found.size))] += 1
            return found

        return changed

    replace_method(tamper.hand, "receive_opening", opened)


def _no_noise(tamper: Tamper) -> None:
    """Zeros where the owner deals its noise alone."""

    def deal(real: Callable[..., Any]) -> Callable[..., Any]:
        def changed(values: Array, **how: Any) -> Any:
            return real(
                np.zeros_like(values) if not how and values.dtype == np.int64 and tamper.now() else values, **how
            )

        return changed

    replace_method(tamper.hand, "deal", deal)


CHEATS = (
    Cheat("a dealt share with one residue changed", "messages", _share(_one_residue, "deal"), "spare"),
    Cheat("a dealt share changed modulo every prime", "messages", _share(_one_everywhere, "deal"), "spare"),
    Cheat("a share changed while lowering", "messages", _share(_one_residue, *_LOWERING), early=True),
    Cheat("zeros for a share while lowering", "messages", _share(_zeros, *_LOWERING), early=True),
    Cheat("an earlier share sent again", "messages", _again),
    Cheat("an opening share with one residue changed", "messages", _share(_one_residue, "send_opening")),
    Cheat("an opening share changed modulo every prime", "messages", _share(_one_everywhere, "send_opening")),
    Cheat("a share of bits changed", "messages", _bits("bits")),
    Cheat("an opened share of bits changed", "messages", _bits("opening")),
    Cheat("different keys for members of a group", "messages", _another_key),
    Cheat("a message left out", "messages", Tamper.leave_out),
    Cheat("a product computed wrongly", "computation", _results("inner", "multiply")),
    Cheat("a sharing of a product plus one", "computation", _dealt_otherwise, early=True),
    Cheat("a wrong mask", "computation", _results("zero")),
    Cheat("another share than was dealt to it", "computation", _results("receive")),
    Cheat("a wrong product hidden by waiting for others", "checks", _rushing, early=True, alone=True),
    Cheat("a wrong product hidden by a part held back", "late", part_after_opening, early=True, alone=True),
    Cheat("a wrong AND hidden by a part held back", "late", bits_after_opening, alone=True, last=True),
    Cheat("noise held back until others open", "late", noise_after_opening, alone=True),
    Cheat("a coin drawn again until it suits", "late", asks_again("coin"), alone=True),
    Cheat("a comparison asked for again and again", "late", asks_again("agree"), alone=True),
    Cheat("a wrong share in the folding of a check", "checks", _in_checks(("share",))),
    Cheat("a wrong opening in a check", "checks", _in_checks(("opening",))),
    Cheat("a wrong random share in a check", "checks", _results("random", checks=True)),
    Cheat("another secret for a coin", "checks", _another("coin", "secret")),
    Cheat("another promise for a coin", "checks", _another("coin", "next")),
    Cheat("another digest with a coin", "checks", _another("coin", "digest")),
    Cheat("another digest where seats compare", "checks", _another("agree", "digest")),
    Cheat("opened numbers told differently", "told", _told("opened", "values")),
    Cheat("another number told than was opened", "told", _opened_otherwise),
    Cheat("directions told differently", "told", _told("directions", "values")),
    Cheat("batches told differently", "told", _told("draw", "secret")),
    Cheat("own sums dealt wrongly", "inputs", _own_numbers),
    *(Cheat(name, "inputs", _overdeals(beyond), "proofs", early=True) for name, beyond in VARIANTS.items()),
    Cheat("no noise", "noise", _no_noise, "nothing"),
    *(Cheat(name, "inputs", install, "lies", alone=True) for name, install in liars()),
)
