"""The interface for programs: what is asked and answered over HTTP, and what is refused."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
from contextlib import ExitStack

import httpx
import pytest

from colonnade.console.app import make_app as make_console
from colonnade.console.party import PartyDesk
from colonnade.errors import PolicyError, StorageError, StudyError
from colonnade.standing.filing import Filing
from colonnade.standing.scores import description, session
from colonnade.standing.scores.meeting import keep_seat, own_hub
from colonnade.standing.scores.service import ScoresService
from colonnade.standing.scores.serving import make_app, serve
from colonnade.standing.scores.settings import Standing
from tests.console.kit import access, signed_in
from tests.support.errors import raises
from tests.support.studies import play
from tests.support.waiting import until

from . import kit


@pytest.fixture(scope="module")
def house(place):
    """A bank that asks and a shop that answers, each with the service that its agent would keep."""
    study = place.study("who defaults")
    standing = Standing.of(study)
    said = {"models": [{"study": f"../{study.path.name}", "digest": study.digest, "per_person": 3, "per_day": 1000}]}
    with ExitStack() as stack:
        hub = stack.enter_context(own_hub(standing, place.key("coordinator"), listen="127.0.0.1:0"))
        stack.callback(keep_seat(standing, place.key("coordinator"), hub).stop)
        services = {}
        for name in kit.COLUMNS:
            config = place.config(name)
            services[name] = ScoresService(config, said, config.path.parent / "agent", hub=hub.own_address).start()
            stack.callback(services[name].stop)
        served = serve(services["bank"], "127.0.0.1:0")
        stack.callback(served.stop)
        kit.until_ready(services["bank"].kept[study.name].questions)
        yield place, services, served


@pytest.fixture
def ask(house):
    _, services, served = house
    token = services["bank"].token()

    def post(body, token=token, **headers):
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        shown = {"authorization": f"Bearer {token}"} if token else {}
        return httpx.post(f"{served.url}/v1/scores", content=content, headers=shown | headers, timeout=60)

    return post


def test_probabilities_are_those_of_a_study_and_are_counted_where_they_are_told_and_answered(house, ask, monkeypatch):
    place, services, _ = house
    counted = {name: [] for name in ("bank", "shop")}
    for name, numbers in counted.items():
        monkeypatch.setattr(services[name], "scored", numbers.append)
    want = play(place.study("once"), place.folder / "runs" / "once")["bank"].joint
    answer = ask({"ids": [want.ids[0], "nobody", want.ids[5]], "model": "who defaults"})
    assert (answer.status_code, answer.headers["cache-control"]) == (200, "no-store")
    first, nobody, second = answer.json()["scores"]
    assert nobody is None
    assert first["probabilities"] == want.probabilities[0].tolist()
    assert second["probabilities"] == want.probabilities[5].tolist()
    assert first["prediction"] == want.predictions[0]
    assert counted == {"bank": [2], "shop": [2]}


def test_the_console_shows_what_was_asked_today_and_what_is_left(house, ask, tmp_path):
    place, services, _ = house
    person = [*services["bank"].kept["who defaults"].questions._places][3]
    assert ask({"ids": [person]}).status_code == 200
    shown = {}
    for name in kit.COLUMNS:
        config = place.config(name)
        desk = PartyDesk(config, Filing.open(tmp_path / name), services[name])
        shown[name] = signed_in(make_console(desk, access(tmp_path / f"{name}-access"))).get("/scores").text
    asked = services["shop"].kept["who defaults"].allowance.asked_today()
    assert asked >= 1
    assert f'data-label="Told today">{asked}</td>' in shown["shop"]
    assert f'data-label="Left today">{1000 - asked}<span class="why">paid for in the ledger' in shown["shop"]
    assert all(piece in shown["bank"] for piece in ("counted by others", "all are here"))
    assert person not in shown["shop"], "no page says whom it was about"


def test_past_the_allowance_it_says_when_to_come_again(house, ask):
    person, other = [*house[1]["bank"].kept["who defaults"].questions._places][9:11]
    assert [ask({"ids": [person]}).status_code for _ in range(3)] == [200, 200, 200]
    late = ask({"ids": [person]})
    assert (late.status_code, 0 < int(late.headers["retry-after"]) <= 24 * 3600) == (429, True)
    assert re.search(r"before \d{4}-\d\d-\d\dT00:00:00Z", late.json()["detail"])
    mixed = ask({"ids": [person, other]}).json()["scores"]
    assert (set(mixed[0]), mixed[1]["id"]) == ({"id", "refused_until"}, other)


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        (b"{", 422, "not valid JSON"),
        ({"ids": []}, 422, "ids"),
        ({"ids": [7]}, 422, "ids.0"),
        ({"ids": ["secret-person"] * 9000}, 422, "ids"),
        ({"ids": ["a"], "secret-key": 1}, 422, "body"),
        ({"ids": ["a"], "model": "secret-model"}, 404, "no such model"),
        (b"x" * (1 << 21), 413, "too long"),
    ],
)
def test_what_is_malformed_is_refused_without_repeating_it(ask, body, status, said):
    answer = ask(body)
    assert (answer.status_code, said in answer.json()["detail"]) == (status, True)
    assert "secret" not in answer.text


def test_whoever_hangs_up_in_the_middle_leaves_nothing_behind(house):
    _, services, _ = house
    app = make_app(services["bank"], ("here",))
    shown = {"host": "here", "authorization": f"Bearer {services['bank'].token()}"}
    scope = {"type": "http", "method": "POST", "path": "/v1/scores", "root_path": "", "query_string": b""}
    scope["headers"] = [(name.encode(), value.encode()) for name, value in shown.items()]
    left = [{"type": "http.request", "body": b'{"ids"', "more_body": True}]
    sent = []

    async def receive():
        return left.pop() if left else {"type": "http.disconnect"}

    async def send(message):
        sent.append(message)

    asyncio.run(app(scope, receive, send))
    assert sent[0]["status"] == 413


def test_strangers_are_refused(house, ask):
    _, _, served = house
    tried = [
        ({"token": None}, 401),
        ({"token": "0" * 64}, 401),
        ({"token": None, "cookie": "colonnade=x"}, 401),
        ({"origin": "https://example.org"}, 403),
        ({"host": "attacker.example:80"}, 421),
    ]
    for headers, status in tried:
        assert ask({"ids": ["a"]}, **headers).status_code == status, headers
    assert [httpx.get(f"{served.url}/v1/{path}").status_code for path in ("models", "scores")] == [401, 405]


def test_it_describes_itself(house):
    place, services, served = house
    spec = httpx.get(f"{served.url}/v1/openapi.json").json()
    asked = spec["paths"]["/v1/scores"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert asked["properties"]["ids"]["maxItems"] == 8192
    page = httpx.get(f"{served.url}/v1/docs")
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert not re.search(r"(src|href)=.?https?:|<script", page.text)
    token = {"authorization": f"Bearer {services['bank'].token()}"}
    (model,) = httpx.get(f"{served.url}/v1/models", headers=token).json()["models"]
    assert (model["ready"], model["exact"], model["to"]) == (True, True, "bank")
    study = place.study("noisy", kit.NOISY)
    once, often = (description.model(Standing.of(study, per_person)) for per_person in (1, 5))
    assert once == often, "a price is that of a question, and limits of a day are those of others"
    assert once["epsilon_of_a_question"] == study.statement.epsilon("bank")


def test_the_command_of_the_page_works(house):
    _, services, served = house
    text = (kit.DOCS / "how-to" / "scores-on-demand.md").read_text()
    command = re.search(r"```bash\n(curl .*?)```", text, re.S)[1]
    person = [*services["bank"].kept["who defaults"].questions._places][20]
    command = command.replace("agent/scores.token", str(services["bank"].token_file)).replace("P000017", person)
    command = re.sub(r"http://127.0.0.1:\d+", served.url, command)
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60, check=True)
    assert json.loads(done.stdout)["scores"][0]["id"] == person


def test_an_owner_that_comes_back_is_asked_again(house, ask, monkeypatch):
    place, services, _ = house
    for pause in ("_FIRST_PAUSE", "_LONGEST_PAUSE", "_GOODBYE"):
        monkeypatch.setattr(session, pause, 0.2)
    questions = services["bank"].kept["who defaults"].questions
    person = [*questions._places][30]
    services["shop"].stop()
    until(lambda: not questions.ready, "the session to end")
    away = ask({"ids": [person]})
    assert (away.status_code, away.headers["retry-after"]) == (503, "2")
    config = place.config("shop")
    part = services["bank"].part.model_dump()
    hub = services["bank"].hub
    services["shop"] = ScoresService(config, part, config.path.parent / "agent", hub=hub).start()
    try:
        kit.until_ready(questions)
        assert ask({"ids": [person]}).status_code == 200
    finally:
        services["shop"].stop()


def test_a_study_that_changed_or_is_of_another_kind_is_refused(house):
    place, services, _ = house
    config = place.config("shop")
    study = place.study("changed")
    said = {"models": [{"study": f"../{study.path.name}", "digest": "0" * 64}]}
    with raises(PolicyError, "PO009"):
        ScoresService(config, said, config.path.parent / "agent")
    with raises(StudyError, "ST548", "agent.scores.models"):
        ScoresService(config, {"models": []}, config.path.parent / "agent")
    levels = place.study("levels", ('answers = "levels"\n', kit.NOISY[1]))
    with raises(StudyError, "ST547"):
        Standing.of(levels)
    not_allowed = place.allow("shop", exact="")
    said["models"][0]["digest"] = study.digest
    with raises(PolicyError, "PO022"):
        ScoresService(not_allowed, said, config.path.parent / "agent")
    place.allow("shop")
    token = services["bank"].token_file
    token.chmod(0o644)
    if os.name == "posix":
        with raises(StorageError, "SO031"):
            services["bank"].token()
    token.chmod(0o600)
