"""Secure arithmetic beside MPyC, SPU and CrypTen, in one session: X'X, and elementwise operations.

MPyC is in this environment (the `bench` extra); SPU and CrypTen have their own, whose interpreters COLONNADE_SPU and
COLONNADE_CRYPTEN name. Peers that are not there are left out, and the page says how to install them.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

import engine
import gram
import peers
from harness import Job, free_ports, run
from loopback import LARGE, OPERATIONS, SMALL, Figures, Shape, scaled, widths

HERE = Path(__file__).parent
OURS, MPYC, SPU, CRYPTEN, CRYPTEN_3 = "Colonnade", "MPyC", "SPU", "CrypTen", "CrypTen, 3 parties"
INSTALL = {
    MPYC: "`pip install -e '.[bench]'`",
    SPU: "`python3.11 -m venv spu && spu/bin/pip install spu==0.9.5`, and `COLONNADE_SPU=spu/bin/python`",
    CRYPTEN: "see [the environments of peers](../README.md#environments-of-peers)",
}
ENVIRONMENTS = {SPU: "COLONNADE_SPU", CRYPTEN: "COLONNADE_CRYPTEN"}
WORDS = {
    "multiply": "multiply",
    "less": "compare, x < y",
    "reciprocal": "reciprocal",
    "softmax": "product, sum of 20, reciprocal, product",
}
TALL, WIDE = (45_000, 41), (195_666, 117)
FEW = (1500, 3000)
"""Rows of the wide table for MPyC, from which its time is scaled."""
NEEDED = {MPYC: 150, SPU: 20, CRYPTEN: 20}
HUB, LINKED = "processes", "processes, direct links"
ONLINE = {HUB: 0.060, LINKED: 0.035, "threads": 0.015, "threads on one core": 0.015}
HEAD = ["what", "size", "system", "program", "seconds", "times Colonnade", "CPU seconds", "seconds of preparation"]
HEAD += ["rounds", "bytes sent", "largest error", "scaled from", "command"]


@dataclass(frozen=True)
class Peer:
    """A program of a peer: whose, which script, and its options."""

    name: str
    script: str
    options: tuple[str, ...] = ()

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
        _say(f"{self.script} {' '.join(self.options + options)} ...")
        # Ours is for our interpreter only.
        settings = {key: value for key, value in os.environ.items() if key != "PYTHONPATH" or self.name == MPYC}
        command = [self.python, HERE / self.script, *self.options, *options]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=settings)
        if done.returncode:
            return None
        found: Figures = json.loads(done.stdout.splitlines()[-1])
        if self.name in ENVIRONMENTS:
            found["command"] = found["command"].replace("python", f"${ENVIRONMENTS[self.name]}", 1)
        return found


def _say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


ELEMENTWISE = {
    MPYC: Peer(MPYC, "mpyc_arithmetic.py"),
    SPU: Peer(SPU, "spu_arithmetic.py"),
    CRYPTEN: Peer(CRYPTEN, "crypten_arithmetic.py"),
    CRYPTEN_3: Peer(CRYPTEN, "crypten_arithmetic.py", ("--parties", "3")),
}
GRAMS = {
    (SPU, "one product"): Peer(SPU, "spu_gram.py", ("--block", "0")),
    (SPU, "blocks of rows"): Peer(SPU, "spu_gram.py"),
    (CRYPTEN, "one product"): Peer(CRYPTEN, "crypten_gram.py", ("--block", "0")),
    (CRYPTEN, "blocks of rows"): Peer(CRYPTEN, "crypten_gram.py"),
}
VARIANTS = {
    "integers": "secure integers",
    "whole": "smallest prime field",
    "cross": "smallest field, blocks between parties only",
}


# --- measuring


def measure(repeats: int, shapes: Sequence[Shape], tables: Sequence[Shape]) -> Figures:
    """All figures: ours before and after the peers', because the machine may be shared."""
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
    missing = [name for name in INSTALL if not Peer(name, "").python]
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


def _ours(shapes: Sequence[Shape], repeats: int) -> Iterator[Figures]:
    """Every operation in processes and in threads; small ones also in threads that share a core."""
    ways = {
        HUB: engine.in_processes,
        LINKED: engine.over_direct_links,
        "threads": engine.in_threads,
        "threads on one core": engine.on_one_core,
    }
    for program, measured in ways.items():
        for operation in OPERATIONS:
            for shape in [SMALL] if program == "threads on one core" else shapes:
                _say(f"Colonnade in {program}: {operation} {_size(shape)} ...")
                found = measured(operation, shape, 3 * repeats if shape == SMALL else 1)
                named = {"what": operation, "size": _size(shape), "system": OURS, "program": program}
                command = {HUB: "", LINKED: " --direct", "threads": " --threads"}.get(program, " --one-core")
                command = f"python benchmarks/engine.py{command}"
                yield found | named | {"command": command}


