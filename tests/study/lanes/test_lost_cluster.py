"""A party whose Ray cluster is not there, or goes away in the middle of a study: one sentence, and nothing is left."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.study.engine.ray_clusters import Wire, serving, unguarded
from tests.study.engine.test_engines import PATIENCE
from tests.support.ports import free_port

from .conftest import Laned

pytest.importorskip("ray", reason="Ray is not installed: pip install colonnade[ray]")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="starts clusters as on Linux"),
]
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
        wire = Wire(port)
        on_cluster(study, f"ray://{wire.address}")
        for name, value in (settings | {"RAY_CLIENT_RECONNECT_GRACE_PERIOD": "5"}).items():
            monkeypatch.setenv(name, value)
        study.start("bank")
        study.until("bank", "first share")
        wire.cut()
        ended = study.ends(2 * PATIENCE)
    assert ended["bank"].code == ENGINE_ERROR, ended
    assert "the connection to its Ray cluster is lost" in ended["bank"].sentence
    for name, end in ended.items():
        assert end.code != 0
        assert "Traceback" not in end.text, (name, end.text)
    assert not study.left_behind()
