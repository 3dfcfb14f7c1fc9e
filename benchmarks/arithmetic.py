"""Secure arithmetic: alone, and beside MPyC, SPU and CrypTen in one session.

MPyC is in this environment (the `bench` extra); SPU and CrypTen have their own, whose interpreters COLONNADE_SPU and
COLONNADE_CRYPTEN name. Peers that are not there are left out, and the page says how to install them.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import csv
import io
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

import gram
from colonnade.mpc import PRIMES, Committee, ResidueSystem, ShareEngine
from colonnade.mpc.fixed_point.arithmetic import FixedPointEngine, FixedPointShares
from colonnade.privacy import Trust
from colonnade.protocols.moments import programs as moments
from colonnade.protocols.moments.task import ColumnBlock, Moments
from colonnade.protocols.roles import COORDINATOR
from colonnade.tables.keys import Ids
from harness import (
    MB,
    PATIENCE,
    Act,
    Benchmark,
    Job,
    Row,
    Stage,
    command,
    in_processes,
    in_threads,
    run,
    table,
    tabled,
    verdict,
)
from peers import (
    LARGE,
    OPERATIONS,
    SMALL,
    Figures,
    Shape,
    error,
    operands,
    parse_shape,
    scaled,
    sweep,
    together,
    typical,
    widths,
)

HUB, LINKED, THREADS, ONE_CORE = "processes", "processes, direct links", "threads", "threads on one core"
HERE = Path(__file__).parent
OURS, MPYC, SPU, CRYPTEN, CRYPTEN_3 = "Colonnade", "MPyC", "SPU", "CrypTen", "CrypTen, 3 parties"
INSTALL = {
    MPYC: "`pip install -e '.[bench]'`",
    SPU: "`python3.11 -m venv spu && spu/bin/pip install spu==0.9.5`, and `COLONNADE_SPU=spu/bin/python`",
    CRYPTEN: "see [the environments of peers](../README.md#environments-of-peers)",
}
ENVIRONMENTS = {SPU: "COLONNADE_SPU", CRYPTEN: "COLONNADE_CRYPTEN"}
WORDS = {"multiply": "multiply", "less": "compare, x < y"}
TALL, WIDE = (45_000, 41), (195_666, 117)
FEW = (1500, 3000)
"""Rows of the wide table for MPyC, from which its time is scaled."""
NEEDED = {MPYC: 150, SPU: 20, CRYPTEN: 20}
HEAD = ["what", "size", "system", "program", "seconds", "times Colonnade", "CPU seconds", "seconds of preparation"]
HEAD += ["rounds", "bytes sent", "largest error", "scaled from", "command"]


def _say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


VARIANTS = {
    "integers": "secure integers",
    "whole": "smallest prime field",
    "cross": "smallest field, blocks between parties only",
}


PRODUCTS = "python benchmarks/arithmetic.py peers"

# --- three seats of ours

SEATS = ("bank", "clinic", "shop")
FRACTION = 16
LARGEST = 2
"""Of the operands."""
PRIMES_FOR = {"multiply": 4, "less": 3}


def seats_in_processes(operation: str, shape: Shape, repeats: int = 7, *, direct: bool = False) -> Figures:
    """Three seats and the hub in processes of their own: seconds online, seconds of preparation, rounds and bytes."""
    prepare = partial(prepare_seat, operation=operation, shape=shape, repeats=repeats)
    return _summary(in_processes((*SEATS, COORDINATOR), prepare, direct=direct))


def seats_in_threads(operation: str, shape: Shape, repeats: int = 7) -> Figures:
    """The same in threads of this process."""
    found = _summary(in_threads(SEATS, partial(prepare_seat, operation=operation, shape=shape, repeats=repeats)))
    return found | {"cpu": found["cpu"] / len(SEATS)}  # each saw the time of all


def on_one_core(operation: str, shape: Shape, repeats: int = 7) -> Figures:
    """In threads that share one core, as they share one interpreter: passing it from core to core costs time."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(cores)})
    try:
        return seats_in_threads(operation, shape, repeats)
    finally:
        os.sched_setaffinity(0, cores)


def _summary(found: dict[str, Figures]) -> Figures:
    """Online, as peers are timed; what was prepared, and the bytes of all seats."""
    reports = [found[seat] for seat in SEATS]
    ahead = typical([{"spans": report["ahead"], "cpu": 0.0} for report in reports])
    return typical(reports) | {"preparation": ahead["wall"], "sent_ahead": sum(r["sent_ahead"] for r in reports)}


