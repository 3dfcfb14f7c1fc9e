"""Elementwise arithmetic in SPU: ABY3 over 64-bit rings, three processes on loopback, no TLS.

Prints one JSON object; runs in SPU's own environment. A time is from shares of the operands to shares of the result,
in a program that is compiled beforehand.
"""

from __future__ import annotations

import json
import pickle
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import version
from typing import Any

import numpy as np

from loopback import (
    Case,
    Figures,
    Shape,
    addresses,
    arithmetic_options,
    error,
    operands,
    report,
    run_cases,
    spans,
    sweep,
)

PARTIES = 3
ABOUT = "3 processes, ABY3 over 64-bit rings with 18 bits after the point, plain sockets (brpc)"


def measure(cases: list[Case]) -> list[Figures]:
    places = addresses(PARTIES)
    return run_cases(__file__, [("--party", place, *places, *cases) for place in range(PARTIES)])


class Party:
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
        mine, others = self.runtime.get_var(name), [place for place in range(PARTIES) if place != self.rank]
        for place in others:
            self.link.send_async(place, pickle.dumps(mine))
        shares = {place: pickle.loads(self.link.recv(place)) for place in others}  # noqa: S301 - our own process sent it
        return self.io.reconstruct([shares.get(place, mine) for place in range(PARTIES)])


def _programs() -> dict[str, Callable[..., Any]]:
    import jax.numpy as jnp

    def softmax(x: Any, y: Any) -> Any:
        product = x * y
        return product * (1 / jnp.sum(product, axis=1, keepdims=True))

    return {
        "multiply": lambda x, y: x * y,
        "less": lambda x, y: x < y,
        "reciprocal": lambda x, y: 1 / x,
        "softmax": softmax,
    }


def take_part(party: Party, case: Case) -> Figures:
    executable = party.compile(_programs()[case.operation], [case.shape, case.shape])
    for owner, values in enumerate(operands(case.shape)):
        party.share(f"in{owner}", owner, values)
    found = spans(case.repeats, party.link.barrier, lambda: party.runtime.run(executable))
    return found | {"error": error(case.operation, party.open("out0"), case.shape)}


def main() -> None:
    if sys.argv[1:2] == ["--party"]:
        party = Party(int(sys.argv[2]), sys.argv[3 : 3 + PARTIES])
        found = [take_part(party, Case.parse(text)) for text in sys.argv[3 + PARTIES :]]
        print(json.dumps({"cases": found}), flush=True)
        party.link.stop_link()
        return
    options = arithmetic_options(__doc__).parse_args()
    report(f"SPU {version('spu')}", PARTIES, ABOUT, sweep(options, measure))


if __name__ == "__main__":
    main()
