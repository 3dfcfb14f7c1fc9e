"""`colonnade console`: links for people, made beside an agent that runs."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from colonnade.cli.app import app
from colonnade.cli.console import greeting
from colonnade.console.serve import serve
from colonnade.study import PartyConfig
from colonnade.study.console_part import ConsolePart

from .kit import PAGES, Notebook
from .test_connections import ask

PARTY = """
name = "bank"
data = "bank.csv"
id = "person_id"
key = "bank.key"
ledger = "ledger.sqlite"
[policy]
tasks = ["pca"]
columns = "all"
budget = { epsilon = 1.0, delta = 1e-6 }
[agent]
%s
"""


def party(folder: Path, agent: str) -> Path:
    path = folder / "bank.toml"
    path.write_text(PARTY % agent)
    return path


def test_a_link_is_made_while_the_console_runs(tmp_path: Path) -> None:
    path = party(tmp_path, 'console = "127.0.0.1:0"')
    runner = CliRunner()
    for left in ("", "http://127.0.0.1:1 127.0.0.1 1"):  # nothing, or what an agent left that was killed
        (tmp_path / "agent" / "console").mkdir(parents=True, exist_ok=True)
        (tmp_path / "agent" / "console" / "address").write_text(left)
        asleep = runner.invoke(app, ["console", str(path), "--link"])
        assert "start its agent" in str(asleep.exception)
    part = PartyConfig.load(path).standing.console
    assert part
    console = serve(Notebook(), tmp_path / "agent" / "console", part, dict, PAGES)
    try:
        made = runner.invoke(app, ["console", str(path), "--link", "--person", "Vera", "--role", "viewer", "--json"])
        link = json.loads(made.stdout)["link"]
        assert link.startswith(f"{console.url}/enter?link=")
        headers = {"origin": console.url, "content-type": "application/x-www-form-urlencoded"}
        status, cookie = ask(console, "POST", "/enter", headers, f"link={link.rpartition('=')[2]}")
        assert status == 303
        assert "Signed in as Vera (viewer)" in ask(console, "GET", "/first", {"cookie": cookie})[1]
        listed = runner.invoke(app, ["console", str(path), "--json"])
        assert [each["person"] for each in json.loads(listed.stdout)["signed in"]] == ["Vera"]
        ended = runner.invoke(app, ["console", str(path), "--end-sessions", "--json"])
        assert json.loads(ended.stdout)["ended"] == 1
        assert ask(console, "GET", "/first", {"cookie": cookie})[0] == 303
        told = greeting(console, path)
        assert "--link" in told
        assert "link=" not in told, "standard output is no terminal here, so it may be a log"
    finally:
        console.stop()


@pytest.mark.parametrize("name", ["", " ", "a\nb", "x" * 81])
def test_names_of_people_are_one_line(tmp_path: Path, name: str) -> None:
    path = party(tmp_path, 'console = "127.0.0.1:0"')
    console = serve(Notebook(), tmp_path / "agent" / "console", ConsolePart(listen="127.0.0.1:0"), dict, PAGES)
    try:
        refused = CliRunner().invoke(app, ["console", str(path), "--link", "--person", name])
        assert "one short line" in str(refused.exception)
    finally:
        console.stop()


@pytest.mark.parametrize(
    ("agent", "complaint"),
    [
        ('console = "0.0.0.0:8471"', "loopback"),
        ('console = "localhost:8471"', "an address and a port"),
        ('console = "127.0.0.1"', "an address and a port"),
        ('[agent.console]\nlisten = "10.0.0.1:8471"\ntls = true', "hosts"),
        ('[agent.console]\nhosts = ["*"]', "names as a browser shows them"),
        ('[agent.console]\ntrust_header = "X Remote"', "trust_header"),
        ('[agent.console]\ntrust_header = "X-Remote-User"\nfrom = ["everywhere"]', "addresses or networks"),
        ('[agent.people]\nada = "owner"', "approver"),
        ('federation = "FEDERATION.toml"', "names no console"),
    ],
)
def test_what_a_party_file_may_not_say(tmp_path: Path, agent: str, complaint: str) -> None:
    refused = CliRunner().invoke(app, ["console", str(party(tmp_path, agent))])
    assert complaint in str(refused.exception)
    assert not re.search("Traceback|pydantic", str(refused.exception))


def test_a_console_behind_a_proxy(tmp_path: Path) -> None:
    text = '[agent.console]\nlisten = "0.0.0.0:8471"\ntls = true\nhosts = ["Console.Example.org"]\n'
    text += 'trust_header = "X-Remote-User"\nfrom = ["10.0.0.7"]\n[agent.people]\nada = "approver"'
    agent = PartyConfig.load(party(tmp_path, text)).standing
    assert agent.console
    assert agent.console.names(8471) == ("console.example.org",)
    assert agent.people == {"ada": "approver"}
