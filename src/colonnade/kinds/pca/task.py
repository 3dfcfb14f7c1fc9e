"""The public task of principal components by products with few directions: known before the protocol.

Instead of all second moments X'X, rounds open X'X Q for a few public directions Q, which are chosen by what was opened
before. No direction is asked twice: all directions of all rounds side by side have a spectral norm of at most
``reach``. That makes all rounds together cost what one release of all second moments costs
(docs/theory/subspace-iteration.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import isqrt
from typing import Any, ClassVar

from colonnade.errors import CapacityError, PrivacyError
from colonnade.kinds.pca.sensitivity import changed_products_sensitivity, products_sensitivity
from colonnade.mpc.verification.input_proofs import ColumnGroup, bounded_norm
from colonnade.mpc.verification.three_squares import LARGEST
from colonnade.privacy import Event, Sensitivity, Trust
from colonnade.privacy.noise_laws import CLOSEST_TO_GAUSSIAN, NormalLawName
from colonnade.privacy.observers import Inputs
from colonnade.privacy.sensitivity import rounded_norm_squared
from colonnade.protocols.committee_task import IterativeTask
from colonnade.protocols.cost import ShareCounts
from colonnade.protocols.iteration import rows_proven
from colonnade.protocols.moments.task import Moments
from colonnade.protocols.rows import ColumnBlock, JointRows
from colonnade.protocols.task import TaskPrograms

PROTOCOL = "products with directions 1"
NAME = "products of second moments with directions"
THEOREM = "subspace-iteration"
TOTAL_PART = 8
"""The sum of squared norms counts an eighth of a direction: its noise is eight times as large, and costs 1 %."""
_AHEAD = 2**21  # numbers of noise that an owner deals at a time
_DEALT = 2**25  # numbers of the joint table that are dealt at a time
_BLOCK = 2**22  # numbers of these that a seat works on at a time
_MOST_REFINED = 16  # owners; of more owners each holds too few of the columns for a smaller bound to matter


@dataclass(frozen=True)
class SubspaceIteration(JointRows, IterativeTask):
    """Rounds that open the products of all second moments with ``directions`` columns each.

    Owners scale their rows by ``gamma`` and round them at random; a public ``constant`` is the last column. ``reach``
    bounds the spectral norm of the integer directions of all rounds side by side. With ``center`` directions are sought
    around the means. ``noise`` is the variance of discrete Gaussian noise, or mu of Skellam noise, all owners' shares
    together. With ``labels``, the places of a label's columns, directions are sought that matter to the label.
    """

    blocks: tuple[ColumnBlock, ...]
    trust: Trust
    gamma: int
    constant: int
    rows_at_most: int
    directions: int
    rounds: int
    noise: int
    center: bool = True
    law: NormalLawName = CLOSEST_TO_GAUSSIAN
    reach: int = 4096
    block_rows: int = 8192
    labels: tuple[int, ...] = ()

    released: ClassVar[str] = 'has method "power", which releases products with directions in rounds'
    programs = TaskPrograms("colonnade.kinds.pca.programs")
    games = "pca-power"
    scheme = "power"
    noise_on = "an entry of X'X times a direction"
    why_not_active = None
    active_by_default = True
    proofs = ("proven", "unproven")

    @property
    def possible_proofs(self) -> tuple[Inputs, ...]:
        """Proofs are about numbers whose squares are short."""
        return self.proofs if max(map(self.block_norm_squared, self.blocks)) < LARGEST else ("unproven",)

    @cached_property
    def proof_groups(self) -> Mapping[str, Sequence[ColumnGroup]]:
        """For each owner the norm of its rows."""
        if not self.trust.proven:
            return {}
        return {
            b.owner: [bounded_norm(len(b.columns), self.block_norm_squared(b))] if b.columns else []
            for b in self.blocks
        }

    @property
    def proof_rows(self) -> int:
        """Some blocks of rows."""
        return rows_proven(self, self.rows_at_most, self.rows_dealt)

    def __post_init__(self) -> None:
        if self.rounds < 1 or self.directions < 2:
            raise PrivacyError("there is at least one round, of at least two directions [PR109]")
        if self.labels and (
            self.directions != len(self.roots) or not all(0 <= k < self.width - 1 for k in self.labels)
        ):
            raise PrivacyError(
                "a label's columns are among the others, and a round asks for as many directions [PR110]"
            )
        if self.reach < TOTAL_PART or self.width * self.reach**2 >= 2**53:
            raise PrivacyError(
                f"the reach of directions in {self.width} columns lies between {TOTAL_PART} and "
                f"{isqrt((2**53 - 1) // self.width)}, not at {self.reach} [PR111]"
            )
        if 2 * self.rounds * self.room > self.reach**2:
            raise PrivacyError(
                f"{self.rounds} rounds of {self.directions} directions leave rounding no room within a reach of "
                f"{self.reach}: raise it [PR112]"
            )

    @property
    def rounds_figures(self) -> dict[str, Any]:
        """How many openings a wide table takes."""
        return {"openings": self.rounds, "directions": self.directions}

    @property
    def rounds_in_words(self) -> tuple[str, ...]:
        """The same in words."""
        return (f"{self.rounds:,} openings of products with {self.directions:,} directions each, priced as one",)

    @property
    def room(self) -> float:
        """How much rounding of one round's directions may add to a sum that the reach bounds.

        It leaves about a third of a direction's length between two of them.
        """
        return self.reach * (0.75 * self.directions + 3)

    @property
    def roots(self) -> tuple[int, ...]:
        """The columns whose axes are asked for first: the label's and, where that is one number, the constant."""
        return (*self.labels, self.width - 1) if len(self.labels) == 1 else self.labels

    @property
    def entries(self) -> int:
        """How many numbers a round opens: the products, and last the sum of squared norms, in the first round."""
        return self.width * self.directions + 1

    @property
    def total_weight(self) -> int:
        """The factor of the sum of squared norms, in the first round."""
        return self.reach // TOTAL_PART

    # --- bounds and noise

    def block_norm_squared(self, block: ColumnBlock) -> int:
        """The largest squared norm of one owner's rounded row."""
        return self._norms_squared[block.owner]

    @cached_property
    def _norms_squared(self) -> dict[str, int]:
        return {
            block.owner: rounded_norm_squared(self.gamma, [block.clip], [len(block.columns)]) for block in self.blocks
        }

    @property
    def norm_squared(self) -> int:
        """The largest squared norm of a whole integer row."""
        return sum(self._norms_squared.values()) + self.constant**2

    @cached_property
    def sensitivity(self) -> Sensitivity:
        """How far one person can move all that is opened, of all rounds together."""
        return products_sensitivity(self.norm_squared, self.reach, self._opened, self.total_weight)

    @property
    def _opened(self) -> int:
        return self.rounds * self.entries

    @property
    def noise_std(self) -> float:
        """Deviation of the noise on an entry of X'X q for a direction q of length one, in the columns' units."""
        return self.additive.deviation / (self.gamma**2 * self.reach)

    # --- what is revealed

    @cached_property
    def event(self) -> Event:
        """What all rounds reveal: one vector, of which each round opens a part."""
        moved = self.sensitivity
        others = tuple(found for found in self._refined() if found[2] < moved.replace_l2_squared)
        return self.additive.release(
            NAME, self._opened, moved, theorem=THEOREM, others=others, lost=self.shown_by_proofs
        )

    def _refined(self) -> list[tuple[str, int, int]]:
        """For each owner, how far all opened numbers move when only columns of the other owners change."""
        if len(self.owners) > _MOST_REFINED:
            return []
        found = []
        for owner, own in self._norms_squared.items():
            fixed = own + self.constant**2
            changing = self.norm_squared - fixed
            moved = changed_products_sensitivity(changing, fixed, self.reach, self._opened, self.total_weight)
            found.append((owner, *moved))
        return found

    # --- what it takes

    @cached_property
    def bound(self) -> int:
        """The largest magnitude an opened number can have, noise included."""
        bound = self.rows_at_most * self.norm_squared * self.reach + self.additive.reach()
        fitting = isqrt(self.gamma**2 * 2**61 // bound)
        hint = f" to {fitting}" if fitting >= 2 else ""
        return self.within_63_bits(bound, f"{hint}, the row limit ({self.rows_at_most}) or the clips")

    def check_messages(self, primes: int) -> None:
        """Refuse more products than one message can carry."""
        if not self.fits_message(self.entries, primes):
            raise CapacityError(
                f"{self.directions} directions in {len(self.names)} encoded columns are more than one message can "
                "carry: ask for fewer components, or use fewer columns [CA016]"
            )

    @property
    def rows_dealt(self) -> int:
        """How many rows are dealt at a time."""
        return max(1, min(self.block_rows, _DEALT // self.width))

    @property
    def rows_multiplied(self) -> int:
        """How many rows a seat works on at a time."""
        return max(1, _BLOCK // self.width)

    @property
    def rounds_ahead(self) -> int:
        """For how many rounds noise and masks are dealt at a time."""
        return max(1, min(self.rounds, _AHEAD // self.entries))

    @property
    def message_rounds(self) -> int:
        """How often participants wait for each other: for directions, shares and opened numbers, in every round."""
        return 8 + 3 * self.rounds + 2 * -(-self.rounds // self.rounds_ahead)

    def cells(self, name: str, rows: int) -> ShareCounts:
        """What a participant shares, holds and opens."""
        width = next((len(block.columns) for block in self.blocks if block.owner == name), 0)
        noise = self._opened if name in self.owners else 0
        seated = name in self.trust.committee
        held = rows * len(self.names) if seated else 0
        # The speaker passes on what was opened, and directions: 12 bytes, where a share has three primes of 3 bytes.
        told = 4 * self._opened * (len(self.everyone) - 1) // 3 if name == self.speaker else 0
        return ShareCounts(rows * width + noise, held, max(told, self._opened) if seated else 0)

    @property
    def facts(self) -> dict[str, Any]:
        """What a record of a run says about the task."""
        return self.shares_facts | {
            "constant": self.constant,
            "rounds": self.rounds,
            "directions": self.directions,
            "reach": self.reach,
        }

    @property
    def agreement(self) -> dict[str, Any]:
        """Everything that must be equal at every participant, in order and exactly."""
        return self.shares_agreement | {
            "protocol": PROTOCOL,
            "blocks": [[block.owner, list(block.columns), block.clip.hex()] for block in self.blocks],
            "constant": self.constant,
            "rows_dealt": self.rows_dealt,
            "rounds": [self.rounds, self.directions, self.rounds_ahead],
            "reach": self.reach,
            "center": self.center,
            "law": self.law,
            **({"labels": list(self.labels)} if self.labels else {}),
        }


def reach_for(width: int, rounds: int, directions: int) -> int:
    """A power of two so large that rounding directions to integers costs a few percent of their length at most."""
    least = max(2**12, 12 * rounds * directions, 4 * isqrt(width))
    return 1 << (least - 1).bit_length()


def fits(task: Moments | SubspaceIteration) -> bool:
    """Whether the integers can hold the sums, and a message what is opened."""
    try:
        return bool(task.committee.system.primes)
    except CapacityError:
        return False
