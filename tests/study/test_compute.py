"""``[compute]`` of a party file: what it may say, and which engine comes of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from colonnade.errors import EngineError
from colonnade.study.compute import ComputePart, size_of
from colonnade.study.engine import ray_connection
from colonnade.study.engine.on_ray import OnRay
from colonnade.study.engine.processes import Processes
from colonnade.study.engine.ray_door import CERTIFICATES, check_guarded, is_loopback
from tests.support.errors import raises

SHARED = {"spool": "/mnt/spool"}


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"engine": "dask"}, 'must be "processes", "ray"'),
        ({"engine": "ray://"}, 'must be "processes", "ray"'),
        ({"engine": "ray://head", **SHARED}, 'must be "processes", "ray"'),
        ({"engine": "head.example.org:99999", **SHARED}, 'must be "processes", "ray"'),
        ({"engine": "head.example.org:6379"}, "spool must name a folder that all of them see"),
        ({"engine": "ray://head.example.org:10001", "spool": "here"}, "spool must name a folder that all of them see"),
        ({"workers": 0}, "greater than or equal to 1"),
        ({"workers": 10**6}, "less than or equal to 4096"),
        ({"workers": 2.5}, "valid integer"),
        ({"memory": "plenty"}, "must be a size such as"),
        ({"memory": 10**9}, "must be a size such as"),
        ({"memory": "100 MB"}, "at least 300 MB"),
        ({"spool": " "}, "must be a path"),
        ({"worker": 3}, "workers"),
    ],
)
def test_what_is_wrong_is_named(wrong: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValidationError) as caught:
        ComputePart.model_validate(wrong)
    assert sentence in str(caught.value)


def test_engines_follow_from_what_is_said() -> None:
    assert isinstance(ComputePart().opened(), Processes)
    part = ComputePart.model_validate({"engine": "ray", "workers": 3, "memory": "1GB", "spool": "spool"})
    assert (part.workers, part.memory, part.spool, part.address) == (3, 10**9, "spool", None)
    assert isinstance(part.opened(), OnRay)
    near = ComputePart.model_validate({"engine": "ray://127.0.0.1:10001", **SHARED})
    assert near.address == "ray://127.0.0.1:10001"
    assert isinstance(near.opened(), OnRay)


def test_sizes() -> None:
    assert [size_of(text) for text in ("1 GB", "1.5GB", "800 MB", "2 TB")] == [10**9, 15 * 10**8, 8 * 10**8, 2 * 10**12]
    assert [size_of(text) for text in ("1", "GB", "1 gb", "-1 GB", None, 5)] == [None] * 6


def test_loopback_is_told_from_networks() -> None:
    assert all(
        map(is_loopback, ("localhost:1", "127.0.0.1:6379", "127.8.8.8:1", "[::1]:6379", "ray://127.0.0.1:10001"))
    )
    far = (
        "10.0.0.1:6379",
        "localhost.example.org:1",
        "[2001:db8::5]:6379",
        "ray://head:10001",
        "127.0.0.1.example.org:1",
    )
    assert not any(map(is_loopback, far))


def test_a_cluster_over_a_network_needs_a_token_and_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH", "RAY_USE_TLS", *CERTIFICATES)
    for name in names:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    part = ComputePart.model_validate({"engine": "ray://head.example.org:10001", **SHARED})
    with pytest.raises(EngineError) as caught:
        part.opened()
    for name in ("RAY_AUTH_MODE=token", "RAY_AUTH_TOKEN_PATH", "RAY_USE_TLS=1", *CERTIFICATES):
        assert name in str(caught.value)
    file = tmp_path / "some.pem"
    file.write_text("x")
    whole = dict.fromkeys(CERTIFICATES, str(file)) | {"RAY_USE_TLS": "1", "RAY_AUTH_MODE": "token"}
    tokens = ({"RAY_AUTH_TOKEN": "secret"}, {"RAY_AUTH_TOKEN_PATH": str(file)})
    for token in tokens:
        check_guarded("head.example.org:6379", whole | token)
    for missing in whole:
        lacking = {name: value for name, value in whole.items() if name != missing} | tokens[0]
        with raises(EngineError, "EN016", missing) as caught:
            check_guarded("head.example.org:6379", lacking)
        assert "secret" not in str(caught.value)
    with raises(EngineError, "EN016"):
        check_guarded("head.example.org:6379", whole | {"HOME": str(tmp_path)})
    check_guarded("127.0.0.1:6379", {})


def test_without_ray_a_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(ray_connection, "import_module", absent)
    with raises(EngineError, "EN014"):
        OnRay("local").start("tests.study.engine.roles:counter", (), 1)
