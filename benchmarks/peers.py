"""Programs of other frameworks, for comparisons: in environments of their own, with numpy and without Colonnade.

MPyC, SPU and CrypTen compute on shares, in processes on loopback without TLS; each prints one JSON object. A time is
from shares of the operands to shares of the result, or for X'X from tables in the clear. Paillier is the baseline of
learning over messages.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import importlib
import json
import math
import pickle
import secrets
import socket
import subprocess
import sys
import tempfile
import time
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

OPERATIONS = ("multiply", "less")
SMALL, LARGE = (100, 20), (50_000, 20)
ROWS, COLUMNS = 45_000, 41
SEATS = 3
"""Processes of MPyC and of SPU."""
TOLERATED = 0.05
_CLOSE = 2.0**-12
Shape = tuple[int, int]
Figures = dict[str, Any]


def operands(shape: Shape) -> tuple[np.ndarray, np.ndarray]:
    """Two positive arrays; the first party owns one, the second the other."""
    draws = np.random.default_rng(0)
    return draws.uniform(0.25, 2, shape), draws.uniform(0.25, 2, shape)


def plaintext(operation: str, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """What an operation is."""
    return x * y if operation == "multiply" else x < y


def error(operation: str, found: np.ndarray, shape: Shape) -> float:
    """The largest error; comparisons of numbers that fixed point can hardly tell apart may come out either way."""
    x, y = operands(shape)
    gaps = np.abs(np.asarray(found, dtype=np.float64) - plaintext(operation, x, y))
    worst = float(gaps[np.abs(x - y) > _CLOSE].max() if operation == "less" else gaps.max())
    assert worst <= TOLERATED, f"{operation} of {shape} is off by {worst}"
    return worst


def widths(columns: int, parties: int) -> list[int]:
    """How many columns each party has."""
    return [len(part) for part in np.array_split(np.arange(columns), parties)]


def table(place: int, rows: int, columns: int, parties: int) -> np.ndarray:
    """The columns of one party; a whole row has norm 1."""
    values = np.random.default_rng(place).standard_normal((rows, widths(columns, parties)[place]))
    return values / (np.linalg.norm(values, axis=1, keepdims=True) * parties**0.5)


def gram_error(found: np.ndarray, rows: int, columns: int, parties: int) -> float:
    """The largest error in X'X, which must be small beside the smallest sum of squares."""
    joint = np.hstack([table(place, rows, columns, parties) for place in range(parties)])
    exact = joint.T @ joint
    worst = float(np.abs(np.asarray(found, dtype=np.float64) - exact).max())
    assert worst <= TOLERATED * np.diag(exact).min(), f"X'X is off by {worst}"
    return worst


