"""The public task of fitting a mixture to columns that stay with their owners, and how many places a batch has.

All that decides how parameters follow from what is opened stands in the task's ``plan``: the schemas, the families of
the columns, how parameters are learned. So everybody who holds the task makes the same learner, and starts it at the
same parameters, which are drawn by public randomness.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import comb
from typing import Any, ClassVar, Literal, get_args

import numpy as np

from colonnade.errors import CapacityError, PrivacyError, SchemaError, StudyError
from colonnade.kinds.synthesis.mixture.components import ColumnStatistics, OwnComponents
from colonnade.kinds.synthesis.mixture.learners import (
    ExpectationLearner,
    FittedMixture,
    MixtureLearner,
    MixtureModel,
    ParameterPosterior,
    VariationalLearner,
)
from colonnade.kinds.synthesis.mixture.responsibilities import NORM_BITS, JointClip, ResponsibilityPrecision
from colonnade.kinds.synthesis.sensitivity import MixtureBounds, vector_square
from colonnade.models.design import columns_of, owner_of
from colonnade.models.planner import PlanDetails, Roster
from colonnade.mpc import Committee, ResidueSystem
from colonnade.mpc.fixed_point.masks import residue_system_for
from colonnade.mpc.fixed_point.truncation import truncates_in_blocks
from colonnade.privacy import Event, PoissonSampled, RepeatedRelease, Sensitivity, Trust
from colonnade.privacy.noise_laws import DEFAULT_LAW, NormalLawName, Others
from colonnade.privacy.sensitivity import integer_l1
from colonnade.protocols.committee_task import IterativeTask, batch_observers
from colonnade.protocols.cost import ShareCounts
from colonnade.protocols.iteration import COIN
from colonnade.protocols.task import TaskPrograms
from colonnade.randomness import Stream
from colonnade.tables import Schema
from colonnade.tables.cell_parsing import suggest_full_name

OVERFLOW_CHANCE = Fraction(1, 2**46)
"""The chance that a drawn batch has more people than there is room for, in one round."""
_WORD = 64  # bits


def places_for_batch(rows: int, chance: float) -> int:
    """The number of places for those of ``rows`` people who join with this chance, a multiple of 64.

    More join with chance :data:`OVERFLOW_CHANCE` at most, by Chernoff: of n people who join with chance p, more than
    m do with chance at most exp(-n D(m/n, p)), where D is the relative entropy of two coins.
    """
    size = _WORD
    while size < rows and rows * _relative_entropy(size / rows, chance) < -math.log(OVERFLOW_CHANCE):
        size += _WORD
    return size


def _relative_entropy(size: float, chance: float) -> float:
    """How unlikely it is that a share ``size`` of coins with this chance come up, in nats a coin, rounded down."""
    if size <= chance:
        return 0.0
    first = size * math.log(size / chance)
    rest = (1 - size) * math.log((1 - size) / (1 - chance)) if size < 1 else 0.0
    return (first + rest) * (1 - 2.0**-40)


PROTOCOL = "mixture 1"
THEOREM = "mixture-sensitivity, mixture-rounds"
STATISTIC_BITS, SLOPE_BITS = 8, 8
"""Fractional bits of statistics, and of what they are multiplied by, where derivatives are linear in them."""
_AHEAD = 2**18  # numbers of noise that an owner deals at a time
_WIDEST = 4000
"""Squared norms of longer vectors, added up as floats, could err by more than owners leave room for."""
_ROUNDS_TO_CLIP, _ROUNDS_BESIDE = 30, 6
"""The second: after the products of densities and the bit length; the last one is that of the opened sums."""


VectorMode = Literal["statistics", "derivatives", "linear"]


@dataclass(frozen=True)
class MixturePart:
    """What one owner contributes: its encoded columns, and ``width`` numbers of a row (for each component) to sum up.

    The numbers of one row are a vector of norm at most ``clip``, which the owner enforces. ``statistics`` is how many
    statistics of a row they follow from, if they are linear in them.
    """

    owner: str
    columns: tuple[str, ...]
    width: int
    clip: float
    statistics: int = 0


@dataclass(frozen=True)
class MixtureTask(IterativeTask):
    """Rounds of noisy sums, weighted by the responsibilities of a mixture's components for rows.

    ``vectors`` says what is summed: ``statistics`` of rows, dealt once; ``derivatives``, dealt for every batch; or
    derivatives that are ``linear`` in statistics: then only by what they are clipped is dealt for every batch.
    Owners clip vectors, each by itself; with a ``joint_clip`` the committee also clips all that a row adds.
    Batches are drawn (``poisson``), take turns (``disjoint``), or hold everybody in every round (``all``). ``floor`` is
    the least logarithm of a ratio of densities, over all owners. Numbers have ``fraction`` fractional bits where they
    are densities, ``bits`` where they are responsibilities and ``vector_bits`` in vectors. ``plan`` says in any words
    how parameters follow from the sums; it must be equal at all participants.
    """

    parts: tuple[MixturePart, ...]
    components: int
    trust: Trust
    sampling: Literal["poisson", "disjoint", "all"]
    rows: int
    batch: int
    rounds: int
    noise: int
    vectors: VectorMode = "statistics"
    joint_clip: float | None = None
    law: NormalLawName = DEFAULT_LAW
    floor: float = 16.0
    fraction: int = 26
    bits: int = 20
    vector_bits: int = 14
    rows_at_most: int = 2**24
    block_rows: int = 2048
    plan: str = ""
    released: ClassVar[str] = 'has method "mixture", which releases sums in rounds'
    programs = TaskPrograms("colonnade.kinds.synthesis.mixture.programs")
    games = "mixture"
    noise_on = "a sum of one round"
    why_not_active: ClassVar[str | None] = None
    spares_seats: ClassVar[bool] = False  # every party deals something in every round
    active_by_default: ClassVar[bool] = False  # checks before every opening under a mask take several times as long

    @property
    def owners(self) -> tuple[str, ...]:
        """Who holds columns, in order."""
        return tuple(part.owner for part in self.parts)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The encoded columns of all owners."""
        return tuple(f"{part.owner}.{column}" for part in self.parts for column in part.columns)

    @property
    def hearers(self) -> tuple[str, ...]:
        """Who follows the rounds: the owners, and the seats that compute."""
        return batch_observers(self.trust)

    @property
    def rows_limit(self) -> int:
        """As many as the arithmetic is sized for, and not more than four times as many as were stated."""
        return min(self.rows_at_most, 4 * self.rows)

    @property
    def rows_limited_by(self) -> str:
        """Which setting to raise where there are more rows."""
        if self.rows_at_most <= 4 * self.rows:
            return "rows_at_most"
        return "rows, of which a mixture takes up to four times as many"

    @property
    def rows_stated(self) -> int:
        """About how many people there are, as everybody may know."""
        return self.rows

    @property
    def width(self) -> int:
        """How many numbers a round opens for one component: its count, and every owner's vector."""
        return 1 + sum(part.width for part in self.parts)

    @property
    def entries(self) -> int:
        """How many numbers a round opens."""
        return self.components * self.width

    @property
    def gamma(self) -> int:  # type: ignore[override]  # it follows from the bits
        """An opened integer divided by this number is a sum over people."""
        return 1 << (self.bits + self.vector_bits)

    @property
    def linear(self) -> bool:
        """Whether derivatives are linear in statistics, which are dealt once."""
        return self.vectors == "linear"

    def stored_width(self, part: MixturePart) -> int:
        """How many statistics of each row of an owner the committee keeps."""
        return {"statistics": part.width, "derivatives": 0, "linear": part.statistics}[self.vectors]

    @property
    def weighted_width(self) -> int:
        """How many numbers an owner deals in a round for each place and component, modulo all primes.

        These are densities, by what linear derivatives are clipped, and squared norms where they are clipped jointly.
        """
        return 1 + self.linear + (self.joint is not None)

    def summed_width(self, part: MixturePart) -> int:
        """How many more an owner deals that are only summed."""
        return part.width if self.vectors == "derivatives" else 0

    @property
    def shrink_bits(self) -> int:
        """Fractional bits of the factors by which linear derivatives are clipped."""
        return self.vector_bits - STATISTIC_BITS - SLOPE_BITS

    def part(self, owner: str) -> MixturePart:
        """What one owner contributes."""
        return self.parts[self.owners.index(owner)]

    @cached_property
    def precision(self) -> ResponsibilityPrecision:
        """The sizes of numbers while responsibilities are computed."""
        groups = comb(len(self.trust.committee), self.trust.threshold)
        return ResponsibilityPrecision(len(self.owners), self.components, self.fraction, self.bits, (groups + 1) / 2)

    @property
    def slack(self) -> Fraction:
        """By how much the absolute weights of a row add up to more than 1 at most: clipping truncates once more."""
        return self.precision.slack + (0 if self.joint is None else self.joint.slack)

    @cached_property
    def sensitivity(self) -> Sensitivity:
        """How far one person can move the sums of one round."""
        added, replaced = min(self._bounds.added(), self._joint_square), self.replaced_squared()
        return Sensitivity(integer_l1(added, self.entries), added, integer_l1(replaced, self.entries), replaced)

    def replaced_squared(self, holder: str | None = None) -> int:
        """How far replacing one person moves them, squared; the columns of a ``holder`` stay as they are."""
        place = None if holder is None else self.owners.index(holder)
        return min(self._bounds.replaced(place), 4 * self._joint_square)

    @cached_property
    def _bounds(self) -> MixtureBounds:
        # A responsibility is truncated once, and once more where it is clipped.
        below = Fraction(self.precision.ulps) * (1 if self.joint is None else 2)
        clips = tuple(part.clip for part in self.parts)
        return MixtureBounds(clips, self.bits, self.vector_bits, self.slack, below)

    @cached_property
    def _joint_square(self) -> int:
        """The squared length of what a row adds, where the committee clips it; otherwise its local bound."""
        if self.joint is None:
            return self._bounds.added()
        return math.floor((self.joint.bound * (1 << self.vector_bits)) ** 2)

    @cached_property
    def joint(self) -> JointClip | None:
        """How the committee clips all that a row adds, if it does."""
        if self.joint_clip is None:
            return None
        squares = tuple(math.ceil(Fraction(part.clip) ** 2 * (1 << NORM_BITS)) for part in self.parts)
        return JointClip(self.joint_clip, squares, self.precision)

    @cached_property
    def hidden_bits(self) -> tuple[tuple[int, int], ...]:
        """What is opened under masks for one row: how many numbers, and how many bits each has."""
        return self.precision.hidden_bits + (() if self.joint is None else self.joint.hidden_bits)

    # Batches

    @property
    def threshold(self) -> int:
        """A person is in a drawn batch when its 32-bit coin is below this number."""
        return max(1, min(COIN, self.batch * COIN // self.rows))

    @property
    def batches(self) -> int:
        """How many disjoint batches there are."""
        return max(1, -(-self.rows // self.batch))

    @property
    def epochs(self) -> int:
        """How often one person's row is used when batches take turns or hold everybody."""
        return self.rounds if self.sampling == "all" else -(-self.rounds // self.batches)

    def batch_places(self, rows: int) -> int:
        """The fixed number of places for a batch of ``rows`` people; one is larger with chance ``OVERFLOW`` at most."""
        if self.sampling == "all":
            return -(-rows // _WORD) * _WORD
        return places_for_batch(rows, self.threshold / COIN if self.sampling == "poisson" else 1 / self.batches)

    def pieces(self, rows: int) -> tuple[int, int]:
        """In how many pieces a batch is computed, and how many places each has."""
        places = self.batch_places(rows)
        size = min(places, max(_WORD, self.block_rows // _WORD * _WORD))
        return -(-places // size), size

    # Privacy

    @cached_property
    def distance(self) -> Fraction:
        """How much the numbers of one row that a round opens under masks can tell, as a statistical distance."""
        groups = comb(len(self.trust.committee), self.trust.threshold)
        width = (self._masking.modulus // (8 * groups)).bit_length() - 1
        return sum((count * Fraction(2) ** (bits + 1 - width) for count, bits in self.hidden_bits), Fraction(0))

    @cached_property
    def event(self) -> Event:
        """What all rounds reveal."""
        fixed = ", fixed-batches" if self.sampling == "disjoint" else ""
        release = self.additive.release(
            "mixture sums",
            self.entries,
            self.sensitivity,
            theorem=THEOREM + fixed,
            others=self._refined,
            lost=self.distance + (0 if self.sampling == "all" else OVERFLOW_CHANCE),
        )
        if self.sampling != "poisson":
            return RepeatedRelease(release, self.epochs)
        return RepeatedRelease(PoissonSampled(release, Fraction(self.threshold, COIN), self.coins), self.rounds)

    @property
    def _refined(self) -> Others:
        """For each owner, how far a change of columns that it does not hold moves the sums."""
        found = ((owner, self.replaced_squared(owner)) for owner in self.owners)
        whole = self.sensitivity.replace_l2_squared
        return tuple((owner, integer_l1(square, self.entries), square) for owner, square in found if square < whole)

    coins = hearers
    """Who may know which people are in a drawn batch."""

    # Arithmetic

    @cached_property
    def bound(self) -> int:
        """The largest magnitude that an opened number can have."""
        squares = (vector_square(self.vector_bits, part.clip) for part in self.parts)
        most = math.isqrt(max(1 << 2 * self.vector_bits, *squares)) + 1
        rows = self.batch_places(self.rows_limit)
        noise = self.additive.reach(copies=2 // self.additive.unit)  # room for either law
        total = rows * math.ceil((1 + self.slack) * (1 << self.bits)) * most + noise
        if total >= 2**62:
            raise CapacityError(
                f"sums may need {total.bit_length() + 1} bits and 63 are available: lower bits ({self.bits}) or "
                f"vector_bits ({self.vector_bits}) [CA025]"
            )
        return total

    @cached_property
    def committee(self) -> Committee:
        """The seats, with as many primes as sums and masks need."""
        system = max(self.for_sums, self._masking, key=lambda system: len(system.primes))
        return Committee(self.trust.committee, self.trust.threshold, system, self.trust.active)

    @cached_property
    def for_sums(self) -> ResidueSystem:
        """The arithmetic of what is only summed: the first primes, as many as sums without masks need."""
        return ResidueSystem.for_bound(self.bound)

    @cached_property
    def _masking(self) -> ResidueSystem:
        """The smallest arithmetic in which masks hide what they must; a larger one hides it better."""
        masked = max(bits for _, bits in self.hidden_bits)
        return residue_system_for(masked, len(self.trust.committee), self.trust.threshold)

    @property
    def rounds_ahead(self) -> int:
        """For how many rounds noise and masks are made at a time."""
        return max(1, min(64, self.rounds, _AHEAD // self.entries))

    @property
    def opened_degree(self) -> int:
        """The degree of the sums that are opened: in active mode they were lowered, to be checked."""
        return self.trust.threshold if self.trust.active else 2 * self.trust.threshold

    @property
    def settlements(self) -> int:
        """How often the seats check what was computed, in active mode: before everything that is opened under masks."""
        each = len(self.owners) + _ROUNDS_BESIDE + (0 if self.joint is None else _ROUNDS_TO_CLIP)
        return 1 + self.rounds * (1 + self.pieces(self.rows)[0] * each)

    @property
    def noise_std(self) -> float:
        """Deviation of the noise on a sum over people."""
        return self.additive.deviation / self.gamma

    @property
    def message_rounds(self) -> int:
        """How often participants wait for each other."""
        pieces, size = self.pieces(self.rows)
        once = len(self.owners) + (self.fraction - 1).bit_length() + 2 + _ROUNDS_BESIDE + self.linear
        once += _ROUNDS_TO_CLIP * (self.joint is not None)
        once += truncates_in_blocks(self.committee, size * self.components) * (len(self.owners) + _ROUNDS_BESIDE)
        return 8 + self.rounds * (pieces * once + 2) + 30 * -(-self.rounds // self.rounds_ahead)

    def cells(self, name: str, rows: int) -> ShareCounts:
        """What a participant shares, holds and opens; at most, as what is only summed takes fewer primes."""
        pieces, size = self.pieces(rows)
        places = pieces * size * self.components
        seats = self.trust.committee
        dealt = 0
        if name in self.owners:
            part = self.part(name)
            dealt = rows * self.stored_width(part) + self.rounds * (
                places * (self.weighted_width + self.summed_width(part)) + self.entries
            )
        if name not in seats:
            return ShareCounts(dealt, 0, 0)
        kept = sum(
            rows * self.stored_width(part) + places * (self.weighted_width + self.summed_width(part))
            for part in self.parts
        )
        lowered = self.rounds * places * (1 + (len(self.owners) if self.linear else 0))
        masked = sum(count for count, _ in self.hidden_bits) * pieces * size
        return ShareCounts(dealt + lowered, kept, self.rounds * (masked + self.entries) * (len(seats) - 1))

    @property
    def facts(self) -> dict[str, Any]:
        """Plain values for the record of a run."""
        return self.shares_facts | {
            "components": self.components,
            "vectors": self.vectors,
            "clipping": "local" if self.joint_clip is None else "joint",
            "sampling": self.sampling,
            "rounds": self.rounds,
            "batch": self.batch,
            "rows": self.rows,
        }

    @property
    def agreement(self) -> dict[str, Any]:
        """Everything that must be equal at every participant, in order and exactly."""
        return self.shares_agreement | {
            "protocol": PROTOCOL,
            "parts": [
                [part.owner, list(part.columns), part.width, part.clip.hex(), part.statistics] for part in self.parts
            ],
            "components": self.components,
            "vectors": self.vectors,
            "joint_clip": None if self.joint_clip is None else float(self.joint_clip).hex(),
            "sampling": [self.sampling, self.rows, self.batch, self.rounds, self.threshold],
            "bits": [self.fraction, self.bits, self.vector_bits],
            "floor": float(self.floor).hex(),
            "block_rows": self.block_rows,
            "rounds_ahead": self.rounds_ahead,
            "law": self.law,
            "plan": self.plan,
        }

    def __post_init__(self) -> None:
        joint = () if self.joint_clip is None else (self.joint_clip,)
        positive = (self.floor, *joint, *(part.clip for part in self.parts))
        bits_known = 16 <= self.fraction <= 26 and 8 <= self.bits <= self.fraction and 1 <= self.vector_bits <= 28
        for kept, otherwise in (
            (
                len(self.parts) >= 2 and self.owners == self.trust.owners,
                "a mixture needs two owners or more, each with its columns, in the order of the trust [PR121]",
            ),
            (
                self.sampling in ("poisson", "disjoint", "all") and self.vectors in get_args(VectorMode),
                "a mixture samples poisson, disjoint or all, and sums statistics or derivatives [PR122]",
            ),
            (
                not self.linear or (self.shrink_bits >= 6 and all(p.statistics > p.width for p in self.parts)),
                "linear derivatives need 22 or more bits (vector_bits) and a constant statistic [PR123]",
            ),
            (1 <= self.batch <= self.rows, f"a batch holds 1 to {self.rows} of the rows, not {self.batch} [PR124]"),
            (self.rounds >= 1 <= self.components, "rounds and components must be positive whole numbers [PR125]"),
            (
                bits_known,
                "densities have 16 to 26 fractional bits, responsibilities 8 or more, vectors 1 to 28 [PR126]",
            ),
            (
                2 * self.precision.whole >= 1 << self.fraction,
                "so many owners and components need more fractional bits (fraction) [PR127]",
            ),
            (
                8 * self.precision.slack <= 1,
                "so many components need more bits of responsibilities (bits) [PR128]",
            ),
            (
                all(0 < value < math.inf for value in positive),
                "the floor and the clips must be positive numbers [PR129]",
            ),
        ):
            if not kept:
                raise PrivacyError(otherwise)
        if wide := next((part for part in self.parts if part.width > _WIDEST), None):
            raise PrivacyError(
                f"{wide.owner} would add {wide.width:,} numbers for each component, and {_WIDEST:,} is the most: "
                "describe its columns by fewer values or bins [PR130]"
            )
        if self.joint is not None:
            self.joint.check()


InferenceMethod = Literal["expectation", "variational"]
BatchSampling = Literal["poisson", "disjoint"]
ClippingMode = Literal["local", "joint"]
COMPONENTS = 20
ROUNDS: dict[InferenceMethod, int] = {"expectation": 20, "variational": 5000}
BITS, LINEAR_BITS = 14, 26  # fractional bits of what is summed
BATCH, CLIP, LEARNING_RATE = 100, 2.0, 0.02


def draft_mixture(given: Mapping[str, Any], roster: Roster) -> MixtureTask:
    """The task, before its noise is set, by a model's parameters and the usual ones."""
    roster.require_known_members('method="mixture"')
    families, rows, inference = dict(given["families"] or {}), int(given["rows"]), given["inference"]
    owns = {party: build_components(party, schema, families) for party, schema in roster.schemas.items()}
    _check_families(families, roster.schemas)
    every, clip = inference == "expectation", float(given["clip"] or CLIP)
    # Derivatives that are linear in statistics of the rows are many times quicker; those of Gaussian columns are not.
    linear = not every and all(own.linear for own in owns.values())
    parts = []
    for party, own in owns.items():
        held = ColumnStatistics(own)
        width, longest = (held.width, held.bound) if every else (own.width, clip)
        told = own.width + len(own.families) if linear else 0
        parts.append(MixturePart(party, own.schema.encoded_names, width, longest, told))
    plan = {
        "schemas": {party: schema.to_toml() for party, schema in roster.schemas.items()},
        "families": families,
        "inference": inference,
        "learning rate": float(given["learning_rate"] or LEARNING_RATE),
    }
    return MixtureTask(
        parts=tuple(parts),
        components=int(given["components"] or COMPONENTS),
        trust=roster.trust,
        sampling="all" if every else given["sampling"],
        rows=rows,
        batch=rows if every else int(given["batch"] or min(BATCH, rows)),
        rounds=int(given["iterations"] or ROUNDS[inference]),
        noise=len(owns),
        vectors="statistics" if every else "linear" if linear else "derivatives",
        vector_bits=LINEAR_BITS if linear else BITS,
        joint_clip=clip if given["clipping"] == "joint" else None,
        law=given["noise"],
        rows_at_most=int(given["rows_at_most"]),
        plan=json.dumps(plan, sort_keys=True, separators=(",", ":")),
    )


def make_learner(task: MixtureTask) -> MixtureLearner:
    """The learner of a task, as everybody makes it before the first round; it starts by public chance."""
    plan: dict[str, Any] = json.loads(task.plan)
    model = task_mixture(task)
    start = model.start(_public_stream(task, "start"))
    if plan["inference"] == "expectation":
        return ExpectationLearner(task.owners, model, start, task.noise_std)
    return VariationalLearner(
        task.owners,
        model,
        start,
        _public_stream(task, "coins"),
        rate=task.batch / task.rows,
        rounds=task.rounds,
        learning_rate=plan["learning rate"],
        linear=task.vectors == "linear",
    )


def task_mixture(task: MixtureTask) -> MixtureModel:
    """The mixture that a task is about."""
    plan = json.loads(task.plan)
    schemas = {party: Schema.from_toml(plan["schemas"][party]) for party in task.owners}
    return build_mixture(schemas, plan["families"], task.components)


def build_mixture(schemas: Mapping[str, Schema], families: Mapping[str, str], components: int) -> MixtureModel:
    """A mixture over the columns of these parties."""
    return MixtureModel([build_components(party, schema, families) for party, schema in schemas.items()], components)


def build_components(party: str, schema: Schema, families: Mapping[str, str]) -> OwnComponents:
    """The components as far as they are about one party's columns."""
    own = {name: families[full] for name in schema.names if (full := f"{party}.{name}") in families}
    try:
        return OwnComponents(schema, own)
    except (SchemaError, StudyError) as error:
        raise StudyError(f"families: {party}: {error} [ST371]") from None


def mixture_details(task: MixtureTask) -> PlanDetails:
    """How many rounds there are, and about whom."""
    whom = {
        "all": "all people",
        "poisson": f"a random batch of about {task.batch:,} of {task.rows:,} people",
        "disjoint": f"one of the fixed batches of about {task.batch:,} of {task.rows:,} people",
    }[task.sampling]
    line = f"{task.rounds:,} openings of sums for {task.components:,} components, each about {whom}"
    facts = {"iterations": task.rounds, "sampling": task.sampling, "batch": task.batch, "people": task.rows}
    return PlanDetails("mixture", facts | {"components": task.components}, brief=(line,))


def restore_mixture(
    schemas: Mapping[str, Schema], given: Mapping[str, Any], arrays: Mapping[str, Any]
) -> FittedMixture:
    """The mixture that a file holds; a ValueError if its numbers do not belong to these columns."""
    model = build_mixture(schemas, given["families"] or {}, int(given["components"] or COMPONENTS))
    posterior = ParameterPosterior(arrays["mean"], arrays["deviation"])
    for each in (posterior.mean, posterior.deviation):
        if each.shape != (model.components, model.width) or not np.isfinite(each).all():
            raise ValueError("a number for each component and parameter is expected [VA074]")
    return FittedMixture(tuple(schemas), model, posterior)


def _check_families(families: Mapping[str, str], schemas: Mapping[str, Schema]) -> None:
    known = columns_of(schemas)
    for name in families:
        owner, _ = owner_of(name, schemas)
        if owner is None or name not in known:
            raise StudyError(
                f"families names {name!r}, which is no column of this study{suggest_full_name(name, known)} [ST372]"
            )


def _public_stream(task: MixtureTask, what: str) -> Stream:
    """Public randomness that follows from the plan."""
    return Stream(hashlib.sha256(f"colonnade mixture {what} {task.components} {task.plan}".encode()).digest())
