"""Every format with a number: what it looks like is held for that number, and files of every number are read.

``tests/fixtures/formats`` holds the form of each format under each number that is still read, and the files of hubs and
agents; ``tests/fixtures/make.py`` wrote them. Whoever changes what is written and not the number fails here, and so
does whoever raises a number and adds no fixture. ``docs/reference/compatibility.md`` says what to do then.
"""

from __future__ import annotations

import ast
import importlib
import json
import re
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from colonnade.errors import ColonnadeError, PrivacyError, StudyError
from colonnade.federation.agent_store import AgentFile, AgentStore
from colonnade.federation.members import FederationMembers, HubPart
from colonnade.federation.proposal_store import HubFile, ProposalStore
from colonnade.federation.scores.kept_answers import AnswersFile, LedgerMarksFile, count_asked_on
from colonnade.federation.statements import AttemptReport, Proposal, ProposalAnswer, Withdrawal
from colonnade.models import Estimator, Roster
from colonnade.privacy import Ledger, Observer, Statement, events, parse_budgets
from colonnade.privacy.ledger.approvers import Approver
from colonnade.privacy.ledger.storage import SCHEMA
from colonnade.privacy.noise_laws import DiscreteGaussianRelease
from colonnade.protocols.align import AlignedRows
from colonnade.study import PartyConfig, Study
from colonnade.study.alignment_session import AlignmentStore
from colonnade.tables import Schema, number
from colonnade.wire import Identity, endpoint, packets
from colonnade.wire.codec import encode
from colonnade.wire.link_offers import LinkOffer
from tests.support.errors import raises

FIXTURES = Path(__file__).parents[1] / "fixtures"
HELD = FIXTURES / "formats"
SOURCE = Path(__file__).parents[2] / "src" / "colonnade"
NOON = datetime(2030, 1, 2, 12, tzinfo=UTC)
LEDGERS = {1: "ledger-1.db", 2: "earlier-ledger.db", 3: "ledger-3.db", 4: "ledger-4.db"}

# --- the form of what is written


def form(value):
    """A plain value without its contents: names and kinds of values; a list has the form of its first element."""
    if isinstance(value, dict):
        return {name: form(inside) for name, inside in value.items()}
    if isinstance(value, list | tuple):
        return [form(value[0])] if value else []
    kinds = {bool: "truth", int: "number", float: "number", str: "text", type(None): "nothing"}
    return kinds[type(value)]


def form_of_base(path):
    with closing(sqlite3.connect(path)) as base:
        rows = {name: " ".join(str(sql).split()) for _, name, _, sql in base.execute(SCHEMA) if sql}
        found = {key: base.execute(f"PRAGMA {key}").fetchone()[0] for key in ("user_version", "application_id")}
    return found | {"tables": rows}


def form_of_arrays(path):
    with np.load(path) as arrays:
        return {name: f"{arrays[name].dtype.kind}, {arrays[name].ndim} axes" for name in sorted(arrays.files)}


def answers(folder):
    found = {}
    for name, file in {"answers": AnswersFile(folder), "marks": LedgerMarksFile(folder / "ledger.sqlite")}.items():
        file.close()
        found[name] = form_of_base(file.path)
    return found


def load(name):
    return Estimator.load(FIXTURES / "models" / f"{name}.json")


def model(folder):
    return form(json.loads(load("pca").save(folder / "model.json").read_bytes()) | {"privacy": {}})


def kept_weights(folder):
    glm = load("glm")
    glm.load_kept(FIXTURES / "models" / "glm.kept.bank.json")
    return form(json.loads(glm.save_kept(folder / "kept.json", "bank").read_bytes()))


def kept_encoder(folder):
    split = load("split")
    split.load_kept(FIXTURES / "models" / "split.kept.shop.npz")
    return form_of_arrays(split.save_kept(folder / "kept.npz", "shop"))


def _statement():
    trust = Roster.of({name: Schema({f"{name}_a": number(0, 1)}) for name in ("bank", "shop")}).trust
    noise = tuple((name, Fraction(900)) for name in ("bank", "shop"))
    released = DiscreteGaussianRelease("a sum", noise, 3, 12, 100, 24, 400, tail=1e-12, theorem="T")
    return Statement.of([released], trust, 1e-5)


def event(folder):
    """What every event of a kind has; what it may lack is not part of the form."""
    return {
        name: sorted({field.name for field in fields(kind)} - kind.may_lack)
        for name, kind in events.kinds_of_events().items()
    }


