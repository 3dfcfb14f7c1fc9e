"""Games: an attacker with samples of two neighbouring tables, against what the events promise; and their verdicts.

Two tables that differ in one person can move a release so far: for games, and for the probe.

From samples of two neighbouring tables to a verdict on a claimed curve delta(epsilon).

A claim says that no event is likelier than ``e^epsilon`` times its chance under the neighbour, plus
``delta(epsilon)``. An attacker looks for an event that breaks it. The event is chosen on one half of the
samples and measured on the other half, so that the choice does not bias the measurement
(``docs/theory/audits.md``).
"""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import asdict, dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaincinv, ndtri

from colonnade.errors import PrivacyError, StudyError
from colonnade.models import registry
from colonnade.privacy import Event, Observer, Sensitivity, Trust, View, accountant
from colonnade.privacy.accounting.loss_distributions import log_gaussian_deltas
from colonnade.privacy.events import exchange_key, views
from colonnade.protocols.rows import JointRows
from colonnade.protocols.task import Task
from colonnade.randomness import Stream

Floats = NDArray[np.float64]
Claim = Callable[[Floats], Floats]

EPSILONS: tuple[float, ...] = tuple(round(0.05 * k, 2) for k in range(121))
CONFIDENCE = 0.999
DELTA = 1e-5
_FEWEST = 100
_FURTHEST = 700.0  # beyond it e^epsilon is no float
_SPREAD, _TAIL = 2048, 256  # how many thresholds are tried over the whole range, and towards each end


