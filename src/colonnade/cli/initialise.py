"""Keys, certificates, configurations and pins."""

from __future__ import annotations

import json
import secrets
import socket
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from colonnade.cli.output import writing
from colonnade.errors import IdentityError, LedgerError, StudyError
from colonnade.models import registry
from colonnade.models.files import replace_private, write_whole
from colonnade.protocols.align import NO_HELPER, Mode
from colonnade.protocols.roles import COORDINATOR
from colonnade.study import PartyConfig
from colonnade.study.console_part import DEFAULT_ADDRESS
from colonnade.study.local import local_configs
from colonnade.study.party_file import Approval
from colonnade.study.spec import Study, write_pins
from colonnade.tables.dataset import PERSON_ID
from colonnade.tables.sources.stores import has_pattern
from colonnade.wire import Certificate, Identity, check_name

PARTY_TEMPLATE = """\
# What {name} brings to a study and what it allows. This file stays with {name}.
name = "{name}"
data = {data}
id = {id:<27}# delete this line if the table has no such column
key = "{name}.key"
ledger = "ledger.sqlite"
# misfits = "refuse"            # do not take part if a cell is not in the schema; by default it is mapped and counted
# separator = ";"               # of a CSV file; likewise encoding = "latin-1" and decimal = ","
# kept = "kept.json"            # what {name} kept of a model (or kept.npz), for "glm-scores" and "split-scores"

# The columns by which a study with [align] may recognise people, under the study's names for them. Cells are compared
# exactly, so no other column but `id` is used; a single key is `id`, unless it stands here.
# [keys]
# name = "client"
# birth = {{ column = "born", format = "%d.%m.%Y" }}    # of dates that are text

# The encoder that {name} brings to split networks which leave it to {name} (kind = "own"); give make, weights, or both.
# [encoder]
# make = "mypackage.encoders:make"        # a function that makes a torch module
# weights = "encoder.npz"
# made_without_this_table = true          # {name}'s declaration, which nothing can check

[policy]
# "ask": a person says yes to each study, at the terminal or with --approve DIGEST; "auto-within-budget": whatever
# this policy and its caps allow, without asking; "never": nothing.
approval = "{approval}"
tasks = {tasks:<24}# and {others}
columns = "all"                 # or the list of columns that may be used
# exact = ["NAME"]              # parties that may be told exact answers about single people; nobody by default
align = {align:<24}# how people may be matched; "helper" and "fuzzy" promise less, so name them if you agree
# hidden = true                 # take part only where no party learns who matched
# security = "active"           # take part only where seats check each other, so that some of them may cheat
# again = true                  # run a study once more without asking; false: ask also where nothing else is asked
{trial:<32}# take part in trials, whose schemas may tell about the data
# schemas = ["DIGEST"]          # the only schemas that {name} agrees to, as `colonnade schema digest` prints them

[policy.budget]
delta = 1e-5
# The most that each of these may ever learn about {name}'s people, over all studies. `party` is each other party
# alone; above the threshold of a study nothing is promised, whatever stands here. All others together are always
# capped, by `others`, or else by the largest of these.
epsilon = {{ analyst = {cap}, coordinator = {cap}, party = {cap} }}

# Studies that end early tell whoever asked that they did. After so many of them, no more studies.
# [policy.failures]
# at_most = 20
# days = 30

# A brake besides: the most that may be learned within so many days. Any number of these; none is in force yet.
# [[policy.periods]]
# days = 30
# epsilon = 1.5
"""
AGENT_TEMPLATE = """
# The process that stays connected, checks what is proposed, and asks: colonnade federation agent party.toml
[agent]
federation = {federation}
folder = "agent"                # what it keeps
console = {console:<22}# in the browser, on this machine alone; false for none
retries = 2                     # how often a study is tried again that was lost with a machine; each try is paid for
"""