def _joined(early: Figures, late: Figures) -> Figures:
    """Half way between two runs; bytes and rounds are the same in both."""
    means = {key: (early[key] + late[key]) / 2 for key in ("wall", "preparation", "cpu")}
    return early | means | {"error": max(early["error"], late["error"])}


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
        yield named | ours | {"system": OURS, "program": program, "command": "python benchmarks/peers.py"}
    yield from (named | line for line in found)


def _tall(direct: bool) -> tuple[float, float, int]:
    _say("Colonnade: X'X ...")
    found = peers.colonnade(1, "none", direct=direct)
    return found["wall"], found["cpu"], found["sent"]


def _wide(direct: bool) -> tuple[float, float, int]:
    """As ``gram.py``, but without noise, which peers do not draw."""
    _say("Colonnade: X'X of the wide table ...")
    ports = dict(zip(gram.OWNERS, free_ports(len(gram.OWNERS)), strict=True)) if direct else None
    outcome = run(Job(gram.make_task(), partial(gram.stored, gram.ROWS), noise="none", ports=ports))
    return outcome.wall, outcome.cpu, sum(report.sealed for report in outcome.reports.values())


def _mpyc(variant: str, shape: Shape) -> Figures:
    """MPyC's X'X, from few rows of a table for which it would take half an hour."""
    _say(f"MPyC: X'X, {VARIANTS[variant]} ...")
    line = {"system": MPYC, "program": VARIANTS[variant], "command": "python benchmarks/peers.py", "error": 0.0}
    if shape == TALL:
        return line | peers.mpyc(variant)
    parts = [(rows, peers.mpyc(variant, rows, widths(shape[1], len(peers.OWNERS)))) for rows in FEW]
    wall = scaled([(rows, part["wall"]) for rows, part in parts], shape[0])
    rows, last = parts[-1]
    return line | {"wall": wall, "measured": last["wall"], "cpu": last["cpu"] * shape[0] / rows, "scaled_from": rows}


# --- reporting


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
        *_table(["what", "measured", "required"], required(found)),
        "\n## Commands\n",
        *(f"- `{command}`" for command in dict.fromkeys(line["command"] for line in found["lines"])),
    ]
    parts += [f"\n{name} was not measured; to install it: {INSTALL[name]}." for name in found["missing"]]
    parts += [f"\n{what} failed." for what in found["failed"]]
    return "\n".join(parts) + "\n"


def _table(head: Sequence[str], rows: Iterator[Sequence[str]] | Sequence[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows)]


def _elementwise(found: Figures, words: Callable[[Figures, Figures], str], program: str = HUB) -> list[str]:
    names = [name for name in ELEMENTWISE if any(line["system"] == name for line in found["lines"])]
    rows = []
    for what, size, ours, others in _by_size(found, program):
        if what in WORDS:
            by_name = {line["system"]: words(line, ours) for line in others}
            rows.append([WORDS[what], size, *(by_name.get(name, "") for name in names)])
    return _table(["operation", "size", *names], rows)


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
    return _table(head, rows)


def _products(found: Figures, words: Callable[[Figures, Figures], str], program: str = HUB) -> list[str]:
    rows = []
    for what, size, ours, others in _by_size(found, program):
        if what == "X'X":
            own = f"{_time(ours['wall'])}, {ours['cpu']:.3g} s CPU"
            rows.append([size, OURS, f"three {program} over TLS" if program == HUB else f"three {program}", own])
            rows += [[size, line["system"], line["program"], words(line, ours)] for line in others]
    return _table(["size", "system", "program", "measured"], rows)


def required(found: Figures) -> Iterator[tuple[str, str, str]]:
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
                yield title, words, _verdict(ratio >= least, f"at least {least} x")
    for line in found["lines"]:
        small = line["what"] == "softmax" and line["size"] == _size(SMALL)
        if line["system"] == OURS and small and line["program"] in ONLINE:
            most = ONLINE[line["program"]]
            title = f"{WORDS['softmax']}, {line['size']}, online, in {line['program']}"
            yield title, _time(line["wall"]), _verdict(line["wall"] < most, f"under {most * 1e3:.0f} ms")


def _verdict(good: bool, words: str) -> str:
    return f"{'PASS' if good else 'FAIL'}: {words}"


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--small", action="store_true", help="100 x 20 and the smaller table only")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    shapes, tables = ([SMALL], [TALL]) if options.small else ([SMALL, LARGE], [TALL, WIDE])
    found = measure(options.repeats, shapes, tables)
    print(json.dumps(found, indent=2) if options.json else markdown(found))


if __name__ == "__main__":
    main()
