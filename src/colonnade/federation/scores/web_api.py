"""The interface for programs of this machine: ``POST /v1/scores`` with ids, and pages that describe it.

Whoever asks shows a token that lies in a private file; no cookie counts here. A browser's page of another site cannot
know the token, and what it sends is refused by its Origin.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from colonnade.errors import CapacityError, ColonnadeError, ConnectError, StudyError
from colonnade.federation.http_server import HttpServer, listen, read_body
from colonnade.federation.scores.periods import Period
from colonnade.federation.scores.service import OpenQuestion, ScoresService
from colonnade.federation.scores.session import PersonAnswer, RefusedPerson, RepeatedId, StandingStudy
from colonnade.federation.token_file import shows_token
from colonnade.protocols.on_demand import MOST_ASKED
from colonnade.versions import installed_versions

POLICY = {
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "referrer-policy": "same-origin",
}
"""The page loads nothing at all."""
_NUMBERS = {"type": "array", "items": {"type": "number"}}
_PERSON = {
    "type": "object",
    "required": ["id"],
    "properties": {
        "id": {"type": "string"},
        "prediction": {"description": "what the model predicts"},
        "probabilities": _NUMBERS | {"description": "the chance of each class, where classes are predicted"},
        "scores": _NUMBERS | {"description": "scores in the units of the model"},
        "deviations": _NUMBERS | {"description": "how far noise moves the scores; missing where they are exact"},
        "refused_until": {
            "type": "string",
            "format": "date-time",
            "description": "instead of all others: when the others may tell about more people",
        },
        "rows": {
            "type": "integer",
            "description": "instead of all others: so many rows of the party's own table have this id",
        },
    },
}
_ANSWERS = {
    "400": "the request is malformed",
    "401": "the token is missing or wrong",
    "404": "there is no such model, or this party may ask about nobody",
    "413": "the request is too long",
    "422": "the request is not as described",
    "429": "nothing more may be told before the time given, or too many requests wait",
    "503": "not all other parties are here",
    "504": "the others did not answer in time",
}


def openapi_schema(question: dict[str, Any]) -> dict[str, Any]:
    """The interface in OpenAPI 3.1; ``question`` is the JSON schema of what is asked."""
    answer = {
        "type": "object",
        "required": ["model", "scores"],
        "properties": {
            "model": {"type": "string"},
            "scores": {
                "type": "array",
                "description": "one for each id, in the same order; null for ids that not all parties hold",
                "items": {"oneOf": [_PERSON, {"type": "null"}]},
            },
        },
    }
    failed = {"application/json": {"schema": {"type": "object", "properties": {"detail": {"type": "string"}}}}}
    responses: dict[str, Any] = {
        "200": {"description": "the scores", "content": {"application/json": {"schema": answer}}}
    }
    responses |= {code: {"description": said, "content": failed} for code, said in _ANSWERS.items()}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Scores on demand", "version": installed_versions()["colonnade"]},
        "security": [{"token": []}],
        "paths": {
            "/v1/scores": {
                "post": {
                    "summary": "Scores of people whose columns several parties hold",
                    "requestBody": {"required": True, "content": {"application/json": {"schema": question}}},
                    "responses": responses,
                }
            },
            "/v1/models": {
                "get": {
                    "summary": "The models by which this party may ask, whether all others are here, and their price",
                    "responses": {"200": {"description": "a list"}, "401": {"description": _ANSWERS["401"]}},
                }
            },
        },
        "components": {"securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
    }


def describe_model(standing: StandingStudy) -> dict[str, Any]:
    """A standing question in plain values: what it is about, and what a person costs in a period."""
    task, study = standing.task, standing.study
    classes = standing.question.classes
    return {
        "name": study.name,
        "to": task.to,
        "parties": list(task.owners),
        "exact": task.exact,
        "classes": None if classes is None else [str(one) for one in classes],
        "epsilon_of_a_period": None if task.exact else study.statement.epsilon(task.to),
        "delta": study.statement.delta,
    }


def describe_period(standing: StandingStudy) -> dict[str, str]:
    """In which period answers are kept now, and when the next one begins."""
    period = Period.at(standing.period, datetime.now(UTC))
    return {"kind": period.kind, "name": period.name, "ends": _format_time(period.end)}


def docs_page() -> str:
    """A page for people, which loads nothing and runs nothing."""
    rows = "".join(f"<tr><th scope=row>{code}</th><td>{escape(said)}</td></tr>" for code, said in _ANSWERS.items())
    return f"""<!doctype html>