def identity(name: str, folder: Path) -> dict[str, Any]:
    """A key and certificate, made unless they are there already."""
    key = folder / f"{check_name(name)}.key"
    there = key.exists()
    if there:
        found = Identity.load(key, key.with_suffix(".crt"))
        if found.certificate.name != name:
            raise IdentityError(
                f"{key} is the key of {found.certificate.name}, not of {name}; choose another folder [ID003]"
            )
    else:
        found = Identity.create(name)
        found.save(folder)
    return {
        "name": name,
        "key": str(key),
        "certificate": str(key.with_suffix(".crt")),
        "fingerprint": found.fingerprint,
        "kept": ["key"] if there else [],
    }


def party(
    name: str,
    folder: Path,
    data: str,
    id: str,
    approval: Approval = "ask",
    align: Sequence[Mode] = NO_HELPER,
    *,
    tasks: Sequence[str] = ("pca",),
    cap: float = 3.0,
    trial: bool = False,
    federation: str | None = None,
    console: str = DEFAULT_ADDRESS,
) -> dict[str, Any]:
    """An identity, and a configuration to review; what is there already stays as it is.

    With a federation's file, as seen from the folder, the party gets an agent too.
    """
    check_name(name)
    config = folder / "party.toml"
    there = config.exists()
    if there and PartyConfig.load(config).name != name:
        raise StudyError(f"{config} is the configuration of another party; choose another folder with --out [ST035]")
    made = identity(name, folder)
    if not there:
        lists = {"tasks": list(tasks), "align": list(align)}
        text = PARTY_TEMPLATE.format(
            name=name,
            approval=approval,
            others=", ".join(f'"{row.kind}"' for row in registry.rows() if row.section and row.kind not in tasks),
            cap=cap,
            trial="trial = true" if trial else "# trial = true",
            **{key: json.dumps(value) for key, value in (lists | {"data": data, "id": id}).items()},
        )
        if federation is not None:
            named = {"federation": federation, "console": console}
            text += AGENT_TEMPLATE.format(**{key: json.dumps(value) for key, value in named.items()})
        replace_private(config, text.encode())
    return made | {"config": str(config), "kept": [*made["kept"], *(["config"] if there else [])]}


def pins(study: Path) -> dict[str, str]:
    """Write the fingerprint of everyone's certificate into the study file."""
    loaded = Study.load(study)
    found = {}
    for name in loaded.participants:
        path = loaded.folder / "certs" / f"{name}.crt"
        if not path.exists():
            raise IdentityError(f"no certificate of {name} at {path}: ask {name} for it (it is public) [ID004]")
        certificate = Certificate.load(path)
        if certificate.name != name:
            raise IdentityError(f"{path} is the certificate of {certificate.name}, not of {name} [ID005]")
        found[name] = certificate.fingerprint
    write_pins(study, found)
    return found


def trial(study: Path) -> dict[str, str]:
    """Everyone's keys and configurations on one machine, where they are missing, and their pins."""
    loaded = Study.load(study)
    certificates = loaded.folder / "certs"
    with writing(certificates):
        certificates.mkdir(exist_ok=True)
    for name in loaded.participants:
        folder = loaded.folder / name
        if name == COORDINATOR:
            identity(name, folder)
        else:
            modes: tuple[Mode, ...] = NO_HELPER if loaded.aligning is None else (loaded.aligning.mode,)
            kind, drafts = loaded.content.task.kind, loaded.content.trial
            party(name, folder, f"{name}.csv", PERSON_ID, align=modes, tasks=[kind], trial=drafts)
        write_whole(certificates / f"{name}.crt", Certificate.load(folder / f"{name}.crt").pem)
    return pins(study)


def without_tables(study: Path) -> list[PartyConfig]:
    """The configurations beside a study file whose table is not where they say."""
    return [config for config in local_configs(Study.load(study)).values() if _lacks(config.data)]


def _lacks(data: object) -> bool:
    """Whether a table should be one file of this machine, and is not there."""
    return isinstance(data, Path) and not has_pattern(str(data)) and not data.exists()


def free_port() -> int:
    """A port of this machine at which nothing listens now."""
    while True:
        # Below 32768, from where systems take the ports of outgoing connections, which come and go.
        port = 16384 + secrets.randbelow(16384)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def existing(path: Path) -> Path:
    """The path of a ledger; an error if there is none, because opening would make one."""
    if not path.is_file():
        raise LedgerError(f"there is no ledger at {path} [LE001]")
    return path
