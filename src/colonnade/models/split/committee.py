"""A head that a committee learns: embeddings of all parties side by side, and one noisy release of their moments.

Every party embeds its rows by its own encoder and scales each embedding to a public length; the label's owner adds
columns of the label, scaled by a public weight. The committee computes the second moments of these columns as it does
for any others (protocols/moments), the noisy sums are opened once, and the head follows from them
(docs/theory/heads-from-moments.md). No embedding of anybody leaves its party but as shares.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import DataError, StudyError
from colonnade.models.split.encoders import Encoder
from colonnade.models.split.heads import Head, Matrix, Sums, head_from
from colonnade.privacy import Budget, Trust
from colonnade.privacy.additive import USUAL, NormalLaw
from colonnade.protocols.moments.published import NoisyMoments
from colonnade.protocols.moments.task import Moments
from colonnade.protocols.rows import Block, Rows
from colonnade.tables.places import Places

Labels = NDArray[np.int64] | NDArray[np.float64]

LENGTH = 1.0
"""The length of every embedding. All noise grows with its square, so only ratios of lengths matter."""

LABEL = "label"
"""How the names of the label's columns begin."""

# Parts of the length of a joint embedding. All entries have the same noise: a longer column is known more exactly.
_CLASSES = 0.7
_NUMBER = 0.4
_CONSTANT = 1 / 3
_STEPS = 64  # weights are multiples of 1/64, so that scaling by them is exact
GAMMA = 4096
_ROWS = 10_000  # where nobody says how many people there are
_NARROWEST, _WIDEST = 16, 400


@dataclass(frozen=True)
class Joint:
    """All parties' embeddings beside each other, and a label: everything that is public about them.

    ``widths`` are the parties, in order, and how many numbers each one's embedding has; the label's owner may have
    none. ``classes`` is 0 where the label is a number between -1 and 1.
    """

    widths: tuple[tuple[str, int], ...]
    label_party: str
    classes: int

    def __post_init__(self) -> None:
        if self.label_party not in dict(self.widths):
            raise StudyError(f"{self.label_party} holds the label and is not among the parties")
        for party, width in self.widths:
            if width < (0 if party == self.label_party else 1):
                raise StudyError(f"{party} has no embedding and no label, so it has no part in the study")
        if not self.width:
            raise StudyError("no party has an embedding; a head needs at least one number to learn from")
        if self.classes < 0 or self.classes == 1:
            raise StudyError("a label has at least two classes, or is a number (classes = 0)")

    @property
    def width(self) -> int:
        """How many numbers a joint embedding has."""
        return sum(width for _, width in self.widths)

    @property
    def outputs(self) -> int:
        """How many columns the label has: one for each class, or one for a number."""
        return self.classes or 1

    @property
    def length(self) -> float:
        """The length of a joint embedding."""
        return LENGTH * math.sqrt(sum(1 for _, width in self.widths if width))

    @property
    def weight(self) -> float:
        """The factor of the label's columns."""
        return max(1, round(_STEPS * self.length * (_CLASSES if self.classes else _NUMBER))) / _STEPS

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        """Every party's columns and how long a row of them may be; the label's come last among its owner's."""
        return tuple(self._block(party, width) for party, width in self.widths)

    def _block(self, party: str, width: int) -> Block:
        columns, square = tuple(f"z{place}" for place in range(width)), LENGTH**2 if width else 0.0
        if party == self.label_party:
            columns += tuple(f"{LABEL}{place}" for place in range(self.outputs))
            square += self.weight**2
        return Block(party, columns, math.nextafter(math.sqrt(square), math.inf))

    def constant(self, gamma: int) -> int:
        """The constant column. A number's means and the rows' number need it; classes' flags add up to them."""
        return 1 if self.classes else max(1, round(_CONSTANT * self.length * gamma))

    def moments(
        self,
        trust: Trust,
        budgets: Sequence[Budget],
        *,
        gamma: int = GAMMA,
        rows_at_most: int = 2**24,
        law: NormalLaw = USUAL,
        hidden: bool = False,
    ) -> Moments:
        """One release of all moments, with the least noise that keeps the budgets."""
        draft = Moments(
            blocks=self.blocks,
            trust=trust,
            gamma=gamma,
            constant=self.constant(gamma),
            rows_at_most=rows_at_most,
            noise=len(self.widths),
            law=law,
            hidden=hidden,
        )
        return draft.calibrated(budgets)

    @cached_property
    def _order(self) -> NDArray[np.intp]:
        """Where the embeddings' columns stand among all, then the label's."""
        names = [column for block in self.blocks for column in block.columns]
        label = np.array([name.startswith(LABEL) for name in names])
        return np.concatenate([np.flatnonzero(~label), np.flatnonzero(label)])

    def rows(self, party: str, features: Rows, encoder: Encoder | None, labels: Labels | None = None) -> EmbeddedRows:
        """What a party brings: its encoded rows through its encoder, and the labels in the same order if it has them.

        Labels are numbers of classes, -1 for nobody's, or numbers between -1 and 1.
        """
        width = dict(self.widths)[party]
        if width != (0 if encoder is None else encoder.width):
            raise StudyError(f"the encoder of {party} gives embeddings of another width than was planned ({width})")
        if (labels is None) != (party != self.label_party):
            raise StudyError(f"{self.label_party} brings the label, and nobody else does")
        return EmbeddedRows(self, party, features, encoder, labels)

    def finish(self, published: NoisyMoments, *, solver: str = "auto", ridge: float | str = "auto") -> Head:
        """The head that the published moments give, for joint embeddings as :func:`embedded` makes them."""
        kept = self._order if self.classes else np.append(self._order, len(self._order))
        factors = np.ones(len(kept))
        factors[self.width : self.width + self.outputs] = 1 / self.weight
        scaled, chosen = np.outer(factors, factors), np.ix_(kept, kept)
        sums = Sums(published.matrix[chosen] * scaled, published.deviations[chosen] * scaled, self.outputs)
        return head_from(sums, classes=self.classes, constant=published.constant, solver=solver, ridge=ridge)


