from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from colonnade.errors import DatasetError
from research.datasets.fetch import fetch_file
from research.datasets.sources import DataFile

CONTENT = bytes(range(256)) * 4096
FILE = DataFile("small.bin", len(CONTENT), hashlib.sha256(CONTENT).hexdigest(), "nobody")


class Mirror(BaseHTTPRequestHandler):
    """Serves the file whole, in part, broken off, altered or from elsewhere."""

    asked: list[tuple[str, str | None]]

    def do_GET(self) -> None:
        span = self.headers.get("Range")
        type(self).asked.append((self.path, span))
        if self.path == "/away":
            self.send_response(302)
            self.send_header("Location", "http://example.com/small.bin")
            self.end_headers()
            return
        if self.path == "/moved":
            self.send_response(302)
            self.send_header("Location", "/small.bin")
            self.end_headers()
            return
        if self.path not in ("/small.bin", "/cut", "/wrong", "/long", "/whole"):
            self.send_error(404)
            return
        start = int(span[6:-1]) if span and self.path != "/whole" else 0
        body = {"/wrong": b"x" * len(CONTENT), "/long": CONTENT + b"x"}.get(self.path, CONTENT)[start:]
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: len(body) // 2] if self.path == "/cut" else body)

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def mirror() -> Iterator[str]:
    Mirror.asked = []
    server = HTTPServer(("127.0.0.1", 0), Mirror)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    thread.join()
    server.server_close()


def left(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_fetches_once(mirror: str, tmp_path: Path) -> None:
    folder = tmp_path / "new" / "data"
    for _ in range(2):
        path = fetch_file(FILE, folder, mirror)
        assert path == folder / "small.bin"
        assert path.read_bytes() == CONTENT
    assert Mirror.asked == [("/small.bin", None)]
    assert left(folder) == ["small.bin"]


def test_follows_a_redirect_on_the_same_terms(mirror: str, tmp_path: Path) -> None:
    assert fetch_file(FILE, tmp_path, mirror + "moved").read_bytes() == CONTENT
    (tmp_path / "small.bin").unlink()
    with pytest.raises(DatasetError, match="not an https"):
        fetch_file(FILE, tmp_path, mirror + "away")
    assert left(tmp_path) == []


@pytest.mark.parametrize("rest", ["small.bin", "whole"])
def test_continues_after_a_broken_connection(mirror: str, tmp_path: Path, rest: str) -> None:
    with pytest.raises(DatasetError, match="try again to continue"):
        fetch_file(FILE, tmp_path, mirror + "cut")
    assert left(tmp_path) == ["small.bin.part"]
    assert fetch_file(FILE, tmp_path, mirror + rest).read_bytes() == CONTENT
    assert Mirror.asked[-1] == (f"/{rest}", f"bytes={len(CONTENT) // 2}-")
    assert left(tmp_path) == ["small.bin"]


@pytest.mark.parametrize(("path", "said"), [("wrong", "checksum differ"), ("long", "larger"), ("none", "404")])
def test_wrong_answers_leave_nothing(mirror: str, tmp_path: Path, path: str, said: str) -> None:
    with pytest.raises(DatasetError, match=said):
        fetch_file(FILE, tmp_path, mirror + path)
    assert left(tmp_path) == []


def test_a_full_but_wrong_part_is_started_again(mirror: str, tmp_path: Path) -> None:
    (tmp_path / "small.bin.part").write_bytes(b"y" * len(CONTENT))
    assert fetch_file(FILE, tmp_path, mirror).read_bytes() == CONTENT


@pytest.mark.parametrize(
    "url", ["http://example.com/x", "ftp://127.0.0.1/x", "file:///etc/hostname", "x", "https:///x"]
)
def test_only_https_or_this_machine(url: str, tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="not an https"):
        fetch_file(FILE, tmp_path, url)


def test_nobody_there_and_no_room(tmp_path: Path, mirror: str) -> None:
    with pytest.raises(DatasetError, match="cannot be fetched"):
        fetch_file(FILE, tmp_path, "http://127.0.0.1:9/small.bin")
    (tmp_path / "file").write_text("")
    with pytest.raises(DatasetError, match="cannot be stored"):
        fetch_file(FILE, tmp_path / "file", mirror)