@dataclass(frozen=True)
class AuditResult:
    """What one game showed: the claim, a lower bound on the truth, and by how much the second exceeds the first.

    ``margin`` is the largest ``lower - claimed``, and ``epsilon`` is where it is reached; above zero the claim is
    refuted. A small margin does not mean that the claim is nearly refuted, as all deltas may be small; ``reach``
    measures that. ``order`` says whether the event was likelier under the first neighbour (0) or the second (1).
    """

    margin: float
    epsilon: float
    order: int
    epsilons: tuple[float, ...]
    claimed: tuple[float, ...]
    lower: tuple[float, ...]
    delta: float
    epsilon_lower_bound: float
    samples: tuple[int, int]
    confidence: float

    @property
    def caught(self) -> bool:
        """Whether the claim is refuted."""
        return self.margin > 0

    @cached_property
    def reach(self) -> float:
        """How much of the promise was shown: above 1 it is refuted, and near 0 this game could hardly see anything.

        At each epsilon, both curves are compared with Gaussian noise: which sensitivity, in deviations, has the shown
        delta, and which has the promised delta? Reach is the largest ratio of these two. If the noise were smaller than
        the promised noise times this ratio, the game would have refuted the promise.
        """
        shown, claimed, grid = map(np.array, (self.lower, self.claimed, self.epsilons))
        some = shown > 0
        if not some.any():
            return 0.0
        if (claimed[some] <= 0).any():
            return math.inf
        shift = (_gaussian_shift(curve[some], grid[some]) for curve in (shown, claimed))
        return float(np.divide(*shift).max())

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; an infinite lower bound or reach is ``null``."""
        limits = {"epsilon_lower_bound": self.epsilon_lower_bound, "reach": self.reach}
        finite = {name: value if math.isfinite(value) else None for name, value in limits.items()}
        return {"caught": self.caught} | asdict(self) | finite


def profile_audit(
    claim: Claim,
    p: ArrayLike,
    q: ArrayLike,
    *,
    epsilons: ArrayLike = EPSILONS,
    confidence: float = CONFIDENCE,
    delta: float = DELTA,
) -> AuditResult:
    """Compare a claimed curve with samples of a statistic under two neighbours.

    If the claim is right, the chance that it is ever caught, at any epsilon and in either order, is at most
    ``1 - confidence``. The result also has a lower bound on epsilon at ``delta``, with the same confidence.
    """
    grid = np.asarray(epsilons, dtype=np.float64)
    if not np.isfinite(grid).all() or np.any(np.abs(grid) > _FURTHEST):
        raise PrivacyError(f"the epsilons of an audit must be finite numbers of at most {_FURTHEST:g} [PR002]")
    claimed = np.asarray(claim(grid), dtype=np.float64)
    if grid.ndim != 1 or not grid.size or claimed.shape != grid.shape or np.isnan(claimed).any():
        raise PrivacyError("a claim gives one delta for each epsilon of the audit, and this one does not [PR003]")
    halves = _Halves.of(p, q, confidence)
    level = (1 - confidence) / (4 * grid.size)  # two bounds for each epsilon and order
    curves = np.array([halves.lower_curve(order, grid, level) for order in (0, 1)])
    margins = curves - claimed
    order, worst = divmod(int(margins.argmax()), grid.size)
    return AuditResult(
        margin=float(margins[order, worst]),
        epsilon=float(grid[worst]),
        order=order,
        epsilons=tuple(grid.tolist()),
        claimed=tuple(claimed.tolist()),
        lower=tuple(curves.max(axis=0).tolist()),
        delta=delta,
        epsilon_lower_bound=halves.epsilon(delta, (1 - confidence) / 4),
        samples=halves.samples,
        confidence=confidence,
    )


@dataclass(frozen=True)
class _Halves:
    """Sorted samples for choosing events, sorted samples for measuring them, and the events to choose from."""

    chosen_on: tuple[NDArray[Any], NDArray[Any]]
    measured_on: tuple[NDArray[Any], NDArray[Any]]
    thresholds: NDArray[Any]
    level: float

    @classmethod
    def of(cls, p: ArrayLike, q: ArrayLike, confidence: float) -> _Halves:
        if not 0 < confidence < 1:
            raise PrivacyError(f"the confidence of an audit lies strictly between 0 and 1, not {confidence} [PR004]")
        both = _samples(p), _samples(q)
        first = tuple(np.sort(x[: x.size // 2]) for x in both)
        second = tuple(np.sort(x[x.size // 2 :]) for x in both)
        return cls((first[0], first[1]), (second[0], second[1]), _thresholds(*first), 1 - confidence)

    @property
    def samples(self) -> tuple[int, int]:
        """How many samples of each neighbour there are."""
        first, second = self.chosen_on, self.measured_on
        return first[0].size + second[0].size, first[1].size + second[1].size

    @cached_property
    def _promising(self) -> tuple[tuple[Floats, Floats], tuple[Floats, Floats]]:
        """Bounds on every event's chance under either neighbour, from the half that events are chosen on.

        Events are "at least t" for each threshold and then "below t". These bounds only rank events, so they need
        not be exact.
        """
        lower = []
        for values in self.chosen_on:
            above = values.size - np.searchsorted(values, self.thresholds)
            counts = np.concatenate([above, values.size - above])
            lower.append(_roughly_at_least(counts, values.size, self.level / 1000))
        # An upper bound is one minus the lower bound of the opposite event, which is in the other half of the list.
        upper = [1 - np.roll(bound, self.thresholds.size) for bound in lower]
        return (lower[0], lower[1]), (upper[0], upper[1])

    def _measured(self, order: int, events: NDArray[np.intp], level: float) -> tuple[Floats, Floats]:
        """A lower bound under one neighbour and an upper bound under the other, from the fresh half."""
        bounds = []
        for values in (self.measured_on[order], self.measured_on[1 - order]):
            above = values.size - np.searchsorted(values, self.thresholds[events % self.thresholds.size])
            bounds.append((np.where(events < self.thresholds.size, above, values.size - above), values.size))
        (hits, size), (others, other_size) = bounds
        return _at_least(hits, size, level), 1 - _at_least(other_size - others, other_size, level)

    def lower_curve(self, order: int, epsilons: Floats, level: float) -> Floats:
        """A lower bound on P(E) - e^epsilon Q(E) at each epsilon, for the event that looked best there."""
        lower, upper = self._promising
        grown = np.exp(epsilons)
        events = (lower[order] - grown[:, None] * upper[1 - order]).argmax(axis=1)
        low, high = self._measured(order, events, level)
        return np.asarray(low - grown * high)

    def epsilon(self, delta: float, level: float) -> float:
        """The larger of the two orders' lower bounds on log((P(E) - delta) / Q(E)), at least zero."""
        if not 0 <= delta < 1:
            raise PrivacyError(f"delta must be a probability below 1, not {delta} [PR005]")
        lower, upper = self._promising
        found = 0.0
        for order in (0, 1):
            best = np.array([((lower[order] - delta) / upper[1 - order]).argmax()])
            low, high = self._measured(order, best, level)
            if low[0] > delta:
                found = max(found, math.log((low[0] - delta) / high[0]))
        return found