@dataclass(frozen=True)
class EmbeddedRows:
    """One party's rows as the moments' program reads them: embedded and scaled block by block, the label last."""

    joint: Joint
    party: str
    features: Rows
    encoder: Encoder | None
    labels: Labels | None

    @property
    def ids(self) -> Sequence[str]:
        """The ids of the rows, sorted."""
        return self.features.ids

    @property
    def places(self) -> Places | None:
        """The slots of the rows, if nobody knows which people all parties hold."""
        return self.features.places

    def blocks(self, rows: int, /) -> Iterator[Matrix]:
        """The rows, some at a time."""
        start = 0
        for block in self.features.blocks(rows):
            parts = [] if self.encoder is None else [embedded(self.encoder, block, self.party)]
            if self.labels is not None:
                parts.append(self._label(self.labels[start : start + len(block)]))
            start += len(block)
            yield np.hstack(parts)
        if self.labels is not None and start != len(self.labels):
            raise DataError(f"{self.party} has another number of labels than of rows")

    def matrix(self) -> Matrix:
        """All rows at once."""
        return np.vstack(list(self.blocks(8192)))

    def _label(self, labels: Labels) -> Matrix:
        weight = self.joint.weight
        if not self.joint.classes:
            return weight * np.clip(np.asarray(labels, dtype=np.float64), -1.0, 1.0)[:, None]
        flags: Matrix = weight * (np.arange(self.joint.classes) == np.asarray(labels)[:, None])
        return flags


def suggested_width(trust: Trust, budgets: Sequence[Budget], parties: int, rows: int | None = None) -> int:
    """How wide each of so many parties' embeddings should be, from the budgets and about how many people there are.

    With D numbers in all, the moments of unit rows have eigenvalues of about rows / D, and noise of f sqrt(D), where f
    is the noise on one entry. More numbers describe people better until most eigenvalues sink into the noise; that is
    where D^(3/2) = rows / f.
    """
    draft = Joint(tuple((owner, 1) for owner in trust.owners), trust.owners[0], 2).moments(trust, budgets)
    each = draft.noise_std * draft.gamma**2 / draft.norm_squared
    total = ((_ROWS if rows is None else rows) / each) ** (2 / 3)
    return int(min(max(total / parties, _NARROWEST), _WIDEST)) // 8 * 8


def embedded(encoder: Encoder, rows: Matrix, party: str = "a party") -> Matrix:
    """Embeddings of one length."""
    found = np.asarray(encoder.embed(rows), dtype=np.float64)
    if found.shape != (len(rows), encoder.width):
        raise DataError(f"the encoder of {party} gave embeddings of another shape than its width says")
    return of_one_length(found, party)


def of_one_length(found: Matrix, party: str = "a party") -> Matrix:
    """Embeddings scaled to one length; an embedding of zeros stays."""
    if not np.isfinite(found).all():
        raise DataError(f"the encoder of {party} gave numbers that are not finite; check its weights")
    largest = np.abs(found).max(axis=1, keepdims=True, initial=0.0)
    found = found / np.where(largest > 0, largest, 1.0)  # first, so that squares neither vanish nor overflow
    lengths = np.linalg.norm(found, axis=1, keepdims=True)
    return np.asarray(found * (LENGTH / np.where(lengths > 0, lengths, 1.0)))
