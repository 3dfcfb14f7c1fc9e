"""Heads that find another cluster than they wanted, none, or lose it: one sentence each, and in time."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from colonnade.errors import EngineError
from colonnade.study.engine.ray_door import check_answers, why_not
from tests.support.errors import check_said, raises
from tests.support.ports import free_port

from .ray_clusters import Wire, called, certified, own_address, plain_environment, serving, unguarded
from .test_engines import COUNTER, PATIENCE, ends

pytest.importorskip("ray", reason="Ray is not installed: pip install colonnade[ray]")
on_linux = pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")

LOSER = f"""
import json, sys
from colonnade.errors import EngineError
from colonnade.study.engine.on_ray import OnRay
def tell(value):
    sys.stdout.write(json.dumps(value) + "\\n")
    sys.stdout.flush()
engine = OnRay(sys.argv[1])
workers = engine.start({COUNTER!r}, (7,), 2)
for worker in workers:
    engine.send(worker, ("pid",))
tell([engine.events.get(timeout={PATIENCE}).value for _ in workers])
if sys.stdin.readline() == "wait\\n":
    tell([(gone.why, gone.cause) for gone in (engine.events.get(timeout={PATIENCE}) for _ in workers)])
    engine.send(workers[0], ("pid",))
    try:
        engine.replace(workers[0])
    except EngineError as error:
        tell(str(error))
engine.stop()
import ray
tell(ray.is_initialized())
"""


@pytest.mark.parametrize("way", ["", "ray://"])
def test_an_address_at_which_nobody_listens_or_not_ray(way: str) -> None:
    with raises(EngineError, "EN021", "127.0.0.1", way):
        check_answers(f"{way}127.0.0.1:{free_port()}", 0.0)
    with socket.create_server(("127.0.0.1", 0)) as listener, raises(EngineError, "EN023|EN024"):
        check_answers(f"{way}127.0.0.1:{listener.getsockname()[1]}", 0.0)


def test_other_versions_are_named_and_what_ray_says_of_hosts_and_paths_is_not_passed_on() -> None:
    from ray._private.utils import check_version_info

    with pytest.raises(RuntimeError) as caught:
        check_version_info({"ray_version": "2.0.0", "python_version": "3.9.1"}, "Ray Client")
    check_said(why_not(caught.value), "EN018", "Ray 2.0.0 on Python 3.9.1")
    said = why_not(ValueError("/home/somebody"))
    check_said(said, "EN020", "ValueError")
    assert "somebody" not in said


@on_linux
@pytest.mark.slow
def test_a_cluster_of_this_machine_is_found_and_reached_by_its_client_server(folder: Path) -> None:
    settings, port = unguarded(folder), free_port()
    with serving("127.0.0.1", port, settings):
        near = {"RAY_TMPDIR": str(folder), "RAY_AUTH_MODE": "disabled"}
        assert called(near) == [[7, 8], ["127.0.0.1"], [None]]
        assert len(list((folder / "ray").glob("session_2*"))) == 1, "it was found, and no other one was started"
        assert called(near, f"ray://127.0.0.1:{port}") == [[7, 8], ["127.0.0.1"], [None]]


@on_linux
@pytest.mark.slow
def test_a_cluster_over_a_network_is_used_with_a_token_and_tls_and_not_otherwise(folder: Path) -> None:
    host = own_address()
    if host is None:
        pytest.skip("this machine has no address but loopback")
    port = free_port()
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "5f" * 32}
    settings = certified(folder, host) | token | {"RAY_TMPDIR": str(folder)}
    with serving(host, port, settings) as head:
        client = f"ray://{host}:{port}"
        assert called(settings, client) == [[7, 8], [host], [host]]  # where workers are reached too
        assert called(settings) == [[7, 8], [host], [host]]
        wrong = settings | {"RAY_AUTH_TOKEN": "0" * 64}
        for address in (client, head):
            start = f"the Ray cluster at {address} cannot be used: the token that it asks for is not ours"
            assert str(called(wrong, address)).startswith(start)
        open_line = {name: value for name, value in settings.items() if name != "RAY_USE_TLS"}
        assert "RAY_USE_TLS=1" in str(called(open_line, client))
        assert "RAY_USE_TLS=1" in str(called(open_line)), "found on this machine, but it is on a network"


@on_linux
@pytest.mark.slow
@pytest.mark.parametrize("way", ["wait", "stop"])
def test_a_head_whose_line_to_its_cluster_is_lost_says_so_and_leaves_nothing(folder: Path, way: str) -> None:
    """The line is cut, or it goes dead when the head wants to stop."""
    settings, port = unguarded(folder), free_port()
    with serving("127.0.0.1", port, settings):
        wire = Wire(port)
        head = subprocess.Popen(
            [sys.executable, "-c", LOSER, f"ray://{wire.address}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=plain_environment() | settings | {"RAY_CLIENT_RECONNECT_GRACE_PERIOD": "10"},
        )
        try:
            assert head.stdout is not None
            workers = json.loads(head.stdout.readline())
            assert len(set(workers)) == 2
            wire.cut() if way == "wait" else wire.go_dead()
            said, complaints = head.communicate(f"{way}\n", timeout=PATIENCE)
        finally:
            head.kill()
            head.wait()
        *lost, connected = map(json.loads, said.splitlines())
        assert not connected, "nor to another cluster"
        if way == "wait":
            why = "the connection to its Ray cluster is lost"
            assert lost == [[[why, "raised"]] * 2, f"no worker can be started: {why}"]
        assert not complaints
        assert head.returncode == 0
        assert all(map(ends, workers)), "the cluster ends them"
        wire.cut()
        assert called(settings, f"ray://127.0.0.1:{port}") == [[7, 8], ["127.0.0.1"], [None]], "the cluster goes on"


ABSENT = 'raise ModuleNotFoundError("No module named \'colonnade\'", name="colonnade")\n'
OLD = 'import ray\nray.__version__ = "2.0.0"\n'


@on_linux
@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "text", "said"),
    [
        ("colonnade", ABSENT, "install the same Colonnade and the same Python"),
        ("sitecustomize", OLD, "cannot be used: it has Ray 2.0.0 on Python "),
    ],
    ids=["without colonnade", "another version"],
)
def test_a_cluster_that_has_something_else_than_its_head(folder: Path, module: str, text: str, said: str) -> None:
    settings, port = unguarded(folder), free_port()
    (folder / f"{module}.py").write_text(text)
    with serving("127.0.0.1", port, settings, folder) as head:
        for address in (head, f"ray://127.0.0.1:{port}"):
            assert said in str(called(settings, address))
