"""What the interface for scores says of itself: OpenAPI, a page for people, and what a question costs."""

from __future__ import annotations

from html import escape
from typing import Any

from colonnade.standing.scores.settings import Standing
from colonnade.versions import installed

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
            "description": "instead of all others: when an owner may tell about this person again",
        },
    },
}
_ANSWERS = {
    "400": "the request is malformed",
    "401": "the token is missing or wrong",
    "404": "there is no such model, or this party may ask about nobody",
    "413": "the request is too long",
    "422": "the request is not as described",
    "429": "nothing more may be told about these people before the time given, or too many requests wait",
    "503": "not all other parties are here",
    "504": "the others did not answer in time",
}


def openapi(question: dict[str, Any]) -> dict[str, Any]:
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
        "info": {"title": "Scores on demand", "version": installed()["colonnade"]},
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


def model(standing: Standing) -> dict[str, Any]:
    """A standing question in plain values: what it is about, and what a question costs."""
    task, study = standing.task, standing.study
    classes = standing.question.classes
    return {
        "name": study.name,
        "to": task.to,
        "parties": list(task.owners),
        "exact": task.exact,
        "classes": None if classes is None else [str(one) for one in classes],
        "epsilon_of_a_question": None if task.exact else study.statement.epsilon(task.to),
        "delta": study.statement.delta,
    }


def page() -> str:
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
the same order, and <code>null</code> for ids that not all parties hold.</p>
<table><caption>When there is no answer</caption><tbody>{rows}</tbody></table>
<p>The same for programs: <a href="openapi.json">openapi.json</a>.</p></main></html>
"""
