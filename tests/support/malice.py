"""One participant sends something else than it should: every protocol, every message, many mutations.

A scene is a small run of one protocol in which everybody plays the real program. Somebody's outgoing message of some
number is replaced; everything before and after it is as an honest participant would send it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import count
from typing import Any

import numpy as np

from colonnade.errors import ColonnadeError, PeerLost, ProtocolError
from colonnade.kinds.glm import kept_scores, programs as exchange
from colonnade.kinds.pca import programs as directions
from colonnade.kinds.polynomial import programs as polynomial
from colonnade.kinds.prediction import model as on_demand, programs as scores, randomised_answers as levels
from colonnade.kinds.regression import programs as gradients
from colonnade.kinds.split import adaptive_programs as adaptive
from colonnade.kinds.tables import programs as marginals
from colonnade.mpc import PRIMES, Committee, ResidueSystem, Shares
from colonnade.mpc.fixed_point.arithmetic import FixedPointEngine
from colonnade.privacy import Trust
from colonnade.protocols.align import AlignedRows
from colonnade.protocols.joint_sum.declaration import PartialSums
from colonnade.protocols.lanes import lane as laning
from colonnade.protocols.lanes.lane import LanePlan
from colonnade.protocols.moments import programs as moments
from colonnade.protocols.roles import COORDINATOR
from colonnade.protocols.session import RunResult
from colonnade.protocols.task import RunnableTask
from colonnade.tables.keys import Key
from colonnade.tables.slots import RowSlots
from colonnade.wire import codec
from tests.kinds.split import adaptive_stand_ins, embedding_learners as embeddings
from tests.kinds.synthesis.mixture import learners as mixture_learners
from tests.protocols.lanes.crews import IdleCrew
from tests.support import protocols as kit

Program = Callable[[Any], Any]


Sent = tuple[str, dict[str, Any]]


PATIENCE = 1.0
"""Seconds without a message after which somebody gives up, if somebody is malicious; any error may come of it."""


@dataclass(frozen=True)
class Scene:
    """A run of one protocol: its task, and the program of everybody."""

    task: RunnableTask
    programs: Mapping[str, Program]


Ended = dict[str, RunResult[Any] | BaseException]


def run(scene: Scene, malicious: str | None = None, at: int = -1, change: Change | None = None) -> Ended:
    """Everybody's part in a thread; ``change`` replaces message number ``at`` of the malicious participant."""
    number = count()

    def replacing(name: str, peer: str, link: Any) -> Any:
        return _Replacing(link, number, at, change, []) if name == malicious else link

    return kit.outcomes(scene.task, scene.programs, wrap=replacing, timeout=PATIENCE if change else 60.0)


class _Replacing:
    def __init__(self, link: Any, number: Iterator[int], at: int, change: Change | None, sent: list[Sent]) -> None:
        self.link, self.number, self.at, self.change, self.sent = link, number, at, change, sent

    def send(self, kind: str, /, **fields: Any) -> None:
        self.sent.append((kind, fields))
        if next(self.number) == self.at and self.change is not None:
            self.change.send(self.link, kind, fields)
        else:
            self.link.send(kind, **fields)

    def recv(self, *due: Any) -> dict[str, Any]:
        found: dict[str, Any] = self.link.recv(*due)
        return found


# --- what is sent instead


@dataclass(frozen=True)
class Change:
    """What becomes of a message; ``name`` says it in words."""

    name: str
    send: Callable[[Any, str, dict[str, Any]], None]


ESCAPES = "\x1b[2J\x1b]0;owned\x07\u202eabc\r\n\x9b31m"