def addresses(count: int) -> list[str]:
    """Where so many parties can listen: ports of this machine that are free."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    found = [f"127.0.0.1:{opened.getsockname()[1]}" for opened in sockets]
    for opened in sockets:
        opened.close()
    return found


def together(
    kind: tuple[str, str],
    parties: Sequence[Sequence[object]],
    *,
    python: str = sys.executable,
    environment: Mapping[str, str] | None = None,
) -> list[Figures]:
    """Run a party of a peer for each list of arguments, all at the same time; what each prints last, as JSON."""
    places = addresses(len(parties))
    mpyc = [part for address in places for part in ("-P", address)]
    settings = {**os.environ, **(environment or {})}
    with tempfile.TemporaryDirectory(prefix="colonnade-bench-") as folder:
        said = [(Path(folder) / f"{place}.out", Path(folder) / f"{place}.err") for place in range(len(parties))]
        processes = []
        for place, ((out, err), given) in enumerate(zip(said, parties, strict=True)):
            own = [*mpyc, "-T1", "--no-log", "-I", str(place)] if kind[0] == "mpyc" else []
            words = [*kind, str(place), ",".join(places), *map(str, given), *own]
            with out.open("w") as output, err.open("w") as errors:
                command = [python, __file__, "--party", *words]
                processes.append(subprocess.Popen(command, stdout=output, stderr=errors, env=settings))
        if (failed := _wait(processes)) is not None:
            raise SystemExit(f"party {failed} of {' '.join(kind)} failed:\n{said[failed][1].read_text()[-2000:]}")
        return [_last_object(out.read_text()) for out, _ in said]


def _wait(processes: Sequence[subprocess.Popen[bytes]]) -> int | None:
    """Which process failed, if one did; the others would wait for it for ever, so they are stopped."""
    while True:
        codes = [process.poll() for process in processes]
        failed = next((place for place, code in enumerate(codes) if code), None)
        if failed is not None or all(code == 0 for code in codes):
            break
        time.sleep(0.05)
    for process in processes:
        if process.poll() is None:
            process.kill()
        process.wait()
    return failed


def _last_object(text: str) -> Figures:
    found: Figures = json.loads(next(line for line in reversed(text.splitlines()) if line.startswith("{")))
    return found


def spans(repeats: int, barrier: Callable[[], object], act: Callable[[], object]) -> Figures:
    """Time an act of all parties after a first, untimed one; alone, if there is nothing to repeat."""
    if repeats > 1:
        act()
    found, cpu = [], 0.0
    for _ in range(repeats):
        barrier()
        started, before = time.perf_counter(), time.process_time()
        act()
        found.append((started, time.perf_counter()))
        cpu += (time.process_time() - before) / repeats
    return {"spans": found, "cpu": cpu}


def typical(reports: Sequence[Figures]) -> Figures:
    """From the first party to start to the last to end, the median of the repeats; the clock is the same for all."""
    turns = zip(*(report["spans"] for report in reports), strict=True)
    walls = [max(ended for _, ended in turn) - min(started for started, _ in turn) for turn in turns]
    rest = {key: reports[0][key] for key in ("error", "rounds") if key in reports[0]}
    if all("sent" in report for report in reports):
        rest["sent"] = sum(report["sent"] for report in reports)
    return {"wall": median(walls), "walls": walls, "cpu": sum(report["cpu"] for report in reports), **rest}


def parse_shape(text: str) -> Shape:
    rows, columns = map(int, text.split("x"))
    return rows, columns


@dataclass(frozen=True)
class Case:
    """One operation on arrays of one shape, some times."""

    operation: str
    shape: Shape
    repeats: int

    def __str__(self) -> str:
        return f"{self.operation}:{self.shape[0]}:{self.shape[1]}:{self.repeats}"

    @classmethod
    def parse(cls, text: str) -> Case:
        operation, rows, columns, repeats = text.split(":")
        return cls(operation, (int(rows), int(columns)), int(repeats))


def sweep(
    operations: Sequence[str],
    shapes: Sequence[Shape],
    most: int,
    repeats: int,
    measure: Callable[[list[Case]], list[Figures]],
) -> list[Figures]:
    """All operations on all shapes, small ones first, as far as they are not scaled."""
    wanted = [(operation, shape) for operation in operations for shape in sorted(shapes)]
    cases = []
    for operation, (rows, columns) in wanted:
        part = min(rows, most // columns) if most else rows
        cases.append(Case(operation, (part, columns), repeats if part * columns < 10_000 else 1))
    lines = measure(cases)
    points: dict[str, list[tuple[int, float]]] = {}
    for case, line, (operation, shape) in zip(cases, lines, wanted, strict=True):
        measured, elements = math.prod(case.shape), math.prod(shape)
        points.setdefault(operation, []).append((measured, line["wall"]))
        line |= {"operation": operation, "shape": shape, "elements": elements, "scaled_from": None}
        if measured < elements:
            line |= {"scaled_from": measured, "measured": line["wall"], "wall": scaled(points[operation], elements)}
            line["cpu"] *= elements / measured
    return lines


def scaled(points: Sequence[tuple[int, float]], count: int) -> float:
    """Seconds for a larger count: proportional, or by the line through the last two points if that is less."""
    more, long = points[-1]
    proportional = long * count / more
    if len(points) < 2 or points[-2][0] == more:
        return proportional
    few, short = points[-2]
    return min(proportional, max(long, long + (long - short) / (more - few) * (count - more)))


# --- MPyC: secure fixed-point arrays, three processes, threshold 1


async def _mpyc_case(case: Case) -> Figures:
    from mpyc.runtime import mpc

    number = mpc.SecFxp()
    x, y = (_mpyc_input(number, values, values.shape, sender) for sender, values in enumerate(operands(case.shape)))
    await mpc.gather(x, y)
    warm, before = case.repeats > 1, _mpyc_sent()
    spans, cpu = [], 0.0
    for turn in range(case.repeats + warm):
        await mpc.barrier()
        started, used = time.perf_counter(), time.process_time()
        result = _mpyc_operation(case.operation, x, y)
        await mpc.gather(result)
        if turn or not warm:
            spans.append((started, time.perf_counter()))
            cpu += (time.process_time() - used) / case.repeats
    sent = (_mpyc_sent() - before) // (case.repeats + warm)
    opened = await mpc.output(result)
    return {"spans": spans, "cpu": cpu, "sent": sent, "error": error(case.operation, opened, case.shape)}


def _mpyc_input(secure: Any, mine: np.ndarray, shape: Shape, sender: int) -> Any:
    """One party shares its array; the others know its shape."""
    from mpyc.runtime import mpc

    value = mine if mpc.pid == sender else np.zeros(shape, dtype=mine.dtype)
    whole = {} if mine.dtype == object else {"integral": False}
    return mpc.input(secure.array(value, **whole), senders=sender)


def _mpyc_operation(operation: str, x: Any, y: Any) -> Any:
    from mpyc.runtime import mpc

    return mpc.np_multiply(x, y) if operation == "multiply" else mpc.np_less(x, y)


def _mpyc_sent() -> int:
    from mpyc.runtime import mpc

    return sum(peer.protocol.nbytes_sent for peer in mpc.parties if peer.pid != mpc.pid)


def mpyc_elementwise(place: int, places: Sequence[str], *cases: str) -> Figures:
    """All operations, one after the other."""
    from mpyc.runtime import mpc

    async def play() -> list[Figures]:
        await mpc.start()
        found = [await _mpyc_case(Case.parse(case)) for case in cases]
        await mpc.shutdown()
        return found

    return {"cases": mpc.run(play())}


def mpyc_product(place: int, places: Sequence[str], variant: str, source: str, target: str) -> Figures:
    """X'X of the integers of a file, in one of three ways; the opened result goes to another file.

    "integers" is what a user of MPyC would write: secure integers, one product of whole arrays, an opening. "whole"
    is the same in a prime field just large enough, without the room for comparisons that secure integers keep: the
    fastest honest program found for all of X'X on shares. "cross" leaves to each party the block it can compute
    alone, as Colonnade does.
    """
    from mpyc.runtime import mpc

    tables = np.load(source)
    columns = [int(width) for width in tables["widths"]]
    mine, order = tables[f"x{mpc.pid}"], int(tables["order"])
    secure = mpc.SecInt(order.bit_length()) if variant == "integers" else mpc.SecFld(min_order=order)

    async def play() -> tuple[Any, Figures]:
        await mpc.start()
        wall, cpu = time.perf_counter(), time.process_time()
        own = mine.astype(object)
        shares = [_mpyc_input(secure, own, (len(mine), width), sender) for sender, width in enumerate(columns)]
        if variant == "cross":
            block = (mine.T.astype(np.float64) @ mine.astype(np.float64)).astype(np.int64).astype(object)
            blocks = [_mpyc_input(secure, block, (width, width), sender) for sender, width in enumerate(columns)]
            result = await _mpyc_cross(shares, blocks)
        else:
            result = await _mpyc_whole(shares)
        report = {"started": wall, "ended": time.perf_counter(), "cpu": time.process_time() - cpu}
        report["sent"] = _mpyc_sent()
        await mpc.shutdown()
        return result, report

    result, report = mpc.run(play())
    prime = secure.field.order
    np.save(target, ((result + prime // 2) % prime - prime // 2).astype(np.int64))
    return report


async def _mpyc_whole(shares: list[Any]) -> np.ndarray:
    from mpyc.runtime import mpc

    joint = mpc.np_hstack(shares)
    opened = await mpc.output(mpc.np_matmul(mpc.np_transpose(joint), joint))
    return getattr(opened, "value", opened)


async def _mpyc_cross(shares: list[Any], own: list[Any]) -> np.ndarray:
    from mpyc.runtime import mpc

    first, second, third = shares
    rest = mpc.np_hstack([second, third])
    upper = mpc.np_matmul(mpc.np_transpose(first), rest)
    lower = mpc.np_matmul(mpc.np_transpose(second), third)
    coming = [mpc.output(part) for part in (upper, lower, *own)]
    upper, lower, *blocks = [(await part).value for part in coming]
    a, b = first.shape[1], second.shape[1]
    full = np.zeros((a + rest.shape[1],) * 2, dtype=object)
    full[:a, a:], full[a : a + b, a + b :] = upper, lower
    full += full.T
    start = 0
    for block in blocks:
        full[start : start + len(block), start : start + len(block)] = block
        start += len(block)
    return full


# --- SPU: ABY3 over 64-bit rings, three processes; programs are compiled beforehand


class SpuParty:
    """One of three processes: its link to the others, its runtime, and the way shares travel."""

    def __init__(self, rank: int, places: Sequence[str]) -> None:
        from spu import api, libspu

        self.rank, self._visibility = rank, libspu.Visibility.VIS_SECRET
        link = libspu.link.Desc()
        link.recv_timeout_ms = 600_000
        for place, address in enumerate(places):
            link.add_party(f"party{place}", address)
        self.link = libspu.link.create_brpc(link, rank)
        settings = libspu.RuntimeConfig(protocol=libspu.ProtocolKind.ABY3, field=libspu.FieldType.FM64)
        self.io, self.runtime = api.Io(len(places), settings), api.Runtime(self.link, settings)

    def compile(self, program: Callable[..., Any], shapes: Sequence[Shape]) -> Any:
        """An executable that reads in0, in1, ... and writes out0."""
        from spu.utils import frontend

        names = [f"in{place}" for place in range(len(shapes))]
        zeros = [np.zeros(shape, dtype=np.float32) for shape in shapes]
        secret = [self._visibility] * len(shapes)
        return frontend.compile(frontend.Kind.JAX, program, zeros, {}, names, secret, lambda _: ["out0"])[0]

    def share(self, name: str, owner: int, values: np.ndarray | None) -> None:
        """The owner makes shares and sends them to the others."""
        if self.rank != owner:
            self.runtime.set_var(name, pickle.loads(self.link.recv(owner)))  # noqa: S301 - our own process sent it
            return
        shares = self.io.make_shares(values.astype(np.float32), self._visibility)
        for place, share in enumerate(shares):
            if place != owner:
                self.link.send_async(place, pickle.dumps(share))
        self.runtime.set_var(name, shares[owner])

    def open(self, name: str) -> np.ndarray:
        """What the shares of a result come to; everybody learns it."""
        mine, others = self.runtime.get_var(name), [place for place in range(SEATS) if place != self.rank]
        for place in others:
            self.link.send_async(place, pickle.dumps(mine))
        shares = {place: pickle.loads(self.link.recv(place)) for place in others}  # noqa: S301 - our own process sent it
        return self.io.reconstruct([shares.get(place, mine) for place in range(SEATS)])


_SPU_PROGRAMS: dict[str, Callable[..., Any]] = {"multiply": lambda x, y: x * y, "less": lambda x, y: x < y}


def spu_elementwise(place: int, places: Sequence[str], *cases: str) -> Figures:
    """All operations, one after the other."""
    party, found = SpuParty(place, places), []
    for case in map(Case.parse, cases):
        executable = party.compile(_SPU_PROGRAMS[case.operation], [case.shape, case.shape])
        for owner, values in enumerate(operands(case.shape)):
            party.share(f"in{owner}", owner, values)
        turns = spans(case.repeats, party.link.barrier, partial(party.runtime.run, executable))
        found.append(turns | {"error": error(case.operation, party.open("out0"), case.shape)})
    return {"cases": found}


def spu_product(place: int, places: Sequence[str], *size: str) -> Figures:
    """X'X at once, or in blocks of rows, which is faster."""
    import jax.numpy as jnp

    block, rows, columns, repeats = map(int, size)
    party = SpuParty(place, places)

    def product(*tables: Any) -> Any:
        joint = jnp.concatenate(tables, axis=1)
        step = block or len(joint)
        parts = [joint[start : start + step] for start in range(0, len(joint), step)]
        return sum(part.T @ part for part in parts)

    executable = party.compile(product, [(rows, width) for width in widths(columns, SEATS)])
    mine = table(party.rank, rows, columns, SEATS)

    def act() -> None:
        for owner in range(SEATS):
            party.share(f"in{owner}", owner, mine if owner == party.rank else None)
        party.runtime.run(executable)

    found = spans(repeats, party.link.barrier, act)
    return found | {"error": gram_error(party.open("out0"), rows, columns, SEATS)}


