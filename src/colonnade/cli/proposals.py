"""What the commands of agents and analysts do."""

from __future__ import annotations

import re
import signal
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from colonnade.cli import text_output
from colonnade.cli.approve import ask_yes_or_no
from colonnade.cli.console_commands import NEEDS_EXTRA, greeting, open_party_console
from colonnade.cli.output import Json, StudyPath, emit, say, speak_json, writing
from colonnade.cli.participants import PartyPath, WhileOpen, end_with_standard_input
from colonnade.disk import reading
from colonnade.disk.writing import write_files
from colonnade.errors import FederationError, PolicyError, ProposalError, StorageError, StudyError
from colonnade.federation import monitoring
from colonnade.federation.agent import Agent
from colonnade.federation.agent_store import AgentStore, ProposedStudy
from colonnade.federation.hub_protocol import FederationClient
from colonnade.federation.members import FederationMembers
from colonnade.federation.processes import OUTPUT
from colonnade.federation.statements import (
    Proposal,
    Withdrawal,
    format_moment,
    make_proposal,
    parse_deadline,
    proposal_id,
)
from colonnade.memory import freeze_baseline
from colonnade.models.serialization import finite_or_null
from colonnade.privacy.ledger.approvers import Approver
from colonnade.privacy.observers import Trust
from colonnade.privacy.statement import LargestEpsilon, format_rounded_up
from colonnade.sanitize import sanitize
from colonnade.study.connect import load_identity
from colonnade.study.party_config import PartyConfig
from colonnade.study.spec import Study
from colonnade.wire import Certificate, Identity

if TYPE_CHECKING:
    from colonnade.federation.scores.service import ScoresService

Federation = Annotated[
    Path | None, typer.Option("--federation", metavar="FEDERATION.toml", help="The members, for an analyst.")
]
Key = Annotated[Path | None, typer.Option("--key", help="The analyst's private key.")]
StudyId = Annotated[str, typer.Argument(metavar="ID", help="The first digits of the study's id.")]
Where = Annotated[list[str], typer.Argument(metavar="[PARTY.toml] ID", help="A party names its file; an analyst not.")]
_LOOK_SECONDS = 0.3
_SHOWN_ID = 8
_SIGNED_SECONDS = 20.0
_OPERATOR = "operator"
_HUB = "the hub"
_RESULT = re.compile(
    r"model\.(json|npz)|privacy\.json|report\.html|synthetic(-\d{1,4})?\.(csv|parquet)|card\.md|dictionary\.(json|md)"
)


def agent(config: PartyPath, json: Json = False) -> None:
    """Stay connected to the hub, and take part in what is approved."""
    found = Agent(config)
    with found.alone():  # before anything is served or asked, which a second agent must not do
        _serve(found, config, json)


def _serve(found: Agent, config: Path, json: bool) -> None:
    said = found.config.agent_section.log
    monitoring.configure_logging(said.format, said.level)
    monitoring.configure_tracing()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: found.stop())

    scores, routes = _scores(found)
    served = open_party_console(found.config, found.store, found.counts, routes, scores)

    def ready() -> None:
        facts = {"agent": found.config.name, "hub": found.members.address, "folder": str(found.store.folder)}
        emit(facts) if json else say(
            f"agent of {found.config.name}: waits for proposals from {found.members.address}; stop it with Ctrl-C\n"
            f"in another terminal: colonnade federation studies {config}"
        )
        if served is not None and not json:
            say(greeting(served, config))
        freeze_baseline()

    try:
        if scores is not None:
            scores.start()
        found.run(ready)
    finally:
        if scores is not None:
            scores.stop()
        if served is not None:
            served.stop()


def _scores(found: Agent) -> tuple[ScoresService | None, list[Any]]:
    """The standing questions that the party file names, and where programs of this machine ask them."""
    part = found.config.agent_section
    if part.scores is None:
        return None, []
    try:
        from colonnade.federation.scores.service import ScoresService
        from colonnade.federation.scores.web_api import routes
    except ModuleNotFoundError as error:
        raise StudyError(NEEDS_EXTRA) from error
    folder, hub, scored = found.store.folder, found.members.address, found.metrics.scores.inc
    service = ScoresService(found.config, part.scores, folder, hub=hub, scored=scored)
    return service, routes(service)