def changes(kind: str, fields: Mapping[str, Any]) -> Iterator[Change]:
    """All mutations of one message."""
    yield from (
        Change("another kind", lambda link, kind, given: link.send("nonsense", **given)),
        Change("a kind of escape codes", lambda link, kind, given: link.send(ESCAPES * 300, **given)),
        Change("twice", lambda link, kind, given: [link.send(kind, **given) for _ in range(2)] and None),
        Change("not at all", lambda link, kind, given: None),
        Change("an extra field", lambda link, kind, given: link.send(kind, **given, surplus=1)),
        Change("an extra field of 3 MB", lambda link, kind, given: link.send(kind, **given, surplus=bytes(3 << 20))),
        Change("many fields", lambda link, kind, given: link.send(kind, **{f"f{i}": None for i in range(5000)})),
        Change("no message", _raw(lambda kind, given: codec.encode([kind]))),
        Change("a number", _raw(lambda kind, given: codec.encode(7))),
        Change("deep", _raw(lambda kind, given: codec.encode(_nested(12)))),
        Change("fields in a list", _raw(lambda kind, given: codec.encode([kind, []]))),
        Change("nothing", _raw(lambda kind, given: b"")),
        Change("cut short", _raw(lambda kind, given: codec.encode([kind, given])[:-1])),
        Change("cut in the head", _raw(lambda kind, given: codec.encode([kind, given])[:9])),
        Change("longer than it says", _raw(lambda kind, given: codec.encode([kind, given]) + b"\0")),
        Change("not UTF-8", _raw(lambda kind, given: codec.encode(["\0" * 4, given]).replace(b"\0" * 4, b"\xff" * 4))),
    )
    for at in range(0, 40, 3):
        yield Change(f"byte {at} turned", _raw(lambda kind, given, at=at: _turned(codec.encode([kind, given]), at)))
    for name, value in fields.items():
        rest = {other: kept for other, kept in fields.items() if other != name}
        yield Change(f"without {name}", lambda link, kind, given, rest=rest: link.send(kind, **rest))
        for words, other in instead_of(value):
            yield Change(
                f"{name} is {words}",
                lambda link, kind, given, name=name, other=other: link.send(kind, **given | {name: other}),
            )


_ANYTHING: tuple[tuple[str, Any], ...] = (
    ("None", None), ("true", True), ("false", False), ("-1", -1), ("0", 0), ("3 billion", 3_000_000_000),
    ("2^63", 1 << 63), ("-2^900", -(1 << 900)), ("1.5", 1.5), ("NaN", float("nan")), ("infinite", float("inf")),
    ("no text", ""), ("escape codes", ESCAPES), ("a long text", ESCAPES * 10_000), ("no bytes", b""),
    ("31 bytes", bytes(31)), ("33 bytes", bytes(33)), ("3 MB", bytes(3 << 20)), ("an empty list", []),
    ("a list", [1, "a", None]), ("a long list", [0] * 20_000), ("an empty dict", {}), ("a dict", {"a": {}}),
    ("a number in an array", np.array(3)), ("an empty array", np.zeros(0)), ("many axes", np.zeros((1,) * 8)),
    ("no rows of a million", np.zeros((0, 1 << 20))), ("a million zeros", np.zeros(1 << 20, np.int64)),
)  # fmt: skip


def instead_of(value: Any) -> Iterator[tuple[str, Any]]:
    """Other values for a field: of other types, and of the same type but another size or range."""
    yield from _ANYTHING
    if isinstance(value, np.ndarray):
        yield from _arrays(value)
    elif isinstance(value, bytes):
        yield from (
            ("shorter", value[:-1]), ("longer", value + b"\0"), ("twice as long", value * 2),
            ("zeros", bytes(len(value))),
        )  # fmt: skip
    elif isinstance(value, str):
        yield from (("longer", value + "x"), ("shorter", value[:-1]), ("repeated", value * 1000))
    elif isinstance(value, int) and not isinstance(value, bool):
        yield from (
            ("one more", value + 1), ("one less", value - 1), ("negative", -value - 1), ("2^28", 1 << 28),
            ("2^28 + 1", (1 << 28) + 1),
        )  # fmt: skip
    elif isinstance(value, list):
        yield from (
            ("shorter", value[:-1]), ("longer", [*value, *value[:1], 0]), ("nothing but None", [None] * len(value)),
            ("long texts", ["9" * 5000] * len(value)), ("not numbers", [float("nan")] * len(value)),
        )  # fmt: skip


