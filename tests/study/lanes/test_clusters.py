"""Parties with Ray clusters of their own, of which one loses a node, goes away, or is not there at all."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.study.engine.ray_clusters import Line, environment, processes_of, serving, unguarded
from tests.study.engine.test_engines import PATIENCE, ends
from tests.support.ports import free_port

from .conftest import Laned

pytest.importorskip("ray", reason="Ray is not installed: pip install colonnade[ray]")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc"),
    pytest.mark.usefixtures("without_noise"),
]
PARTITIONS = 16
LONGEST = 900.0
"""Seconds after which a cluster is ended in any case, and its study with it."""
# A head as it is, but for its noise: the process that a test starts knows nothing of what the test has changed.
WITHOUT_NOISE = """
import numpy as np
from colonnade.cli import main
from colonnade.kinds.polynomial import programs
drawn = programs.own_noise
programs.own_noise = lambda me, task: np.zeros_like(drawn(me, task))
main()
"""


class Cluster:
    """One party's: nodes of one core each, with a token of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.settings = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": hashlib.sha256(bytes(folder)).hexdigest()}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.study.lanes.clusters"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment() | self.settings | {"RAY_TMPDIR": str(folder)},
            start_new_session=True,
        )
        self._end = threading.Timer(LONGEST, self._process.kill)
        self._end.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, command: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{command}\n")
        self._process.stdin.flush()

    def told(self) -> str:
        assert self._process.stdout is not None
        said = self._process.stdout.readline().strip()
        assert said, "the cluster has ended"
        return said

    def close(self) -> None:
        nodes = [pid for pid in processes_of(str(self.folder)) if pid != self.pid]
        try:
            self._process.communicate(timeout=PATIENCE)
        finally:
            self._end.cancel()
            self._process.kill()
            self._process.wait()
        assert all(map(ends, nodes)), "nodes outlive their cluster"


@contextmanager
def clusters(names: tuple[str, ...]) -> Iterator[dict[str, Cluster]]:
    with ExitStack() as left:
        found = {}
        for name in names:
            folder = Path(tempfile.mkdtemp(prefix="ray-"))  # a short path, as sockets need it
            left.callback(shutil.rmtree, folder, ignore_errors=True)
            found[name] = Cluster(folder)
            left.callback(found[name].close)
        yield found


def test_a_study_over_a_cluster_of_each_party(laned: Callable[..., Laned], monkeypatch: pytest.MonkeyPatch) -> None:
    study = laned(rows=200, partitions=PARTITIONS, join=600, reconnect=60)
    study.replace("silence = 60", "silence = 600")
    expected = study.values(study.in_threads(study.plain))
    assert expected[0] == study.common
    spools = study.folder / "spools"
    with clusters(study.parties) as found:
        addresses = {name: cluster.told() for name, cluster in found.items()}
        assert len(set(addresses.values())) == 3
        assert all(address.startswith("127.0.0.1:") for address in addresses.values())
        for name, cluster in found.items():
            engine = f'[compute]\nengine = "{addresses[name]}"\nspool = "{spools / name}"'
            study.edit(f"{name}/party.toml", r"^\[compute\]", engine)
            for setting, value in cluster.settings.items():
                monkeypatch.setenv(setting, value)
            study.start(name, script=WITHOUT_NOISE)
        for name in found:
            study.until(name, "workers started")  # its head is at the first node, so that it survives the second
        for cluster in found.values():
            cluster.ask("grow")
        assert [cluster.told() for cluster in found.values()] == ["grown"] * 3
        study.start("coordinator", script=WITHOUT_NOISE)
        study.until("shop", "all workers ready")
        study.until("shop", "first share")
        found["shop"].ask("lose")
        assert found["shop"].told() == "lost"
        ended = study.ends(LONGEST)
        assert {name: end.code for name, end in ended.items()} == dict.fromkeys(ended, 0), ended
    out = {name: study.out(name) for name in ("coordinator", *study.parties)}
    assert study.values(out) == expected
    facts = study.facts(out)
    for name in study.parties:
        lanes = facts[name]["lanes"]
        assert (lanes["done"], lanes["workers"]) == (PARTITIONS, 2)
        assert lanes["lost_workers"] > 0 or name != "shop"
        started = [event["engine"] for event in study.happened(name) if event["what"] == "workers started"]
        assert started == [addresses[name]]
        assert study.states(name) == ["committed", "committed"]  # without lanes, and in lanes
    assert not os.listdir(spools / "bank")
    assert not study.left_behind()


ENGINE_ERROR = 27


def on_cluster(study: Laned, address: str) -> None:
    engine = f'[compute]\nengine = "{address}"\nspool = "{study.folder / "spool"}"'
    study.edit("bank/party.toml", r"^\[compute\]", engine)


@pytest.mark.parametrize("way", ["", "ray://"])
def test_a_cluster_that_is_not_there(laned: Callable[..., Laned], way: str) -> None:
    study = laned(rows=100)
    address = f"{way}127.0.0.1:{free_port()}"
    on_cluster(study, address)
    study.start("bank")
    ended = study.ends(PATIENCE)["bank"]
    assert ended.code == ENGINE_ERROR, ended
    assert f"the Ray cluster at {address} cannot be used: nothing listens there" in ended.sentence
    assert "Traceback" not in ended.text
    assert not study.left_behind()


def test_a_cluster_that_goes_away(laned: Callable[..., Laned], folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study = laned(rows=200, partitions=64, join=PATIENCE)
    settings, port = unguarded(folder), free_port()
    study.start("coordinator", "shop", "clinic")
    with serving("127.0.0.1", port, settings):
        wire = Line(port)
        on_cluster(study, f"ray://{wire.address}")
        for name, value in (settings | {"RAY_CLIENT_RECONNECT_GRACE_PERIOD": "5"}).items():
            monkeypatch.setenv(name, value)
        study.start("bank")
        study.until("bank", "first share")
        wire.close()
        ended = study.ends(2 * PATIENCE)
    assert ended["bank"].code == ENGINE_ERROR, ended
    assert "the connection to its Ray cluster is lost" in ended["bank"].sentence
    for name, end in ended.items():
        assert end.code != 0
        assert "Traceback" not in end.text, (name, end.text)
    assert not study.left_behind()