class Seat:
    """The one place that knows how the library's arithmetic is called."""

    def __init__(self, name: str, links: dict[str, Any], operation: str) -> None:
        system = ResidueSystem(PRIMES[: PRIMES_FOR[operation]])
        self.hand = ShareEngine(name, Committee(SEATS, 1, system), links)
        self.engine, self.operation = FixedPointEngine(self.hand, FRACTION), operation

    def share(self, owner: str, values: np.ndarray) -> FixedPointShares:
        """The owner deals its numbers, the others receive them."""
        whole = np.rint(values * 2.0**FRACTION).astype(np.int64)
        shares = self.hand.deal(whole) if owner == self.hand.name else self.hand.receive(owner, values.shape)
        return self.engine.from_shares(shares, LARGEST << FRACTION)

    def run(self, x: FixedPointShares, y: FixedPointShares) -> FixedPointShares:
        """The operation, from shares to shares."""
        engine = self.engine
        if self.operation == "multiply":
            return engine.multiply(x, y)
        return engine.negative(engine.subtract(x, y))

    def needed(self) -> dict[Any, int]:
        """What was taken from the store until now."""
        return dict(self.engine.masks.used)

    def prepare(self, needed: dict[Any, int]) -> None:
        """Make it ahead."""
        self.engine.masks.prepare(needed)

    def open(self, number: FixedPointShares) -> np.ndarray:
        """What the numbers are."""
        shares = number.shares
        self.hand.send_opening(shares, SEATS)
        opened = self.hand.receive_opening(shares.shape, degree=shares.degree, bound=number.bound, own=shares)
        return opened.astype(np.float64) / 2.0**number.fraction


def prepare_seat(name: str, operation: str, shape: Shape, repeats: int) -> Act:
    return partial(_take_part, operation=operation, shape=shape, repeats=repeats)


def _take_part(stage: Stage, operation: str, shape: Shape, repeats: int) -> Figures | None:
    if stage.name == COORDINATOR:
        return None  # its process has the hub
    with stage.join() as place:
        others = [seat for seat in SEATS if seat != stage.name]
        links = {seat: place.channel(seat) for seat in others}
        place.wait_for_peers(others, timeout=PATIENCE)
        seat = Seat(stage.name, links, operation)
        x, y = (seat.share(owner, values) for owner, values in zip(SEATS, operands(shape), strict=False))
        seat.run(x, y)
        needed, tally = seat.needed(), place.counters.tally
        found: Figures = {"ahead": [], "spans": [], "cpu": 0.0}
        for _ in range(repeats):
            _, ahead = _timed(links, tally, partial(seat.prepare, needed))
            result, online = _timed(links, tally, partial(seat.run, x, y))
            found["ahead"].append(ahead["span"])
            found["spans"].append(online["span"])
            found["cpu"] += online["cpu"] / repeats
        found |= {"sent_ahead": ahead["sent"], "sent": online["sent"], "rounds": online["rounds"]}
        return found | {"error": error(operation, seat.open(result), shape)}


def _timed(links: dict[str, Any], tally: Any, act: Callable[[], Any]) -> tuple[Any, Figures]:
    """What an act returned, when it began and ended once all seats were ready, and what it said."""
    for link in links.values():
        link.send("ready")
    for link in links.values():
        link.recv("ready")
    sent, rounds = tally.payload, tally.rounds
    started, cpu = time.perf_counter(), time.process_time()
    result = act()
    span, cpu = (started, time.perf_counter()), time.process_time() - cpu
    return result, {"span": span, "cpu": cpu, "sent": tally.payload - sent, "rounds": tally.rounds - rounds}


WAYS: dict[str, Callable[[str, Shape, int], Figures]] = {
    HUB: seats_in_processes,
    LINKED: partial(seats_in_processes, direct=True),
    THREADS: seats_in_threads,
    ONE_CORE: on_one_core,
}
OPTIONS = {HUB: "", LINKED: " --direct", THREADS: " --threads", ONE_CORE: " --one-core"}


def measure_seats(
    operations: tuple[str, ...] = OPERATIONS,
    shapes: tuple[str, ...] = ("100x20", "50000x20"),
    repeats: int = 7,
    threads: bool = False,
    direct: bool = False,
    one_core: bool = False,
) -> list[Figures]:
    """Operations on shares, by three seats of ours alone."""
    way = ONE_CORE if one_core else THREADS if threads else LINKED if direct else HUB
    wanted = [parse_shape(shape) for shape in shapes]
    return sweep(
        operations, wanted, 0, repeats, lambda cases: [WAYS[way](c.operation, c.shape, c.repeats) for c in cases]
    )


