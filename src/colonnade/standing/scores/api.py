"""The interface for programs of this machine: ``POST /v1/scores`` with ids, and pages that describe it.

Whoever asks shows a token that lies in a private file; no cookie counts here. A browser's page of another site cannot
know the token, and what it sends is refused by its Origin.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import BaseRoute, Route

from colonnade.errors import CapacityError, ColonnadeError
from colonnade.protocols.standing import MOST_ASKED
from colonnade.standing.http_server import read_body
from colonnade.standing.scores import description
from colonnade.standing.scores.questions import Found, Refused
from colonnade.standing.scores.service import Kept, ScoresService

LARGEST_BODY = 1 << 20
ANSWER_SECONDS = 60.0
_SOON = "2"
_HEADERS = {"cache-control": "no-store", "x-content-type-options": "nosniff"}


class Question(BaseModel):
    """What is asked: people by the ids of this party's own table, and by which model if there are several."""

    model_config = ConfigDict(extra="forbid", strict=True)

    ids: Annotated[
        list[Annotated[str, StringConstraints(min_length=1, max_length=256)]],
        Field(min_length=1, max_length=MOST_ASKED, description="ids as in this party's own table"),
    ]
    model: Annotated[str, StringConstraints(max_length=128)] | None = Field(
        default=None, description="the name of the study, where this party may ask by several"
    )


def routes(service: ScoresService) -> list[BaseRoute]:
    """The paths under ``/v1/`` of a party's scores."""
    token = service.token().encode()
    described: dict[str, dict[str, Any]] = {}

    def allowed(request: Request) -> bool:
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        return scheme.lower() == "bearer" and hmac.compare_digest(given.strip().encode(), token)

    async def scores(request: Request) -> Response:
        if not allowed(request):
            return _refused(401, "Show the token of this agent: Authorization: Bearer TOKEN. [CO026]", **_WHO)
        body = await read_body(request, LARGEST_BODY)
        if body is None:
            return _refused(413, "What was sent is too long, or came too slowly. [CO027]")
        try:
            question = Question.model_validate_json(body)
        except ValidationError as error:
            return _refused(422, _problem(error))
        kept = _chosen(service, question.model)
        if isinstance(kept, Response):
            return kept
        return await _answered(kept, question.ids, service.scored)

    async def models(request: Request) -> Response:
        if not allowed(request):
            return _refused(401, "Show the token of this agent: Authorization: Bearer TOKEN. [CO028]", **_WHO)
        for name, kept in service.asked_here.items():
            if name not in described:
                described[name] = await asyncio.to_thread(description.model, kept.standing)
        found = [described[name] | {"ready": kept.ready} for name, kept in service.asked_here.items()]
        return JSONResponse({"models": found}, headers=_HEADERS)

    async def openapi(request: Request) -> Response:
        return JSONResponse(description.openapi(Question.model_json_schema()), headers=_HEADERS)

    async def page(request: Request) -> Response:
        return HTMLResponse(description.page(), headers=_HEADERS | description.POLICY)

    return [
        Route("/v1/scores", scores, methods=["POST"]),
        Route("/v1/models", models),
        Route("/v1/openapi.json", openapi),
        Route("/v1/docs", page),
    ]


_WHO = {"www-authenticate": "Bearer"}


def _chosen(service: ScoresService, name: str | None) -> Kept | Response:
    asked = service.asked_here
    if not asked:
        return _refused(
            404, "This party may ask about nobody: [agent.scores] names no study whose scores it is told. [CO029]"
        )
    if name is None and len(asked) > 1:
        return _refused(422, "Say by which model: this party may ask by several, which /v1/models lists. [CO030]")
    if name is not None and name not in asked:
        return _refused(404, "There is no such model here: /v1/models lists those that there are. [CO031]")
    return asked[name] if name is not None else next(iter(asked.values()))


async def _answered(kept: Kept, ids: Sequence[str], scored: Callable[[int], None]) -> Response:
    assert kept.questions is not None  # noqa: S101 - only those are chosen that this party asks in
    try:
        found = await asyncio.wait_for(asyncio.wrap_future(kept.questions.ask(ids)), ANSWER_SECONDS)
    except TimeoutError:
        return _refused(
            504, "The others did not answer in time; ask again in a moment. [CO032]", **{"retry-after": _SOON}
        )
    except CapacityError as error:
        return _refused(429, str(error), **{"retry-after": _SOON})
    except ColonnadeError:
        return _refused(503, "The others are not all here; ask again in a moment. [CO033]", **{"retry-after": _SOON})
    refused = [one for one in found if isinstance(one, Refused)]
    if refused and not any(isinstance(one, dict) for one in found):
        until = max(one.until for one in refused)
        wait = {"retry-after": str(max(1, until - int(time.time())))}
        return _refused(429, f"No more may be told about these people before {_written(until)}. [CO034]", **wait)
    scored(sum(isinstance(one, dict) for one in found))
    plain = [_plain(one, name) for one, name in zip(found, ids, strict=True)]
    return JSONResponse({"model": kept.standing.study.name, "scores": plain}, headers=_HEADERS)


def _plain(found: Found, name: str) -> Any:
    return {"id": name, "refused_until": _written(found.until)} if isinstance(found, Refused) else found


def _written(at: int) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _problem(error: ValidationError) -> str:
    """What is wrong with a question, without anything of what it said."""
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    place = ".".join(str(part) for part in first["loc"] if isinstance(part, int) or part in Question.model_fields)
    return f"{place or 'the body'}: {'not valid JSON' if first['type'] == 'json_invalid' else first['msg']} [CO035]"


def _refused(status: int, sentence: str, **headers: str) -> Response:
    body = json.dumps({"detail": sentence}).encode()
    return Response(body, status, _HEADERS | headers, media_type="application/json")
