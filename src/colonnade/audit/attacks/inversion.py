"""Can a person's columns be recovered from what leaves its party? A decoder, trained on other people, tries.

The attacker is as strong as can be: it has the encoder, and auxiliary people whose embeddings it makes and noises just
as the party does. Where no embedding leaves anybody, it has the person's exact scores instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colonnade.audit.attacks.decoders import Kind, decoder
from colonnade.audit.attacks.pictures import as_pictures, psnr, ssim
from colonnade.errors import DataError

Matrix = NDArray[np.float64]
Vector = NDArray[np.float64]
FEWEST = 20
SHOWN = 12


@dataclass(frozen=True)
class Views:
    """What an attacker sees of people, beside their true columns: auxiliary people to learn from, and those attacked.

    ``what`` names what is seen, such as ``"noised embeddings"``; ``needs`` says what an attacker must have to see it.
    """

    auxiliary_seen: Matrix
    auxiliary: Matrix
    seen: Matrix
    truth: Matrix
    what: str = "embeddings"
    needs: str = ""

    def __post_init__(self) -> None:
        shapes = [each.shape for each in (self.auxiliary_seen, self.auxiliary, self.seen, self.truth)]
        if any(len(shape) != 2 for shape in shapes) or shapes[0][1] != shapes[2][1] or shapes[1][1] != shapes[3][1]:
            raise DataError("auxiliary people and those attacked must be seen alike, and have the same columns [DA001]")
        if shapes[0][0] != shapes[1][0] or shapes[2][0] != shapes[3][0]:
            raise DataError("each person has one row of columns and one of what is seen [DA002]")
        if shapes[0][0] < FEWEST or shapes[2][0] < 2:
            raise DataError(
                f"an inversion needs {FEWEST} auxiliary people or more, and at least two who are attacked [DA003]"
            )
        if not all(np.isfinite(each).all() for each in (self.auxiliary_seen, self.auxiliary, self.seen, self.truth)):
            raise DataError("columns, and what is seen of them, must be finite numbers [DA004]")


@dataclass(frozen=True)
class Quality:
    """How well columns were recovered, on average over people.

    ``psnr`` in decibels; ``ssim`` of pictures alone; ``explained`` is the share of the columns' variance, 0 for the
    mean of the auxiliary people; ``recognised`` the share of people of whom the guess is nearer to their own columns
    than to those of anybody else among the attacked.
    """

    psnr: float
    ssim: float | None
    explained: float
    recognised: float


@dataclass(frozen=True)
class Inversion:
    """Guesses beside the truth, and beside what an attacker could say who saw nothing: the mean of other people."""

    what: str
    needs: str
    truth: Matrix
    guesses: Matrix
    shape: tuple[int, ...]
    auxiliary: int
    found: Quality
    blind: Quality

    @property
    def needed(self) -> str:
        """What the attacker needed, in one sentence."""
        return (
            f"the attacker needed {self.needs}, everything that they were computed with, and {self.auxiliary:,} other "
            "people, of whom it had the columns and made the same."
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; not the columns."""
        return {
            "attack": "inversion",
            "seen": self.what,
            "needed": self.needed,
            "people": len(self.truth),
            "auxiliary": self.auxiliary,
            "shape": list(self.shape),
            **{name: vars(each) for name, each in (("found", self.found), ("blind", self.blind))},
        }


def invert(
    views: Views,
    kind: Kind = "auto",
    *,
    shape: Sequence[int] = (),
    span: float | None = None,
    epochs: int = 60,
    width: int = 512,
    seed: int = 0,
    device: str = "cpu",
) -> Inversion:
    """Train a decoder on the auxiliary people and recover the others; ``shape`` says how columns make a picture.

    ``span`` is the range of a column's values, by default that of the auxiliary people; guesses are cut to the range
    that they have there.
    """
    if shape:
        as_pictures(views.truth[:1], tuple(shape))
    made = decoder(
        views.auxiliary_seen, views.auxiliary, kind, shape=shape, epochs=epochs, width=width, seed=seed, device=device
    )
    low, high = float(views.auxiliary.min()), float(views.auxiliary.max())
    wide = (high - low or 1.0) if span is None else span
    guesses = np.clip(made(views.seen), low, high)
    middle = np.broadcast_to(views.auxiliary.mean(axis=0), views.truth.shape)
    return Inversion(
        views.what,
        views.needs or f"the {views.what} of the person",
        views.truth,
        guesses,
        tuple(shape),
        len(views.auxiliary),
        quality(views.truth, guesses, middle, tuple(shape), wide),
        quality(views.truth, middle, middle, tuple(shape), wide),
    )


def quality(truth: Matrix, guesses: Matrix, middle: Matrix, shape: tuple[int, ...], span: float) -> Quality:
    """How near guesses are to the truth, beside ``middle``, which stands for knowing nothing of the person."""
    left = float(np.sum((truth - guesses) ** 2))
    all_of_it = float(np.sum((truth - middle) ** 2))
    alike = None
    if shape:
        alike = float(ssim(as_pictures(truth, shape), as_pictures(guesses, shape), span).mean())
    return Quality(
        float(psnr(truth, guesses, span).mean()),
        alike,
        1 - left / all_of_it if all_of_it else 0.0,
        recognised(truth, guesses),
    )


def recognised(truth: Matrix, guesses: Matrix) -> float:
    """The share of guesses that are nearest to the columns of the person they are about; ties count by their share."""
    squares: Matrix = (truth**2).sum(axis=1) - 2 * guesses @ truth.T
    own = np.diagonal(squares)[:, None]
    slack = 1e-9 * np.maximum(1.0, np.abs(own))
    nearer, equal = (squares < own - slack).any(axis=1), (np.abs(squares - own) <= slack).sum(axis=1)
    return float(np.mean(np.where(nearer, 0.0, 1.0 / equal)))