def propose(
    study: StudyPath,
    federation: Annotated[Path, typer.Option("--federation", help="The members.")] = Path("FEDERATION.toml"),
    key: Annotated[Path, typer.Option("--key", help="Your private key; its certificate lies beside it.")] = ...,  # type: ignore[assignment]
    deadline: Annotated[str, typer.Option("--deadline", help="Until when all must say yes: 12h, 7d or a date.")] = "7d",
    purpose: Annotated[str, typer.Option("--purpose", help="What it is for, for the people who are asked.")] = "",
    json: Json = False,
) -> None:
    """Ask the parties of a federation to run a study."""
    members, identity = _analyst(federation, key)
    proposal, cost = make_proposal(study, members, identity.name, purpose, parse_deadline(deadline))
    with FederationClient(members, identity) as line:
        told = line.tell(proposal)
    until = format_moment(proposal.deadline)
    facts = {"id": told["id"], "study": proposal.name, "digest": proposal.digest, "deadline": until}
    if json:
        emit(facts | {"parties": list(proposal.parties), "privacy": cost.statement.to_dict()})
        return
    say(text_output.preflight(cost))
    say(
        f"\nproposed {proposal.name!r} to {', '.join(proposal.parties)}, until {_day(until)}: {told['id']}\n"
        f"see their answers with: colonnade federation studies --federation {federation} --key {key}"
    )


def studies(
    config: Annotated[Path | None, typer.Argument(metavar="[PARTY.toml]", help="The party's own file.")] = None,
    federation: Federation = None,
    key: Key = None,
    json: Json = False,
) -> None:
    """List proposed studies: state, who is waited for, cost."""
    if config is not None:
        store = _open_store(config)
        known = [_of_party(entry) for entry in store.entries()]
        status = store.status()
        head = f"connected to {status.hub}" if status.connected else f"not connected: {status.reason}"
        facts: dict[str, Any] = {"agent": asdict(status)}
    else:
        with FederationClient(*_analyst(federation, key)) as line:
            known = [_of_analyst(study) for study in reversed(line.studies())]
        head, facts = "", {}
    if json:
        emit(facts | {"studies": known})
    else:
        say("\n".join(filter(None, [head, _table(known)])))


def approve(
    config: PartyPath,
    id: StudyId,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask again, where there is no terminal.")] = False,
    json: Json = False,
) -> None:
    """Say yes to a proposed study, after reading what it costs."""
    store = _open_store(config)
    entry = store.entry(id)
    found = entry.assessment or {}
    if not json:
        say(
            f"{entry.analyst} asks for {entry.name!r} ({entry.digest})"
            + (f", and says beside it: {sanitize(entry.purpose)}" if entry.purpose else "")
            + (f"\nthe study says: {sanitize(found['description'].strip())}" if found.get("description") else "")
        )
        notes = [found.get(key) for key in ("watches", "again", "earlier", "schema_news")]
        say("\n".join(filter(None, [found.get("text"), _ledger_lines(found), lanes_in(found), *notes])))
    if entry.state == "waiting" and not yes:
        if json or not sys.stdin.isatty():
            raise PolicyError("nobody can be asked here: read what it costs, and add --yes [PO005]")
        if not ask_yes_or_no(f"Take part in {entry.name!r} ({entry.digest}) at this cost?"):
            raise PolicyError(f"study {entry.name!r} was not approved; it still waits [PO006]")
    by, rule = Approver.at_terminal(), PartyConfig.load(config).content.policy.rule
    _say_answer(store.approve(id, by, rule), store, by.who, "approve", json)


def decline(
    config: PartyPath,
    id: StudyId,
    why: Annotated[str, typer.Option("--why", help="The reason; the analyst is told these words.")],
    json: Json = False,
) -> None:
    """Say no to a proposed study, and why."""
    store, who = _open_store(config), Approver.at_terminal().who
    _say_answer(store.decline(id, f"{who} at the command line", why), store, who, "decline", json, why)


def cancel(
    where: Where,
    why: Annotated[str, typer.Option("--why", help="The reason, for your own record.")] = "",
    federation: Federation = None,
    key: Key = None,
    json: Json = False,
) -> None:
    """Take back a yes, or one's own proposal; ends what runs."""
    config, digits = _where(where, federation)
    if config is not None:
        store, who = _open_store(config), Approver.at_terminal().who
        _say_answer(store.withdraw(digits, f"{who} at the command line", why), store, who, "cancel", json, why)
        return
    members, identity = _analyst(federation, key)
    with FederationClient(members, identity) as line:
        found, _ = _signed_proposal(line, _find_study(line, digits)["id"], members, identity.name)
        named = f"{found.name!r} ({found.digest})"
        if not json and sys.stdin.isatty() and not ask_yes_or_no(f"Take {named} back?"):
            raise PolicyError(f"study {found.name!r} was not withdrawn [PO860]")
        told = line.tell(Withdrawal(found.id, identity.name, datetime.now().astimezone()))
    facts = {"id": found.id, "study": found.name, "digest": found.digest, "state": told["state"], "state_by": _HUB}
    emit(facts) if json else say(f"withdrawn: {named}; the hub says that it is {told['state']}")


