"""``colonnade federation scores``: take part in standing questions without an agent or a standing hub."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Annotated

import typer

from colonnade.cli.output import say
from colonnade.errors import StudyError


def scores(
    path: Annotated[
        Path,
        typer.Argument(metavar="PARTY.toml|STUDY.toml", help="The party's own file, or the coordinator's study."),
    ],
    key: Annotated[Path | None, typer.Option("--key", help="The coordinator's private key, with a study.")] = None,
    listen: Annotated[
        str | None, typer.Option("--listen", help="Listen at HOST:PORT: a party for programs, the coordinator as hub.")
    ] = None,
) -> None:
    """Keep standing questions open: scores on demand."""
    if key is None:
        _answer(path, listen)
    else:
        _meet(path, key, listen)


def _answer(path: Path, listen: str | None) -> None:
    """Keep a party's standing questions open until it is interrupted; where it may ask, serve the interface."""
    from colonnade.standing.scores.service import ScoresService
    from colonnade.study import PartyConfig

    config = PartyConfig.load(path)
    agent = config.standing
    if agent.scores is None:
        raise StudyError(
            f"{path} has no [agent.scores] section: docs/how-to/scores-on-demand.md says what goes into it [ST045]"
        )
    service = ScoresService(config, agent.scores, path.parent / agent.folder)
    served = None
    service.start()
    try:
        if service.asked_here:
            try:
                from colonnade.standing.scores.serving import serve
            except ModuleNotFoundError as error:
                raise StudyError("the interface for scores needs `pip install 'colonnade[console]'` [ST544]") from error

            served = serve(service, listen or "127.0.0.1:8472")
            say(f"{config.name} asks at {served.url}/v1/scores, with the token in {service.token_file}")
        for name, kept in service.kept.items():
            if kept.questions is None:
                limits = kept.standing
                say(f"{config.name} answers {name}: {limits.per_person} a person and {limits.per_day} a day")
        threading.Event().wait()
    finally:
        if served is not None:
            served.stop()
        service.stop()


def _meet(path: Path, key: Path, listen: str | None) -> None:
    """Keep a hub and the coordinator's seat for one standing question until it is interrupted."""
    from colonnade.standing.scores.meeting import keep_seat, own_hub
    from colonnade.standing.scores.settings import Standing
    from colonnade.study import Study

    standing = Standing.of(Study.load(path))
    with own_hub(standing, key, listen=listen) as hub:
        seat = keep_seat(standing, key, hub)
        say(f"the room of {standing.study.name} is open at {hub.address}")
        try:
            threading.Event().wait()
        finally:
            seat.stop()
