"""The public task of iterative logistic regression, and what it publishes: known before and after the protocol."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import isqrt
from typing import Any, ClassVar, Literal

from colonnade.errors import CapacityError, PrivacyError
from colonnade.kinds.regression.sensitivity import (
    Program,
    gradient_scale,
    gradient_sensitivity,
    inner_product_bound,
    score_bound,
    worst_weights_squared,
)
from colonnade.mpc.verification.input_proofs import ColumnGroup, binary_columns, bounded_norm
from colonnade.privacy import Event, PoissonSampled, RepeatedRelease, Sensitivity, Trust
from colonnade.privacy.noise import TAIL
from colonnade.privacy.noise_laws import DEFAULT_LAW, NormalLawName
from colonnade.privacy.sensitivity import rounded_norm_squared
from colonnade.protocols.committee_task import IterativeTask, batch_observers
from colonnade.protocols.cost import ShareCounts
from colonnade.protocols.iteration import COIN, rows_proven
from colonnade.protocols.rows import ColumnBlock, JointRows
from colonnade.protocols.task import TaskPrograms

PROTOCOL = "batch gradients 1"
THEOREM = "gradient-sensitivity"
OVERFLOW = Fraction(1, 2**128)
_AHEAD = 2**18  # numbers of noise that an owner deals at a time
_UNCHECKED = 2**22  # residues that a seat keeps until they are checked
_MOST_UNCHECKED = 512  # rounds

Sampling = Literal["poisson", "disjoint"]


@dataclass(frozen=True)
class GradientTask(JointRows, IterativeTask):
    """Rounds of noisy gradients of the logistic loss, its sigmoid replaced by a polynomial.

    Owners scale their rows by ``scale`` and ``gamma`` and round them at random. ``blocks`` bound a row before
    scaling; a public column of value ``intercept`` is the last one. ``expansion`` is the degree of the polynomial
    for the sigmoid. ``classes`` labels are learned side by side, one against the rest.

    * ``poisson``: each person joins each batch with chance ``batch / rows``, by coins that the owners know;
    * ``disjoint``: a person's batch follows from its id and a salt, and the batches take turns.

    ``rows`` is about the number of people, as everybody may know it. Sums are divided by ``batch``, never by the
    size of a drawn batch.
    """

    blocks: tuple[ColumnBlock, ...]
    label_owner: str
    classes: int
    trust: Trust
    gamma: int
    scale: float
    expansion: Literal[1, 3]
    weight_bound: float
    learning_rate: float
    sampling: Sampling
    rows: int
    batch: int
    rounds: int
    noise: int
    law: NormalLawName = DEFAULT_LAW
    rows_at_most: int = 2**24
    intercept: float = 0.5
    block_rows: int = 8192

    released: ClassVar[str] = 'has method "sqm", which releases gradients in rounds'
    programs = TaskPrograms("colonnade.kinds.regression.programs")
    games = "sqm"
    scheme = "sqm"
    noise_on = "a number of one batch's mean gradient"
    why_not_active = None
    active_by_default = True
    proofs = ("proven", "unproven")

    @cached_property
    def proof_groups(self) -> Mapping[str, Sequence[ColumnGroup]]:
        """For each owner the norm of its rows, and that labels are zeros and ones."""
        if not self.trust.proven:
            return {}
        groups: dict[str, list[ColumnGroup]] = {
            b.owner: [bounded_norm(len(b.columns), self.block_norm_squared(b))] if b.columns else []
            for b in self.blocks
        }
        groups[self.label_owner].append(binary_columns(self.classes))
        return groups

    @property
    def proof_rows(self) -> int:
        """Some blocks of rows."""
        return rows_proven(self, self.rows_at_most, self.block_rows)

    @property
    def rounds_figures(self) -> dict[str, Any]:
        """How many batches are opened, of how many people."""
        return {"steps": self.rounds, "sampling": self.sampling, "batch": self.batch, "people": self.rows}

    @property
    def rounds_in_words(self) -> tuple[str, ...]:
        """The same in words."""
        how = "a random batch" if self.sampling == "poisson" else "one of the fixed batches"
        return (f"{self.rounds:,} openings, each about {how} of {self.batch:,} of {self.rows:,} people",)

    @property
    def rows_stated(self) -> int:
        """About how many people there are, as everybody may know."""
        return self.rows

    @property
    def entries(self) -> int:
        """How many numbers a round opens."""
        return self.width * self.classes

    @property
    def constant(self) -> int:
        """The intercept column as an integer."""
        return round(self.gamma * self.scale * self.intercept)

    @property
    def program(self) -> Program:
        """The integer program of one row's gradient."""
        return "logistic" if self.expansion == 1 else "cubic"

    @property
    def divisor(self) -> int:
        """An opened integer divided by this number is a gradient."""
        return gradient_scale(self.program, self.gamma)

    def block_norm_squared(self, block: ColumnBlock) -> int:
        """The largest squared norm of one owner's rounded row."""
        return rounded_norm_squared(self.gamma, [block.clip * self.scale], [len(block.columns)])

    @cached_property
    def norm_squared(self) -> int:
        """The largest squared norm of a whole integer row."""
        return sum(self.block_norm_squared(block) for block in self.blocks) + self.constant**2

    @cached_property
    def weights_squared(self) -> int:
        """The largest squared norm of one class's rounded weights."""
        found = worst_weights_squared(self.program, self.gamma, self.width, self.weight_bound, "nearest")
        if found >= 2**126:
            raise CapacityError(
                f"such weights do not fit 64-bit integers: lower gamma ({self.gamma}) or the bound of the weights "
                f"({self.weight_bound:g}) [CA018]"
            )
        return found

    @cached_property
    def sensitivity(self) -> Sensitivity:
        """How far one person can move one round's sum: the sum of every class as far as one class alone."""
        one = gradient_sensitivity(self.program, self.gamma, self.norm_squared, self.weights_squared, self.width)
        k = self.classes
        return Sensitivity(k * one.l1, k * one.l2_squared, k * one.replace_l1, k * one.replace_l2_squared)

    @property
    def threshold(self) -> int:
        """A person is in a drawn batch when its 32-bit coin is below this number."""
        return max(1, min(COIN, self.batch * COIN // self.rows))

    @property
    def padded(self) -> bool:
        """Whether messages of the committee would show the size of a batch, so that batches get a fixed size."""
        return self.expansion == 3 and self.sampling == "poisson"

    def room(self, rows: int) -> int:
        """The fixed size of a batch drawn from ``rows`` people; a batch is larger with chance :data:`OVERFLOW` at most.

        Chernoff: a binomial count of mean m is above m + a with chance at most exp(-a^2 / (2 m + 2 a / 3)).
        """
        mean, nats = rows * self.threshold / COIN, -math.log(OVERFLOW)
        return min(rows, math.ceil(mean + nats / 3 + math.sqrt(nats * nats / 9 + 2 * nats * mean)) + 1)

    @property
    def batches(self) -> int:
        """How many disjoint batches there are."""
        return max(1, -(-self.rows // self.batch))

    @property
    def epochs(self) -> int:
        """How often one person's row is used when batches take turns."""
        return -(-self.rounds // self.batches)

    @cached_property
    def event(self) -> Event:
        """What all rounds reveal."""
        release = self.additive.release(
            "batch gradients",
            self.entries,
            self.sensitivity,
            # The tail counts for every number and share, but a batch can overflow only once a round.
            tail=TAIL + (OVERFLOW / (self.entries * len(self.owners)) if self.padded else 0),
            theorem=THEOREM if self.sampling == "poisson" else f"{THEOREM}, fixed-batches",
            lost=self.shown_by_proofs / (self.epochs if self.sampling == "disjoint" else self.rounds),
        )
        if self.sampling == "disjoint":
            return RepeatedRelease(release, self.epochs)
        return RepeatedRelease(PoissonSampled(release, Fraction(self.threshold, COIN), self.coins), self.rounds)

    @property
    def coins(self) -> tuple[str, ...]:
        """Who may know which people are in a drawn batch."""
        return batch_observers(self.trust)

    @cached_property
    def bound(self) -> int:
        """The largest magnitude that an opened number can have."""
        unit = self.additive.unit
        if unit * self.noise > len(self.owners) << 117:
            raise CapacityError(f"such noise does not fit 64-bit integers: lower gamma ({self.gamma}) [CA019]")
        return self.largest_sum(self.rows_at_most) + self.additive.reach(copies=2 // unit)  # room for either law

    def largest_sum(self, rows: int) -> int:
        """The largest magnitude of a sum over ``rows`` people, before noise."""
        inner = inner_product_bound(self.norm_squared, self.weights_squared)
        return rows * (isqrt(self.norm_squared) + 1) * (math.ceil(score_bound(self.program, self.gamma, inner)) + 1)

    @property
    def rounds_ahead(self) -> int:
        """For how many rounds noise and masks are dealt at a time."""
        return max(1, min(64, self.rounds, _AHEAD // self.entries))

    @property
    def rounds_checked(self) -> int:
        """How many rounds are checked at a time, in active mode."""
        kept = (self.batch + self.width) * self.classes * len(self.committee.system.primes)
        return max(1, min(_MOST_UNCHECKED, self.rounds, _UNCHECKED // kept))

    @property
    def seats_draw(self) -> bool:
        """Whether the seats draw batches together; otherwise the first owner tells them."""
        return self.trust.active and self.sampling == "poisson"

    @property
    def noise_std(self) -> float:
        """Deviation of the noise on a number of one round's mean gradient."""
        return self.additive.deviation / self.divisor / self.batch

    @property
    def settlements(self) -> int:
        """How often the seats check: with every run of rounds; of degree 3 also before each opening."""
        return super().settlements if self.expansion == 1 else 1 + self.rounds

    @property
    def usually_active(self) -> bool:
        """Whether security is active where nobody says: not of degree 3, where every round is checked alone."""
        return self.active_by_default and self.expansion == 1

    @property
    def message_rounds(self) -> int:
        """How often participants wait for each other: once a round, and twice more if the degree is lowered."""
        ahead = -(-self.rounds // self.rounds_ahead)
        return 8 + self.rounds * (1 if self.expansion == 1 else 3) + 2 * ahead

    def cells(self, name: str, rows: int) -> ShareCounts:
        """What a participant shares, holds and opens."""
        width = next((len(block.columns) for block in self.blocks if block.owner == name), 0)
        labels = rows * self.classes if name == self.label_owner else 0
        noise = self.rounds * self.entries if name in self.owners else 0
        seats = self.trust.committee
        seated = name in seats
        lowered = 2 * self.rounds * self.room(rows) * self.classes if self.expansion == 3 and seated else 0
        held = rows * (len(self.names) + self.classes) if seated else 0
        opened = self.rounds * self.entries * (len(seats) - 1) if seated else 0
        return ShareCounts(rows * width + labels + noise + lowered, held, opened)

    @property
    def facts(self) -> dict[str, Any]:
        """Plain values for the record of a run."""
        return self.shares_facts | {
            "expansion": self.expansion,
            "sampling": self.sampling,
            "rounds": self.rounds,
            "batch": self.batch,
            "rows": self.rows,
            "weight_bound": self.weight_bound,
        }

    @property
    def agreement(self) -> dict[str, Any]:
        """Everything that must be equal at every participant, in order and exactly."""
        return self.shares_agreement | {
            "protocol": PROTOCOL,
            "blocks": [[block.owner, list(block.columns), block.clip.hex()] for block in self.blocks],
            "label_owner": self.label_owner,
            "classes": self.classes,
            "scale": float(self.scale).hex(),
            "constant": self.constant,
            "expansion": self.expansion,
            "weight_bound": float(self.weight_bound).hex(),
            "learning_rate": float(self.learning_rate).hex(),
            "sampling": [self.sampling, self.rows, self.batch, self.rounds, self.threshold],
            "block_rows": self.block_rows,
            "rounds_ahead": self.rounds_ahead,
            "law": self.law,
        }

    def __post_init__(self) -> None:
        sizes, counts = (self.scale, self.weight_bound, self.learning_rate), (self.rounds, self.classes, self.gamma)
        allowed = {
            f"a batch holds 1 to {self.rows} of the rows, not {self.batch} [PR115]": 1 <= self.batch <= self.rows,
            "the sigmoid is expanded to degree 1 or 3 [PR116]": self.expansion in (1, 3),
            "rounds, classes and gamma must be positive whole numbers [PR117]": min(counts) >= 1,
            "scale, weight bound and learning rate must be positive numbers [PR118]": all(
                0 < v < math.inf for v in sizes
            ),
        }
        for due, kept in allowed.items():
            if not kept:
                raise PrivacyError(due)