def seats_rows(found: list[Figures]) -> Iterator[Row]:
    """A row for each operation and shape."""
    for line in found:
        times = [_time(line[key]) for key in ("wall", "preparation", "cpu")]
        said = [str(line["rounds"]), f"{line['sent'] / MB:.3g}", f"{line['error']:.2g}"]
        yield [WORDS[line["operation"]], _size(line["shape"]), *times, *said]


# --- X'X of integers, whose result must be exact

TALL_ROWS, TALL_WIDTHS, GAMMA = 45_000, (14, 14, 13), 4096
CLIP = 3**-0.5


@dataclass(frozen=True)
class Whole:
    """Integer rows, handed to the protocol in units of 1/gamma: it scales them back and rounds nothing."""

    ids: Ids
    values: NDArray[np.int64]
    places: None = None

    def blocks(self, rows: int) -> Iterator[NDArray[np.float64]]:
        return (self.values[start : start + rows] / GAMMA for start in range(0, len(self.values), rows))


def integers(owner: str, rows: int = TALL_ROWS, widths: Sequence[int] = TALL_WIDTHS) -> NDArray[np.int64]:
    place = SEATS.index(owner)
    values = np.random.default_rng(place).standard_normal((rows, widths[place]))
    values *= CLIP * GAMMA / np.linalg.norm(values, axis=1)[:, None]
    return values.astype(np.int64)


def whole_table(owner: str) -> Whole:
    return Whole(Ids(pa.array([f"P{i:06d}" for i in range(TALL_ROWS)], pa.large_string())), integers(owner))


def tall_task() -> Moments:
    blocks = tuple(
        ColumnBlock(owner, tuple(f"c{i}" for i in range(width)), CLIP)
        for owner, width in zip(SEATS, TALL_WIDTHS, strict=True)
    )
    return Moments(
        blocks, Trust(SEATS, SEATS, 1), gamma=GAMMA, constant=GAMMA // 2, rows_at_most=50_000, noise=3 * 10**15
    )


def mpyc_product(variant: str, rows: int = TALL_ROWS, widths: Sequence[int] = TALL_WIDTHS) -> dict[str, Any]:
    """One run of MPyC in three processes."""
    tables = {f"x{place}": integers(owner, rows, widths) for place, owner in enumerate(SEATS)}
    joint = np.hstack(list(tables.values())).astype(np.float64)
    expected = (joint.T @ joint).astype(np.int64)  # far below 2^53
    with tempfile.TemporaryDirectory(prefix="colonnade-bench-") as folder:
        source = Path(folder) / "tables.npz"
        np.savez(source, widths=np.array(widths), order=2 * rows * GAMMA**2, **tables)
        targets = [Path(folder) / f"result{place}.npy" for place in range(len(SEATS))]
        parties = [(variant, source, target) for target in targets]
        reports = together(("mpyc", "product"), parties)
        assert all(np.array_equal(np.load(target), expected) for target in targets), "MPyC's result is wrong"
    return {
        "wall": max(r["ended"] for r in reports) - min(r["started"] for r in reports),
        "cpu": sum(r["cpu"] for r in reports),
        "sent": sum(r["sent"] for r in reports),
    }


# --- peers


@dataclass(frozen=True)
class Program:
    """A program of a peer: whose it is, and how `peers.py` is called."""

    name: str
    words: tuple[str, ...] = ()

    @property
    def python(self) -> str | None:
        """The interpreter that runs it, if there is one."""
        if self.name == MPYC:
            return sys.executable if find_spec("mpyc") else None
        return os.environ.get(ENVIRONMENTS[self.name])

    def figures(self, *options: str) -> Figures | None:
        """What its script prints, or nothing if it is not installed or fails."""
        if not self.python:
            return None
        _say(f"peers.py {' '.join(self.words + options)} ...")
        # Ours is for our interpreter only.
        settings = {key: value for key, value in os.environ.items() if key != "PYTHONPATH" or self.name == MPYC}
        command = [self.python, HERE / "peers.py", *self.words, *options]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=settings)
        if done.returncode:
            return None
        found: Figures = json.loads(done.stdout.splitlines()[-1])
        if self.name in ENVIRONMENTS:
            found["command"] = found["command"].replace("python", f"${ENVIRONMENTS[self.name]}", 1)
        return found


