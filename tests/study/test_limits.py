"""``[limits]`` of a study and ``[compute]`` of a party: what they may say, and what comes of it."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from colonnade.errors import EngineError, StudyError
from colonnade.study import Study
from colonnade.study.engine import ray_cluster
from colonnade.study.engine.base import ProcessEngine
from colonnade.study.engine.ray_cluster import CERTIFICATES, RayEngine, check_guarded, is_loopback
from colonnade.study.party_file import ComputeSection, parse_size
from colonnade.study.study_file import LimitsSection
from colonnade.wire import Hub, Identity, dial
from colonnade.wire.codec import MAX_FRAME
from colonnade.wire.endpoint import SealedChannel
from colonnade.wire.packets import MAX_PACKET, Packet, PacketKind
from colonnade.wire.peer_liveness import TrafficCounters, WireLimits
from colonnade.wire.reliable_transport import PacketInbox, PacketOutbox
from tests.support.errors import raises
from tests.support.studies import study_text

SCHEMA = '[columns.{0}]\ntype = "number"\nlow = 0\nhigh = 1\n'


def study(folder, limits=""):
    for name in "ab":
        (folder / f"{name}.toml").write_text(SCHEMA.format(f"{name}x"))
    (folder / "STUDY.toml").write_text(study_text() + (f"[limits]\n{limits}\n" if limits else ""))
    return Study.load(folder / "STUDY.toml")


def test_participants_agree_on_every_limit_that_is_not_the_usual_one(tmp_path):
    unsaid, known = study(tmp_path), LimitsSection.model_fields
    named = "\n".join(f"{key} = {known[key].default}" for key in known)
    assert study(tmp_path, named).digest == unsaid.digest
    assert unsaid.content.limits.agreed == {"join": 120.0, "reconnect": 30.0, "silence": 600.0}
    for key in known:
        changed = known[key].default + (-7 if key == "window" else 7)
        assert study(tmp_path, f"{key} = {changed}").digest != unsaid.digest, key


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        ("silence = inf", "limits.silence"),
        ("join = nan", "limits.join"),
        ("join = 1e300", "limits.join"),
        ("heartbeat = 0", "limits.heartbeat"),
        ("stall = -1", "limits.stall"),
        ("window = 0", "limits.window"),
        ("window = 1.5", "limits.window"),
        ("window = 1000000", "limits.window"),
        ("window = 100", "limits backlog = 320 is too small for window = 100"),
        ("window = 65", "limits backlog = 320 is too small for window = 65"),
        ("window = 1\nbacklog = 4", "limits.backlog"),
        ("window = 16\nbacklog = 64", "limits.backlog"),
        ("window = 3\nbacklog = 259", "limits.backlog"),
        ("colour = 3", "limits.colour is not a key"),
    ],
)
def test_limits_without_sense(tmp_path, limits, said):
    with pytest.raises(StudyError, match=said):
        study(tmp_path, limits)


def test_every_key_has_its_place():
    given = LimitsSection(
        **{key: 1 + number for number, key in enumerate(LimitsSection.model_fields)} | {"backlog": 400}
    )
    dialled, served = given.of_participant(), given.of_hub
    assert set(dialled) <= set(dial.__kwdefaults__)
    assert set(served) <= set(Hub.__init__.__kwdefaults__)
    told = {*dialled.values(), *served.values(), given.excuse}
    for key in LimitsSection.model_fields:
        assert getattr(given, key) * (2**20 if key in ("window", "backlog") else 1) in told
    assert given.of_participant(0.5)["connect_timeout"] == 0.5
    found = LimitsSection()  # the defaults are those of the wire
    for name in ("attempt", "handshake", "heartbeat", "stall", "closing"):
        assert getattr(found, name) == getattr(WireLimits, name)
    assert (found.window << 20, found.backlog << 20) == (WireLimits.window, WireLimits.backlog)


@pytest.mark.parametrize(("window", "backlog"), [(1, 260), (16, 272), (1024, 1280)])
def test_two_who_send_each_other_the_longest_message_at_once_go_on(window, backlog):
    """One of the two, who reads nothing: room must come from what the other one, which waits too, lets it send."""
    limits = LimitsSection(window=window, backlog=backlog).of_participant()
    outbox = PacketOutbox(limits["window"])
    inbox = PacketInbox(WireLimits(window=limits["window"], backlog=limits["backlog"]))
    channel = SealedChannel(
        Identity.create("a"),
        Identity.create("b").certificate,
        None,
        TrafficCounters.for_peers("b"),
        outbox._window,
        b"",
    )
    sealed = bytes(MAX_PACKET)
    left = MAX_FRAME
    while left:
        size = min(left, channel._piece)
        inbox.grant()
        outbox.acknowledge(*inbox.report())
        assert outbox.has_room(size)
        body = memoryview(sealed)[: size + 22 * (size // (1 << 14) + 1)]
        sequence = outbox.next_sequence
        outbox.add(body)
        inbox.add(Packet(PacketKind.DATA, 1, sequence, 0, 0, body))
        left -= size


# --- [compute]

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
def test_what_is_wrong_in_compute_is_named(wrong, sentence):
    with pytest.raises(ValidationError, match=sentence):
        ComputeSection.model_validate(wrong)


def test_engines_follow_from_what_is_said():
    assert isinstance(ComputeSection().open_engine(), ProcessEngine)
    part = ComputeSection.model_validate({"engine": "ray", "workers": 3, "memory": "1GB", "spool": "spool"})
    assert (part.workers, part.memory, part.spool, part.address) == (3, 10**9, "spool", None)
    assert isinstance(part.open_engine(), RayEngine)
    near = ComputeSection.model_validate({"engine": "ray://127.0.0.1:10001", **SHARED})
    assert near.address == "ray://127.0.0.1:10001"
    assert isinstance(near.open_engine(), RayEngine)


def test_sizes_and_addresses():
    assert [parse_size(text) for text in ("1 GB", "1.5GB", "800 MB", "2 TB")] == [
        10**9,
        15 * 10**8,
        8 * 10**8,
        2 * 10**12,
    ]
    assert [parse_size(text) for text in ("1", "GB", "1 gb", "-1 GB", None, 5)] == [None] * 6
    near = ("localhost:1", "127.0.0.1:6379", "127.8.8.8:1", "[::1]:6379", "ray://127.0.0.1:10001")
    assert all(map(is_loopback, near))
    far = (
        "10.0.0.1:6379",
        "localhost.example.org:1",
        "[2001:db8::5]:6379",
        "ray://head:10001",
        "127.0.0.1.example.org:1",
    )
    assert not any(map(is_loopback, far))


def test_a_cluster_over_a_network_needs_a_token_and_tls(tmp_path, monkeypatch):
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH", "RAY_USE_TLS", *CERTIFICATES):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    part = ComputeSection.model_validate({"engine": "ray://head.example.org:10001", **SHARED})
    with raises(EngineError, "EN*", "RAY_AUTH_MODE=token", "RAY_AUTH_TOKEN_PATH", "RAY_USE_TLS=1", *CERTIFICATES):
        part.open_engine()
    whole = dict.fromkeys(CERTIFICATES, __file__) | {"RAY_USE_TLS": "1", "RAY_AUTH_MODE": "token"}
    for token in ({"RAY_AUTH_TOKEN": "secret"}, {"RAY_AUTH_TOKEN_PATH": __file__}):
        check_guarded("head.example.org:6379", whole | token)
    for missing in (*whole, "RAY_AUTH_TOKEN"):
        given = whole | {"RAY_AUTH_TOKEN": "secret", "HOME": str(tmp_path)}
        del given[missing]
        with raises(EngineError, "EN016", missing.removesuffix("_TOKEN")) as caught:
            check_guarded("head.example.org:6379", given)
        assert "secret" not in str(caught.value)
    check_guarded("127.0.0.1:6379", {})


def test_without_ray_a_sentence_says_what_to_install(monkeypatch):
    def absent(name):
        raise ImportError(name)

    monkeypatch.setattr(ray_cluster, "import_module", absent)
    with raises(EngineError, "EN014"):
        RayEngine("local").start("tests.study.engine.roles:counter", (), 1)