def follow_logs(
    config: PartyPath,
    id: StudyId,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the study has ended.")] = False,
    json: Json = False,
) -> None:
    """Show what happens in a study, from this party's own record."""
    store = _open_store(config)
    read: dict[Path, tuple[int, str]] = {}
    while True:
        over = store.entry(id).over and not any(attempt.state == "running" for attempt in store.attempts(id))
        for attempt in store.attempts(id):
            new = [told for name in ("events.jsonl", OUTPUT) for told in _new_lines(attempt.folder / name, read)]
            for _, line in sorted(new, key=lambda told: told[0]):
                emit({"attempt": attempt.number, **line}) if json else say(_line(attempt.number, line))
        if not follow or over:
            return
        time.sleep(_LOOK_SECONDS)


def result(
    where: Where,
    out: Annotated[Path | None, typer.Option("--out", help="Where to write the files.  [default: results/ID]")] = None,
    unconfirmed: Annotated[
        bool, typer.Option("--unconfirmed", help="Write it even if signatures are missing, or are of another one.")
    ] = False,
    federation: Federation = None,
    key: Key = None,
    json: Json = False,
) -> None:
    """Fetch the result of a study that has ended well."""
    config, digits = _where(where, federation)
    if config is not None:
        store = _open_store(config)
        page = store.report(digits)
        if page is None:
            raise ProposalError(
                f"study {store.entry(digits).name!r} is {store.entry(digits).state}: there is no result here [OF001]"
            )
        emit({"folder": str(page.parent), "report": str(page)}) if json else say(f"the result is in {page.parent}")
        return
    members, identity = _analyst(federation, key)
    with FederationClient(members, identity) as line:
        study = _find_study(line, digits)
        named = {"id": study["id"]}
        if unconfirmed:
            trust = Trust(tuple(study["parties"]), (), 0)  # whoever takes that takes the hub's word
        else:
            signed, signer = _signed_proposal(line, study["id"], members, identity.name)
            trust, named = _trust(signed, members), named | {"study": signed.name, "digest": signed.digest}
        until = time.monotonic() + _SIGNED_SECONDS
        while True:  # parties say that they have finished a moment after the hub
            compared = (found := line.result(study["id"])).compare(trust, members)
            if compared.confirmed or compared.differs or time.monotonic() >= until or unconfirmed:
                break
            time.sleep(1.0)
    if not unconfirmed:
        compared.check()
        if (state := members.key_state(signer)) == "revoked":
            compared = replace(compared, revoked=tuple({**dict.fromkeys(compared.revoked), signer.name: None}))
        elif state == "former":
            compared = replace(compared, former={**compared.former, signer.name: signer.fingerprint})
    files = found.files if unconfirmed else found.signed_files(compared, members)
    left = sorted(set(found.files) - set(files))
    folder = out or Path("results") / study["id"][:_SHOWN_ID]
    # The names come from the hub, which is not trusted: no other file than one of a result, and none that is there.
    if strange := [name for name in files if _RESULT.fullmatch(name) is None]:
        raise FederationError(
            f"the hub sends files that belong to no result: {sanitize(', '.join(sorted(strange)))} [FE011]"
        )
    if folder.exists() and any(folder.iterdir()):
        raise StorageError(f"{folder} is not empty: choose another folder with --out [SO015]")
    with writing(folder):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_files({folder / name: content for name, content in files.items()}, private=True)
    names = sorted(files)
    emit({**named, "folder": str(folder), "files": names, **asdict(compared)}) if json else say(
        (f"{named['study']!r} ({named['digest']}): " if "digest" in named else "")
        + f"wrote {', '.join(names)} to {folder}\n{compared}"
        + (f"; not taken, since not all of them have signed it: {sanitize(', '.join(left))}" if left else "")
    )


def _signed_proposal(
    line: FederationClient, id: str, members: FederationMembers, name: str
) -> tuple[Proposal, Certificate]:
    """The proposal of this id as its analyst has signed it: the hub may say another name of it than its own."""
    raw = line.proposal(id)
    proposal, signer = Proposal.unpack_earlier(raw, members)  # keys may have changed since
    if proposal_id(raw) != id or name not in (proposal.analyst, *proposal.parties):
        raise FederationError("the hub sent another proposal than that of the study that was asked for [FE721]")
    return replace(proposal, id=id), signer


