"""What tests of protocols share: rows in memory, a small task of each protocol, and a run in which everybody plays."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from fractions import Fraction
from functools import cache
from itertools import combinations
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from colonnade.errors import PeerLost, PeerStopped
from colonnade.kinds.glm.kept_scores import KeptScoresTask, ScoreSender
from colonnade.kinds.glm.losses import family_for
from colonnade.kinds.glm.task import Exchange, ExchangeSide
from colonnade.kinds.pca import programs as directions
from colonnade.kinds.pca.task import SubspaceIteration
from colonnade.kinds.polynomial import programs as polynomial
from colonnade.kinds.polynomial.expressions import parse
from colonnade.kinds.polynomial.task import NamedColumns, Polynomials, freeze_terms
from colonnade.kinds.prediction.task import QuantisedAnswers, Respondent, ScorePart, Scores
from colonnade.kinds.regression import programs as gradients
from colonnade.kinds.regression.task import GradientTask
from colonnade.kinds.synthesis.mixture import programs as mixture
from colonnade.kinds.tables import programs as marginals
from colonnade.kinds.tables.task import CodedColumn, MarginalQuery, Marginals
from colonnade.privacy import Trust
from colonnade.privacy.noise import local_mechanisms
from colonnade.protocols import align, compatibility
from colonnade.protocols.align import AlignmentTask
from colonnade.protocols.joint_sum.declaration import JointSum
from colonnade.protocols.moments import programs as moments
from colonnade.protocols.moments.task import Moments
from colonnade.protocols.roles import COORDINATOR
from colonnade.protocols.rows import ColumnBlock
from colonnade.protocols.session import RunResult, run_role
from colonnade.protocols.task import RunnableTask
from colonnade.tables import flag
from colonnade.tables.keys import Key, TableKeys
from colonnade.tables.slots import RowSlots
from colonnade.wire import InMemoryNetwork

Array = np.ndarray[Any, Any]
Program = Callable[[Any], Any]
LAWS = ("skellam", "discrete-gaussian", "discrete-laplace")
SEATINGS = (
    (2, None, 1),  # two owners, and the coordinator has a seat
    (3, None, 1),
    (4, None, 1),
    (4, ("o3", "o1", COORDINATOR), 1),
    (5, None, 2),
    (7, None, 3),
    (7, None, 1),
    (9, ("o0", "o1", "o2", "o3", "o4"), 2),  # most owners have no seat
)
"""Owners, seats and threshold of committees that differ in what can go wrong."""


class Rows:
    """Encoded rows with ids, as a table would give them; those of people who are hidden are in slots."""

    def __init__(self, values: Any, ids: Sequence[str] | None = None, places: RowSlots | None = None) -> None:
        self.values = np.asarray(values, dtype=float)
        self.ids = [f"p{i:06d}" for i in range(len(self.values))] if ids is None else ids
        self.places = places

    def __len__(self) -> int:
        return len(self.values)

    def blocks(self, rows: int, /) -> Iterator[Array]:
        return (self.values[start : start + rows] for start in range(0, len(self.values), rows))


# --- who takes part


def trust_of(owners: int | Sequence[str], seats: Sequence[str] | None = None, threshold: int = 1) -> Trust:
    """Owners, and the committee that a study would have if nobody said anything else."""
    names = tuple(f"o{i}" for i in range(owners)) if isinstance(owners, int) else tuple(owners)
    return Trust(names, tuple(seats or (names[:7] if len(names) > 2 else (*names, COORDINATOR))), threshold)


def active(task: Any, **changes: Any) -> Any:
    """The same task where participants may deviate."""
    return replace(task, trust=replace(task.trust, security="active", **changes))


def blocks_of(owners: Sequence[str], widths: Sequence[int], clip: float = 1.0) -> tuple[ColumnBlock, ...]:
    """So many columns of each owner."""
    return tuple(ColumnBlock(o, tuple(f"c{i}" for i in range(w)), clip) for o, w in zip(owners, widths, strict=True))


# --- a small task of each protocol


def moments_task(
    widths: Sequence[int] = (2, 2, 2), seats: Sequence[str] | None = None, threshold: int = 1, **changes: Any
) -> Moments:
    """Second moments of so many columns of each owner."""
    trust = trust_of(len(widths), seats, threshold)
    blocks = blocks_of(trust.owners, widths)
    return replace(Moments(blocks, trust, 64, 32, rows_at_most=1000, noise=3 * len(widths)), **changes)


def grouped_moments_task(
    owners: int = 3, seats: Sequence[str] | None = None, threshold: int = 1, **changes: Any
) -> Moments:
    """Second moments where each owner has a number, a centred flag and a category of two values."""
    trust = trust_of(owners, seats, threshold)
    groups = ((1, Fraction(1)), (1, Fraction(1, 2)), (2, Fraction(1)))
    blocks = tuple(ColumnBlock(name, ("n", "f", "c=a", "c=b"), 1.5, groups) for name in trust.owners)
    return replace(Moments(blocks, trust, 64, 32, 1000, noise=6 * owners), **changes)


def hidden_moments_task(
    owners: int = 2, seats: Sequence[str] | None = None, threshold: int = 1, law: str = "skellam", **changes: Any
) -> Moments:
    """The same where nobody knows which people all owners hold."""
    return grouped_moments_task(owners, seats, threshold, law=law, hidden=True, **changes)


def moments_task_of_law(law: str = "skellam", owners: int = 3, **changes: Any) -> Moments:
    """The same with noise of this law and at most three seats."""
    return grouped_moments_task(owners, trust_of(owners).committee[:3], law=law, **changes)


def uneven_moments_task(law: str, widths: Sequence[int] = (1, 3, 6), **changes: Any) -> Moments:
    """Second moments of three owners with numbers and, where the width allows it, a category of three values."""
    owners, blocks = ("bank", "shop", "clinic"), []
    for owner, width in zip(owners, widths, strict=True):
        several = ((3, Fraction(1)),) if width >= 3 else ()
        runs = ((1, Fraction(1)),) * (width - 3 * len(several)) + several
        blocks.append(ColumnBlock(owner, tuple(f"c{i}" for i in range(width)), math.sqrt(len(runs)), runs))
    return replace(Moments(tuple(blocks), trust_of(owners), 64, 32, 1000, noise=3 * 10**9, law=law), **changes)


def grouped_rows(rng: np.random.Generator, rows: int) -> Array:
    """Rows of an owner of :func:`grouped_moments_task`."""
    hot = np.eye(2)[rng.integers(0, 2, rows)]
    return np.column_stack([rng.uniform(-1, 1, rows), rng.choice([-0.5, 0.5], rows), hot])


def marginals_task(
    sizes: Sequence[Sequence[int]] = ((3, 2), (4,), (2, 3)),
    seats: Sequence[str] | None = None,
    threshold: int = 1,
    label: int | None = 1,
    **changes: Any,
) -> Marginals:
    """Every block of up to two columns, and of two with the label; ``sizes`` are those of each owner's columns."""
    trust = trust_of(len(sizes), seats, threshold)
    coded = tuple(
        CodedColumn(o, f"c{i}", n) for o, own in zip(trust.owners, sizes, strict=True) for i, n in enumerate(own)
    )
    places = range(len(coded))
    blocks = [columns for count in range(3) for columns in combinations(places, count)]
    if label is not None:
        blocks += [tuple(sorted((*pair, label))) for pair in combinations([p for p in places if p != label], 2)]
    asked = tuple(MarginalQuery(columns, 1 + index % 5) for index, columns in enumerate(blocks))
    task = Marginals(coded, asked, trust, rows_at_most=1000, noise=3 * len(sizes), label=label)
    return replace(task, **changes)