def alignment(folder):
    config = PartyConfig.load(FIXTURES / "party" / "party.toml")
    study = Study.load(FIXTURES / "studies" / "align-composite.toml")
    assert study.aligning is not None
    store = AlignmentStore(folder, study, config.name)
    table = config.table(study.roster.schemas[config.name], study.aligning.plan)
    index = np.arange(3 * 32, dtype=np.uint8).reshape(3, 32)
    store.keep(table.keys, AlignedRows(bytes(32), 3, np.array([4, 0, 2], dtype=np.int64), index=index))
    return form_of_arrays(store.path)


def signed(folder):
    study, bank = "a" * 32, Identity.create("bank", days=2)
    statements = [
        ProposalAnswer(study, "bank", True, "", 2, NOON).pack(bank),
        AttemptReport(study, 1, "bank", "finished", NOON).pack(bank),
        Withdrawal(study, "bank", NOON).pack(bank),
    ]
    return [re.sub(r"[A-Za-z0-9+/]{86}==", "SIGNATURE", raw.decode()) for raw in statements]


def wire(folder):
    """The first bytes of a session, a frame, a direct link's greeting, a notice, and every message declared."""
    notice = packets.SignedNotice(packets.PacketKind.STOP, "bank", "shop", (1, 2), b"topic")
    bank = Identity.create("bank", days=2)
    body = notice.seal(bank, "why")
    assert notice.open(bank.certificate, body) == "why"
    offer = LinkOffer(bytes(range(32)), "127.0.0.1:7443")
    return {
        "greeting": endpoint._VERSION.decode(),
        "frame": encode(["shares", {"block": np.arange(3, dtype=np.int64), "of": None}]).hex(),
        "offer": offer.to_bytes().hex(),
        "link": offer.greeting(bytes(16)).hex(),
        "notice": [notice._statement(body[64:]).hex(), body[64:].hex()],
        "messages": declared(),
    }


def declared():
    """The messages that the source declares, wherever that is: of each kind, its fields and the kind of their forms."""
    found: dict[str, list[Any]] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        if "MessageSchema(" in (source := path.read_text(encoding="utf-8")) and path.parent.name != "scale":
            module = importlib.import_module(f"colonnade.{'.'.join(path.relative_to(SOURCE).with_suffix('').parts)}")
            for call in ast.walk(ast.parse(source)):
                if isinstance(call, ast.Call) and ast.unparse(call.func) == "MessageSchema":
                    said = {str(each.arg): _kind_of_form(each.value, module) for each in call.keywords}
                    found.setdefault(ast.unparse(call.args[0]).strip("'"), []).append(said)
    return {kind: sorted(forms, key=str) for kind, forms in sorted(found.items())}


def _kind_of_form(said, module):
    if isinstance(said, ast.Call):
        return ast.unparse(said.func)
    named = getattr(module, said.id, None) if isinstance(said, ast.Name) else None
    return "given" if named is None else type(named).__name__


def hub(folder):
    sent = packets.pack_packet(packets.PacketKind.DATA, 1, 2, 3, 4, b"sealed", packets.envelope_prefix("bank", "shop"))
    return {
        "service": [packets.PATH, packets.VERSION_KEY, packets.INCARNATION_KEY, packets.ROOM_KEY],
        "packet": sent.hex(),
        "bundle": packets.bundle([sent, sent]).hex(),
        "roster": packets.pack_roster(packets.ROSTER, {"bank": 1, "shop": 2}).hex(),
        "kinds": {kind.name: int(kind) for kind in packets.PacketKind},
    }


@dataclass(frozen=True)
class Format:
    """A format: where its number stands, the form of what is written today, and the first number that is read."""

    home: str
    form: Callable[[Path], Any]
    oldest: int = 1
    grows: bool = False
    """Whether something may be added under the same number: earlier releases leave it alone, or refuse it by name."""

    @property
    def number(self):
        place, _, name = self.home.partition(":")
        found: Any = importlib.import_module(f"colonnade.{place}")
        for part in name.split("."):
            found = getattr(found, part)
        digits = re.search(r"(\d+)$", found.decode() if isinstance(found, bytes) else str(found))
        assert digits is not None
        return int(digits[1])