def spu_intersection(place: int, places: Sequence[str], protocol: str, source: str, target: str) -> Figures:
    """One party of SPU's private set intersection, by RR22 or ECDH."""
    from spu import libspu, psi

    link = libspu.link.Desc()
    link.recv_timeout_ms = 600_000
    for rank, address in enumerate(places):
        link.add_party(f"party{rank}", address)
    context = libspu.link.create_brpc(link, place)
    settings = psi.PsiProtocolConfig(
        protocol=psi.parse_protocol(f"PROTOCOL_{protocol}"),
        ecdh_params=psi.EcdhParams(curve=psi.EllipticCurveType.CURVE_25519),
        receiver_rank=0,
        broadcast_result=True,
    )
    config = psi.PsiExecuteConfig(
        protocol_conf=settings,
        input_params=psi.InputParams(path=source, selected_keys=["id"], keys_unique=True),
        output_params=psi.OutputParams(path=target, disable_alignment=False),
        join_conf=psi.ResultJoinConfig(type=psi.ResultJoinType.JOIN_TYPE_INNER_JOIN, left_side_rank=0),
    )
    started = time.time()
    report = psi.psi_execute(config, context)
    ended = time.time()
    # Not ru_maxrss: a process inherits the peak of the one that started it.
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    peak = 1024 * int(status["VmHWM"].split()[0])
    return {"count": report.intersection_count, "started": started, "ended": ended, "peak": peak}