def _arrays(value: Any) -> Iterator[tuple[str, Any]]:
    for dtype in (np.bool_, np.int8, np.int32, np.int64, np.uint8, np.uint32, np.uint64, np.float32, np.float64):
        if value.dtype != dtype:
            yield f"of {np.dtype(dtype)}", np.zeros(value.shape, dtype)
    yield from (
        ("flat", value.reshape(-1) if value.ndim != 1 else value[None]),
        ("of one more axis", value[..., None]),
        ("turned", value.T.copy() if value.ndim > 1 else value[::-1].copy()),
        ("all zero", np.zeros_like(value)),
    )
    if value.ndim and len(value):
        yield from (
            ("a row short", value[:-1]),
            ("a row long", np.concatenate([value, value[:1]])),
            ("empty", value[:0]),
            ("a thousand times", np.concatenate([value] * 1000)),
            ("all the first row", np.repeat(value[:1], len(value), axis=0)),
        )
    for extreme in (np.nan, np.inf, -np.inf) if value.dtype.kind == "f" else _ends(value.dtype):
        yield f"all {extreme}", np.full(value.shape, extreme, value.dtype)
        if value.size:
            once = value.copy().reshape(-1)
            once[-1] = extreme
            yield f"{extreme} once", once.reshape(value.shape)


def _parts(task: Any, module: Any, seed: int) -> Scene:
    """Scores of nine people, of every owner."""
    rng, ids = np.random.default_rng(seed), tuple(f"p{i}" for i in range(9))
    parts = {n: scores.OwnScoreParts(ids, rng.uniform(-1, 1, (9, getattr(task, "classes", 1)))) for n in task.owners}
    return Scene(task, kit.programs_of(module, task, parts))


def _ends(dtype: np.dtype[Any]) -> tuple[int, ...]:
    if dtype == np.bool_:
        return (0, 1)
    return (int(np.iinfo(dtype).min), int(np.iinfo(dtype).max))


def _raw(frame: Callable[[str, dict[str, Any]], bytes]) -> Callable[[Any, str, dict[str, Any]], None]:
    """Put these bytes into the lane, as if they had been encoded."""
    return lambda link, kind, given: link._out.put(made := frame(kind, given), len(made), 0.0)


def _turned(frame: bytes, at: int) -> bytes:
    at = min(at, len(frame) - 1)
    return frame[:at] + bytes([frame[at] ^ 0x55]) + frame[at + 1 :]


def _nested(depth: int) -> Any:
    return [] if not depth else [_nested(depth - 1)]


# --- who plays what


def _shares(module: Any, task: Any, rows: int = 12, labels: Any = None) -> Scene:
    return Scene(task, kit.programs_of(module, task, kit.tables_of(task, rows), labels))


def _gradients(**how: Any) -> Scene:
    task = kit.gradients_task(rounds=2, **how)
    labels = np.random.default_rng(1).integers(0, 2, (40, 1)).astype(float)
    return _shares(gradients, task, 40, labels)


def _checking(owners: int) -> Trust:
    return replace(kit.trust_of(owners), security="active")


def _mixture(**how: Any) -> Scene:
    task = mixture_learners.mixture_task(rounds=2, components=2, **how)
    return Scene(task, kit.programs_of(mixture_learners, task, mixture_learners.flags(task, 12)))


def _hidden_moments() -> Scene:
    task, rng = kit.hidden_moments_task(2), np.random.default_rng(2)
    tables = {
        owner: kit.Rows(kit.grouped_rows(rng, 8), places=RowSlots(np.sort(rng.permutation(16)[:8]), 16, bytes(16)))
        for owner in task.owners
    }
    return Scene(task, kit.programs_of(moments, task, tables))


def _marginals(**how: Any) -> Scene:
    """A label, a column of its owner and one of each of two others, so that the degree is lowered once."""
    task = kit.marginals_task(((2, 3), (3,), (2,)), label=0, **how)
    tables: dict[str, Any] = kit.codes_of(task, 12)
    if task.hidden:
        rng = np.random.default_rng(6)
        places = {owner: RowSlots(np.sort(rng.permutation(16)[:12]), 16, bytes(16)) for owner in task.owners}
        tables = {owner: kit.Rows(codes, places=places[owner]) for owner, codes in tables.items()}
    return Scene(task, kit.programs_of(marginals, task, tables))