def _trust(proposal: Proposal, members: FederationMembers) -> Trust:
    """Who owns a study and who has a seat in it."""
    with tempfile.TemporaryDirectory(prefix="colonnade-") as folder:
        return Study.load(proposal.write(Path(folder), members)).roster.trust


def _open_store(config: Path) -> AgentStore:
    own = PartyConfig.load(config)
    folder = own.path.parent / own.agent_section.folder
    if not (folder / "agent.db").exists():
        raise ProposalError(
            f"there is no agent's store in {folder} yet: start `colonnade federation agent {config}` [OF002]"
        )
    return AgentStore(folder)


def _analyst(federation: Path | None, key: Path | None) -> tuple[FederationMembers, Identity]:
    if federation is None or key is None:
        raise FederationError(
            "name a PARTY.toml, or as an analyst --federation FEDERATION.toml and --key YOUR.key [FE012]"
        )
    members = FederationMembers.load(federation)
    name = Identity.load(key, key.with_suffix(".crt")).name
    if name not in members.certificates:
        raise FederationError(f"{name}, whose key this is, is no member of the federation in {federation} [FE013]")
    return members, load_identity(key, name, members.certificates)


def _where(words: Sequence[str], federation: Path | None) -> tuple[Path | None, str]:
    """The party's file, or ``None`` for an analyst, and the id."""
    if len(words) != (2 if federation is None else 1):
        raise FederationError(
            "name PARTY.toml and the id of a study; an analyst names only the id, with --federation [FE014]"
        )
    return (None if federation is not None else Path(words[0])), words[-1]


def _find_study(line: FederationClient, id: str) -> Mapping[str, Any]:
    found = [study for study in line.studies() if study["id"].startswith(id)]
    if len(found) != 1:
        raise FederationError(
            f"{len(found) or 'no'} studies of yours have an id that begins with {sanitize(id, 64)} [FE015]"
        )
    study: Mapping[str, Any] = found[0]
    return study


def _say_answer(entry: ProposedStudy, store: AgentStore, who: str, what: str, json: bool, detail: str = "") -> None:
    store.audit.add(who, _OPERATOR, what, entry.id, detail)
    if json:
        emit({"id": entry.id, "state": entry.state})
        return
    if entry.state == "waiting":
        say(f"approved by {entry.answer_by}; another person must approve {entry.name!r} too")
        return
    waits = "" if store.status().pid else "; no agent runs, so nobody is told until one does"
    say(f"{entry.name!r} is {entry.state}{waits}")


def _of_party(entry: ProposedStudy) -> dict[str, Any]:
    return {
        **{name: getattr(entry, name) for name in ("id", "name", "analyst", "state", "deadline", "attempt", "why")},
        "state_by": entry.state_by,
        "answers": dict(entry.answers),
        "waited_for": _waited_for(entry.answers) if not entry.over else [],
        "refused": (entry.assessment or {}).get("refused"),
        "price": _largest(entry.assessment),
    }


def _of_analyst(study: Mapping[str, Any]) -> dict[str, Any]:
    over = study["state"] not in ("open", "running")
    named = {name: study.get(name) for name in ("id", "name", "analyst", "state", "deadline", "attempt", "reasons")}
    waited_for = [] if over else _waited_for(study["answers"])
    return {**named, "state_by": _HUB, "answers": study["answers"], "waited_for": waited_for, "price": None}


def _waited_for(answers: Mapping[str, bool | None]) -> list[str]:
    return [name for name, said in answers.items() if said is None]