def codes_of(task: Marginals, rows: int, seed: int = 5) -> dict[str, Array]:
    """Random codes of every owner's columns."""
    rng = np.random.default_rng(seed)
    sizes = {owner: [task.sizes[place] for place in task.held_by(owner)] for owner in task.owners}
    return {owner: rng.integers(0, own, (rows, len(own))) for owner, own in sizes.items()}


def directions_task(
    widths: Sequence[int] = (4, 3, 5), seats: Sequence[str] | None = None, threshold: int = 1, **changes: Any
) -> SubspaceIteration:
    """Three rounds of four directions."""
    trust = trust_of(len(widths), seats, threshold)
    task = SubspaceIteration(
        blocks_of(trust.owners, widths), trust, gamma=64, constant=32, rows_at_most=1000, directions=4, rounds=3,
        noise=3 * len(widths), reach=1024,
    )  # fmt: skip
    return replace(task, **changes)


def gradients_task(
    widths: Sequence[int] = (2, 1, 2), seats: Sequence[str] | None = None, threshold: int = 1, **changes: Any
) -> GradientTask:
    """Seven rounds over drawn batches of ten of forty people; the last owner has the labels."""
    trust = trust_of(len(widths), seats, threshold)
    task = GradientTask(
        blocks_of(trust.owners, widths), label_owner=trust.owners[-1], classes=1, trust=trust, gamma=64,
        scale=1 / math.sqrt(len(widths) + 0.25), expansion=1, weight_bound=4.0, learning_rate=2.0, sampling="poisson",
        rows=40, batch=10, rounds=7, noise=3 * len(widths), rows_at_most=1000, block_rows=16,
    )  # fmt: skip
    return replace(task, **changes)