def _samples(values: ArrayLike) -> NDArray[Any]:
    found = np.asarray(values)
    if found.ndim != 1 or found.size < _FEWEST:
        raise PrivacyError(f"an audit needs at least {_FEWEST} samples of each neighbour, in one row [PR006]")
    if found.dtype.kind not in "iuf" or not np.isfinite(found).all():
        raise PrivacyError("the samples of an audit must be finite numbers [PR007]")
    return found


def _thresholds(p: NDArray[Any], q: NDArray[Any]) -> NDArray[Any]:
    """Values from all samples together, with more of them near both ends."""
    pooled = np.sort(np.concatenate([p, q]))
    ends = np.geomspace(1, pooled.size, _TAIL).astype(np.int64) - 1
    ranks = np.concatenate([np.linspace(0, pooled.size - 1, _SPREAD).astype(np.int64), ends, pooled.size - 1 - ends])
    return np.unique(pooled[ranks])


def _at_least(hits: NDArray[np.int64], trials: int, level: float) -> Floats:
    """Clopper and Pearson: a bound that is above the true chance of a hit with probability at most ``level``."""
    some = np.maximum(hits, 1)
    return np.where(hits > 0, betaincinv(some, trials - some + 1, level), 0.0)


def _roughly_at_least(hits: NDArray[np.int64], trials: int, level: float) -> Floats:
    """Wilson's approximation to the same bound, which is much faster to compute."""
    reach = float(ndtri(level))
    spread = np.sqrt(hits * (trials - hits) / trials + reach**2 / 4)
    return np.asarray((hits + reach**2 / 2 + reach * spread) / (trials + reach**2))


def _gaussian_shift(deltas: Floats, epsilons: Floats) -> Floats:
    """The sensitivity, in standard deviations, at which Gaussian noise has each delta at its epsilon."""
    wanted = np.log(deltas)
    low, high = np.full(deltas.shape, 1e-9), np.full(deltas.shape, 1e3)
    for _ in range(60):
        middle = np.sqrt(low * high)
        enough = log_gaussian_deltas(middle, epsilons) >= wanted
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    return high


_CHUNK = 1 << 15


class Sampler(Protocol):
    """Draws a statistic of what an observer sees when the table is the first or the second neighbour."""

    def __call__(self, neighbour: int, count: int, stream: Stream, /) -> NDArray[Any]:
        """Draw ``count`` independent values of the statistic."""


@dataclass(frozen=True)
class Game:
    """One observer of one protocol, two neighbouring tables, and a statistic of what the observer sees.

    ``story`` says which two tables and which statistic; ``part`` is the name of one of several games of an observer.
    """

    subject: str
    observer: Observer
    story: str
    events: tuple[Event, ...]
    trust: Trust
    sampler: Sampler
    part: str = ""

    @property
    def name(self) -> str:
        """``pca/bank``, and the part where there is one."""
        return "/".join(filter(None, (self.subject, self.observer.label, self.part)))

    @property
    def role(self) -> str:
        """Analyst, coordinator, party or coalition."""
        return ("analyst", "coordinator", "party", "coalition")[self.observer.rank]

    @property
    def seen(self) -> tuple[View, ...]:
        """The events as the observer sees them."""
        return views(self.events, self.observer, self.trust)

    def claim(self, epsilons: Floats) -> Floats:
        """The promised delta at each epsilon."""
        return np.array(_profile(self.seen, tuple(epsilons.tolist())))

    def epsilon(self, delta: float = DELTA) -> float:
        """The promised epsilon at one delta."""
        return accountant.epsilon(self.seen, delta).epsilon

    def sample(self, neighbour: int, count: int, stream: Stream) -> NDArray[Any]:
        """Draw ``count`` values of the statistic, piece by piece so that memory stays small."""
        sizes = [min(_CHUNK, count - start) for start in range(0, count, _CHUNK)]
        return np.concatenate([self.sampler(neighbour, size, stream) for size in sizes])

    def play(self, count: int, stream: Stream) -> AuditResult:
        """Sample both neighbours and compare the claim with the samples."""
        p, q = self.sample(0, count, stream), self.sample(1, count, stream)
        return profile_audit(self.claim, p, q)


