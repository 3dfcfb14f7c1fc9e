"""Vertical logistic regression under homomorphic encryption: the baseline of the HDP-VFL paper, with `phe`.

As in Hardy et al. (2017) and FATE: the slope of the loss is replaced by its tangent, t/4 - y/2, so that it can be
computed on ciphertexts. In each batch the passive party encrypts its scores; the active party adds its own and the
label and sends the encrypted slopes back; both multiply them into their columns; an arbiter, who alone has the secret
key, decrypts gradients that carry a random mask. Numbers are in fixed point, so that no exponents need aligning.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from phe import EncodedNumber, EncryptedNumber, PaillierPrivateKey, PaillierPublicKey, generate_paillier_keypair

KEY_BITS = 2048
_CELL, _SCORE = 16.0**-5, 16.0**-8  # fixed point: 20 bits after the point of a cell, 32 of a score
_MASK_BITS = 120  # far more than a gradient has, far fewer than the key

Matrix = NDArray[np.float64]
Ciphers = list[EncryptedNumber]


@dataclass(frozen=True)
class Recipe:
    """What all three agree on."""

    epochs: int = 1
    batch: int = 3200
    learning_rate: float = 0.1
    ridge: float = 0.001

    def batches(self, rows: int) -> list[slice]:
        count = max(1, rows // self.batch)
        return [slice(start, None, count) for start in range(count)] * self.epochs


class Arbiter:
    """Holds the key and decrypts what is masked."""

    def __init__(self, bits: int = KEY_BITS) -> None:
        self.public: PaillierPublicKey
        self._secret: PaillierPrivateKey
        self.public, self._secret = generate_paillier_keypair(n_length=bits)

    def opened(self, masked: bytes) -> list[int]:
        """The masked integers; the exponent is public."""
        return [
            self._secret.decrypt_encoded(cipher).encoding for cipher in unpacked(self.public, masked, _CELL * _SCORE)
        ]


@dataclass
class Party:
    """One side's columns and weights."""

    rows: Matrix
    public: PaillierPublicKey
    recipe: Recipe
    weights: Matrix = field(init=False)
    _masks: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.weights = np.zeros(self.rows.shape[1])
        self._cells = [
            [EncodedNumber.encode(self.public, float(cell), precision=_CELL) for cell in row] for row in self.rows
        ]

    def masked_gradient(self, batch: slice, slopes: Ciphers) -> bytes:
        """The sum of slope times column, encrypted, under a mask that only this party knows."""
        found = []
        self._masks = []
        for column in zip(*self._cells[batch], strict=True):
            total = slopes[0] * column[0]
            for slope, cell in zip(slopes[1:], column[1:], strict=True):
                total += slope * cell
            mask = secrets.randbits(_MASK_BITS)
            self._masks.append(mask)
            found.append(total + EncodedNumber(self.public, mask, total.exponent))
        return packed(found)

    def step(self, batch: slice, opened: Sequence[int]) -> None:
        """Take the mask off and move."""
        n = self.public.n
        plain = [(value - mask) % n for value, mask in zip(opened, self._masks, strict=True)]
        signed = np.array([float(value - n if value > n // 2 else value) for value in plain])
        gradient = signed * (_CELL * _SCORE) / len(self.rows[batch])
        self.weights = self.weights - self.recipe.learning_rate * (gradient + self.recipe.ridge * self.weights)


class Passive(Party):
    """The side without the label."""

    def scores(self, batch: slice) -> bytes:
        """A quarter of every score of the batch, encrypted."""
        quarter = self.rows[batch] @ self.weights / 4
        return packed([self.public.encrypt(float(value), precision=_SCORE) for value in quarter])


@dataclass
class Active(Party):
    """The side with the label, 0 or 1."""

    labels: Matrix = field(kw_only=True)

    def slopes(self, batch: slice, scores: bytes) -> Ciphers:
        """The tangent's slopes; a ciphertext is made fresh when it is packed, so nobody can divide it away."""
        own = self.rows[batch] @ self.weights / 4 + 0.5 - self.labels[batch]
        received = unpacked_scores(self.public, scores)
        return [
            cipher + EncodedNumber.encode(self.public, float(value), precision=_SCORE)
            for cipher, value in zip(received, own, strict=True)
        ]


def packed(ciphers: Ciphers) -> bytes:
    """Ciphertexts of one length each, one after the other."""
    size = _size(ciphers[0].public_key)
    return b"".join(cipher.ciphertext(be_secure=True).to_bytes(size, "little") for cipher in ciphers)


def unpacked(public: PaillierPublicKey, packet: bytes, precision: float) -> Ciphers:
    """The ciphertexts of a packet, in units of ``precision``."""
    exponent, size = round(np.log2(precision) / 4), _size(public)
    return [
        EncryptedNumber(public, int.from_bytes(packet[start : start + size], "little"), exponent)
        for start in range(0, len(packet), size)
    ]


def unpacked_scores(public: PaillierPublicKey, packet: bytes) -> Ciphers:
    """Scores or slopes, as they are sent."""
    return unpacked(public, packet, _SCORE)


def _size(public: PaillierPublicKey) -> int:
    return (public.nsquare.bit_length() + 7) // 8


def in_one_place(
    active: Matrix, passive: Matrix, labels: Matrix, recipe: Recipe, bits: int = KEY_BITS
) -> tuple[Matrix, Matrix]:
    """All three roles after one another: both parties' weights."""
    arbiter = Arbiter(bits)
    mine = Active(active, arbiter.public, recipe, labels=labels)
    theirs = Passive(passive, arbiter.public, recipe)
    for batch in recipe.batches(len(labels)):
        slopes = mine.slopes(batch, theirs.scores(batch))
        sent = unpacked_scores(arbiter.public, packed(slopes))
        mine.step(batch, arbiter.opened(mine.masked_gradient(batch, slopes)))
        theirs.step(batch, arbiter.opened(theirs.masked_gradient(batch, sent)))
    return mine.weights, theirs.weights


def in_the_clear(active: Matrix, passive: Matrix, labels: Matrix, recipe: Recipe) -> tuple[Matrix, Matrix]:
    """The same steps without encryption: what the ciphertexts must come to."""
    joint, width = np.hstack([active, passive]), active.shape[1]
    weights = np.zeros(joint.shape[1])
    for batch in recipe.batches(len(labels)):
        rows = joint[batch]
        gradient = rows.T @ (rows @ weights / 4 + 0.5 - labels[batch]) / len(rows)
        weights = weights - recipe.learning_rate * (gradient + recipe.ridge * weights)
    return weights[:width], weights[width:]