def _exchange(method: str, **how: Any) -> Scene:
    task = kit.exchange_task(method, ("bank", "mid", "shop"), release=True, **how)
    labels = np.random.default_rng(3).integers(0, 2, 40).astype(float)
    return _shares(exchange, task, 40, labels)


def _adaptive() -> Scene:
    """Two epochs of two batches; encoders and head are new in every run, because they learn in place."""
    task = adaptive_stand_ins.adaptive_task(rows=24, epochs=2, batches=2, confidence=0.4)
    made, rows = adaptive_stand_ins, kit.Rows(np.zeros((24, 1)))
    tables, labels = made.people(24, 5, task.classes, task.passives)

    def owner(name: str) -> Program:
        if name == task.active:
            return lambda me: adaptive.owner(me, None, rows, task, made.head_of(labels, task.classes, 8))
        return lambda me: adaptive.owner(me, embeddings.Product(tables[name], 4), rows, task)

    return Scene(task, {n: owner(n) for n in task.owners} | {COORDINATOR: lambda me: adaptive.coordinator(me, task)})


def _embeddings(**how: Any) -> Scene:
    task = embeddings.embeddings_task(("bank", "mid", "shop"), **how)
    rng = np.random.default_rng(7)
    tables = {name: rng.normal(size=(task.rows, 3)) for name in task.owners}
    return Scene(task, kit.programs_of(embeddings, task, tables, embeddings.labels_of(task)))


def _kept_scores() -> Scene:
    task, rng = kit.kept_scores_task(), np.random.default_rng(4)
    ids = [f"n{i}" for i in range(9)]
    new = {name: kept_scores.NewRows(ids, rng.uniform(-1, 1, (9, 3)), rng.normal(size=3)) for name in task.owners}
    return Scene(task, kit.programs_of(kept_scores, task, new))


def _standing_scores() -> Scene:
    """Two questions, of the first of which owners tell about two people."""
    task, rng = kit.scores_task(3), np.random.default_rng(5)
    ids = tuple(f"p{i}" for i in range(9))
    parts = {name: scores.OwnScoreParts(ids, rng.uniform(-1, 1, (9, task.classes))) for name in task.owners}
    session = on_demand.StandingScores(task)

    class Asked:
        period = "2026-01"

        def __init__(self) -> None:
            self.left = [np.array([1, 4, 7]), np.array([4])]

        def begin(self, people: tuple[str, ...]) -> None:
            pass

        def question(self) -> Any:
            return self.left.pop(0) if self.left else None

        def answer(self, answer: on_demand.OpenedAnswer) -> None:
            pass

    def opened(summands: Any) -> Any:
        def gate(period: str, places: Any) -> Any:
            told = min(2, len(places))
            return on_demand.GateDecision(told, 10**9), summands(places[:told])

        return gate

    def owner(me: Any) -> None:
        on_demand.agree(me, parts[me.name], session)
        if me.name == task.to:
            on_demand.asker(me, parts[me.name], session, Asked())
        else:
            on_demand.dealer(me, parts[me.name], session, opened)

    programs: dict[str, Program] = dict.fromkeys(task.owners, owner)
    return Scene(session, programs | {COORDINATOR: lambda me: on_demand.coordinator(me, session)})


def _align(owners: tuple[str, ...] = ("a", "b", "c"), again: bool = False, **how: Any) -> Scene:
    task = kit.align_task(owners, **how)
    lists = {name: kit.keys_of(f"{n}" for n in range(step, 9 + 2 * step)) for step, name in enumerate(owners)}
    index = np.arange(48, dtype=np.uint8).reshape(3, 16)
    kept = {name: AlignedRows(bytes(range(16)), 3, 6 - step + np.arange(3), index) for step, name in enumerate(owners)}
    return Scene(task, kit.align_programs(task, lists, kept=kept if again else {}))