<html lang=en><meta charset=utf-8><meta name=viewport content="width=device-width, initial-scale=1">
<title>Scores on demand</title>
<main><h1>Scores on demand</h1>
<p>Scores of people whose columns several parties hold. What the others learn is whom you ask about; what you learn is
their score, exact or with noise, as their policies say.</p>
<pre>curl -s -X POST http://127.0.0.1:8471/v1/scores \\
  -H "Authorization: Bearer $(cat agent/scores.token)" -H "Content-Type: application/json" \\
  -d '{{"ids": ["P000017"]}}'</pre>
<p>Send at most 8,192 ids in one request, as they stand in your own table. The answer has one entry for each of them, in
the same order, and <code>null</code> for ids that not all parties hold. In one period, asking about somebody again
tells the same and costs nothing more.</p>
<table><caption>When there is no answer</caption><tbody>{rows}</tbody></table>
<p>The same for programs: <a href="openapi.json">openapi.json</a>.</p></main></html>
"""


LARGEST_BODY = 1 << 20
ANSWER_SECONDS = 60.0
_SOON = "2"
_HEADERS = {"cache-control": "no-store", "x-content-type-options": "nosniff"}


class ScoresRequest(BaseModel):
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
    token = service.token()
    described: dict[str, dict[str, Any]] = {}

    async def scores(request: Request) -> Response:
        if not shows_token(request.headers.get("authorization", ""), token):
            return _refuse(401, "Show the token of this agent: Authorization: Bearer TOKEN. [CO026]", **_WHO)
        body = await read_body(request, LARGEST_BODY)
        if body is None:
            return _refuse(413, "What was sent is too long, or came too slowly. [CO027]")
        try:
            question = ScoresRequest.model_validate_json(body)
        except ValidationError as error:
            return _refuse(422, _describe_error(error))
        kept = _choose_model(service, question.model)
        if isinstance(kept, Response):
            return kept
        return await _answer_request(kept, question.ids, service.scored)

    async def models(request: Request) -> Response:
        if not shows_token(request.headers.get("authorization", ""), token):
            return _refuse(401, "Show the token of this agent: Authorization: Bearer TOKEN. [CO028]", **_WHO)
        for name, kept in service.asked_here.items():
            if name not in described:
                described[name] = await asyncio.to_thread(describe_model, kept.standing)
        found = [
            described[name] | {"period": describe_period(kept.standing), "ready": kept.ready}
            for name, kept in service.asked_here.items()
        ]
        return JSONResponse({"models": found}, headers=_HEADERS)

    async def openapi(request: Request) -> Response:
        return JSONResponse(openapi_schema(ScoresRequest.model_json_schema()), headers=_HEADERS)

    async def page(request: Request) -> Response:
        return HTMLResponse(docs_page(), headers=_HEADERS | POLICY)

    return [
        Route("/v1/scores", scores, methods=["POST"]),
        Route("/v1/models", models),
        Route("/v1/openapi.json", openapi),
        Route("/v1/docs", page),
    ]


_WHO = {"www-authenticate": "Bearer"}


def _choose_model(service: ScoresService, name: str | None) -> OpenQuestion | Response:
    asked = service.asked_here
    if not asked:
        return _refuse(
            404, "This party may ask about nobody: [agent.scores] names no study whose scores it is told. [CO029]"
        )
    if name is None and len(asked) > 1:
        return _refuse(422, "Say by which model: this party may ask by several, which /v1/models lists. [CO030]")
    if name is not None and name not in asked:
        return _refuse(404, "There is no such model here: /v1/models lists those that there are. [CO031]")
    return asked[name] if name is not None else next(iter(asked.values()))


async def _answer_request(kept: OpenQuestion, ids: Sequence[str], scored: Callable[[int], None]) -> Response:
    assert kept.questions is not None  # noqa: S101 - only those are chosen that this party asks in
    try:
        found = await asyncio.wait_for(asyncio.wrap_future(kept.questions.ask(ids)), ANSWER_SECONDS)
    except TimeoutError:
        return _refuse(
            504, "The others did not answer in time; ask again in a moment. [CO032]", **{"retry-after": _SOON}
        )
    except CapacityError as error:
        return _refuse(429, str(error), **{"retry-after": _SOON})
    except ColonnadeError:
        return _refuse(503, "The others are not all here; ask again in a moment. [CO033]", **{"retry-after": _SOON})
    refused = [one for one in found if isinstance(one, RefusedPerson)]
    if refused and not any(isinstance(one, dict) for one in found):
        until = max(one.until for one in refused)
        wait = {"retry-after": str(max(1, until - int(time.time())))}
        return _refuse(429, f"No more may be told before {_format_time(until)}. [CO034]", **wait)
    scored(sum(isinstance(one, dict) for one in found))
    plain = [_to_json(one, name) for one, name in zip(found, ids, strict=True)]
    return JSONResponse({"model": kept.standing.study.name, "scores": plain}, headers=_HEADERS)


def _to_json(found: PersonAnswer, name: str) -> Any:
    if isinstance(found, RepeatedId):
        return {"id": name, "rows": found.rows}
    return {"id": name, "refused_until": _format_time(found.until)} if isinstance(found, RefusedPerson) else found


def _format_time(at: int) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _describe_error(error: ValidationError) -> str:
    """What is wrong with a question, without anything of what it said."""
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    place = ".".join(str(part) for part in first["loc"] if isinstance(part, int) or part in ScoresRequest.model_fields)
    return f"{place or 'the body'}: {'not valid JSON' if first['type'] == 'json_invalid' else first['msg']} [CO035]"


def _refuse(status: int, sentence: str, **headers: str) -> Response:
    body = json.dumps({"detail": sentence}).encode()
    return Response(body, status, _HEADERS | headers, media_type="application/json")


@dataclass(frozen=True)
class LoopbackGuard:
    """The interface alone, under these names of this machine, and for no browser's page of another site."""

    app: ASGIApp
    hosts: tuple[str, ...]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or refuse it."""
        headers = Headers(scope=scope)
        app = self.app
        if headers.getlist("host") not in [[host] for host in self.hosts]:
            app = PlainTextResponse("Nothing is served under that name. [CO036]\n", 421)
        elif "origin" in headers:
            app = PlainTextResponse("Only programs may ask here. [CO037]\n", 403)
        await app(scope, receive, send)


def make_scores_app(service: ScoresService, hosts: tuple[str, ...]) -> LoopbackGuard:
    """The application."""
    return LoopbackGuard(Starlette(routes=routes(service)), hosts)


def serve_scores(service: ScoresService, address: str) -> HttpServer:
    """Serve the interface on loopback from a thread of its own."""
    host, _, port = address.rpartition(":")
    try:
        if not ipaddress.ip_address(host.strip("[]")).is_loopback:
            raise ValueError
        listening = listen(host.strip("[]"), int(port))
    except ValueError:
        raise StudyError(
            f'{address!r} is no address of this machine alone: give one such as "127.0.0.1:8472" [ST545]'
        ) from None
    except OSError as error:
        raise ConnectError(f"nothing can be served at {address}: {error.strerror} [CN006]") from None
    bound = listening.getsockname()[1]
    app = make_scores_app(service, (f"{host}:{bound}", f"localhost:{bound}"))
    return HttpServer(app, listening, f"http://{host}:{bound}", limit_concurrency=512)
