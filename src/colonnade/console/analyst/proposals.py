"""All proposals, and one of them: who has answered what, and what came of it."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from colonnade.console.frames import report_response
from colonnade.console.layout import render
from colonnade.errors import StorageError


def page(request: Request) -> Response:
    """The list."""
    return render(request, "hub/proposals.html", studies=request.app.state.desk.studies(request.state.session.person))


def one(request: Request) -> Response:
    """One proposal, with its result if it is done."""
    desk, person = request.app.state.desk, request.state.session.person
    study = desk.study(request.path_params["id"], person)
    result = desk.result(study["id"], person) if study["state"] == "done" else None
    return render(request, "hub/proposal.html", study=study, result=result)


def report(request: Request) -> Response:
    """Its report, as the content of a frame."""
    result = request.app.state.desk.result(request.path_params["id"], request.state.session.person)
    if result.report is None:
        raise StorageError("this study has no report here [SO017]")
    return report_response(result.report)


ROUTES = (
    Route("/proposals/{id}", one),
    Route("/proposals/{id}/report", report),
)
