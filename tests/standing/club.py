"""A federation for tests: a hub, three parties and an analyst with their keys, and studies that they propose."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path

from colonnade.standing.federation import HubPart, Members
from colonnade.standing.proposal import STUDY_FILE, Proposal
from colonnade.wire import Identity

NOON = datetime(2030, 1, 2, 12, tzinfo=UTC)
ROLES = {"coordinator": "hub", "bank": "party", "shop": "party", "clinic": "party", "ana": "analyst"}


@cache
def identity(name: str) -> Identity:
    """The identity of this name; the same in every test."""
    return Identity.create(name, days=20_000)


@dataclass(frozen=True)
class Club:
    """Members, and the keys of all of them."""

    members: Members
    keys: Mapping[str, Identity]

    def proposal(self, *parties: str, analyst: str = "ana", **changes: object) -> Proposal:
        """A proposal of a study of these parties; ``changes`` replace its fields."""
        parties = parties or self.members.parties
        text = study_text(self.members, parties)
        files = {STUDY_FILE: text.encode(), **{f"schemas/{party}.toml": b"[columns]\n" for party in parties}}
        given = {"purpose": "to test", "made": NOON, "deadline": NOON + timedelta(days=7), "name": "a study"}
        return Proposal(**{"analyst": analyst, "digest": "0" * 64, "files": files, **given, **changes})  # type: ignore[arg-type]

    def packed(self, *parties: str, analyst: str = "ana", **changes: object) -> bytes:
        """Such a proposal, signed."""
        return self.proposal(*parties, analyst=analyst, **changes).pack(self.keys[analyst])


def study_text(members: Members, parties: tuple[str, ...], kind: str = "pca") -> str:
    """A study file of these parties with the pins of a federation."""
    sections = [f'name = "a study"\n[task]\nkind = "{kind}"\n[coordinator]\naddress = "{members.address}"\n']
    sections += [f'[parties.{json.dumps(party)}]\nschema = "schemas/{party}.toml"\n' for party in parties]
    pins = "".join(f'{json.dumps(name)} = "{members.pins[name]}"\n' for name in (*parties, "coordinator"))
    return "".join([*sections, "[pins]\n", pins])


def club(folder: Path, address: str = "127.0.0.1:9300", **hub: object) -> Club:
    """A federation whose FEDERATION.toml lies in this folder."""
    keys = {name: identity(name) for name in ROLES}
    certificates = {name: key.certificate for name, key in keys.items()}
    members = Members("three organisations", address, certificates, ROLES, HubPart(**hub), folder / "FEDERATION.toml")  # type: ignore[arg-type]
    members.save(members.path)
    return Club(members, keys)
