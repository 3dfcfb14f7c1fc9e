"""A Ray cluster on loopback: run as a program, whose standard input says what to do.

It prints the cluster's address. ``grow`` adds a second node, and ``lose`` kills its raylet; at the end of its input it
ends the cluster. Nodes end with this process, however it ends.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

from colonnade.study.engine.ray_nodes import begun

PATIENCE = 300.0


def main() -> None:
    constants: Any = import_module("ray._private.ray_constants")
    constants.ENABLE_RAY_CLUSTER = False  # or it listens on all interfaces
    cluster_utils: Any = import_module("ray.cluster_utils")
    node = {"num_cpus": 1, "object_store_memory": 80 * 10**6, "include_dashboard": False}
    cluster = begun(lambda: cluster_utils.Cluster(initialize_head=True, head_node_args=node), PATIENCE)
    tell(cluster.address)
    second: Any = None
    try:
        for line in sys.stdin:
            if line == "grow\n":
                second = begun(lambda: cluster.add_node(wait=False, **node), PATIENCE)
                cluster.wait_for_nodes(PATIENCE)
                tell("grown")
            elif line == "lose\n":
                cluster.remove_node(second, allow_graceful=False)
                tell("lost")
    finally:
        cluster.shutdown()


def tell(word: str) -> None:
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