ELEMENTWISE = {
    MPYC: Program(MPYC, ("elementwise", "mpyc")),
    SPU: Program(SPU, ("elementwise", "spu")),
    CRYPTEN: Program(CRYPTEN, ("elementwise", "crypten")),
    CRYPTEN_3: Program(CRYPTEN, ("elementwise", "crypten", "--parties", "3")),
}
GRAMS = {
    (SPU, "one product"): Program(SPU, ("product", "spu", "--block", "0")),
    (SPU, "blocks of rows"): Program(SPU, ("product", "spu")),
    (CRYPTEN, "one product"): Program(CRYPTEN, ("product", "crypten", "--block", "0")),
    (CRYPTEN, "blocks of rows"): Program(CRYPTEN, ("product", "crypten")),
}


def measure_beside_peers(repeats: int = 5, small: bool = False) -> Figures:
    """All figures: ours before and after the peers', because the machine may be shared."""
    shapes, tables = ([SMALL], [TALL]) if small else ([SMALL, LARGE], [TALL, WIDE])
    lines = [line for shape in tables for line in _grams(shape, repeats)]
    early = list(_ours(shapes, repeats))
    for name, peer in ELEMENTWISE.items():
        found = peer.figures("--shapes", *(f"{rows}x{columns}" for rows, columns in shapes))
        about = "" if found is None else found["about"]
        for line in found["results"] if found else []:
            named = {"what": line["operation"], "size": _size(line["shape"]), "system": name, "program": about}
            lines.append(line | named | {"command": found["command"]})
    late = list(_ours(shapes, repeats))
    lines += [_joined(*pair) for pair in zip(early, late, strict=True)]
    missing = [name for name in INSTALL if not Program(name).python]
    return {"lines": lines, "missing": missing, "failed": _failed(lines, tables), "repeats": repeats}


def _failed(lines: Sequence[Figures], tables: Sequence[Shape]) -> list[str]:
    """What a peer that is installed did not bring to an end."""
    known = {(line["system"], line["program"], line["size"]) for line in lines}
    names = {line["system"] for line in lines if line["what"] in WORDS}
    failed = [
        f"{name}: elementwise operations" for name, peer in ELEMENTWISE.items() if peer.python and name not in names
    ]
    for (name, program), peer in GRAMS.items():
        sizes = [_size(shape) for shape in tables]
        failed += [f"{name}, {program}: X'X of {s}" for s in sizes if peer.python and (name, program, s) not in known]
    return failed


def _joined(early: Figures, late: Figures) -> Figures:
    """Half way between two runs; bytes and rounds are the same in both."""
    means = {key: (early[key] + late[key]) / 2 for key in ("wall", "preparation", "cpu")}
    return early | means | {"error": max(early["error"], late["error"])}


def _ours(shapes: Sequence[Shape], repeats: int) -> Iterator[Figures]:
    """Every operation in processes and in threads; small ones also in threads that share a core."""
    for program, measured in WAYS.items():
        for operation in OPERATIONS:
            for shape in [SMALL] if program == ONE_CORE else shapes:
                _say(f"Colonnade in {program}: {operation} {_size(shape)} ...")
                found = measured(operation, shape, 3 * repeats if shape == SMALL else 1)
                named = {"what": operation, "size": _size(shape), "system": OURS, "program": program}
                yield found | named | {"command": f"python benchmarks/arithmetic.py seats{OPTIONS[program]}"}


def _grams(shape: Shape, repeats: int) -> Iterator[Figures]:
    """X'X of one shape: ours, then every program of a peer."""
    named = {"what": "X'X", "size": _size(shape)}
    product = _tall if shape == TALL else _wide
    ways = {HUB: False, LINKED: True}
    early = {program: [product(direct) for _ in range(repeats)] for program, direct in ways.items()}
    found = []
    for (name, program), peer in GRAMS.items():
        rows, columns = map(str, shape)
        done = peer.figures("--rows", rows, "--columns", columns)
        if done:
            found.append(done["results"] | {"system": name, "program": program, "command": done["command"]})
    if find_spec("mpyc"):
        found += [_mpyc(variant, shape) for variant in VARIANTS]
    for program, direct in ways.items():
        walls, cpus, sent = zip(*early[program], *(product(direct) for _ in range(repeats)), strict=True)
        ours = {"wall": median(walls), "walls": walls, "cpu": median(cpus), "sent": sent[0], "error": 0.0}
        yield named | ours | {"system": OURS, "program": program, "command": PRODUCTS}
    yield from (named | line for line in found)


