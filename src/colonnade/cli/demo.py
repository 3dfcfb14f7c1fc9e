"""The demonstration: a private PCA of the people that three organisations share; a second study in the browser."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow.csv
import typer

from colonnade.cli import initialise, text_output
from colonnade.cli.console_commands import own_link, user_name
from colonnade.cli.output import Json, emit, progress_bar, say, writing
from colonnade.cli.preload import fork_server_of_this_command
from colonnade.cli.process_tuning import without_pandas
from colonnade.cli.results import publish
from colonnade.errors import ConnectError, Interrupted, StudyError
from colonnade.federation.members import FederationMembers
from colonnade.models import Roster, registry
from colonnade.models.serialization import replace_private, write_whole
from colonnade.protocols.align import NO_HELPER, AlignmentTask, Mode
from colonnade.protocols.roles import COORDINATOR, Progress
from colonnade.study import Study, preflight, run_local
from colonnade.study.preflight import outlook, security_line
from colonnade.study.record import FILES
from colonnade.tables import population
from colonnade.tables.datasets import PERSON_ID, Dataset
from colonnade.tables.keys import Key
from colonnade.wire import Certificate

_MARK = ".colonnade-demo"
_OVERLAP = 0.9
_OT_SECONDS = 15.0
_EPSILONS = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
_STUDY_TEMPLATE = """\
# Three organisations, one private PCA. Everyone holds an equal copy of this file.
name = "people"
description = "Principal components of what a bank, a shop and a clinic know about the people whom all three hold."
{security}
[task]
kind = "pca"
n_components = 5
rows_at_most = 1_000_000

[budget]
epsilon = 1.0        # for everyone: alone, in pairs, and up to the threshold together
delta = 1e-5

[align]
on = "person_id"     # none of them holds everybody: first they find out, in private, whom all three hold
mode = "{mode}"

[committee]
threshold = 1        # of three: no two of them may pool what they hold

[coordinator]
address = "127.0.0.1:{port}"
{parties}"""


def demo(
    out: Annotated[Path, typer.Option("--out", help="Where to leave the study and its run.")] = Path("runs/demo"),
    rows: Annotated[int, typer.Option("--rows", min=100, help="How many people to make up.")] = 25_000,
    json: Json = False,
) -> None:
    """See it all once: three organisations and a private PCA."""
    without_pandas()
    with progress_bar(not json) as progress:
        facts = _run_demo(out, rows, progress)
    if json:
        emit(facts)
        return
    say("\nAFTER, what was spent:\n")  # once no progress bar would be drawn over it
    say(text_output.outcome(Study.load(out / "study" / "STUDY.toml"), out, facts["run"]))

    if can_be_shown():
        show_in_browser(out / "study" / "STUDY.toml")


def _run_demo(out: Path, rows: int, progress: Progress) -> dict[str, Any]:
    """Invent people, write the study, run it in separate processes, and measure the quality of the result."""
    _make_room(out)
    forks = fork_server_of_this_command(
        kinds=("pca",)
    )  # before there are tables and keys: nobody shall inherit those of others
    people = population(rows)
    mode = alignment_mode(people, rows)
    template = _STUDY_TEMPLATE.replace("{mode}", mode).replace("{security}\n", security_line("pca") + "\n")
    study = write_study(out / "study", people.feature_schemas, template, align=("ot", "helper"))
    held = _write_tables(people, study.parent)
    loaded = Study.load(study)
    say(_opening(rows, held, mode) + "\n")
    say("BEFORE, what it would cost:\n")
    say(text_output.preflight(preflight(loaded, max(len(ids) for ids in held.values()))) + "\n")
    say(text_output.forecast(outlook(loaded, max(len(ids) for ids in held.values())), loaded) + "\n")
    evaluated = _in_background(
        lambda: _evaluation(people, loaded.roster, held)
    )  # participants are processes of their own
    folders = run_local(loaded, out, progress=progress, forks=forks)
    progress("evaluate", 0, 1)
    evaluation = evaluated.result()
    progress("evaluate", 1, 1)
    return publish(loaded, out, folders, evaluation)


def _in_background(work: Callable[[], dict[str, Any]]) -> Future[dict[str, Any]]:
    """Do something in a thread for which nobody waits if the demonstration is interrupted."""
    found: Future[dict[str, Any]] = Future()

    def run() -> None:
        try:
            found.set_result(work())
        except BaseException as error:
            found.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return found


def alignment_mode(people: Dataset, rows: int) -> Mode:
    """``ot`` if the work of all parties, which is done on this one machine, is expected to be short."""
    task = AlignmentTask(Roster.of(people.feature_schemas).trust, (Key(PERSON_ID),), mode="ot")
    work = sum(task.load(name, round(_OVERLAP * rows))[0] for name in task.owners)
    return "ot" if work <= _OT_SECONDS else "helper"


def _write_tables(people: Dataset, folder: Path) -> dict[str, set[str]]:
    """Write each party's table, in its own order and without some of the people; returns the ids in each."""
    held = {}
    with tempfile.TemporaryDirectory() as place:
        for name, (table, _) in people.write(place, overlap=_OVERLAP).items():
            held[name] = set(pyarrow.csv.read_csv(table)[PERSON_ID].to_pylist())
            with writing(folder / name / table.name):
                shutil.copyfile(table, folder / name / table.name)
    return held