FORMATS = {
    "answers": Format("federation.scores.kept_answers:AnswersFile.version", answers),
    "agent": Format(
        "federation.agent_store:AgentFile.version", lambda folder: form_of_base(AgentFile(folder).path), grows=True
    ),
    "alignment": Format("study.alignment_session:_VERSION", alignment),
    "proposals": Format(
        "federation.proposal_store:HubFile.version", lambda folder: form_of_base(HubFile(folder).path), grows=True
    ),
    "event": Format("privacy.noise_laws:VERSION", event, grows=True),
    "hub": Format("wire.packets:VERSION", hub, oldest=2, grows=True),
    "kept-encoder": Format("kinds.split.encoders:PARTY_FILE_FORMAT", kept_encoder),
    "kept-weights": Format("kinds.glm.fitted:KEPT_FORMAT", kept_weights),
    "ledger": Format(
        "privacy.ledger.storage:SCHEMA_VERSION", lambda folder: form_of_base(Ledger(folder / "ledger.sqlite").path)
    ),
    "model": Format("models.base:FORMAT", model),
    "regression": Format(
        "models.linear_model:EXPORT_FORMAT",
        lambda folder: form(json.loads(json.dumps(load("linear").to_json())) | {"privacy": {}}),
        grows=True,
    ),
    "signed": Format("federation.statements:_MAGIC", signed),
    "statement": Format("privacy.statement:VERSION", lambda folder: form(_statement().to_dict() | {"events": []})),
    "wire": Format("wire.endpoint:_VERSION", wire, oldest=4, grows=True),
}
OTHER_NUMBERS = {
    "privacy/ledger/storage.py:BY_VERSION": "the tables under each number",
    "federation/store_file.py:version": "of the files of hubs and agents, which inherit it",
    "wire/link_offers.py:_MAGIC": "part of the wire",
    "wire/codec.py:MAGIC": "part of the wire",
    "tables/files.py:_PARQUET_MAGIC": "of Parquet",
    "tables/keys.py:UNICODE_VERSION": "of the standard",
    "tables/partitioning/partitions.py:_FORMAT": "a folder that is deleted when its study ends",
}


def today(name, folder):
    return json.loads(json.dumps(FORMATS[name].form(folder)))


def changed(held, found, grows, where=""):
    if isinstance(held, dict) and isinstance(found, dict):
        for key in held if grows else sorted({*held, *found}):
            if key not in held or key not in found:
                yield f"{where}.{key} is {'gone' if key in held else 'new'}"
            else:
                yield from changed(held[key], found[key], grows, f"{where}.{key}")
    elif held != found:
        yield f"{where}: {found!r} and not {held!r}"


@pytest.mark.parametrize("name", FORMATS)
def test_what_is_written_is_what_is_held_for_its_number(name, tmp_path):
    number = FORMATS[name].number
    path, held = (
        HELD / f"{name}-{number}.json",
        {int(each.stem.rpartition("-")[2]) for each in HELD.glob(f"{name}-*.json")},
    )
    assert path.exists(), f"{name} has the new number {number}: add fixtures by tests/fixtures/make.py"
    assert held == set(range(FORMATS[name].oldest, number + 1)), "every number that is read has its fixture"
    differ = list(changed(json.loads(path.read_bytes()), today(name, tmp_path), FORMATS[name].grows))
    assert not differ, f"{name} is written otherwise than under number {number}; raise the number: {differ}"


def test_no_number_is_forgotten():
    """A new constant that names a version or a format gets a row above, or a reason why it needs none."""
    named = re.compile(r"^ *(\w*(?:VERSION|FORMAT|MAGIC)|version(?=: ClassVar))(?:: ClassVar\[int\])? = ", re.MULTILINE)
    found = {
        f"{path.relative_to(SOURCE).as_posix()}:{name}"
        for path in SOURCE.rglob("*.py")
        for name in named.findall(path.read_text(encoding="utf-8"))
    }
    homes = (each.home.partition(":") for each in FORMATS.values())
    assert found - {f"{place.replace('.', '/')}.py:{name}" for place, _, name in homes} == set(OTHER_NUMBERS)


# --- files of every number


