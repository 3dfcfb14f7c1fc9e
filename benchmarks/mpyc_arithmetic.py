"""Elementwise arithmetic in MPyC: secure fixed-point arrays, three processes on loopback, threshold 1, no TLS.

Prints one JSON object. A time is from shares of the operands to shares of the result. MPyC takes minutes for a
million elements, so these are scaled from fewer, as `scaled_from` says.
"""

from __future__ import annotations

import json
import sys
import time
from importlib.metadata import version

import numpy as np

from loopback import Case, Figures, addresses, arithmetic_options, error, operands, report, run_cases, sweep

PARTIES = 3
ABOUT = "3 processes, threshold 1, plain sockets; secure fixed-point arrays of 32 bits, 16 of them after the point"


def measure(cases: list[Case]) -> list[Figures]:
    ports = [part for address in addresses(PARTIES) for part in ("-P", address)]
    settings = (*ports, "-T1", "--no-log")
    return run_cases(__file__, [("--party", *cases, *settings, "-I", place) for place in range(PARTIES)])


async def take_part(cases: list[Case]) -> None:
    from mpyc.runtime import mpc

    await mpc.start()
    found = [await one(case) for case in cases]
    await mpc.shutdown()
    print(json.dumps({"cases": found}))


async def one(case: Case) -> Figures:
    from mpyc.runtime import mpc

    number = mpc.SecFxp()
    x, y = (_input(number, values, sender) for sender, values in enumerate(operands(case.shape)))
    await mpc.gather(x, y)
    warm, before = case.repeats > 1, _sent()
    spans, cpu = [], 0.0
    for turn in range(case.repeats + warm):
        await mpc.barrier()
        started, used = time.perf_counter(), time.process_time()
        result = _run(case.operation, x, y)
        await mpc.gather(result)
        if turn or not warm:
            spans.append((started, time.perf_counter()))
            cpu += (time.process_time() - used) / case.repeats
    sent = (_sent() - before) // (case.repeats + warm)
    opened = await mpc.output(result)
    return {"spans": spans, "cpu": cpu, "sent": sent, "error": error(case.operation, opened, case.shape)}


def _input(number: type, values: np.ndarray, sender: int) -> object:
    """One party shares its array; the others know its shape."""
    from mpyc.runtime import mpc

    mine = values if mpc.pid == sender else np.zeros_like(values)
    return mpc.input(number.array(mine, integral=False), senders=sender)


def _run(operation: str, x: object, y: object) -> object:
    from mpyc.runtime import mpc

    if operation == "multiply":
        return mpc.np_multiply(x, y)
    if operation == "less":
        return mpc.np_less(x, y)
    if operation == "reciprocal":
        return 1 / x
    product = mpc.np_multiply(x, y)
    return mpc.np_multiply(product, 1 / mpc.np_sum(product, axis=1, keepdims=True))


def _sent() -> int:
    from mpyc.runtime import mpc

    return sum(peer.protocol.nbytes_sent for peer in mpc.parties if peer.pid != mpc.pid)


def main() -> None:
    if sys.argv[1:2] == ["--party"]:
        from mpyc.runtime import mpc

        mpc.run(take_part([Case.parse(text) for text in sys.argv[2:]]))
        return
    options = arithmetic_options(__doc__, most=10_000, repeats=3).parse_args()
    report(f"MPyC {version('mpyc')}", PARTIES, ABOUT, sweep(options, measure))


if __name__ == "__main__":
    main()