@lru_cache(maxsize=256)
def _profile(seen: tuple[View, ...], epsilons: tuple[float, ...]) -> tuple[float, ...]:
    return tuple(accountant.profile(seen, epsilons).tolist())


Build = Callable[[Any], Iterable[Game]]
Names = tuple[str, ...]


@dataclass(frozen=True)
class AuditSubject:
    """What can be audited, a model or a mechanism: a task to play with, and the games about any such task."""

    name: str
    summary: str
    plan: Callable[[], Any]
    build: Build


_SUBJECTS: dict[str, AuditSubject] = {}


def register(name: str, summary: str, plan: Callable[[], Any]) -> Callable[[Build], Build]:
    """Enter games under a name, by which tasks of studies call for them (``Task.games``).

    ``plan`` makes the task that is played when no study brings its own.
    """

    def enter(build: Build) -> Build:
        if name in _SUBJECTS:
            raise ValueError(f"games named {name!r} are registered already [VA003]")
        _SUBJECTS[name] = AuditSubject(name, summary, plan, build)
        return build

    return enter


def subjects() -> tuple[AuditSubject, ...]:
    """Everything that can be audited, in the order of kinds."""
    return tuple(_subjects().values())


def _subjects() -> dict[str, AuditSubject]:
    """All subjects by name, after the games of every kind have registered themselves."""
    modules = registry.game_modules()
    for module in modules:
        registry.resolve(module)
    # Whoever imported one of these modules before has registered its games first.
    place = {module: at for at, module in enumerate(modules)}
    known = sorted(_SUBJECTS.values(), key=lambda one: place.get(one.build.__module__, len(place)))
    return {one.name: one for one in known}


def subject(task: Task) -> str:
    """The name of the games about a study's task."""
    if task.games not in _subjects():
        raise StudyError(
            "there is no game about this study: an exact answer promises nothing to whoever receives it, and other "
            "kinds of task cannot be audited yet [ST014]"
        )
    return task.games


def games(name: str, task: Task | None = None) -> tuple[Game, ...]:
    """The games of a model or mechanism, about the given task or about the registered one."""
    known = _subjects().get(name)
    if known is None:
        raise StudyError(
            f"there are no games named {name!r}; choose from {', '.join(_SUBJECTS)}, or a STUDY.toml [ST015]"
        )
    found = tuple(known.build(known.plan() if task is None else task))
    if not found:
        raise StudyError(
            f"{name} is registered but gives no games for this task: let its row yield at least one [ST016]"
        )
    return found


def observers(task: Task, also: Callable[[str], object] = lambda owner: None) -> Iterator[tuple[Observer, Names]]:
    """Who may look at a task without breaking its threshold, and the owners whose noise each cannot subtract.

    Of several observers in the same position only one is given; ``also`` maps an owner to what else sets it apart.
    """
    key = exchange_key([(event, task.trust) for event in task.events])
    for observer in task.trust.standard_observers(lambda owner: (key(owner), also(owner))):
        if task.trust.broken(observer) is None:
            yield observer, tuple(owner for owner in task.owners if owner not in observer.names)


def describe_neighbours(observer: Observer) -> str:
    """The two tables that an observer must not tell apart, in words."""
    return "no row, or one" if observer == Observer.analyst() else "a row, or another in the others' columns,"


_FAR = 9.99


