"""What is imported before processes are forked, so that those need not; whoever is forked inherits no more than that.

``colonnade run`` and ``colonnade demo`` have imported most of it themselves, so their fork server is a copy of them,
made before they look at anything that belongs to a participant (``fork_server_of_this_command``).
"""

from __future__ import annotations

import gc
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING

from colonnade import cli
from colonnade.models import registry
from colonnade.study.fork_server import ForkServer

if TYPE_CHECKING:
    from colonnade.study import Study

_LIBRARIES = (
    *("grpc.aio", "flint", "nacl.bindings"),
    *("scipy.special", "pyarrow.csv", "cryptography.x509", "encodings.idna"),
)
_PARTICIPANT = (
    "colonnade.cli.approve",
    "colonnade.cli.results",
    "colonnade.cli.text_output",
    "colonnade.study.alignment_session",
    "colonnade.study.run",
    "colonnade.wire.certificates",
    "colonnade.wire.hub_connection",
    "colonnade.privacy.noise.strip_sampler",
)
"""What every participant imports; any other module is imported by whoever needs it."""


def fork_server_of_this_command(study: Study | None = None, kinds: Iterable[str] = ()) -> ForkServer:
    """A fork server that is a copy of this process, which has looked at public files only; with a study, if loaded.

    In a program that is not the ``colonnade`` command, such as a test, the server is started anew. What studies of
    these ``kinds`` import is imported before, for a command that needs it as much as its participants.
    """
    if not cli.running:
        return ForkServer()
    if study is not None:
        study.keep_for_forks()
    if kinds:
        import_ahead(kinds)
    return ForkServer.of_this_process(partial(_prepare_copy, study))


def _prepare_copy(study: Study | None) -> None:
    import_ahead(() if study is None else (study.content.task.kind,))
    if study is not None:
        with suppress(Exception):  # a study that cannot be run is left to participants, who say why
            study.task.prepare()  # tables of its noise, which are public
        gc.freeze()


def import_ahead(kinds: Iterable[str] = ()) -> None:
    """Import what every participant does, and those in studies of these kinds.

    It is left out of garbage collections, which would copy its pages. Rules that participants compare are worked out
    here too: they are about fixed values, and the same for all.
    """
    gc.disable()
    for name in _LIBRARIES:
        with suppress(ImportError, OSError):  # whoever needs it says why it cannot be imported
            import_module(name)
    for name in _PARTICIPANT:
        import_module(name)
    for kind in kinds:
        registry.load(kind)
        registry.section_of(kind)
    import_module("colonnade.cli.process_tuning").without_pandas()
    import_module("colonnade.protocols.compatibility").compute_ahead()
    gc.freeze()
    gc.enable()
