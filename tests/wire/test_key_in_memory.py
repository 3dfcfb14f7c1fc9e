"""A private key leaves no trace on a disk, whatever becomes of the process."""

from __future__ import annotations

import os
import signal
import ssl
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from colonnade.errors import IdentityError
from colonnade.wire import Hub, Identity, dial
from colonnade.wire.identity import load_key
from tests.support.refusals import refused

AGAIN_AND_AGAIN = """
import sys
from colonnade.wire.identity import Identity
from colonnade.wire.tls import TlsSession
bank, shop = Identity.create("bank"), Identity.create("shop").certificate
print("ready", flush=True)
while True:
    TlsSession(bank, shop)
"""

LISTED = """
import sys, os
opened = []
sys.addaudithook(lambda event, args: opened.append((event, args[0])) if event in ("open", "os.open") else None)
from colonnade.wire import Hub, Identity, dial
from colonnade.wire.tls import TlsSession
people = {name: Identity.create(name) for name in ("bank", "coordinator")}
pins = {name: who.certificate for name, who in people.items()}
del opened[:]
with Hub(people["coordinator"], pins) as hub:
    ends = [dial(hub.address, who, pins) for who in people.values()]
    ends[0].wait_for_peers()
    for end in ends:
        end.close()
written = [path for event, path in opened if str(path).startswith(os.environ["TMPDIR"]) or ".pem" in str(path)]
assert not written, written
"""


def run_in(folder: Path, program: str) -> subprocess.Popen[str]:
    environment = os.environ | {"TMPDIR": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.Popen([sys.executable, "-c", program], env=environment, stdout=subprocess.PIPE, text=True)


def test_a_killed_process_leaves_no_file(tmp_path: Path) -> None:
    moments = np.random.default_rng(10)
    for _ in range(4):
        with run_in(tmp_path, AGAIN_AND_AGAIN) as process:
            assert process.stdout.readline() == "ready\n"
            seen = []
            for _ in range(100):
                seen += list(tmp_path.iterdir())
                time.sleep(moments.uniform(0, 0.002))
            process.send_signal(signal.SIGKILL)
        assert seen == []
        assert list(tmp_path.iterdir()) == []


def test_a_run_opens_no_file_for_a_key(tmp_path: Path) -> None:
    with run_in(tmp_path, LISTED) as process:
        process.communicate(timeout=60)
        assert process.returncode == 0


def test_a_key_that_cannot_be_handed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    bank, shop = Identity.create("bank"), Identity.create("shop")
    refused(IdentityError, "ID030", load_key, ssl.create_default_context(), shop.key_pem, bank.certificate.pem)
    refused(
        IdentityError,
        "ID030",
        load_key,
        ssl.create_default_context(),
        bank.key_pem + bytes(1 << 24),
        bank.certificate.pem,
    )


def test_no_descriptor_is_left_open() -> None:
    people = {name: Identity.create(name) for name in ("bank", "coordinator")}
    pins = {name: who.certificate for name, who in people.items()}

    def talk() -> int:
        with Hub(people["coordinator"], pins) as hub, dial(hub.address, people["bank"], pins):
            pass
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        load_key(context, people["bank"].key_pem, pins["bank"].pem)
        return len(os.listdir("/dev/fd"))

    first = [talk() for _ in range(3)][-1]
    assert max(talk() for _ in range(3)) <= first
