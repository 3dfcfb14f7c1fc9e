"""A federation for tests: a hub, three parties and an analyst with their keys, and studies that they propose.

:class:`Talk` has members who speak to a desk, and :class:`Hub` is a hub in a thread to which they connect.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

from colonnade.errors import ColonnadeError, ConnectError, FederationError, IdentityError, ProposalError
from colonnade.federation.hub_protocol import FederationClient
from colonnade.federation.hub_server import HubServer
from colonnade.federation.invitations import Invitations, InvitationToken
from colonnade.federation.members import FederationMembers, HubPart
from colonnade.federation.proposal_store import ProposalStore
from colonnade.federation.statements import (
    STUDY_FILE,
    AttemptEnd,
    AttemptReport,
    Proposal,
    ProposalAnswer,
    Withdrawal,
    proposal_id,
)
from colonnade.wire import Identity
from tests.support.errors import raises
from tests.support.ports import free_port
from tests.support.standing import PARTIES, ROLES

NOON = datetime(2030, 1, 2, 12, tzinfo=UTC)
EVERYBODY = (*PARTIES, "coordinator")


@cache
def identity(name: str) -> Identity:
    """The identity of this name; the same in every test."""
    return Identity.create(name, days=20_000)


@dataclass(frozen=True)
class Club:
    members: FederationMembers
    keys: Mapping[str, Identity]

    def proposal(self, *parties: str, analyst: str = "ana", **changes: object) -> Proposal:
        """A proposal of a study of these parties; ``changes`` replace its fields."""
        parties = parties or self.members.parties
        text = study_text(self.members, parties)
        files = {STUDY_FILE: text.encode(), **{f"schemas/{party}.toml": b"[columns]\n" for party in parties}}
        given = {"purpose": "to test", "made": NOON, "deadline": NOON + timedelta(days=7), "name": "a study"}
        return Proposal(**{"analyst": analyst, "digest": "0" * 64, "files": files, **given, **changes})  # type: ignore[arg-type]

    def packed(self, *parties: str, analyst: str = "ana", **changes: object) -> bytes:
        return self.proposal(*parties, analyst=analyst, **changes).pack(self.keys[analyst])


def refused(said: Any, act: Callable[..., object], *given: object, **named: Any) -> None:
    """It is refused with this code: by the federation, or by a store."""
    kind: type[ColonnadeError] = ProposalError if "OF" in str(said) else FederationError
    with raises(kind, said):
        act(*given, **named)


def study_text(members: FederationMembers, parties: tuple[str, ...], kind: str = "pca") -> str:
    """A study file of these parties with the pins of a federation."""
    sections = [f'name = "a study"\n[task]\nkind = "{kind}"\n[coordinator]\naddress = "{members.address}"\n']
    sections += [f'[parties.{json.dumps(party)}]\nschema = "schemas/{party}.toml"\n' for party in parties]
    pins = "".join(f'{json.dumps(name)} = "{members.pins[name]}"\n' for name in (*parties, "coordinator"))
    return "".join([*sections, "[pins]\n", pins])


def club(folder: Path, address: str = "127.0.0.1:9300", **hub: object) -> Club:
    keys = {name: identity(name) for name in ROLES}
    certificates = {name: key.certificate for name, key in keys.items()}
    members = FederationMembers(
        "three organisations", address, certificates, ROLES, HubPart(**hub), folder / "FEDERATION.toml"
    )  # type: ignore[arg-type]
    members.save(members.path)
    return Club(members, keys)


class Talk:
    """Members who speak to a desk."""

    def __init__(self, folder: Path, **part: object) -> None:
        self.club, self.folder, self.part = club(folder), folder, part
        self.desk, self.now = self._desk(), NOON

    def _desk(self) -> ProposalStore:
        return ProposalStore(self.folder / "hub", self.club.members, HubPart(**self.part))  # type: ignore[arg-type]

    def propose(self, *parties: str, name: str = "to test") -> str:
        raw = self.club.packed(*parties, purpose=name, made=self.now, deadline=self.now + timedelta(days=7))
        self.desk.propose(raw, "ana", self.now)
        return proposal_id(raw)

    def answer(self, study: str, party: str, yes: bool = True, retries: int = 2, why: str = "") -> dict[str, object]:
        raw = ProposalAnswer(study, party, yes, why, retries, self.now).pack(self.club.keys[party])
        return self.desk.answer(raw, party, self.now)

    def agree(self, *studies: str, retries: int = 2) -> None:
        for study in studies:
            for party in self.desk.study(study, "ana")["parties"]:
                self.answer(study, party, retries=retries)

    def agreed(self, *parties: str, name: str = "to test", retries: int = 2) -> str:
        """A study that has been proposed, and to which all have agreed."""
        study = self.propose(*parties, name=name)
        self.agree(study, retries=retries)
        return study

    def outcome(self, study: str, who: str, ended: AttemptEnd, attempt: int = 1, **more: Any) -> dict[str, object]:
        raw = AttemptReport(study, attempt, who, ended, self.now, **more).pack(self.club.keys[who])
        return self.desk.outcome(raw, who, self.now)

    def outcomes(self, study: str, ended: AttemptEnd, attempt: int = 1, who: tuple[str, ...] = EVERYBODY) -> None:
        for one in who:
            self.outcome(study, one, ended, attempt)

    def withdraw(self, study: str, who: str) -> dict[str, object]:
        return self.desk.withdraw(Withdrawal(study, who, self.now).pack(self.club.keys[who]), who, self.now)

    def after(self, **time: float) -> None:
        self.now += timedelta(**time)
        self.desk.tick(self.now)

    def restart(self) -> None:
        present = self.desk.present
        self.desk = self._desk()
        self.desk.present = present
        self.desk.resume(self.now)

    def state(self, study: str) -> tuple[str, int]:
        found = self.desk.study(study, "ana")
        return found["state"], found["attempt"]

    def states(self, *studies: str) -> list[str]:
        return [self.state(study)[0] for study in studies]


class Hub:
    """A hub in a thread, and the lines of its members."""

    club: Club

    def __init__(self, path: Path) -> None:
        self.path = path
        self.start()

    @classmethod
    def of(cls, folder: Path) -> Hub:
        ours = club(folder, f"127.0.0.1:{free_port()}")
        ours.keys["coordinator"].save(folder)
        ours.members.path.write_text(ours.members.path.read_text() + "\n[hub]\n")
        found = cls(ours.members.path)
        found.club = ours
        return found

    def start(self) -> None:
        self.keeper, ready = HubServer(self.path), threading.Event()

        def run() -> None:
            with self.keeper.alone():
                self.keeper.run(ready.set)

        self.thread = threading.Thread(target=run, daemon=True)
        self.thread.start()
        assert ready.wait(60)
        self.members = FederationMembers.load(self.path)

    def stop(self) -> None:
        self.keeper.stop()
        self.thread.join(180)
        assert not self.thread.is_alive()

    def line(self, name: str) -> FederationClient:
        return FederationClient(self.members, self.club.keys[name])

    def proposal(self, *parties: str, **changes: object) -> Proposal:
        now = datetime.now(UTC)
        return self.club.proposal(*parties, **{"made": now, "deadline": now + timedelta(days=1), **changes})

    def invite(self, name: str = "lab", **lasts: float) -> InvitationToken:
        lasting = timedelta(**lasts or {"hours": 1})
        return Invitations(self.keeper.proposals.file).make(
            self.keeper.members, name, "party", lasting, datetime.now(UTC)
        )

    @property
    def invitations(self) -> Invitations:
        return self.keeper.service.invitations


def retrying(ask: Callable[[], Any], until: Callable[[Any], bool] = lambda _: True) -> Any:
    """Ask until the hub has seen what has just changed in its file: it looks five times a second."""
    for _ in range(600):
        try:
            if until(found := ask()):
                return found
        except (IdentityError, ConnectError):
            pass
        threading.Event().wait(0.1)
    raise AssertionError("the hub has not seen it")
