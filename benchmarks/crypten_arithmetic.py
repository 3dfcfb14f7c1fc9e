"""Elementwise arithmetic in CrypTen: processes on loopback, no TLS.

Prints one JSON object; runs in CrypTen's own environment. A time is from shares of the operands to shares of the
result. As CrypTen comes, its first party deals the multiplication triples and so could open everything: this is its
fastest setting, not one for parties who do not trust each other.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import json
import sys
import types
from importlib.metadata import version
from typing import Any

from loopback import (
    Case,
    Figures,
    addresses,
    arithmetic_options,
    error,
    operands,
    report,
    run_cases,
    spans,
    sweep,
)

ABOUT = "{} processes, 64-bit rings with 16 bits after the point, plain sockets (gloo); the first party deals triples"


def settings(parties: int) -> dict[str, str]:
    """Where so many parties meet."""
    return {
        "DISTRIBUTED_BACKEND": "gloo",
        "GLOO_SOCKET_IFNAME": "lo",
        "RENDEZVOUS": f"tcp://{addresses(1)[0]}",
        "WORLD_SIZE": str(parties),
    }


def start(rank: int) -> Any:
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


def _run(operation: str, x: Any, y: Any) -> Any:
    if operation == "multiply":
        return x * y
    if operation == "less":
        return x < y
    if operation == "reciprocal":
        return x.reciprocal()
    product = x * y
    return product * product.sum(dim=1, keepdim=True).reciprocal()


def take_part(crypten: Any, case: Case) -> Figures:
    import torch

    owned = enumerate(operands(case.shape))
    x, y = (crypten.cryptensor(torch.tensor(values), src=owner) for owner, values in owned)
    results = []

    def act() -> None:
        results[:] = [_run(case.operation, x, y)]

    found = spans(case.repeats, crypten.communicator.get().barrier, act)
    opened = results[0].get_plain_text().numpy()
    return found | {"error": error(case.operation, opened, case.shape)} | counted(crypten, act)


def main() -> None:
    if sys.argv[1:2] == ["--party"]:
        crypten = start(int(sys.argv[2]))
        crypten.config.cfg.functions.reciprocal_all_pos = True
        found = [take_part(crypten, Case.parse(text)) for text in sys.argv[3:]]
        print(json.dumps({"cases": found}), flush=True)
        return
    parser = arithmetic_options(__doc__)
    parser.add_argument("--parties", type=int, default=2)
    options = parser.parse_args()

    def measure(cases: list[Case]) -> list[Figures]:
        parties = [("--party", place, *cases) for place in range(options.parties)]
        return run_cases(__file__, parties, settings(options.parties))

    about = ABOUT.format(options.parties)
    report(f"CrypTen {version('crypten')}", options.parties, about, sweep(options, measure))


if __name__ == "__main__":
    main()
