"""One party of SPU's private set intersection over loopback: run by alignment.py in SPU's own environment.

Arguments: rank, protocol (RR22 or ECDH), the CSV of this party, where to put the result, and both addresses.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from spu import libspu, psi


def main() -> None:
    rank, protocol, source, target, *addresses = sys.argv[1:]
    link = libspu.link.Desc()
    link.recv_timeout_ms = 600_000
    for place, address in enumerate(addresses):
        link.add_party(f"party{place}", address)
    context = libspu.link.create_brpc(link, int(rank))
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
    print(json.dumps({"count": report.intersection_count, "started": started, "ended": ended, "peak": peak}))
    context.stop_link()


if __name__ == "__main__":
    main()