def _largest(assessment: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """The largest epsilon, as reports and the console have it; ``None`` as an epsilon means that none is promised."""
    statement = (assessment or {}).get("statement")
    if not statement or not statement["rows"]:
        return None
    found = LargestEpsilon.parse(statement)
    figures = [
        {"observer": row.observer.label, "who": row.who, "epsilon": finite_or_null(row.epsilon), "condition": condition}
        for row, condition in found.figures
    ]
    pools = [row.observer.label for row in found.beyond]
    return {"delta": statement["delta"], "figures": figures, "no_promise_against": pools}


def _price(price: Mapping[str, Any] | None) -> str:
    if price is None or not price["figures"]:
        return "–"
    epsilons = [(each["epsilon"], each["who"]) for each in price["figures"]]
    (first, who), *rest = [
        ("no promise" if found is None else format_rounded_up(found, 3), who) for found, who in epsilons
    ]
    return f"{first} ({sanitize(who)})" + "".join(f", {more} ({sanitize(other)}) *" for more, other in rest)


def _table(known: Sequence[Mapping[str, Any]]) -> str:
    if not known:
        return "no study has been proposed yet"
    rows: list[tuple[str, ...]] = [("id", "study", "analyst", "state", "waits for", "largest epsilon", "until")]
    for study in known:
        waits = ", ".join(study["waited_for"]) or ("all said yes" if study["state"] in ("approved", "running") else "–")
        state = f"{study['state']} (the hub says)" if study["state_by"] == _HUB else study["state"]
        cells = (study["id"][:_SHOWN_ID], study["name"], study["analyst"], state, waits)
        rows.append((*map(sanitize, cells), _price(study["price"]), _day(study["deadline"])))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    for study in known:
        said = study.get("refused") or study.get("why") or ""
        lines += [f"{study['id'][:_SHOWN_ID]}  {sanitize(said)}"] if said else []
        lines += [
            f"{study['id'][:_SHOWN_ID]}  {who}, as the hub says: {sanitize(why)}"
            for who, why in (study.get("reasons") or {}).items()
        ]
    if any("*" in row[5] for row in rows[1:]):
        lines.append("* if owners leave out their part of the noise; colonnade federation approve shows every observer")
    return "\n".join(lines)


def lanes_in(found: Mapping[str, Any]) -> str:
    """A line about a check of a study in lanes; empty for any other."""
    partitions = (found.get("preflight") or {}).get("partitions")
    return f"lanes: people are added up in {partitions} partitions, by workers of everybody" if partitions else ""


def _ledger_lines(found: Mapping[str, Any]) -> str:
    lines = []
    for cap in found.get("left", ()):
        span = "for ever" if cap["period"] is None else f"in {cap['period']:g} days"
        figures = (cap["spent"], cap["after"], cap.get("at_most", cap["after"]))
        spent, after, most = ("no bound" if value is None else format_rounded_up(value) for value in figures)
        tries = "" if most == after else f" (at most {most} if attempts are lost)"
        lines.append(f"  {cap['observer']:<24} spent {spent}, after it {after}{tries}, of {cap['cap']:g} {span}")
    return "\n".join(["our ledger:", *lines]) if lines else ""


def _new_lines(path: Path, read: dict[Path, tuple[int, str]]) -> list[tuple[str, dict[str, Any]]]:
    """The objects in a file that were not there before, with their times; an unfinished last line waits.

    A line that has no time has that of the line before it.
    """
    place, when = read.get(path, (0, ""))
    try:
        with open(path, "rb") as file:
            file.seek(place)
            text = file.read()
    except OSError:
        return []
    whole = text[: text.rfind(b"\n") + 1]
    found = []
    for line in whole.decode("utf-8", "replace").splitlines():
        try:
            value = reading.parse_json(line)
        except reading.MalformedFile:
            value = line
        said = value if isinstance(value, dict) else {"said": line}
        when = str(said.get("time", when))
        found.append((when, said))
    read[path] = (place + len(whole), when)
    return found


def _line(attempt: int, said: Mapping[str, Any]) -> str:
    when = str(said.get("time", ""))[11:19]
    if "progress" in said:
        text = f"{said['progress']} {said.get('done')}/{said.get('total')}"
    elif isinstance(said.get("presence"), dict):
        here = said["presence"]
        text = (
            f"here: {', '.join(here['here']) or 'nobody'}; {here['rounds']} rounds, {text_output.size(here['bytes'])}"
        )
    elif "what" in said:
        more = [f"{key} {value}" for key, value in said.items() if key in ("message", "reason", "matched", "by")]
        text = ", ".join([str(said["what"]), *more])
    else:
        text = str(said.get("message", said.get("said", "")))
    return f"{attempt}  {when or '        '}  {sanitize(text)}"


def _day(moment: str) -> str:
    return f"{moment[:16].replace('T', ' ')} UTC"


def assess(
    study: StudyPath,
    config: PartyPath,
    name: Annotated[str, typer.Option("--name")],
    digest: Annotated[str, typer.Option("--digest")],
    while_open: WhileOpen = False,
) -> None:
    """Check a proposed study, for an agent."""
    from colonnade.federation.checks import assess as assessed

    end_with_standard_input(while_open)
    speak_json(True)
    found, _ = assessed(study, PartyConfig.load(config), name, digest)
    emit({"assessment": found})


def report(study: StudyPath, config: PartyPath, out: Annotated[Path, typer.Option("--out")]) -> None:
    """Write the report of a run that ended well before it was written, for an agent."""
    from colonnade.cli.results import publish_own
    from colonnade.models import Estimator
    from colonnade.study import PartyConfig, Study

    speak_json(True)
    publish_own(Study.load(study), PartyConfig.load(config), out, Estimator.load(out / "model.json"))