# --- CrypTen: its first party deals triples and so could open everything; its fastest setting


def _crypten_settings(parties: int) -> dict[str, str]:
    """Where so many parties meet."""
    return {
        "DISTRIBUTED_BACKEND": "gloo",
        "GLOO_SOCKET_IFNAME": "lo",
        "RENDEZVOUS": f"tcp://{addresses(1)[0]}",
        "WORLD_SIZE": str(parties),
    }


def _crypten(rank: int) -> Any:
    """CrypTen, connected to the other parties."""
    os.environ["RANK"] = str(rank)
    # Parts of torch that are gone; CrypTen imports them for neural networks only.
    for name in ("torch.onnx.symbolic_registry", "torch.onnx._internal.registration"):
        module = sys.modules.setdefault(name, types.ModuleType(name))
        module.registry = None
    import crypten
    import torch

    torch.set_num_threads(1)
    crypten.init()
    return crypten


def counted(crypten: Any, act: Any) -> Figures:
    """Rounds, and bytes sent by this party, of one more run."""
    talk = crypten.communicator.get()
    with crypten.config.cfg.temp_override({"communicator.verbose": True}):
        talk.reset_communication_stats()
        act()
    return {"rounds": talk.comm_rounds, "sent": talk.comm_bytes}


def crypten_elementwise(place: int, places: Sequence[str], *cases: str) -> Figures:
    """All operations, one after the other."""
    crypten = _crypten(place)
    import torch

    found = []
    for case in map(Case.parse, cases):
        owned = enumerate(operands(case.shape))
        x, y = (crypten.cryptensor(torch.tensor(values), src=owner) for owner, values in owned)
        results: list[Any] = []
        act = partial(_crypten_operation, case.operation, x, y, results)
        turns = spans(case.repeats, crypten.communicator.get().barrier, act)
        opened = results[0].get_plain_text().numpy()
        found.append(turns | {"error": error(case.operation, opened, case.shape)} | counted(crypten, act))
    return {"cases": found}