@dataclass(frozen=True)
class GameVerdict:
    """The outcome of one game."""

    game: Game
    result: AuditResult
    claimed: float

    @property
    def good(self) -> bool:
        """Whether the promise holds."""
        return not self.result.caught

    @property
    def word(self) -> str:
        """The verdict in one word, in capitals if it is not good."""
        return "holds" if self.good else "REFUTED"

    @property
    def label(self) -> str:
        """What the game is called where outcomes are listed."""
        return self.game.name

    @property
    def reach(self) -> str:
        """How much of the promise was shown, in percent; rounded so that only a refuted promise is at 100 or more."""
        share = self.result.reach
        if share >= _FAR:
            return f">{_FAR:.0%}"
        return f"{math.ceil(100 * share) if self.result.caught else math.floor(100 * share)}%"

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; an infinite claim is ``null``."""
        return {
            "game": self.game.name,
            "observer": self.game.observer.label,
            "adjacency": self.game.trust.adjacency(self.game.observer).value,
            "story": self.game.story,
            "claimed_epsilon": self.claimed if math.isfinite(self.claimed) else None,
            "verdict": self.word,
            "good": self.good,
            **self.result.to_dict(),
        }


def judge(game: Game, samples: int, seed: int) -> GameVerdict:
    """Play a game with randomness of its own, so that its outcome does not depend on what else is played."""
    result = game.play(samples, game_stream(f"{seed} {game.name} "))
    return GameVerdict(game, result, game.epsilon(result.delta))


def game_stream(words: str) -> Stream:
    """The randomness of a game. Games are about made-up people, so others may know the seed."""
    return Stream(hashlib.sha256(f"colonnade audit {words}".encode()).digest())


Person = tuple[float, ...]
"""One row, in the units of the encoded columns."""
_MOST_TURNED = 8


Public = TypeVar("Public", bound=JointRows)


@dataclass(frozen=True)
class OnePersonSampler(ABC, Generic[Public]):
    """What an observer sees of one person's products, without the noise that it knows.

    ``people`` are the rows of the two tables; ``None`` is a table without a row. ``noisy`` are the owners whose noise
    the observer cannot subtract.
    """

    task: Public
    people: tuple[Person | None, Person]
    noisy: tuple[str, ...]

    def rows(self, neighbour: int, count: int, stream: Stream) -> NDArray[np.int64]:
        """The person's integer row with the constant, rounded again by each owner in each of ``count`` runs."""
        task: Any = self.task
        person = self.people[neighbour]
        if person is None:
            return np.zeros((count, task.width), dtype=np.int64)
        row = np.array(person)
        whole = [self.rounded(owner, np.tile(row[task.span(owner)], (count, 1)), stream) for owner in task.owners]
        return np.hstack([*whole, np.full((count, 1), float(task.constant))]).astype(np.int64)

    @abstractmethod
    def rounded(self, owner: str, values: NDArray[np.float64], stream: Stream) -> NDArray[np.float64]:
        """One owner's integers of some rows, by the protocol's own function."""

    @cached_property
    def vectors(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Both rows with the constant, before rounding; all zeros for a table without a row."""
        first, second = (_with_constant(self.task, person) for person in self.people)
        return first, second


def find_furthest(task: JointRows, observer: Observer) -> tuple[Person | None, Person]:
    """Of some pairs that the observer must not tell apart, the one that moves the second moments furthest."""
    whole = rows_at_bounds(task)
    if observer == Observer.analyst():
        return None, whole
    others = [owner for owner in task.owners if owner not in observer.names]
    mixed, elsewhere = list(whole), rows_at_bounds(task, column=1)
    for owner in others:
        mixed[task.span(owner)] = elsewhere[task.span(owner)]
    turned = [rows_at_bounds(task, others[: k + 1]) for k in range(min(len(others), _MOST_TURNED))]
    return whole, max([tuple(mixed), *turned], key=lambda person: _distance(task, whole, person))


def rows_at_bounds(task: JointRows, turned: Collection[str] = (), column: int = 0) -> Person:
    """A person whose value in one column of each owner is the owner's clip, with a minus at the owners ``turned``."""
    row: list[float] = []
    for block in task.blocks:
        own = [0.0] * len(block.columns)
        if own:
            own[min(column, len(own) - 1)] = -block.clip if block.owner in turned else block.clip
        row += own
    return tuple(row)


def _with_constant(task: Any, person: Person | None) -> NDArray[np.float64]:
    return np.zeros(task.width) if person is None else np.array([*person, task.constant / task.gamma])


def _distance(task: JointRows, first: Person, second: Person) -> float:
    """The squared distance between the second moments of two people."""
    a, b = _with_constant(task, first), _with_constant(task, second)
    return float((a @ a) ** 2 + (b @ b) ** 2 - 2 * (a @ b) ** 2)


Data = TypeVar("Data")
Rows = NDArray[np.float64]


@dataclass(frozen=True)
class TableChange:
    """An L1 and a squared L2 norm, claimed or realised."""

    l1: int
    l2_squared: int


@dataclass(frozen=True)
class ProbeReport:
    """The largest realised change of each norm, the pair it belongs to, and the claim."""

    pairs: int
    largest: TableChange
    l1_pair: int
    l2_pair: int
    claimed: TableChange

    @property
    def violated(self) -> bool:
        """Whether some pair moved further than the claim allows."""
        return self.largest.l1 > self.claimed.l1 or self.largest.l2_squared > self.claimed.l2_squared

    @property
    def l1_ratio(self) -> Fraction | None:
        """The largest change over the claim, in L1; ``None`` if the claim is zero."""
        return Fraction(self.largest.l1, self.claimed.l1) if self.claimed.l1 else None

    @property
    def l2_squared_ratio(self) -> Fraction | None:
        """The largest change over the claim, in squared L2; ``None`` if the claim is zero."""
        return Fraction(self.largest.l2_squared, self.claimed.l2_squared) if self.claimed.l2_squared else None


def sensitivity_probe(
    released: Callable[[Data], Any], neighbours: Iterable[tuple[Data, Data]], bound: TableChange | Sensitivity
) -> ProbeReport:
    """Compute what is released for both of each pair and compare the change with the bound, exactly."""
    pairs, l1, l2_squared, l1_pair, l2_pair = 0, 0, 0, 0, 0
    for index, (left, right) in enumerate(neighbours):
        before, after = _whole(released(left)), _whole(released(right))
        if len(before) != len(after):
            raise PrivacyError(f"the two tables of pair {index} give vectors of different lengths [PR008]")
        moves = [abs(a - b) for a, b in zip(before, after, strict=True)]
        here_l1, here_l2 = sum(moves), sum(move * move for move in moves)
        l1, l1_pair = (here_l1, index) if here_l1 > l1 else (l1, l1_pair)
        l2_squared, l2_pair = (here_l2, index) if here_l2 > l2_squared else (l2_squared, l2_pair)
        pairs = index + 1
    if not pairs:
        raise PrivacyError("a probe needs at least one pair of neighbouring tables [PR009]")
    return ProbeReport(pairs, TableChange(l1, l2_squared), l1_pair, l2_pair, TableChange(bound.l1, bound.l2_squared))


def neighbours_in_ball(
    width: int, clip: float, stream: Stream, *, count: int = 200, rows: int = 2, replace: bool = True
) -> Iterator[tuple[Rows, Rows]]:
    """Pairs of tables whose rows have a norm of at most ``clip``: first the corners, then random ones.

    With ``replace`` the last row differs, else only one of the tables has it.
    """
    for first, second in _corner_rows(width, clip):
        yield _pair(np.zeros((0, width)), first, second if replace else None)
    for _ in range(count):
        drawn = _ball(rows + 2, width, clip, stream)
        yield _pair(drawn[:rows], drawn[rows], drawn[rows + 1] if replace else None)


def _corner_rows(width: int, clip: float) -> Iterator[tuple[Rows, Rows]]:
    """Axes, diagonals and their negatives: the whole norm is in one column, or equally in all columns."""
    axes = clip * np.eye(width)
    flat = np.full(width, clip / np.sqrt(width))
    mixed = flat * np.where(np.arange(width) % 2, -1.0, 1.0)
    shapes = [axes[0], -axes[0], axes[-1], flat, -flat, mixed]
    yield from ((left, right) for left in shapes for right in shapes if left is not right)


def _pair(common: Rows, first: Rows, second: Rows | None) -> tuple[Rows, Rows]:
    with_first = np.vstack([common, first[None]])
    return with_first, common if second is None else np.vstack([common, second[None]])


def _ball(rows: int, width: int, clip: float, stream: Stream) -> Rows:
    """Rows in all directions; half of them are as long as they may be."""
    drawn = stream.uint32((rows, width)) * 2.0**-31 - 1.0
    length = np.linalg.norm(drawn, axis=1, keepdims=True)
    reach = np.minimum(1.0, stream.uint32((rows, 1)) * 2.0**-31)
    return np.asarray(drawn / np.maximum(length, 1e-12) * (clip * reach * (1 - 2.0**-40)))


def _whole(values: Any) -> list[int]:
    """A released vector as Python integers, which neither overflow nor round."""
    flat = np.asarray(values).ravel()
    if flat.dtype.kind == "f" and bool((np.abs(flat) < 2.0**53).all()) and bool((flat == np.floor(flat)).all()):
        return [int(value) for value in flat]
    if flat.dtype.kind in "iu" or (flat.dtype.kind == "O" and all(isinstance(value, int) for value in flat)):
        return [int(value) for value in flat]
    raise PrivacyError("a probe compares integers, and what is released here are none: quantise first [PR010]")
