"""A head that a committee learns: embeddings of all parties side by side, and noisy moments of them.

Every party embeds its rows by its own encoder and scales each embedding to a public length; the label's owner adds
columns of the label, scaled by a public weight. The committee computes the second moments of these columns as it does
for any others (protocols/moments), the noisy sums are opened once, and the head follows from them
(docs/theory/heads-from-moments.md). Where that would be too many sums, their products with few directions are opened
instead, in rounds that cost as much (kinds/pca/directions). No embedding of anybody leaves its party but as shares.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import DataError, StudyError
from colonnade.kinds.pca.subspace_iteration import LabelledProducts, NoisyProducts
from colonnade.kinds.pca.task import SubspaceIteration, fits, reach_for
from colonnade.kinds.split.encoder_base import Matrix
from colonnade.kinds.split.encoders import Encoder
from colonnade.kinds.split.heads import (
    Arrays,
    LabelledSums,
    LinearHead,
    features_of,
    fit_head,
    label_only_head,
    prior_arrays,
)
from colonnade.privacy import Budget, Trust
from colonnade.privacy.noise_laws import DEFAULT_LAW, NormalLawName
from colonnade.protocols.moments.task import Moments, NoisyMoments
from colonnade.protocols.rows import ColumnBlock, Rows
from colonnade.tables.slots import RowSlots

Labels = NDArray[np.int64] | NDArray[np.float64]
Task = Moments | SubspaceIteration
Published = NoisyMoments | NoisyProducts

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
WIDE = 1500
"""With more numbers in a joint embedding, products with directions are opened: all moments would be a million sums."""
_DIRECTIONS, _STEPS_AT_LEAST = 50, 5
_ROWS = 10_000  # where nobody says how many people there are
_NARROWEST, _WIDEST = 16, 400
_PLACES = 256  # in a block that an encoder is given


@dataclass(frozen=True)
class JointEmbeddings:
    """All parties' embeddings beside each other, and a label: everything that is public about them.

    ``widths`` are the parties, in order, and how many numbers each one's embedding has; the label's owner may have
    none. ``classes`` is 0 where the label is a number between -1 and 1.
    """

    widths: tuple[tuple[str, int], ...]
    label_party: str
    classes: int

    def __post_init__(self) -> None:
        if self.label_party not in dict(self.widths):
            raise StudyError(f"{self.label_party} holds the label and is not among the parties [ST235]")
        for party, width in self.widths:
            if width < (0 if party == self.label_party else 1):
                raise StudyError(f"{party} has no embedding and no label, so it has no part in the study [ST236]")
        if not self.width:
            raise StudyError("no party has an embedding; a head needs at least one number to learn from [ST237]")
        if self.classes < 0 or self.classes == 1:
            raise StudyError("a label has at least two classes, or is a number (classes = 0) [ST238]")

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
    def blocks(self) -> tuple[ColumnBlock, ...]:
        """Every party's columns and how long a row of them may be; the label's come last among its owner's."""
        return tuple(self._block(party, width) for party, width in self.widths)

    def _block(self, party: str, width: int) -> ColumnBlock:
        columns, square = tuple(f"z{place}" for place in range(width)), LENGTH**2 if width else 0.0
        if party == self.label_party:
            columns += tuple(f"{LABEL}{place}" for place in range(self.outputs))
            square += self.weight**2
        return ColumnBlock(party, columns, math.nextafter(math.sqrt(square), math.inf))

    def constant(self, gamma: int) -> int:
        """The constant column. A number's means and the rows' number need it; classes' flags add up to them."""
        return 1 if self.classes else max(1, round(_CONSTANT * self.length * gamma))

    def plan(
        self,
        trust: Trust,
        budgets: Sequence[Budget],
        *,
        rows_at_most: int = 2**24,
        law: NormalLawName = DEFAULT_LAW,
        hidden: bool = False,
    ) -> Task:
        """All moments, or products of them with directions where embeddings are wide and everybody knows the people."""
        if self.width > WIDE and not hidden:
            return self.directions(trust, budgets, rows_at_most=rows_at_most, law=law)
        return self.moments(trust, budgets, rows_at_most=rows_at_most, law=law, hidden=hidden)

    def moments(
        self,
        trust: Trust,
        budgets: Sequence[Budget],
        *,
        gamma: int = GAMMA,
        rows_at_most: int = 2**24,
        law: NormalLawName = DEFAULT_LAW,
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
        return draft.calibrate(budgets)

    def directions(
        self,
        trust: Trust,
        budgets: Sequence[Budget],
        *,
        rounds: int | None = None,
        gamma: int | None = None,
        rows_at_most: int = 2**24,
        law: NormalLawName = DEFAULT_LAW,
    ) -> SubspaceIteration:
        """Rounds of products with few directions, all of them together with the least noise that keeps the budgets.

        Without a ``gamma`` it is the largest power of two, from 4096 down, with which sums of so many rows fit.
        """
        each = max(2, self.outputs)
        steps = 1 + min(max(_STEPS_AT_LEAST, math.ceil(_DIRECTIONS / each)), math.ceil(self.width / each))
        steps = steps if rounds is None else rounds
        wide = self.width + self.outputs + 1
        for scale in (4096, 2048, 1024, 512) if gamma is None else (gamma,):
            draft = SubspaceIteration(
                blocks=self.blocks,
                trust=trust,
                gamma=scale,
                constant=self.constant(scale),
                rows_at_most=rows_at_most,
                directions=each,
                rounds=steps,
                noise=len(self.widths),
                law=law,
                reach=reach_for(wide, steps, each),
                labels=tuple(self._order[self.width :].tolist()),
            )
            task = draft.calibrate(budgets)
            if fits(task):
                break
        return task

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
            raise StudyError(
                f"the encoder of {party} gives embeddings of another width than was planned ({width}) [ST239]"
            )
        if (labels is None) != (party != self.label_party):
            raise StudyError(f"{self.label_party} brings the label, and nobody else does [ST240]")
        if encoder is not None:
            _require_alike(encoder, party)
        return EmbeddedRows(self, party, features, encoder, labels)

    def finish(self, published: Published, *, solver: str = "auto", ridge: float | str = "auto") -> LinearHead:
        """The head that the published moments give, for joint embeddings as :func:`embed_scaled` makes them."""
        if isinstance(published, NoisyProducts):
            return self._explore(published, solver, ridge)
        return self.head(published.matrix, published.deviations, published.constant, solver=solver, ridge=ridge)

    def head(
        self, matrix: Matrix, deviations: Matrix, constant: float, *, solver: str = "auto", ridge: float | str = "auto"
    ) -> LinearHead:
        """The head that sums of products of all columns and the constant give; their noise has these deviations."""
        sums = self._sums(matrix, deviations)
        return fit_head(sums, classes=self.classes, constant=constant, solver=solver, ridge=ridge)

    def score_prior_arrays(self, published: Published, head: LinearHead) -> Arrays:
        """The heads over single parties' embeddings; directions do not tell enough for them."""
        if isinstance(published, NoisyProducts):
            return {}
        sums, own, start = self._sums(published.matrix, published.deviations), {}, 0
        given = features_of(sums, classes=self.classes, constant=published.constant)
        for party, width in self.widths:
            if not width:
                own[party] = label_only_head(head.kind, given.label_means)
                continue
            kept = np.r_[start : start + width, self.width : len(sums.matrix)]
            start, chosen = start + width, np.ix_(kept, kept)
            alone = LabelledSums(sums.matrix[chosen], sums.deviations[chosen], sums.outputs)
            own[party] = fit_head(alone, classes=self.classes, constant=published.constant, solver=head.kind)
        return prior_arrays(given, sums.deviations[: self.width, : self.width], head, own)

    def _sums(self, matrix: Matrix, deviations: Matrix) -> LabelledSums:
        kept = self._order if self.classes else np.append(self._order, len(self._order))
        chosen = np.ix_(kept, kept)
        return self._unweighted(matrix[chosen], deviations[chosen])

    def _explore(self, published: NoisyProducts, solver: str, ridge: float | str) -> LinearHead:
        """The head within the directions that were asked for; it gives no weight to any other."""
        seen = LabelledProducts(published.task, published.directions, published.opened)
        sums = replace(self._unweighted(*seen.sums()), sought=True)
        found = fit_head(sums, classes=self.classes, constant=published.constant, solver=solver, ridge=ridge)
        facts = {**found.facts, "directions": float(seen.basis.shape[1])}
        return replace(found, weights=found.weights @ seen.basis.T, facts=facts)

    def _unweighted(self, matrix: Matrix, deviations: Matrix) -> LabelledSums:
        """The sums as they would be without the label's weight; its columns stand behind the features'."""
        start = len(matrix) - self.outputs - (not self.classes)
        factors = np.ones(len(matrix))
        factors[start : start + self.outputs] = 1 / self.weight
        both = np.outer(factors, factors)
        return LabelledSums(matrix * both, deviations * both, self.outputs)


@dataclass(frozen=True)
class EmbeddedRows:
    """One party's rows as the moments' program reads them: embedded and scaled block by block, the label last."""

    joint: JointEmbeddings
    party: str
    features: Rows
    encoder: Encoder | None
    labels: Labels | None

    @property
    def ids(self) -> Sequence[str]:
        """The ids of the rows, sorted."""
        return self.features.ids

    @property
    def places(self) -> RowSlots | None:
        """The slots of the rows, if nobody knows which people all parties hold."""
        return self.features.places

    def blocks(self, rows: int, /) -> Iterator[Matrix]:
        """The rows, some at a time."""
        start = 0
        for block in self.features.blocks(rows):
            here = slice(start, start + len(block))
            parts = [] if self.encoder is None else [embed_in_places(self.encoder, block, self.ids[here], self.party)]
            if self.labels is not None:
                parts.append(self._label(self.labels[here]))
            start += len(block)
            yield np.hstack(parts)
        if self.labels is not None and start != len(self.labels):
            raise DataError(f"{self.party} has another number of labels than of rows [DA084]")

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
    draft = JointEmbeddings(tuple((owner, 1) for owner in trust.owners), trust.owners[0], 2).moments(trust, budgets)
    each = draft.noise_std * draft.gamma**2 / draft.norm_squared
    total = ((_ROWS if rows is None else rows) / each) ** (2 / 3)
    return int(min(max(total / parties, _NARROWEST), _WIDEST)) // 8 * 8


def embed_scaled(encoder: Encoder, rows: Matrix, party: str = "a party") -> Matrix:
    """Embeddings of one length."""
    found = np.asarray(encoder.embed(rows), dtype=np.float64)
    if found.shape != (len(rows), encoder.width):
        raise DataError(f"the encoder of {party} gave embeddings of another shape than its width says [DA085]")
    return scale_to_length(found)


def embed_in_places(encoder: Encoder, rows: Matrix, ids: Sequence[str], party: str = "a party") -> Matrix:
    """The same, where each row stands at a place that follows from its id alone, in blocks of one size.

    So nobody's embedding changes by its last bits when somebody else is there or not: a library may add up the numbers
    of a row in another order at another place, or in a block of another shape.
    """
    places = np.array([zlib.crc32(name.encode()) % _PLACES for name in ids], dtype=np.int64)
    found, order = np.empty((len(rows), encoder.width)), np.argsort(places, kind="stable")
    turns = np.arange(len(rows)) - np.searchsorted(places[order], places[order])
    for turn in range(1 + int(turns.max(initial=-1))):
        here, block = order[turns == turn], np.zeros((_PLACES, rows.shape[1]))
        block[places[here]] = rows[here]
        found[here] = embed_scaled(encoder, block, party)[places[here]]
    return found


def _require_alike(encoder: Encoder, party: str) -> None:
    """Refuse an encoder that gives a row other last bits, at one place, when other rows stand at the others."""
    rows = np.random.default_rng(0).uniform(-1, 1, (_PLACES, encoder.columns))
    together, even = embed_scaled(encoder, rows, party), np.arange(_PLACES) % 2 == 0
    for kept in (even, ~even):
        if not np.array_equal(embed_scaled(encoder, rows * kept[:, None], party)[kept], together[kept]):
            raise StudyError(
                f"the encoder of {party} gives a row other last bits when others stand beside it, or each time: it "
                "must treat rows one by one, on a device that adds up in one order [ST760]"
            )


def scale_to_length(found: Matrix) -> Matrix:
    """Embeddings scaled to one length; zeros stay, and what is not a number counts as zeros: no row stops a study."""
    found = np.where(np.isfinite(found).all(axis=1, keepdims=True), found, 0.0)
    largest = np.abs(found).max(axis=1, keepdims=True, initial=0.0)
    found = found / np.where(largest > 0, largest, 1.0)  # first, so that squares neither vanish nor overflow
    lengths = np.linalg.norm(found, axis=1, keepdims=True)
    return np.asarray(found * (LENGTH / np.where(lengths > 0, lengths, 1.0)))