@pytest.mark.parametrize("number", LEDGERS)
def test_ledgers_of_every_number_are_read_and_written_on(number, tmp_path):
    path = tmp_path / "ledger.sqlite"
    shutil.copyfile(FIXTURES / "ledger" / LEDGERS[number], path)
    assert form_of_base(path) == json.loads((HELD / f"ledger-{number}.json").read_bytes())
    found = Ledger(path)
    before, spent = found.entries(), found.epsilon_spent(Observer.analyst(), 1e-5)
    assert {entry.state for entry in before} == {"committed", "sent", "released", "reserved"}
    assert 0 < spent < 100
    caps = parse_budgets({"analyst": 1000.0}, 1e-5)
    ada = (Approver("Ada", "console", "127.0.0.1"),)
    entry = found.reserve("another", "d" * 64, before[0].events, before[0].trust, caps, approvers=ada)
    head = found.head
    found.commit(found.mark_sent(entry))
    found.verify(head)
    assert found.head != head
    assert found.entries()[:-1] == before
    assert (found.entries()[-1].approvers, bool(before[0].approvers)) == (ada, number == 4)
    assert found.epsilon_spent(Observer.analyst(), 1e-5) > spent
    assert form_of_base(path)["user_version"] == FORMATS["ledger"].number


def test_files_of_hubs_and_agents_are_opened_again(tmp_path):
    for held, name in (
        ("proposals-1.db", "hub.db"),
        ("agent-1.db", "agent.db"),
        ("answers-1.db", "answers.db"),
        ("answers-1.marks", "ledger.sqlite.answers"),
    ):
        shutil.copyfile(HELD / held, tmp_path / name)
    members = FederationMembers.load(HELD / "federation" / "FEDERATION.toml")
    desk = ProposalStore(tmp_path, members, HubPart())
    shown = {study["state"]: study["id"] for study in desk.news("ana", 0)["studies"]}
    assert sorted(shown) == ["declined", "done", "open"]
    proposal = Proposal.unpack(desk.signed_proposal(shown["open"], "ana"), members)
    assert (proposal.analyst, proposal.purpose) == ("ana", "to be open")
    store = AgentStore(tmp_path)
    (entry,) = store.entries()
    assert (entry.state, entry.answer_by, entry.name) == ("approved", "eva", "survey")
    assert ([(click.who, click.what) for click in store.audit.latest()], store.load_fact("seen")) == (
        [("eva", "approved")],
        "7",
    )
    assert count_asked_on(tmp_path / "answers.db", "d" * 64, "2026-11-01") == 5
    held = LedgerMarksFile(tmp_path / "ledger.sqlite")
    with held.writing() as base:
        assert base.execute("SELECT count(*) FROM marks").fetchone()[0] == 1
    held.close()


# --- what happens with another number


@pytest.mark.parametrize(
    ("file", "change", "opened", "said"),
    [
        ("models/pca.json", {"format": 2}, Estimator.load, ("ST071", "model", "1")),
        (
            "models/glm.kept.bank.json",
            {"format": "colonnade kept weights 2"},
            lambda path: load("glm").load_kept(path),
            "ST113",
        ),
    ],
)
def test_another_number_is_refused_by_a_sentence(file, change, opened, said, tmp_path):
    path = tmp_path / "changed.json"
    path.write_text(json.dumps(json.loads((FIXTURES / file).read_bytes()) | change), encoding="utf-8")
    with raises(StudyError, said):
        opened(path)
    with raises(PrivacyError, "PR104", "2", "1"):
        Statement.from_dict(_statement().to_dict() | {"version": 2})
    with raises(PrivacyError, "PR027", "3", "2"):
        events.from_dict(_statement().events[0].to_dict() | {"version": 3})


@pytest.mark.parametrize(
    ("file", "opened", "sentence"),
    [
        ("ledger/ledger-4.db", lambda path: Ledger(path).entries(), ("LE026", "9", "4")),
        ("formats/proposals-1.db", lambda path: HubFile(path.parent), "FE103"),
        ("formats/agent-1.db", lambda path: AgentFile(path.parent), "FE103"),
        ("formats/answers-1.db", lambda path: AnswersFile(path.parent), "FE103"),
    ],
)
def test_a_later_base_is_refused_by_a_sentence(file, opened, sentence, tmp_path):
    path = tmp_path / {
        "formats/proposals-1.db": "hub.db",
        "formats/agent-1.db": "agent.db",
        "formats/answers-1.db": "answers.db",
    }.get(file, "ledger.sqlite")
    shutil.copyfile(FIXTURES / file, path)
    with closing(sqlite3.connect(path)) as base:
        base.execute("PRAGMA user_version = 9")
    with raises(ColonnadeError, sentence):
        opened(path)
