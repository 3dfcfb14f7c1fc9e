"""Real servers on loopback for one test module: PostgreSQL, object stores. Where there is none, tests skip."""

from __future__ import annotations

import base64
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.ports import free_port
from tests.support.waiting import until

ROOT = Path(__file__).parents[2]
PASSWORD = "correct-horse-battery"  # noqa: S105 - of a server that lives as long as a test module
ORDINARY = "nobody"


def _postgresql_programs() -> Path:
    """The folder of PostgreSQL's own programs, which distributions keep out of the PATH."""
    if (there := shutil.which("pg_ctl")) is not None:
        return Path(there).resolve().parent
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/pg_ctl"))
    if not found:
        pytest.skip("no PostgreSQL server: install the package postgresql")
    return found[-1].parent


@contextmanager
def postgresql() -> Iterator[str]:
    """A new database of its own; gives its address, with a password."""
    pytest.importorskip("adbc_driver_postgresql")
    programs = _postgresql_programs()
    folder = Path(tempfile.mkdtemp(prefix="colonnade-pg-"))  # a test's own folder is closed to other users
    user = {"user": ORDINARY} if os.geteuid() == 0 else {}  # the server refuses to run as root
    port = free_port()
    try:
        (folder / "password").write_text(PASSWORD)
        if user:
            shutil.chown(folder, ORDINARY)
            shutil.chown(folder / "password", ORDINARY)
        data = str(folder / "data")
        made = ["--username=bank", f"--pwfile={folder / 'password'}", "--auth=scram-sha-256", "--no-sync"]
        _run([programs / "initdb", "-D", data, "--encoding=UTF8", "--locale=C", *made], folder, user)
        options = f"-p {port} -h 127.0.0.1 -k {folder} -c fsync=off"
        _run([programs / "pg_ctl", "-D", data, "-w", "-l", folder / "log", "-o", options, "start"], folder, user)
        try:
            yield f"postgresql://bank:{PASSWORD}@127.0.0.1:{port}/postgres"
        finally:
            _run([programs / "pg_ctl", "-D", data, "-m", "immediate", "stop"], folder, user)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _run(command: list[str | Path], folder: Path, user: dict[str, str]) -> None:
    # A server inherits its starter's outputs, so a pipe would stay open as long as it runs.
    with (folder / "said").open("ab") as said:
        ended = subprocess.run(
            list(map(str, command)), stdout=said, stderr=said, stdin=subprocess.DEVNULL, cwd=folder, check=False, **user
        )
    assert ended.returncode == 0, (folder / "said").read_text()


@contextmanager
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A server that speaks S3, with its address and credentials in the environment; gives what an address needs."""
    program = Path(os.environ.get("COLONNADE_MOTO_SERVER") or ROOT / ".venv-moto" / "bin" / "moto_server")
    if not program.exists():
        pytest.skip("no server that speaks S3: `make .venv-moto/.ready`, or name one by COLONNADE_MOTO_SERVER")
    for name in ("AWS_SESSION_TOKEN", "AWS_PROFILE", "HTTP_PROXY", "http_proxy"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": PASSWORD,
        "AWS_EC2_METADATA_DISABLED": "true",
    }.items():
        monkeypatch.setenv(name, value)
    with _running(program, "-H", "127.0.0.1", "-p") as port:
        yield f"?region=us-east-1&scheme=http&endpoint_override=127.0.0.1:{port}"


@contextmanager
def google() -> Iterator[str]:
    """A server that speaks as Google's store does, with a bucket called lake; gives what an address needs."""
    program = ROOT / ".venv-moto" / "bin" / "gcp-storage-emulator"
    if not program.exists():
        pytest.skip("no server that speaks as Google's store does: `make .venv-moto/.ready`")
    memory = ("start", "--in-memory", "--default-bucket=lake", "--host=127.0.0.1")
    with _running(program, *memory, "--port") as port:
        yield f"?scheme=http&endpoint_override=127.0.0.1:{port}"


@contextmanager
def azure(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A server that speaks as Azure's store does, with the key in the environment; gives what an address needs."""
    program = Path(os.environ.get("COLONNADE_AZURITE") or ROOT / "node_modules" / ".bin" / "azurite-blob")
    if not program.exists():
        pytest.skip(
            "no server that speaks as Azure's store does: `npm install azurite`, or name it by COLONNADE_AZURITE"
        )
    monkeypatch.setenv("AZURE_STORAGE_KEY", base64.b64encode(PASSWORD.encode() * 3).decode())
    monkeypatch.setenv("AZURITE_ACCOUNTS", f"lakes:{os.environ['AZURE_STORAGE_KEY']}")
    host = ("--blobHost", "127.0.0.1", "--inMemoryPersistence", "--skipApiVersionCheck", "--disableTelemetry")
    with _running(program, *host, "--blobPort") as port:
        yield f"?scheme=http&endpoint_override=127.0.0.1:{port}"


@contextmanager
def _running(program: Path, *arguments: str) -> Iterator[int]:
    """A server whose last argument is the port."""
    port = free_port()
    with tempfile.TemporaryFile() as said:
        server = subprocess.Popen([str(program), *arguments, str(port)], stdout=said, stderr=said)

        def there() -> bool:
            with socket.socket() as probe:
                return server.poll() is not None or probe.connect_ex(("127.0.0.1", port)) == 0

        try:
            until(there, "the server of the object store", 120)
            assert server.poll() is None, "the server of the object store did not start"
            yield port
        finally:
            server.terminate()
            server.wait(60)
