"""What only a real hub and real processes can show."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from colonnade.errors import ConnectError, IdentityError, PeerLost
from colonnade.wire import Certificate, Hub, Identity, certificates, dial, hub_probe, probe, tls
from tests.support.errors import raises
from tests.support.refusals import refused

NAMES = ("bank", "coordinator", "shop")


@pytest.fixture(scope="module")
def people() -> SimpleNamespace:
    identities = {name: Identity.create(name) for name in NAMES}
    return SimpleNamespace(
        **identities, all=identities, pins={name: who.certificate for name, who in identities.items()}
    )


@pytest.fixture
def hub(people: Any) -> Iterator[Hub]:
    with Hub(people.coordinator, people.pins) as hub:
        yield hub


def test_nothing_listens(people: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    refused(ConnectError, ("CN026", port), dial, f"127.0.0.1:{port}", people.bank, people.pins, connect_timeout=0.2)


def test_something_else_listens(people: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        refused(ConnectError, "CN025", dial, address, people.bank, people.pins, connect_timeout=0.1)


@pytest.mark.parametrize("address", ["here", "host:", ":1", "host:http", "host:99999"])
def test_addresses_that_are_none(people: Any, address: str) -> None:
    refused(ConnectError, "CN024", dial, address, people.bank, people.pins, connect_timeout=0)


def test_a_hub_with_another_certificate(people: Any, hub: Hub) -> None:
    other = Identity.create("coordinator").certificate
    refused(IdentityError, "ID019", dial, hub.address, people.bank, {**people.pins, "coordinator": other})


def test_a_participant_with_another_certificate(people: Any, hub: Hub) -> None:
    impostor = Identity.create("bank")
    refused(
        IdentityError, ("ID018", "bank"), dial, hub.address, impostor, {**people.pins, "bank": impostor.certificate}
    )


def test_a_participant_cannot_take_the_name_of_another(people: Any, hub: Hub) -> None:
    # The shop is known to the hub, so TLS lets it in; it then claims to be the bank.
    liar = Identity(people.shop._key, Certificate("bank", people.shop.certificate.pem))
    refused(IdentityError, ("ID037", "bank"), dial, hub.address, liar, {**people.pins, "bank": liar.certificate})


def test_a_participant_of_another_study(people: Any) -> None:
    with Hub(people.coordinator, {**people.pins, "bank": people.pins["bank"]}) as hub:
        stranger = Identity.create("stranger")
        refused(
            IdentityError,
            ("ID018", "stranger"),
            dial,
            hub.address,
            stranger,
            {**people.pins, "stranger": stranger.certificate},
        )


def test_no_certificate_for_the_hub(people: Any) -> None:
    refused(IdentityError, ("ID016", "relay"), dial, "127.0.0.1:1", people.bank, people.pins, hub_name="relay")


def test_an_expired_identity(people: Any, hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(certificates, "datetime", SimpleNamespace(now=lambda tz: datetime(2020, 1, 1, tzinfo=UTC)))
    old = Identity.create("bank", days=30)
    monkeypatch.undo()
    refused(
        IdentityError, ("ID023", "bank", "2020-01-31"), dial, hub.address, old, {**people.pins, "bank": old.certificate}
    )


def test_a_port_in_use(people: Any, hub: Hub) -> None:
    refused(ConnectError, ("CN015", hub.address), Hub(people.coordinator, people.pins, hub.address).start)


@pytest.mark.parametrize("host", ["192.0.2.1", "nowhere.invalid"])
def test_an_address_of_another_machine(people: Any, host: str) -> None:
    refused(ConnectError, "CN015", Hub(people.coordinator, people.pins, f"{host}:7000").start)


def test_a_hub_may_restart(people: Any) -> None:
    hub = Hub(people.coordinator, people.pins).start()
    bank = dial(hub.address, people.bank, people.pins, reconnect_grace=10)
    shop = dial(hub.address, people.shop, people.pins, reconnect_grace=10)
    bank.channel("shop").send("one")
    assert shop.channel("bank").recv("one") == {}
    hub.stop()
    bank.channel("shop").send("two")
    with Hub(people.coordinator, people.pins, hub.address):
        assert shop.channel("bank").recv("two") == {}
        bank.close()
        shop.close()


def test_a_hub_that_stays_away(people: Any) -> None:
    hub = Hub(people.coordinator, people.pins).start()
    with dial(hub.address, people.bank, people.pins, reconnect_grace=0.5) as bank:
        hub.stop()
        refused(ConnectError, ("CN026", "0.5"), bank.channel("shop").recv, "x")


PARTY = """
import sys, time
from pathlib import Path
from colonnade.wire import Certificate, Identity, dial
address, folder = sys.argv[1], Path(sys.argv[2])
pins = {path.stem: Certificate.load(path) for path in folder.glob("*.crt")}
me = dial(address, Identity.load(folder / "shop.key", folder / "shop.crt"), pins)
me.wait_for_peers(["bank"])
me.channel("bank").send("ready")
time.sleep(60)
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_killed_or_frozen_process_is_noticed(people: Any, tmp_path: Path, how: signal.Signals) -> None:
    for who in people.all.values():
        who.save(tmp_path)
    with Hub(people.coordinator, people.pins, heartbeat=1.0) as hub:
        bank = dial(hub.address, people.bank, people.pins, reconnect_grace=0.5)
        coordinator = dial(hub.address, people.coordinator, people.pins, reconnect_grace=0.5)
        shop = subprocess.Popen([sys.executable, "-c", PARTY, hub.address, str(tmp_path)])
        try:
            bank.channel("shop").recv("ready")
            start = time.monotonic()
            shop.send_signal(how)
            for endpoint, peer in ((bank, "shop"), (coordinator, "bank")):
                refused(PeerLost, ("PE014", "shop", "0.5"), endpoint.channel(peer).recv, "more")
            assert time.monotonic() - start < 300
        finally:
            shop.kill()
            shop.wait()
            bank.close()
            coordinator.close()


class _Ahead(datetime):
    """A clock that is 25 hours ahead."""

    @classmethod
    def now(cls, tz: Any = None) -> Any:
        return datetime.now(tz) + timedelta(hours=25)


def test_a_participant_whose_clock_is_ahead_is_told_to_compare_clocks(people: Any, hub: Hub, monkeypatch: Any) -> None:
    """The hub refuses a certificate that is not valid yet, and says nothing; the times tell why."""
    for module in (certificates, hub_probe, tls):
        monkeypatch.setattr(module, "datetime", _Ahead)
    refused(IdentityError, "ID018", probe, hub.address, people.bank, people.pins["coordinator"], 5.0)


def test_a_participant_whose_clock_is_behind_is_told_to_compare_clocks(people: Any, monkeypatch: Any) -> None:
    """By its clock the certificate with which the hub answers is not valid yet."""
    with monkeypatch.context() as ahead:
        ahead.setattr(certificates, "datetime", _Ahead)
        hub = Hub(people.coordinator, people.pins).start()
    try:
        refused(
            IdentityError, ("ID046", "coordinator"), probe, hub.address, people.bank, people.pins["coordinator"], 5.0
        )
    finally:
        hub.stop()


def test_a_stranger_is_not_told_to_look_at_its_clock(people: Any, hub: Hub) -> None:
    with raises(IdentityError, "ID018") as refused:
        probe(hub.address, Identity.create("bank"), people.pins["coordinator"], 5.0)
    assert "clock" not in str(refused.value)
