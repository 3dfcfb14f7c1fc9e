"""Reports inside the console: documents of others, shown in a frame that can run, send and reach nothing."""

from __future__ import annotations

from pathlib import Path

from starlette.responses import HTMLResponse

from colonnade.disk import reading
from colonnade.errors import StorageError

FRAME_POLICY = (
    "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'self'"
)
"""A report brings its own style and pictures; even one that was tampered with has no script, no form and no origin."""
_LARGEST = 1 << 26


def send_report_frame(path: Path) -> HTMLResponse:
    """A report as the content of a frame; only the console itself may frame it."""
    try:
        content = reading.read_bytes(path, _LARGEST)
    except reading.UnreadableFile as error:
        raise StorageError(f"the report {path.name} cannot be shown: {error} [SO018]") from None
    headers = {"content-security-policy": FRAME_POLICY, "x-frame-options": "SAMEORIGIN"}
    return HTMLResponse(content, headers=headers)
