"""The fork server where it is started anew: import, then fork whenever that is asked (``study/forks.py`` starts it)."""

from __future__ import annotations

import gc
import socket
import sys
from importlib import import_module

from colonnade.cli import main as command
from colonnade.cli.app import built
from colonnade.cli.forking import deaf, hearing, prepare, serve
from colonnade.models import registry


def main() -> None:
    """Serve; a forked process returns here, and runs its command as if started."""
    control = socket.socket(fileno=int(sys.argv[1]))
    control.set_inheritable(False)
    usual = deaf()
    gc.disable()  # what is imported here is left out of garbage collections, as all that follows
    import_module("colonnade.standing.assess")
    for participant in ("party", "coordinator"):
        built(participant)
    prepare(registry.expected())
    serve(control)
    hearing(usual)
    command()


if __name__ == "__main__":
    main()
