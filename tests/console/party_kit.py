"""A party of the three organisations with a real office, ledger and table, and studies that were proposed to it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from colonnade.console.app import make_app
from colonnade.console.guard import Guard
from colonnade.console.pages import PAGES
from colonnade.console.party import PartyDesk, study_file
from colonnade.privacy import Ledger
from colonnade.standing import assess
from colonnade.standing.federation import Members
from colonnade.standing.filing import Filing
from colonnade.standing.office import Entry, State
from colonnade.standing.proposal import Proposal
from colonnade.standing.proposing import proposal_of
from colonnade.study import PartyConfig, Study
from colonnade.wire import Certificate, Identity

from .kit import access

EXAMPLE = Path(__file__).parents[2] / "examples" / "three-organisations"
BAD = '<script>alert("x")</script>'
AGENT = """
[agent]
federation = "../FEDERATION.toml"
folder = "agent"
"""


@dataclass
class Bank:
    """The bank's folder, beside those of the others."""

    folder: Path
    office: Filing
    members: Members

    @classmethod
    def make(cls, folder: Path) -> Bank:
        shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("certs", "*.key", "*.crt", "*.sqlite*"))
        roles = {"coordinator": "hub", "bank": "party", "shop": "party", "clinic": "party", "ana": "analyst"}
        certificates: dict[str, Certificate] = {}
        for name in roles:
            made = Identity.create(name)
            (folder / name).mkdir(exist_ok=True)
            made.save(folder / name)
            certificates[name] = made.certificate
        Members("three " + BAD, "127.0.0.1:9300", certificates, roles, None, folder / "F").save(  # type: ignore[arg-type]
            folder / "FEDERATION.toml"
        )
        party = folder / "bank" / "party.toml"
        text = party.read_text().replace('"auto-within-budget"', '"ask"') + AGENT
        party.write_text(text)
        office = Filing.open(folder / "bank" / "agent")
        assert isinstance(office, Filing)
        return cls(folder, office, Members.load(folder / "FEDERATION.toml"))

    @property
    def config(self) -> PartyConfig:
        return PartyConfig.load(self.folder / "bank" / "party.toml")

    @property
    def desk(self) -> PartyDesk:
        return PartyDesk(self.config, self.office)

    def app(self) -> Guard:
        return make_app(self.desk, access(self.folder / "access"), PAGES)

    def study_of(self, entry: Entry) -> Study:
        return Study.load(study_file(entry))

    def receive(self, purpose: str = BAD, change: Mapping[str, str] | None = None) -> Entry:
        """A study as it comes from the analyst."""
        text = (self.folder / "STUDY.toml").read_text()
        for old, new in (change or {}).items():
            assert old in text
            text = text.replace(old, new)
        path = self.folder / "asked.toml"
        path.write_text(text)
        until = datetime.now(UTC) + timedelta(days=3)
        bare, _ = proposal_of(path, self.members, "ana", purpose, until)
        identity = Identity.load(self.folder / "ana" / "ana.key", self.folder / "ana" / "ana.crt")
        proposal = Proposal.unpack(bare.pack(identity), self.members)
        entry = self.office.receive(proposal)
        proposal.write(study_file(entry).parent, self.members)
        return entry

    def propose(self, purpose: str = BAD, change: Mapping[str, str] | None = None, state: State = "waiting") -> Entry:
        """A study, checked as the agent checks it."""
        entry = self.receive(purpose, change)
        found, study = assess.assess(study_file(entry), self.config, entry.name, entry.digest)
        if study is not None:
            found |= assess.own_eyes(study, self.config)
        refused = found["refused"] is not None
        self.office.assessed(entry.id, found, "refused" if refused else state, "the policy" if refused else None)
        return self.office.entry(entry.id)

    def spend(self, entry: Entry, times: int = 1) -> Ledger:
        """Charge a study to the bank's ledger, as a run does."""
        study, book = self.study_of(entry), self.config.book()
        for _ in range(times):
            kept = book.reserve(study.name, study.digest, self.config.charged(study), study.trust, (), (), study.keys())
            book.commit(book.mark_sent(kept))
        return book

    def attempt(self, entry: Entry, lines: list[dict[str, Any]]) -> None:
        """An attempt that runs, of which these lines came from its process."""
        assert self.office.begin(entry.id, 1, f"{entry.id}.1", 3, timedelta(hours=12))
        folder = self.office.attempts(entry.id)[-1].folder
        folder.mkdir(parents=True)
        (folder / "output.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
