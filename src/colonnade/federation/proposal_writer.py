"""From a study file to a proposal: the pins and the address of the federation are filled in, files collected."""

from __future__ import annotations

import json
import re
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from colonnade.disk import reading
from colonnade.errors import FederationError, StudyError
from colonnade.federation.members import FederationMembers
from colonnade.federation.statements import MOST_MODEL, NO_HUBS, STUDY_FILE, Proposal, check_files
from colonnade.protocols.roles import COORDINATOR
from colonnade.study.preflight import Preflight, preflight
from colonnade.study.spec import Study, read_toml

_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_FILLED = ("coordinator", "pins")


def make_proposal(
    path: Path, members: FederationMembers, analyst: str, purpose: str, deadline: datetime
) -> tuple[Proposal, Preflight]:
    """A study as a proposal to this federation, and what it would cost; the study file may lack pins and address."""
    raw = read_toml(path, "study file")
    parties = raw.get("parties")
    if not isinstance(parties, dict) or "task" not in raw:
        raise StudyError(f"{path} is no study file: it needs [task] and [parties.NAME] [ST539]")
    said = raw.get("coordinator")
    if isinstance(said, dict) and said.get("hubs"):
        raise StudyError(f"{path}: {NO_HUBS} [ST540]")
    members.check(parties)
    pins = {name: members.pins[name] for name in (*parties, COORDINATOR)}
    text = fill_in_pins(reading.read_text(path), raw, members.address, pins)
    files = {STUDY_FILE: text.encode(), **_named_files(path, raw)}
    check_files(files)
    made = datetime.now(UTC)
    with tempfile.TemporaryDirectory(prefix="colonnade-") as name:
        bare = Proposal(analyst, purpose, made, deadline, str(raw.get("name", "")), "0" * 64, files)
        try:
            study = Study.load(bare.write(Path(name), members)).runnable()
            cost, digest = preflight(study), study.digest
        except StudyError as error:
            raise StudyError(str(error).replace(str(Path(name) / STUDY_FILE), str(path))) from None
    return Proposal(analyst, purpose, made, deadline, study.name, digest, files), cost


def fill_in_pins(text: str, raw: dict[str, Any], address: str, pins: dict[str, str]) -> str:
    """A study file with other pins and another address; everything else in it stays as it is written."""
    kept, inside = [], False
    for line in text.splitlines():
        if header := re.match(r"\s*\[+\s*([^\]]+?)\s*\]", line):
            inside = header[1].split(".")[0].strip("\"' ") in _FILLED
        if not inside:
            kept.append(line)
    said = raw.get("coordinator")
    hub = {"address": address} | ({"links": said["links"]} if isinstance(said, dict) and "links" in said else {})
    lines = [*kept, "", "[coordinator]", *(f"{key} = {json.dumps(value)}" for key, value in hub.items()), "", "[pins]"]
    lines += [f"{json.dumps(name)} = {json.dumps(pin)}" for name, pin in pins.items()]
    made = "\n".join(lines) + "\n"
    wanted = {key: value for key, value in raw.items() if key not in _FILLED}
    try:
        found = reading.parse_toml(made)
    except reading.MalformedFile:
        found = {}
    if found != wanted | {"coordinator": hub, "pins": pins}:
        raise StudyError(
            "the pins cannot be written into this study file: write [coordinator] and [pins] as tables of their own, "
            "at its end [ST541]"
        )
    return made


def _named_files(path: Path, raw: dict[str, Any]) -> dict[str, bytes]:
    """The files that a study file names."""
    named = [party.get("schema") for party in raw["parties"].values() if isinstance(party, dict)]
    model = raw["task"].get("model") if isinstance(raw["task"], dict) else None
    found: dict[str, bytes] = {}
    for name in [name for name in (*named, model) if isinstance(name, str)]:
        places = [name, str(Path(name).with_suffix(".npz"))] if name == model else [name]
        for place in places:
            if place == name or (path.parent / place).exists():
                found[place] = _read_file(path.parent / place)
    return found


def _read_file(path: Path) -> bytes:
    try:
        return reading.read_bytes(path, MOST_MODEL)
    except reading.UnreadableFile as error:
        raise StudyError(f"{path} cannot be read: {error} [ST542]") from None


def parse_deadline(text: str) -> datetime:
    """A moment, from a time to wait such as ``7d`` or ``12h``, or a date such as ``2030-01-31``."""
    if found := re.fullmatch(r"(\d{1,6})([mhdw])", text.strip()):
        return datetime.now(UTC) + timedelta(**{_UNITS[found[2]]: int(found[1])})
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        raise FederationError(
            f"{text[:40]!r} is no deadline: say how long, such as 30m, 12h or 7d, or a date such as 2030-01-31 [FE085]"
        ) from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