def _crypten_operation(operation: str, x: Any, y: Any, results: list[Any]) -> None:
    results[:] = [x * y if operation == "multiply" else x < y]


def crypten_product(place: int, places: Sequence[str], *size: str) -> Figures:
    """X'X at once, or in blocks of rows, which is faster."""
    crypten, parties = _crypten(place), len(places)
    import torch

    block, rows, columns, repeats = map(int, size)
    mine = torch.tensor(table(place, rows, columns, parties))
    blanks = [torch.zeros(rows, width, dtype=torch.float64) for width in widths(columns, parties)]
    results = []

    def product(joint: Any) -> Any:
        whole = rows - rows % block if block else 0
        sums = [joint[whole:].t().matmul(joint[whole:])] if whole < rows else []
        if whole:
            blocks = joint[:whole].reshape(-1, block, columns)
            sums.append(blocks.transpose(1, 2).matmul(blocks).sum(dim=0))
        return sums[0] + sums[1] if len(sums) == 2 else sums[0]

    def act() -> None:
        tables = [crypten.cryptensor(mine if owner == place else blanks[owner], src=owner) for owner in range(parties)]
        results[:] = [product(crypten.cat(tables, dim=1))]

    found = spans(repeats, crypten.communicator.get().barrier, act)
    opened = results[0].get_plain_text().numpy()
    return found | {"error": gram_error(opened, rows, columns, parties)} | counted(crypten, act)


