"""The demonstration in the browser: a hub and three agents on this machine, and a study that waits for answers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from colonnade.cli import initialise
from colonnade.cli.console import own_link
from colonnade.cli.output import say, writing
from colonnade.errors import ConnectError, Interrupted, StudyError
from colonnade.models.files import replace_private, write_whole
from colonnade.protocols.roles import COORDINATOR
from colonnade.standing.federation import Members
from colonnade.study import Study
from colonnade.wire import Certificate

ANALYST = "analyst"
PURPOSE = "to see how far three components describe the people whom all three hold"
_NEEDED = ("starlette", "uvicorn", "jinja2")
_START_SECONDS = 300.0
_LOOK_SECONDS = 0.1
_END_SECONDS = 60.0
"""More than an agent takes to end in order: its checks and attempts have 15 seconds, and its fork server has five."""
_ANOTHER = {
    'name = "people"': 'name = "three components"',
    "n_components = 5": "n_components = 3",
    "epsilon = 1.0": "epsilon = 0.5",
}
_HUB = """
[hub]
key = "coordinator/coordinator.key"
folder = "hub"
console = "127.0.0.1:0"
"""


def can_be_shown() -> bool:
    """Whether somebody looks on who could open a browser, and what it takes is installed."""
    return sys.stdin.isatty() and sys.stdout.isatty() and all(find_spec(name) is not None for name in _NEEDED)


def prepare(study: Path) -> Path:
    """Make a federation of a study's participants, all in its folder; returns the file of the federation."""
    loaded, folder = Study.load(study), study.parent
    made = initialise.identity(ANALYST, folder / ANALYST)
    certificates = loaded.certificates() | {ANALYST: Certificate.load(Path(made["certificate"]))}
    roles = dict.fromkeys(loaded.content.parties, "party") | {COORDINATOR: "hub", ANALYST: "analyst"}
    path = folder / "FEDERATION.toml"
    address = f"127.0.0.1:{initialise.free_port()}"
    Members("the demonstration", address, certificates, roles, None, path).save(path)  # type: ignore[arg-type]
    write_whole(path, path.read_bytes() + _HUB.encode())
    for name in loaded.content.parties:
        own = folder / name / "party.toml"
        text = own.read_text(encoding="utf-8").replace('approval = "auto-within-budget"', 'approval = "ask"')
        agent = initialise.AGENT_TEMPLATE.format(federation='"../FEDERATION.toml"', console='"127.0.0.1:0"')
        replace_private(own, f"{text}{'' if '[agent]' in text else agent}".encode())
    asked = study.read_text(encoding="utf-8").partition("\n[pins]")[0]
    for said, instead in _ANOTHER.items():
        if said not in asked:
            raise StudyError(f"{study} does not say {said!r} any more: run `colonnade demo` again [ST046]")
        asked = asked.replace(said, instead)
    with writing(folder / "PROPOSAL.toml"):
        (folder / "PROPOSAL.toml").write_text(asked, encoding="utf-8")
    return path


@contextmanager
def running(federation: Path) -> Iterator[dict[str, str]]:
    """The hub and the agents as processes; gives a sign-in link for each party and for the hub."""
    folder = federation.parent
    members = Members.load(federation)
    configs = {COORDINATOR: federation} | {name: folder / name / "party.toml" for name in members.parties}
    children = []
    try:
        for name, config in configs.items():
            command = "hub" if name == COORDINATOR else "agent"
            with open(folder / f"{name}.log", "ab") as log:
                children.append(
                    subprocess.Popen(  # noqa: S603 - our own interpreter, with paths we were given
                        [sys.executable, "-m", "colonnade", "federation", command, str(config)],
                        stdin=subprocess.DEVNULL,
                        stdout=log,
                        stderr=log,
                        process_group=0,  # Ctrl-C is for us, who end them with whatever they have started
                    )
                )
        yield {name: _link(config, children) for name, config in configs.items()}
    finally:
        for child in children:
            child.terminate()
        for child in children:
            try:
                child.wait(timeout=_END_SECONDS)
            except subprocess.TimeoutExpired:
                _kill(child)
                child.wait()


def _kill(child: subprocess.Popen[bytes]) -> None:
    """End a process by force, and with it its fork server, which may still be importing and would go on with that."""
    if sys.platform == "win32":
        child.kill()
    else:
        with suppress(ProcessLookupError):  # it ended just now
            os.killpg(child.pid, signal.SIGKILL)


def show_in_browser(study: Path) -> None:
    """Propose a second study of the demonstration and stay until somebody has seen enough."""
    say("\nIN THE BROWSER: starting a hub and three agents on this machine ...")
    federation = prepare(study)
    with running(federation) as links:
        said = _typed("federation", "propose", federation.parent / "PROPOSAL.toml", "--federation", federation, "--key",
                      federation.parent / ANALYST / f"{ANALYST}.key", "--purpose", PURPOSE)  # fmt: skip
        say(
            f"they run, and an analyst has proposed a second study, {said['study']!r}.\n"
            "Each link works once, within ten minutes:\n"
        )
        for name, link in links.items():
            say(f"  {'the hub' if name == COORDINATOR else name:<10} {link}")
        say("\nSay yes as bank, shop and clinic, and watch it run. Ctrl-C ends everything.")
        try:
            while True:
                time.sleep(3600)
        except Interrupted:
            say("\nending the hub and the agents ...")
    say(
        f"stopped; to start again: colonnade federation hub {federation}, "
        "and colonnade federation agent with each party.toml beside it"
    )


def _link(config: Path, children: list[subprocess.Popen[bytes]]) -> str:
    """A sign-in link of a console, as soon as it runs."""
    until = time.monotonic() + _START_SECONDS
    while (link := own_link(config)) is None:
        if time.monotonic() > until or any(child.poll() is not None for child in children):
            raise ConnectError(
                f"no console runs for {config}: see the logs in the folder study of the demonstration [CN002]"
            )
        time.sleep(_LOOK_SECONDS)
    return link


def _typed(*words: object) -> dict[str, Any]:
    """What a command answers as JSON."""
    done = subprocess.run(  # noqa: S603 - our own interpreter
        [sys.executable, "-m", "colonnade", *map(str, words), "--json"], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise ConnectError(
            f"`colonnade {words[0]} {words[1]}` failed: {(done.stderr or done.stdout).strip()[-300:]} [CN003]"
        )
    found: dict[str, Any] = json.loads(done.stdout)
    return found