def polynomial_task(
    widths: Sequence[int],
    expressions: Sequence[str],
    seats: Sequence[str] | None = None,
    threshold: int = 1,
    clip: float = 1.0,
    **changes: Any,
) -> Polynomials:
    """Sums of these expressions in columns such as ``o0.c0``."""
    trust = trust_of(len(widths), seats, threshold)
    columns = blocks_of(trust.owners, widths)
    holdings = tuple(NamedColumns(b.owner, b.columns, clip, len(b.columns), (False,) * len(b.columns)) for b in columns)
    names = [f"{held.owner}.{column}" for held in holdings for column in held.columns]
    polynomials = tuple(freeze_terms(parse(text, names)) for text in expressions)
    task = Polynomials(holdings, trust, polynomials, gamma=32, rows_at_most=100, noise=4 * len(widths))
    return replace(task, **changes)


def scores_task(
    owners: int, seats: Sequence[str] | None = None, threshold: int = 1, classes: int = 2, **changes: Any
) -> Scores:
    """Scores for the first owner; the bounds of no two owners and of no two classes are the same."""
    trust, gamma = trust_of(owners, seats, threshold), 256
    parts = tuple(
        ScorePart(o, tuple(-gamma * (i + 1) - k for k in range(classes)), (2 * gamma,) * classes)
        for i, o in enumerate(trust.owners)
    )
    return replace(Scores(parts, trust, to=trust.owners[0], gamma=gamma, rows_at_most=1000), **changes)


def keys_of(values: Iterable[str]) -> TableKeys:
    """The keys of people with these ids, as a table has them."""
    encoded = [value.encode() for value in values]
    return TableKeys(("id",), [struct.pack("<I", len(one)) + one for one in encoded], np.arange(len(encoded)), 0, 0)


def align_programs(task: AlignmentTask, lists: Mapping[str, TableKeys], **how: Mapping[str, Any]) -> dict[str, Program]:
    """Every role of an alignment; ``how`` says by owner what else it holds, as ``kept={"bank": aligned}``."""

    def owner(name: str) -> Program:
        held = {what: by_owner[name] for what, by_owner in how.items() if name in by_owner}
        return lambda me: align.owner(me, lists[name], task, **held)

    return {name: owner(name) for name in task.owners} | {COORDINATOR: lambda me: align.coordinator(me, task)}


