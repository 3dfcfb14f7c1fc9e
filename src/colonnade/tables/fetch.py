"""Downloading a data file: over HTTPS, resumable, checked, and renamed into place only when it is right."""

from __future__ import annotations

import http.client
import ipaddress
import os
import urllib.error
import urllib.request
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

from colonnade.errors import DatasetError
from colonnade.tables.sources import DataFile, matches

_CHUNK = 1 << 18


def fetch_file(file: DataFile, folder: Path, url: str, *, timeout: float = 30.0) -> Path:
    """Download ``file`` into ``folder`` and return its path; a file that is already right is kept.

    ``url`` ending in a slash is a mirror's folder. What arrived before a broken connection stays beside the
    target as ``NAME.part`` and is continued the next time; what fails the checksum is deleted.
    """
    address = url + file.name if url.endswith("/") else url
    _check_address(address)
    target = folder / file.name
    partial = folder / f"{file.name}.part"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if target.is_file() and matches(target, file):
            return target
        _download(file, address, partial, timeout)
        if not matches(partial, file):
            partial.unlink()
            raise DatasetError(f"{address} is not {file.name}: size or checksum differ; use another mirror")
        os.replace(partial, target)
    except OSError as error:
        raise DatasetError(f"{file.name} cannot be stored in {folder}: {error.strerror or error}") from None
    return target


def _download(file: DataFile, address: str, partial: Path, timeout: float) -> None:
    have = partial.stat().st_size if partial.is_file() else 0
    if have >= file.size:
        partial.unlink()
        have = 0
    request = urllib.request.Request(address, headers={"Range": f"bytes={have}-"} if have else {})  # noqa: S310
    try:
        with _opener(address).open(request, timeout=timeout) as answer:
            resumed = have and answer.status == http.HTTPStatus.PARTIAL_CONTENT
            with partial.open("ab" if resumed else "wb") as out:
                fits = _copy(answer, out, file.size - (have if resumed else 0))
    except urllib.error.HTTPError as error:
        error.close()
        raise DatasetError(f"{address} answered {error.code} {error.reason}; check the address") from None
    except (http.client.HTTPException, ConnectionError, TimeoutError, urllib.error.URLError) as error:
        reason = getattr(error, "reason", None) or error
        raise DatasetError(f"{address} cannot be fetched ({reason}); try again to continue") from None
    if not fits:
        partial.unlink()
        raise DatasetError(f"{address} is larger than {file.name} should be; use another mirror")
    if partial.stat().st_size < file.size:
        raise DatasetError(f"{address} ended early; try again to continue where it stopped")


def _copy(answer: Any, out: IO[bytes], limit: int) -> bool:
    """Copy until the end, or until it is clear that more than ``limit`` bytes are coming."""
    left = limit
    while chunk := answer.read(_CHUNK):
        left -= len(chunk)
        if left < 0:
            return False
        out.write(chunk)
    return True


class _SafeRedirects(urllib.request.HTTPRedirectHandler):
    """Follows a redirect only to where a direct request would have been allowed."""

    def redirect_request(self, *args: Any, **kwargs: Any) -> urllib.request.Request | None:
        request = super().redirect_request(*args, **kwargs)
        if request is not None:
            _check_address(request.full_url)
        return request


def _opener(address: str) -> urllib.request.OpenerDirector:
    handlers: list[urllib.request.BaseHandler] = [_SafeRedirects()]
    if _is_loopback(urlsplit(address).hostname or ""):
        handlers.append(urllib.request.ProxyHandler({}))
    return urllib.request.build_opener(*handlers)


def _check_address(address: str) -> None:
    parts = urlsplit(address)
    if parts.scheme == "https" and parts.hostname:
        return
    if parts.scheme == "http" and _is_loopback(parts.hostname or ""):
        return
    raise DatasetError(f"{address!r} is not an https:// address; plain http is allowed on this machine only")


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