def _fuzzy() -> Scene:
    task = kit.align_task(("east", "west"), keys=(Key("name"),), mode="fuzzy")
    common = ["annabel lee", "robert lowell", "emily brent"]
    lists = {"east": kit.keys_of([*common, "walt"]), "west": kit.keys_of(["sylvia", *common])}
    return Scene(task, kit.align_programs(task, lists))


def _lanes() -> Scene:
    """Heads whose workers add nothing up: of every lane each seat has shares of zeros."""
    task = kit.moments_task((1, 1, 1))
    laned = LanePlan(task, kit.align_task(task.owners, partitions=2), bytes(32))
    zeros = np.zeros((len(task.committee.system.primes), task.entries))

    def crew(name: str) -> IdleCrew:
        shares = Shares(zeros, task.opened_degree) if name in task.committee.seats else None
        own = np.zeros(task.entries, np.int64) if name in task.owners else None
        return IdleCrew(PartialSums(3, own, shares))

    def owner(name: str) -> Program:
        return lambda me: laning.owner(me, laned, moments, crew(name), lambda spread, pulse: [5, 4])

    coordinator = {COORDINATOR: lambda me: laning.coordinator(me, laned, moments, crew(COORDINATOR))}
    return Scene(task, {name: owner(name) for name in task.owners} | coordinator)


class _Seats(RunnableTask):
    """No study: three seats that compute with fixed-point numbers and open what comes of it."""

    trust = Trust(("n0", "n1", "n2"), ("n0", "n1", "n2"), 1)
    committee = Committee(("n0", "n1", "n2"), 1, ResidueSystem(PRIMES[:6]))
    events = ()


def _fixed() -> Scene:
    values = np.array([5 << 12, -(3 << 12), 7])

    def seat(me: Any) -> Any:
        hand, engine = me.engine, FixedPointEngine(me.engine, 12)
        shares = hand.deal(values) if hand.name == "n0" else hand.receive("n0", values.shape)
        number = engine.from_shares(shares, (1 << 20) - 1)
        found = engine.multiply(engine.negative(engine.subtract(number, engine.shift(number, 1))), number)
        hand.send_opening(found.shares, hand.committee.seats)
        opened = hand.receive_opening(values.shape, degree=found.shares.degree, bound=found.bound, own=found.shares)
        if hand.name == "n0":
            hand.send_opened(np.array([1, 2**70, -3], dtype=object), ("n1", "n2"))
        else:
            hand.receive_opened("n0", (3,), 2**71)
        return opened

    return Scene(_Seats(), dict.fromkeys(("n0", "n1", "n2"), seat) | {COORDINATOR: lambda me: None})


SCENES: dict[str, Callable[[], Scene]] = {
    "moments": lambda: _shares(moments, kit.moments_task()),
    "moments with a seat at the coordinator": lambda: _shares(moments, kit.moments_task((2, 2))),
    "moments with spare seats": lambda: _shares(moments, kit.moments_task((1, 1, 1, 1, 1))),
    "hidden members": _hidden_moments,
    "marginals": lambda: _marginals(),
    "marginals of hidden members": lambda: _marginals(hidden=True),
    "directions": lambda: _shares(directions, kit.directions_task(rounds=2)),
    "gradients": lambda: _gradients(),
    "gradients with a seat at the coordinator": lambda: _gradients(widths=(2, 1)),
    "gradients of degree three": lambda: _gradients(expansion=3, gamma=8),
    "gradients where seats check each other": lambda: _gradients(sampling="disjoint", trust=_checking(3)),
    "directions where spare seats check each other": lambda: _shares(
        directions, kit.directions_task((1,) * 4, rounds=2, trust=_checking(4))
    ),
    "mixture": lambda: _mixture(),
    "mixture with a seat at the coordinator": lambda: _mixture(widths=(2, 1), vectors="linear"),
    "polynomial": lambda: _shares(polynomial, kit.polynomial_task((1, 1, 1), ("o0.c0 * o1.c0 * o2.c0", "o0.c0^2"))),
    "scores": lambda: _parts(kit.scores_task(3), scores, 5),
    "standing scores": _standing_scores,
    "levels": lambda: _parts(kit.levels_task(), levels, 6),
    "exchange, alternating": lambda: _exchange("alternating"),
    "exchange, gradient": lambda: _exchange("gradient"),
    "kept scores": _kept_scores,
    "adaptive embeddings": _adaptive,
    "embeddings": lambda: _embeddings(training="labels", stage=True),
    "embeddings in rounds": lambda: _embeddings(training="rounds", label_odds=Fraction(3)),
    "alignment, dh": _align,
    "alignment, dh, padded": lambda: _align(pad_to=20),
    "alignment, dh, too few": lambda: _align(at_least=50),
    "alignment, dh, hidden": lambda: _align(hidden=True),
    "alignment, ot": lambda: _align(("a", "b"), mode="ot"),
    "alignment, helper": lambda: _align(mode="helper"),
    "alignment, helper, hidden": lambda: _align(mode="helper", hidden=True),
    "alignment, used again": lambda: _align(again=True),
    "alignment, fuzzy": _fuzzy,
    "lanes": _lanes,
    "fixed-point numbers": _fixed,
}