def align_task(
    owners: Sequence[str], seats: Sequence[str] | None = None, keys: Sequence[Key] = (Key("id"),), **settings: Any
) -> AlignmentTask:
    """An alignment by one id and by points, unless other keys or another mode are given."""
    return AlignmentTask(trust_of(owners, seats), tuple(keys), **{"mode": "dh"} | settings)


def exchange_task(method: str = "alternating", owners: Sequence[str] = ("bank", "shop"), **changes: Any) -> Exchange:
    """Two epochs of messages about forty people with two columns of each owner; nobody holds shares."""
    alternating = method == "alternating"
    given: dict[str, Any] = {
        "blocks": tuple(ColumnBlock(name, ("u", "v"), 1.0) for name in owners),
        "sides": tuple(ExchangeSide(name, 0.05, 1.0, 0.7) for name in owners),
        "active": owners[0],
        "family": family_for("logistic", flag()),
        "trust": Trust(tuple(owners), (), 0),
        "rows": 40,
        "method": method,
        "epochs": 2,
        "batches": 1 if alternating else 3,
        "message_clip": 2.0,
        "learning_rate": 0.0 if alternating else 1.0,
        "release_ridge": 0.5,
    }
    return Exchange(**given | changes)


def kept_scores_task(*senders: ScoreSender, rows_at_most: int = 100, **changes: Any) -> KeptScoresTask:
    """Scores of new people for ``left`` by weights that the others kept."""
    found = senders or (ScoreSender("right", 3, 2.0, 1.5, 0.25),)
    trust = Trust(("left", *(sender.owner for sender in found)), (), 0)
    return KeptScoresTask(trust, "left", found, rows_at_most, **changes)


def levels_task(**changes: Any) -> QuantisedAnswers:
    """Levels of two of three others' parts, for ``left``."""
    asked = (Respondent("mid", (-64, 64)), Respondent("right", (0,)))
    trust = Trust(("left", "mid", "other", "right"), (), 0)
    return replace(QuantisedAnswers(trust, "left", asked, gamma=256, rows_at_most=100), **changes)


# --- rows for a task


def tables_of(task: Any, rows: int, seed: int = 5) -> dict[str, Array]:
    """Random rows of every owner, within its bound."""
    rng, tables = np.random.default_rng(seed), {}
    for held in getattr(task, "holdings", None) or task.blocks:
        values = rng.uniform(-1, 1, (rows, len(held.columns)))
        norms = np.linalg.norm(values, axis=1, keepdims=True)
        tables[held.owner] = values * np.minimum(1, held.clip / np.maximum(norms, 1e-9)) * (1 - 1e-12)
    return tables


def integers(task: Any, tables: Mapping[str, Array]) -> dict[str, Array]:
    """The integers that owners make of their rows, where rounding is to the nearest."""
    return {name: np.rint(values * task.gamma).astype(np.int64) for name, values in tables.items()}


# --- without chance


def nearest(patch: pytest.MonkeyPatch) -> None:
    """Round without coins."""
    patch.setattr(local_mechanisms, "stochastic_round", lambda values, stream: np.rint(values))
    patch.setattr(
        compatibility, "_digest", cache(compatibility._digest.__wrapped__)
    )  # or others would be told these rules later


def no_noise(patch: pytest.MonkeyPatch) -> None:
    """Leave the noise of every protocol out."""
    for declared in (moments.MomentsSum, marginals.MarginalsSum, polynomial.MonomialsSum):
        patch.setattr(declared, "noise", lambda self, stream, count: np.zeros(count, np.int64))
    for programs in (directions, gradients, mixture):
        patch.setattr(programs, "noise_shares", lambda task, n, stream: np.zeros((n, task.entries), np.int64))


def noise_of(programs: ModuleType) -> tuple[Any, str]:
    """Where the noise of a protocol's owners is drawn: what has the function, and its name."""
    sums = [one for one in vars(programs).values() if isinstance(one, type) and JointSum in one.__bases__]
    return (sums[0], "noise") if sums else (programs, "noise_shares")


