"""The bounds of an exchange: how far one person's columns move what an owner sends and releases, by two theorems."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from colonnade.kinds.glm import sensitivity_alternating as alternating, sensitivity_exchange as exchange
from colonnade.kinds.glm.losses.labels import Family
from colonnade.privacy import Trust
from colonnade.privacy.sensitivity import float_up, root_up
from colonnade.protocols.messages import NOISE_UNIT, OverMessages
from colonnade.protocols.rows import Block, JointRows

RECEIVED_CLIP = 3.0  # scores that the active party received are scaled to deviation 1 and clipped to this
_SLACK = Fraction(1, 1 << 12)

Method = Literal["alternating", "gradient"]


@dataclass(frozen=True)
class Side:
    """One owner's public parameters: its penalty, its ball, the clip of its scores.

    ``factor`` is the factor of a passive party's scores that the active party expects, from public knowledge only.
    """

    owner: str
    ridge: float
    weight_bound: float
    score_clip: float
    factor: float = 1.0


@dataclass(frozen=True)
class Bounded(OverMessages, JointRows):
    """The public values of an exchange, and the bounds that follow from them.

    ``sides`` are in the order of ``blocks``; a row is a block's columns and the public constant ``intercept``.

    * ``alternating``: in each epoch the active party fits and sends slopes, the others fit and send scores;
    * ``gradient``: steps of gradient descent over ``batches`` fixed batches, with ``l1`` and ``prox_ridge`` penalties.
    """

    blocks: tuple[Block, ...]
    sides: tuple[Side, ...]
    active: str
    family: Family
    trust: Trust
    rows: int
    method: Method
    epochs: int
    batches: int
    message_clip: float
    noise: int = NOISE_UNIT
    learning_rate: float = 0.0
    l1: float = 0.0
    prox_ridge: float = 0.0
    release: bool = False
    release_ridge: float = 0.0
    intercept: float = 1.0
    bits: int = 28

    def side(self, owner: str) -> Side:
        """One owner's parameters."""
        return self.sides[self.owners.index(owner)]

    @property
    def batch_size(self) -> int:
        """The sums of every batch are divided by this number, the size of the largest batch."""
        return -(-self.rows // self.batches)

    def row_norm(self, owner: str) -> float:
        """The largest norm of one owner's row with its constant."""
        return float_up(root_up(Fraction(self.block(owner).clip) ** 2 + Fraction(self.intercept) ** 2))

    @property
    def active_norm(self) -> float:
        """The largest norm of the active party's row together with the scores that it received."""
        received = len(self.passives) * Fraction(RECEIVED_CLIP) ** 2
        return float_up(root_up(Fraction(self.row_norm(self.active)) ** 2 + received))

    def pull(self, owner: str) -> Fraction:
        """A bound on what a row adds to the gradient of an owner's fit, and on the gradient at its start."""
        if owner == self.active:
            return Fraction(self.active_norm) * Fraction(self.family.slope_bound)
        norm, bent = Fraction(self.row_norm(owner)), Fraction(self.family.curvature)
        return norm * Fraction(self.message_clip) + bent * norm**2 * Fraction(self.side(owner).weight_bound)

    def slack(self, owner: str) -> float:
        """A fit's gradient is at most this long in the end; it is a small part of what one row can move."""
        return float(_SLACK * self.pull(owner) / self.rows)

    def descent(self, owner: str) -> exchange.Exchange:
        """The bounds of Theorem H for one owner."""
        side = self.side(owner)
        return exchange.Exchange(
            epochs=self.epochs,
            batches=self.batches,
            batch_size=self.batch_size,
            rate=self.learning_rate,
            row_norm=self.row_norm(owner),
            weight_norm=side.weight_bound,
            slope=self.family.slope_bound,
            curvature=self.family.curvature,
            ridge=side.ridge,
            prox_ridge=self.prox_ridge,
            received=self.message_clip,
            score=None if owner == self.active else side.score_clip,
            changing=self.block(owner).clip,
        )

    def passive_fits(self, owner: str) -> alternating.PassiveFits:
        """The bounds of a passive party's fits."""
        side = self.side(owner)
        return alternating.PassiveFits(
            rounds=self.epochs,
            rows=self.rows,
            row_norm=self.row_norm(owner),
            weight_norm=side.weight_bound,
            received=self.message_clip,
            score=side.score_clip,
            curvature=self.family.curvature,
            ridge=side.ridge,
            slack=self.slack(owner),
            changing=self.block(owner).clip,
        )

    def active_fits(self, ridge: float) -> alternating.ActiveFits:
        """The bounds of the active party's fits."""
        return alternating.ActiveFits(
            rounds=self.epochs,
            rows=self.rows,
            row_norm=self.active_norm,
            slope=self.family.slope_bound,
            curvature=self.family.curvature,
            own=self.family.own,
            ridge=ridge,
            slack=self.slack(self.active),
        )

    def message_sensitivity(self, owner: str) -> Fraction:
        """A bound on how far all messages of an owner move when one person's columns with it are replaced."""
        return root_up(self._messages_squared(owner))

    def _messages_squared(self, owner: str) -> Fraction:
        if self.method == "gradient":
            run = self.descent(owner)
            passive = owner != self.active
            return exchange.passive_squared(run) if passive else exchange.active_squared(run, self.family.own)
        if owner == self.active:
            return alternating.active_fits_squared(self.active_fits(self.side(owner).ridge))
        return alternating.passive_fits_squared(self.passive_fits(owner))

    def weights_sensitivity(self, owner: str) -> Fraction:
        """How far the weights that an owner releases move, given all messages."""
        if self.method == "gradient":
            return exchange.weights_sensitivity(self.descent(owner), active=owner == self.active)
        if owner == self.active:
            return alternating.active_fits_weights(self.active_fits(self.release_ridge))
        return alternating.passive_fits_weights(self.passive_fits(owner))