# --- figures of these three


@dataclass(frozen=True)
class Peer:
    """A framework, and how much of it is asked."""

    package: str
    about: str
    parties: int
    repeats: int = 7
    """Of arrays with fewer than 10,000 elements."""
    most: int = 0
    """Elements to measure, if that is not all; the time for more is scaled."""
    block: int = 0
    """Rows of one product of X'X, if that is not all."""

    def reports(self, kind: str, given: Sequence[object]) -> list[Figures]:
        """What every party says."""
        environment = _crypten_settings(self.parties) if self.package == "crypten" else None
        return together((self.package, kind), [given] * self.parties, environment=environment)

    def elementwise(self, cases: list[Case]) -> list[Figures]:
        """The figures of each case, of processes that go through all of them."""
        found = self.reports("elementwise", cases)
        return [typical(turn) for turn in zip(*(report["cases"] for report in found), strict=True)]

    def product(self, limit: float, rows: int, columns: int) -> Figures:
        """X'X of all rows if one product fits the limit, else of as many as take a quarter of it, and scaled."""

        def measure(part: int, repeats: int) -> Figures:
            return typical(self.reports("product", (self.block, part, columns, repeats)))

        probe = max(rows // 64, 1)
        points = [(probe, measure(probe, 1)["wall"])]
        foreseen = scaled(points, rows)
        fits = foreseen <= limit
        part = rows if fits else max(int(rows * limit / foreseen / 4), probe)
        line = measure(part, 3 if fits and 3 * foreseen <= limit else 1)
        line |= {"rows": rows, "columns": columns, "scaled_from": None}
        if part < rows:
            points.append((part, line["wall"]))
            line |= {"scaled_from": part, "measured": line["wall"], "wall": scaled(points, rows)}
            line["cpu"] *= rows / part
        return line


PEERS = {
    "mpyc": Peer(
        "mpyc",
        "3 processes, threshold 1, plain sockets; secure fixed-point arrays of 32 bits, 16 of them after the point",
        SEATS,
        repeats=3,
        most=10_000,
    ),
    "spu": Peer(
        "spu",
        "3 processes, ABY3 over 64-bit rings with 18 bits after the point, plain sockets (brpc)",
        SEATS,
        block=50,
    ),
    "crypten": Peer(
        "crypten",
        "64-bit rings with 16 bits after the point, plain sockets (gloo); the first party deals triples",
        2,
        block=1000,
    ),
}
PARTIES: dict[tuple[str, str], Callable[..., Figures]] = {
    ("mpyc", "elementwise"): mpyc_elementwise,
    ("mpyc", "product"): mpyc_product,
    ("spu", "elementwise"): spu_elementwise,
    ("spu", "product"): spu_product,
    ("spu", "intersection"): spu_intersection,
    ("crypten", "elementwise"): crypten_elementwise,
    ("crypten", "product"): crypten_product,
}
"""What one process of a peer does."""


# --- Paillier: vertical logistic regression under homomorphic encryption
#
# As in Hardy et al. (2017) and FATE: the slope of the loss is replaced by its tangent, t/4 - y/2, so that it can be
# computed on ciphertexts. In each batch the passive party encrypts its scores; the active party adds its own and the
# label and sends the encrypted slopes back; both multiply them into their columns; an arbiter, who alone has the secret
# key, decrypts gradients that carry a random mask. Numbers are in fixed point, so that no exponents need aligning.


KEY_BITS = 2048
_CELL, _SCORE = 16.0**-5, 16.0**-8  # fixed point: 20 bits after the point of a cell, 32 of a score
_MASK_BITS = 120  # far more than a gradient has, far fewer than the key
Matrix = NDArray[np.float64]
Ciphers = list[Any]


@dataclass(frozen=True)
class Recipe:
    """What all three agree on."""

    epochs: int = 1
    batch: int = 3200
    learning_rate: float = 0.1
    ridge: float = 0.001

    def batches(self, rows: int) -> list[slice]:
        count = max(1, rows // self.batch)
        return [slice(start, None, count) for start in range(count)] * self.epochs


class Arbiter:
    """Holds the key and decrypts what is masked."""

    def __init__(self, bits: int = KEY_BITS) -> None:
        from phe import generate_paillier_keypair

        self.public, self._secret = generate_paillier_keypair(n_length=bits)

    def opened(self, masked: bytes) -> list[int]:
        """The masked integers; the exponent is public."""
        return [
            self._secret.decrypt_encoded(cipher).encoding for cipher in unpacked(self.public, masked, _CELL * _SCORE)
        ]


@dataclass
class EncryptedParty:
    """One side's columns and weights."""

    rows: Matrix
    public: Any
    recipe: Recipe
    weights: Matrix = field(init=False)
    _masks: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        from phe import EncodedNumber

        self.weights = np.zeros(self.rows.shape[1])
        self._cells = [
            [EncodedNumber.encode(self.public, float(cell), precision=_CELL) for cell in row] for row in self.rows
        ]

    def masked_gradient(self, batch: slice, slopes: Ciphers) -> bytes:
        """The sum of slope times column, encrypted, under a mask that only this party knows."""
        from phe import EncodedNumber

        found = []
        self._masks = []
        for column in zip(*self._cells[batch], strict=True):
            total = slopes[0] * column[0]
            for slope, cell in zip(slopes[1:], column[1:], strict=True):
                total += slope * cell
            mask = secrets.randbits(_MASK_BITS)
            self._masks.append(mask)
            found.append(total + EncodedNumber(self.public, mask, total.exponent))
        return packed(found)

    def step(self, batch: slice, opened: Sequence[int]) -> None:
        """Take the mask off and move."""
        n = self.public.n
        plain = [(value - mask) % n for value, mask in zip(opened, self._masks, strict=True)]
        signed = np.array([float(value - n if value > n // 2 else value) for value in plain])
        gradient = signed * (_CELL * _SCORE) / len(self.rows[batch])
        self.weights = self.weights - self.recipe.learning_rate * (gradient + self.recipe.ridge * self.weights)


class Passive(EncryptedParty):
    """The side without the label."""

    def scores(self, batch: slice) -> bytes:
        """A quarter of every score of the batch, encrypted."""
        quarter = self.rows[batch] @ self.weights / 4
        return packed([self.public.encrypt(float(value), precision=_SCORE) for value in quarter])


@dataclass
class Active(EncryptedParty):
    """The side with the label, 0 or 1."""

    labels: Matrix = field(kw_only=True)

    def slopes(self, batch: slice, scores: bytes) -> Ciphers:
        """The tangent's slopes; a ciphertext is made fresh when it is packed, so nobody can divide it away."""
        from phe import EncodedNumber

        own = self.rows[batch] @ self.weights / 4 + 0.5 - self.labels[batch]
        received = unpacked_scores(self.public, scores)
        return [
            cipher + EncodedNumber.encode(self.public, float(value), precision=_SCORE)
            for cipher, value in zip(received, own, strict=True)
        ]


def packed(ciphers: Ciphers) -> bytes:
    """Ciphertexts of one length each, one after the other."""
    size = _size(ciphers[0].public_key)
    return b"".join(cipher.ciphertext(be_secure=True).to_bytes(size, "little") for cipher in ciphers)


def unpacked(public: Any, packet: bytes, precision: float) -> Ciphers:
    """The ciphertexts of a packet, in units of ``precision``."""
    from phe import EncryptedNumber

    exponent, size = round(np.log2(precision) / 4), _size(public)
    return [
        EncryptedNumber(public, int.from_bytes(packet[start : start + size], "little"), exponent)
        for start in range(0, len(packet), size)
    ]


def unpacked_scores(public: Any, packet: bytes) -> Ciphers:
    """Scores or slopes, as they are sent."""
    return unpacked(public, packet, _SCORE)


def _size(public: Any) -> int:
    return (public.nsquare.bit_length() + 7) // 8


def in_one_place(
    active: Matrix, passive: Matrix, labels: Matrix, recipe: Recipe, arbiter: Arbiter
) -> tuple[Matrix, Matrix]:
    """All three roles after one another: both parties' weights."""
    mine = Active(active, arbiter.public, recipe, labels=labels)
    theirs = Passive(passive, arbiter.public, recipe)
    for batch in recipe.batches(len(labels)):
        slopes = mine.slopes(batch, theirs.scores(batch))
        sent = unpacked_scores(arbiter.public, packed(slopes))
        mine.step(batch, arbiter.opened(mine.masked_gradient(batch, slopes)))
        theirs.step(batch, arbiter.opened(theirs.masked_gradient(batch, sent)))
    return mine.weights, theirs.weights


def in_the_clear(active: Matrix, passive: Matrix, labels: Matrix, recipe: Recipe) -> tuple[Matrix, Matrix]:
    """The same steps without encryption: what the ciphertexts must come to."""
    joint, width = np.hstack([active, passive]), active.shape[1]
    weights = np.zeros(joint.shape[1])
    for batch in recipe.batches(len(labels)):
        rows = joint[batch]
        gradient = rows.T @ (rows @ weights / 4 + 0.5 - labels[batch]) / len(rows)
        weights = weights - recipe.learning_rate * (gradient + recipe.ridge * weights)
    return weights[:width], weights[width:]


# --- commands


def add_arithmetic_options(parser: argparse.ArgumentParser) -> None:
    """Which operations, on which shapes."""
    parser.add_argument("--operations", nargs="+", default=OPERATIONS, choices=OPERATIONS)
    parser.add_argument("--shapes", nargs="+", type=parse_shape, default=[SMALL, LARGE], metavar="ROWSxCOLUMNS")
    parser.add_argument("--most", type=int, help="elements to measure; the time for more is scaled")
    parser.add_argument("--repeats", type=int, help="of arrays with fewer than 10,000 elements")


def parse_arguments() -> argparse.Namespace:
    """What is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words = parser.add_subparsers(dest="what", required=True)
    elementwise = words.add_parser("elementwise", help="operations on shares of arrays")
    add_arithmetic_options(elementwise)
    product = words.add_parser("product", help="X'X, from tables in the clear to shares of it")
    product.add_argument("--rows", type=int, default=ROWS)
    product.add_argument("--columns", type=int, default=COLUMNS)
    product.add_argument("--block", type=int, help="rows of one product, or 0 for all in one")
    product.add_argument("--limit", type=float, default=60, help="seconds; what would take longer is scaled from less")
    for each in (elementwise, product):
        each.add_argument("peer", choices=PEERS)
        each.add_argument("--parties", type=int, help="of CrypTen, two or three")
    return parser.parse_args()


def main() -> None:
    """A party of a peer, or all parties and their figures as one JSON object."""
    if sys.argv[1:2] == ["--party"]:
        if sys.argv[2] == "mpyc":
            importlib.import_module("mpyc.runtime")  # takes its own options away
        package, kind, place, places, *given = sys.argv[2:]
        print(json.dumps(PARTIES[package, kind](int(place), places.split(","), *given)), flush=True)
        os._exit(0)  # links of peers may not end by themselves
    asked = parse_arguments()
    peer = PEERS[asked.peer]
    if asked.parties:
        peer = replace(peer, parties=asked.parties)
    if asked.what == "elementwise":
        options = (asked.operations, asked.shapes, asked.most or peer.most, asked.repeats or peer.repeats)
        results: Any = sweep(*options, peer.elementwise)
    else:
        peer = peer if asked.block is None else replace(peer, block=asked.block)
        results = peer.product(asked.limit, asked.rows, asked.columns)
    about = f"{peer.parties} processes, {peer.about}" if peer.package == "crypten" else peer.about
    command = " ".join(["python", f"benchmarks/{Path(__file__).name}", *sys.argv[1:]])
    said = {"peer": f"{peer.package} {version(peer.package)}", "parties": peer.parties, "about": about}
    print(json.dumps(said | {"command": command, "results": results}))


if __name__ == "__main__":
    main()