def noise_drawn(patch: pytest.MonkeyPatch, programs: ModuleType) -> list[Array]:
    """The shares of noise that owners draw from now on, one after the other."""
    home, name = noise_of(programs)
    drawn: list[Array] = []
    real = getattr(home, name)
    patch.setattr(home, name, lambda *given, **named: drawn.append(real(*given, **named)) or drawn[-1])
    return drawn


# --- everybody plays


class Watched:
    """A link that takes down what arrives while a program runs."""

    def __init__(self, link: Any, log: list[tuple[str, dict[str, Any]]]) -> None:
        self.link, self.log, self.on = link, log, False

    def send(self, kind: str, /, **fields: Any) -> None:
        self.link.send(kind, **fields)

    def recv(self, kind: str, *most: int) -> dict[str, Any]:
        fields = self.link.recv(kind, *most)
        if self.on:
            self.log.append((kind, fields))
        return fields


Log = dict[tuple[str, str], list[tuple[str, dict[str, Any]]]]
"""By sender and recipient, the kind and the fields of each message."""


def outcomes(
    task: RunnableTask,
    programs: Mapping[str, Program],
    *,
    log: Log | None = None,
    progress: Callable[..., None] = lambda *step: None,
    mute: Collection[str] = (),
    wrap: Callable[[str, str, Any], Any] | None = None,
    **room_settings: Any,
) -> dict[str, RunResult[Any] | BaseException]:
    """Everybody's part in a thread, over channels: what it has in hand in the end, or why it has nothing.

    ``progress`` is called with the name before the step; whoever is ``mute`` leaves without a word. ``wrap`` makes
    another channel of one, by whose it is and to whom it goes.
    """
    room = InMemoryNetwork(programs, **room_settings)

    def part(name: str) -> RunResult[Any] | BaseException:
        place, watched = room.place(name), []
        real = place.channel

        def channel(peer: str) -> Watched:
            watched.append(Watched(real(peer), log.setdefault((peer, name), [])))
            return watched[-1]

        def program(me: Any) -> Any:
            for link in watched:
                link.on = True
            try:
                return programs[name](me)
            finally:
                for link in watched:
                    link.on = False

        if log is not None:
            place.channel = channel
        elif wrap is not None:
            place.channel = lambda peer: wrap(name, peer, real(peer))
        if name in mute:
            place.abort = lambda reason: None
        try:
            return run_role(place, task, program, lambda *step: progress(name, *step))
        except BaseException as error:
            return error

    with ThreadPoolExecutor(len(programs)) as pool:
        return dict(zip(programs, pool.map(part, programs), strict=True))


def results(task: RunnableTask, programs: Mapping[str, Program], **how: Any) -> dict[str, Any]:
    """The same where all must succeed: everybody's result, or the first error that is not about somebody else's."""
    ended = outcomes(task, programs, **how)
    errors = [found for found in ended.values() if isinstance(found, BaseException)]
    for error in sorted(errors, key=lambda error: isinstance(error, PeerStopped | PeerLost)):
        raise error
    return {name: found.result for name, found in ended.items()}


def programs_of(module: Any, task: Any, held: Mapping[str, Any], labels: Array | None = None) -> dict[str, Program]:
    """Every role of a protocol: arrays are an owner's rows, and labels go to the owner whom the task names."""
    holder = getattr(task, "label_owner", None) or getattr(task, "active", None)

    def owner(name: str) -> Program:
        own = Rows(held[name]) if isinstance(held[name], np.ndarray) else held[name]
        if labels is None:
            return lambda me: module.owner(me, own, task)
        return lambda me: module.owner(me, own, labels if name == holder else None, task)

    return {name: owner(name) for name in task.owners} | {COORDINATOR: lambda me: module.coordinator(me, task)}


def execute(module: Any, task: Any, held: Mapping[str, Any], labels: Array | None = None, **how: Any) -> dict[str, Any]:
    """Run a protocol on what every owner holds; everybody's result."""
    return results(task, programs_of(module, task, held, labels), **how)
