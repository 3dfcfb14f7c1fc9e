"""What a fork server that was started anew imports before it forks: the standard library imports this module there."""

from __future__ import annotations

import gc
import os

from colonnade import cli

os.environ.update(cli.ONE_THREAD)
gc.disable()  # what is imported here is left out of garbage collections, as all that follows

from importlib import import_module  # noqa: E402 - see above

from colonnade.cli.app import build_command  # noqa: E402
from colonnade.cli.preload import import_ahead  # noqa: E402
from colonnade.models import registry  # noqa: E402

import_module("colonnade.federation.checks")
for participant in ("party", "coordinator"):
    build_command(f"participants:{participant}", participant)
import_ahead(registry.expected())