def _tall(direct: bool) -> tuple[float, float, int]:
    """Exactly, for which the noise is left out; peers draw none either."""
    _say("Colonnade: X'X ...")
    task = tall_task()
    outcome = run(Job(task, whole_table, noise=False, direct=direct))
    expected = moments.reference({owner: integers(owner) for owner in SEATS}, task)
    assert np.array_equal(outcome.opened, expected), "Colonnade's result is not the plaintext product"
    return outcome.wall, outcome.cpu, sum(report.sealed for report in outcome.reports.values())


def _wide(direct: bool) -> tuple[float, float, int]:
    """As ``gram.py``, but without noise."""
    _say("Colonnade: X'X of the wide table ...")
    outcome = run(Job(gram.make_task(), partial(gram.stored, gram.ROWS), noise=False, direct=direct))
    return outcome.wall, outcome.cpu, sum(report.sealed for report in outcome.reports.values())


def _mpyc(variant: str, shape: Shape) -> Figures:
    """MPyC's X'X, from few rows of a table for which it would take half an hour."""
    _say(f"MPyC: X'X, {VARIANTS[variant]} ...")
    line = {"system": MPYC, "program": VARIANTS[variant], "command": PRODUCTS, "error": 0.0}
    if shape == TALL:
        return line | mpyc_product(variant)
    parts = [(rows, mpyc_product(variant, rows, widths(shape[1], len(SEATS)))) for rows in FEW]
    wall = scaled([(rows, part["wall"]) for rows, part in parts], shape[0])
    rows, last = parts[-1]
    return line | {"wall": wall, "measured": last["wall"], "cpu": last["cpu"] * shape[0] / rows, "scaled_from": rows}


# --- telling


def _size(shape: Sequence[int]) -> str:
    return "1,000,000" if tuple(shape) == LARGE else f"{shape[0]:,} x {shape[1]}"


def _by_size(found: Figures, program: str = HUB) -> Iterator[tuple[str, str, Figures, list[Figures]]]:
    """Of every operation and size, our line in processes, and those of the peers."""
    for ours in found["lines"]:
        if ours["system"] == OURS and ours["program"] == program:
            same = [line for line in found["lines"] if (line["what"], line["size"]) == (ours["what"], ours["size"])]
            yield ours["what"], ours["size"], ours, [line for line in same if line["system"] != OURS]