def by_kind(kind: str, fields: Mapping[str, Any]) -> Any:
    """Messages of one kind are alike."""
    return kind


def by_form(kind: str, fields: Mapping[str, Any]) -> Any:
    """Messages are alike if their fields are: in name, type, and size."""
    return kind, tuple((name, _form(fields[name])) for name in sorted(fields))


def _form(value: Any) -> tuple[Any, ...]:
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape
    return type(value), len(value) if isinstance(value, str | bytes | list | dict) else None


def mutations(
    scene: Scene, alike: Callable[[str, Mapping[str, Any]], Any] = by_kind
) -> Iterator[tuple[str, int, str, Change]]:
    """Whose message, its number and kind, and what becomes of it: all that there are, and one of messages alike."""
    sent: dict[str, list[Sent]] = {name: [] for name in scene.programs}
    kit.outcomes(scene.task, scene.programs, wrap=lambda name, _, link: _Replacing(link, count(), -1, None, sent[name]))
    for name, messages in sent.items():
        seen = set()
        for at, (kind, fields) in enumerate(messages):
            if (form := alike(kind, fields)) not in seen:
                seen.add(form)
                yield from ((name, at, kind, change) for change in changes(kind, fields))


NEVER = re.compile(
    "another kind|a kind of|an extra|many fields|no message|a number$|deep|fields in|nothing$|cut|longer than|without"
    "|not UTF"
    "|.* is (None|-2|2.63|1.5|NaN|infinite|escape|a long|3 MB|an empty dict|a dict|many axes|of .* axis|a number in)"
)
"""Changes after which a message is never one that could be meant."""


def faults(ended: Ended, malicious: str, change: Change) -> list[str]:
    """What must not happen to anybody honest.

    Not an error that nobody foresaw, or one that is long or raw or blames somebody else; and not a result, where the
    message could not be meant.
    """
    honest = {name: end for name, end in ended.items() if name != malicious}
    # Whoever is slow may be given up, on a machine that is busy; what comes next is then out of turn.
    late = any(isinstance(end, PeerLost) or (isinstance(end, RunResult) and end.lost) for end in ended.values())
    wrong = []
    if NEVER.match(change.name) and not late and all(isinstance(end, RunResult) for end in honest.values()):
        wrong.append("nobody minds")
    for name, end in honest.items():
        if isinstance(end, RunResult):
            continue
        if not isinstance(end, ColonnadeError):
            wrong.append(f"{name}: {type(end).__name__}: {end}")
            continue
        if isinstance(end, ProtocolError) and malicious not in str(end) and not late:
            wrong.append(f"{name} blames nobody or somebody else: {end}")
        for told in (str(end), end.for_peers):
            if len(told) > 1000 or not told.isprintable():
                wrong.append(f"{name}: {type(end).__name__} of {len(told)} characters: {told[:80]!r}")
    return wrong