def _opening(rows: int, held: Mapping[str, set[str]], mode: Mode) -> str:
    each = ", ".join(f"{name} {len(ids):,}" for name, ids in held.items())
    lines = [
        f"{rows:,} people; none of the three holds all of them: {each}, each with its own columns and order",
        "first they find out, in private, whom all of them hold; then they compute about these",
    ]
    if mode == "helper":
        lines.append('mode "helper" here, because "ot" with so many people would keep this one machine busy for long')
    return "\n".join(lines)


def _evaluation(people: Dataset, roster: Roster, held: Mapping[str, set[str]]) -> Any:
    """How good the result is, measured on the people whom all parties hold."""
    ids = people.arrow[people.parties[0]][PERSON_ID].to_pylist()
    common = set.intersection(*held.values())
    rows = np.array([person in common for person in ids])
    tables = {name: people.table(name).select(roster.schemas[name].names).matrix()[rows] for name in people.parties}
    compare = registry.only("evaluation")
    return compare(tables, roster, n_components=5, epsilons=_EPSILONS, delta=1e-5, runs=5, local_runs=2) | {
        "title": "Variance captured by five components",
        "note": f"These {len(common):,} people are made up, so all columns may lie in one place here and the private "
        "result can be compared with what a trusted curator, or no joint computation at all, would give.",
    }


def _make_room(out: Path) -> None:
    """Replace an earlier demonstration, and nothing else."""
    if out.is_dir() and any(out.iterdir()):
        if not (out / _MARK).is_file():
            raise StudyError(
                f"{out} is not empty and holds no earlier demonstration; choose another place with --out [ST029]"
            )
        for name in ("study", "parties", "earlier"):
            shutil.rmtree(out / name, ignore_errors=True)
        for name in FILES:
            with writing(out / name):
                (out / name).unlink(missing_ok=True)
    with writing(out / _MARK):
        out.mkdir(parents=True, exist_ok=True)
        (out / _MARK).write_text("colonnade demo may replace what it wrote here\n", encoding="utf-8")


def write_study(folder: Path, schemas: dict[str, Any], template: str, align: Sequence[Mode] = NO_HELPER) -> Path:
    """A study folder with schemas, party configurations and everyone's keys."""
    with writing(folder / "schemas"):
        (folder / "schemas").mkdir(parents=True)
    parties = ""
    for name, schema in schemas.items():
        schema.save(folder / "schemas" / f"{name}.toml")
        initialise.party(name, folder / name, f"{name}.csv", PERSON_ID, "auto-within-budget", align)
        parties += f'\n[parties.{name}]\nschema = "schemas/{name}.toml"\n'
    study = folder / "STUDY.toml"
    with writing(study):
        study.write_text(template.format(port=initialise.free_port(), parties=parties), encoding="utf-8")
    initialise.trial(study)
    return study


ANALYST = "analyst"
PURPOSE = "to see how far three components describe the people whom all three hold"
_NEEDED_PACKAGES = ("starlette", "uvicorn", "jinja2")
_START_SECONDS = 300.0
_LOOK_SECONDS = 0.1
_END_SECONDS = 60.0
"""More than an agent takes to end in order: its checks and attempts have 15 seconds, and its fork server has five."""
_ANOTHER = {
    'name = "people"': 'name = "three components"',
    "n_components = 5": "n_components = 3",
    "epsilon = 1.0": "epsilon = 0.5",
}
_HUB_SECTION = """
[hub]
key = "coordinator/coordinator.key"
folder = "hub"
console = "127.0.0.1:0"
"""


def can_be_shown() -> bool:
    """Whether somebody looks on who could open a browser, and what it takes is installed."""
    return sys.stdin.isatty() and sys.stdout.isatty() and all(find_spec(name) is not None for name in _NEEDED_PACKAGES)


def make_federation(study: Path) -> Path:
    """Make a federation of a study's participants, all in its folder; returns the file of the federation."""
    loaded, folder = Study.load(study), study.parent
    made = initialise.identity(ANALYST, folder / ANALYST)
    certificates = loaded.certificates() | {ANALYST: Certificate.load(Path(made["certificate"]))}
    roles = dict.fromkeys(loaded.content.parties, "party") | {COORDINATOR: "hub", ANALYST: "analyst"}
    path = folder / "FEDERATION.toml"
    address = f"127.0.0.1:{initialise.free_port()}"
    FederationMembers("the demonstration", address, certificates, roles, None, path).save(path)  # type: ignore[arg-type]
    write_whole(path, path.read_bytes() + f"{_HUB_SECTION}operators = [{json.dumps(user_name())}]\n".encode())
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
def run_federation(federation: Path) -> Iterator[dict[str, str]]:
    """The hub and the agents as processes; gives a sign-in link for each party and for the hub."""
    folder = federation.parent
    members = FederationMembers.load(federation)
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
    with suppress(ProcessLookupError):  # it ended just now
        os.killpg(child.pid, signal.SIGKILL)


def show_in_browser(study: Path) -> None:
    """Propose a second study of the demonstration and stay until somebody has seen enough."""
    say("\nIN THE BROWSER: starting a hub and three agents on this machine ...")
    federation = make_federation(study)
    with run_federation(federation) as links:
        proposal, key = federation.parent / "PROPOSAL.toml", federation.parent / ANALYST / f"{ANALYST}.key"
        said = _run_command(
            "federation", "propose", proposal, "--federation", federation, "--key", key, "--purpose", PURPOSE
        )
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


def _run_command(*words: object) -> dict[str, Any]:
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