def _time(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds >= 1 else f"{seconds * 1e3:.3g} ms"


def _peer_time(line: Figures) -> str:
    return ("about " if line.get("scaled_from") else "") + _time(line["wall"])


def _ratio(line: Figures, ours: Figures) -> str:
    """How many times as long; in brackets beside our preparation and our online time together."""
    online = f"**{line['wall'] / ours['wall']:.3g} x**"
    if not ours.get("preparation"):
        return online
    return f"{online} ({line['wall'] / (ours['wall'] + ours['preparation']):.2g} x)"


def markdown(found: Figures) -> str:
    """The body of the page: ratios, times, requirements, commands."""
    parts = [
        "## Ratios\nHow many times as long a peer takes as Colonnade in three processes over TLS, through the hub. In "
        "brackets: beside Colonnade's preparation and online time together; what a peer prepares is in its time.\n",
        *_elementwise(found, _ratio),
        "\nX'X, dealing included:\n",
        *_products(found, _ratio),
        "\nThe same over [direct links](../../docs/how-to/networks.md). Peers connect to each other too,"
        " without TLS.\n",
        *_elementwise(found, _ratio, LINKED),
        "\nX'X, dealing included:\n",
        *_products(found, _ratio, LINKED),
        "\n## Times\n",
        *_times(found),
        "\nX'X, dealing included:\n",
        *_products(found, lambda line, _: f"{_peer_time(line)}, {line['cpu']:.3g} s CPU"),
        "\n*About* marks times that are scaled from fewer elements or rows; the CSV says how many.\n",
        "## Required\n",
        table(["what", "measured", "required"], required(found)),
        "\n## Commands\n",
        *(f"- `{command}`" for command in dict.fromkeys(line["command"] for line in found["lines"])),
    ]
    parts += [f"\n{name} was not measured; to install it: {INSTALL[name]}." for name in found["missing"]]
    parts += [f"\n{what} failed." for what in found["failed"]]
    return "\n".join(parts) + "\n"


def _elementwise(found: Figures, words: Callable[[Figures, Figures], str], program: str = HUB) -> list[str]:
    names = [name for name in ELEMENTWISE if any(line["system"] == name for line in found["lines"])]
    rows = []
    for what, size, ours, others in _by_size(found, program):
        if what in WORDS:
            by_name = {line["system"]: words(line, ours) for line in others}
            rows.append([WORDS[what], size, *(by_name.get(name, "") for name in names)])
    return table(["operation", "size", *names], rows)


def _times(found: Figures) -> list[str]:
    names = [name for name in ELEMENTWISE if any(line["system"] == name for line in found["lines"])]
    head = ["operation", "size", "Colonnade online", "preparation", "rounds", "MB sent", "direct links", "in threads"]
    head += names
    rows = []
    other = {(line["what"], line["size"], line["program"]): line for line in found["lines"]}
    for what, size, ours, others in _by_size(found):
        if what in WORDS:
            by_name = {line["system"]: _peer_time(line) for line in others}
            own = [_time(ours["wall"]), _time(ours["preparation"]), str(ours["rounds"]), f"{ours['sent'] / 1e6:.3g}"]
            own += [_time(other[what, size, program]["wall"]) for program in (LINKED, "threads")]
            rows.append([WORDS[what], size, *own, *(by_name.get(name, "") for name in names)])
    return table(head, rows)


def _products(found: Figures, words: Callable[[Figures, Figures], str], program: str = HUB) -> list[str]:
    rows = []
    for what, size, ours, others in _by_size(found, program):
        if what == "X'X":
            own = f"{_time(ours['wall'])}, {ours['cpu']:.3g} s CPU"
            rows.append([size, OURS, f"three {program} over TLS" if program == HUB else f"three {program}", own])
            rows += [[size, line["system"], line["program"], words(line, ours)] for line in others]
    return table(["size", "system", "program", "measured"], rows)


def required(found: Figures) -> Iterator[Row]:
    """What must hold, and whether it does."""
    linked = {(what, size): line for what, size, line, _ in _by_size(found, LINKED)}
    for what, size, ours, others in _by_size(found):
        if what != "X'X" or size != _size(TALL):
            continue
        for line in others:
            if line["program"] != VARIANTS["cross"]:
                ratio, least = line["wall"] / ours["wall"], NEEDED[line["system"]]
                title = f"X'X of {size}, beside {line['system']}, {line['program']}"
                words = f"{ratio:.3g} x; {line['wall'] / linked[what, size]['wall']:.3g} x over direct links"
                yield title, words, verdict(ratio >= least, f"at least {least} x")


def csv_rows(found: Figures) -> Iterator[list[Any]]:
    """Every figure in a line of its own."""
    yield HEAD
    ours = {(what, size): line for what, size, line, _ in _by_size(found)}
    for line in found["lines"]:
        what, size = line["what"], line["size"]
        ratio = line["wall"] / ours[what, size]["wall"]
        named = [WORDS.get(what, what), size, line["system"], line["program"]]
        timed = [f"{line['wall']:.6g}", f"{ratio:.4g}", f"{line['cpu']:.6g}"]
        rest = [line.get(key) for key in ("preparation", "rounds", "sent", "error", "scaled_from")]
        rest = [f"{value:.6g}" if isinstance(value, float) else value for value in rest]
        yield [*named, *timed, *rest, line["command"]]


def csv_text(found: Figures) -> dict[str, str]:
    """The file beside the page."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(csv_rows(found))
    return {"arithmetic.csv": text.getvalue()}


BENCHMARKS = {
    "peers": Benchmark(
        measure_beside_peers,
        markdown,
        page="arithmetic",
        title="Speed of arithmetic on shares",
        about="Three processes on this machine hold shares; what is in the times, and how peers are called, is said in "
        "[the list of benchmarks](../README.md).",
        files=csv_text,
        help={"small": "100 x 20 and the smaller table only"},
    ),
    "seats": Benchmark(
        measure_seats,
        tabled(seats_rows, ("operation", "size", "online", "preparation", "CPU", "rounds", "MB sent", "largest error")),
        help={
            "direct": "in processes that connect to each other",
            "threads": "in threads of this process",
            "one_core": "in threads that share a core",
            "shapes": "rows x columns",
        },
    ),
}

if __name__ == "__main__":
    command(__doc__, BENCHMARKS)
