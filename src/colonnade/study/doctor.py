"""Checks before a study: each says what was checked, what was found, and what to do."""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from colonnade.errors import ColonnadeError, ConnectError, DataError, StorageError, StudyError, one_code
from colonnade.models.alignment import keys_of, rows_left_out
from colonnade.privacy import Ledger
from colonnade.protocols.align import AlignmentTask
from colonnade.protocols.roles import COORDINATOR
from colonnade.study.connect import load_identity
from colonnade.study.engine.base import count_cores
from colonnade.study.local import folder_of
from colonnade.study.party_config import PartyConfig
from colonnade.study.preflight import SecuritySummary
from colonnade.study.record import read_facts
from colonnade.study.spec import Study
from colonnade.tables import Table
from colonnade.tables.files import LACKS_ID
from colonnade.tables.keys import TableKeys
from colonnade.versions import installed_versions
from colonnade.wire import Certificate, Identity, probe
from colonnade.wire.link_offers import DirectLinkSettings, PortRange, advertised_address

_PROBE = 1 << 16
SOON_DAYS = 30
"""So many days before a certificate expires a warning begins."""


@dataclass(frozen=True)
class DoctorCheck:
    """The result of one check."""

    what: str
    level: Literal["good", "unsure", "bad"]
    detail: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "detail", one_code(self.detail))


def examine(study_path: Path, config_path: Path | None) -> Iterator[DoctorCheck]:
    """All checks, one after the other; a check that failed may leave out those after it, and is explained once."""
    told: dict[str, str] = {}
    for check in _checks(study_path, config_path):
        if check.level == "bad" and (before := told.setdefault(check.detail, check.what)) != check.what:
            yield DoctorCheck(check.what, "bad", f"not checked: see {before}")
        else:
            yield check


def examine_party(config: PartyConfig) -> Iterator[DoctorCheck]:
    """What can be checked of a party before anybody has asked it for a study."""
    yield from _machine()
    yield _try_check("key", lambda: _own_key(config))
    yield from _expiry(config)
    yield _try_check("table", lambda: _own_table(config))
    yield _ledger(config)


def _own_key(config: PartyConfig) -> str:
    identity = Identity.load(config.key, config.key.with_suffix(".crt"))
    mode = config.key.stat().st_mode & 0o777
    return f"{config.key} belongs to the certificate {identity.certificate.fingerprint} (mode {mode:o})"


def _expiry(config: PartyConfig) -> Iterator[DoctorCheck]:
    """A warning where our certificate expires soon; one that cannot be read was named before."""
    with suppress(ColonnadeError):
        until = Certificate.load(config.key.with_suffix(".crt")).parsed.not_valid_after_utc
        if (left := (until - datetime.now(UTC)).days) < SOON_DAYS:
            what = f"expires in {left} days" if left >= 0 else "has expired: others refuse it"
            yield DoctorCheck(
                "expiry",
                "unsure" if left >= 0 else "bad",
                f"our certificate {what} ({until:%Y-%m-%d}): stop the agent, and `colonnade keys renew {config.path}`",
            )


def _own_table(config: PartyConfig) -> str:
    found = config.source().columns()
    return f"{config.source().name} has {len(found)} columns; rows are checked when a study brings a schema"


def _machine() -> Iterator[DoctorCheck]:
    yield DoctorCheck("clock", "good", f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC; compare it with your partners'")
    yield DoctorCheck(
        "versions", "good", ", ".join(f"{name} {version}" for name, version in installed_versions().items())
    )
    yield _try_check("temporary files", _temporary_files)
    threads = os.environ.get("OPENBLAS_NUM_THREADS")
    yield DoctorCheck(
        "BLAS threads", "good" if threads == "1" else "unsure", f"{threads or 'not set'}; 1 is fastest here"
    )


def _temporary_files() -> str:
    """Whether a file can be written where temporary files go; no program is ever run from there."""
    try:
        with tempfile.TemporaryFile(prefix="colonnade-") as file:
            file.write(bytes(_PROBE))
            file.flush()
        place = os.statvfs(tempfile.gettempdir())
    except OSError as error:
        raise StorageError(
            f"no temporary file can be written: {error.strerror}; set TMPDIR to a folder where one can [SO740]"
        ) from None
    closed = place.f_flag & getattr(os, "ST_NOEXEC", 0)
    run = "no program can be run from there, and none has to" if closed else "no program is run from there"
    return f"{tempfile.gettempdir()} has room for {place.f_bavail * place.f_frsize / 1e6:,.0f} MB; {run}"


def _checks(study_path: Path, config_path: Path | None) -> Iterator[DoctorCheck]:
    yield from _machine()
    try:
        study = Study.load(study_path).runnable()
    except ColonnadeError as error:
        yield DoctorCheck("study", "bad", str(error))
        return
    yield DoctorCheck("study", "good", f"{study.name!r} with {', '.join(study.content.parties)}; digest {study.digest}")
    yield _try_check("plan", lambda: _plan(study))
    yield _security(study)
    yield _try_check("certificates", lambda: f"{len(study.certificates())} certificates match their pins")
    for address in study.content.coordinator.lane_hubs:
        yield from _address(address, study.content.limits.attempt)
    if config_path is None:
        return
    try:
        config = PartyConfig.load(config_path)
    except ColonnadeError as error:
        yield DoctorCheck("party", "bad", str(error))
        return
    yield _try_check("policy", lambda: _policy(study, config))
    if config.name not in study.roster.schemas:
        return
    yield _schema(study, config)
    yield _try_check("key", lambda: _key(study, config))
    yield from _expiry(config)
    yield from _table(study, config)
    if (kept := study.estimator().brings) is not None:
        yield _try_check(f"kept {kept}", lambda: _kept(study, config))
    yield _ledger(config)
    yield _try_check("budget", lambda: _budget(study, config))
    yield _connection(study, config)
    if study.content.coordinator.links == "direct":
        yield from _links(study, config)


def _try_check(what: str, look: Callable[[], str]) -> DoctorCheck:
    try:
        return DoctorCheck(what, "good", look())
    except ColonnadeError as error:
        return DoctorCheck(what, "bad", str(error))


def _plan(study: Study) -> str:
    price = "noise meets every budget" if study.budgets else "the task sets its own price"
    committee = study.task.committee
    return f"{price}; {committee.system.bits} bits hold the sums" if committee.seats else f"{price}; no committee"


def _security(study: Study) -> DoctorCheck:
    try:
        found = SecuritySummary.of(study.task)
    except ColonnadeError as error:
        return DoctorCheck("security", "bad", str(error))
    return DoctorCheck("security", "unsure" if found.could_be_active else "good", found.sentence)


def _policy(study: Study, config: PartyConfig) -> str:
    config.check(study)
    return f'{config.name} may take part; approval = "{config.approval}"'


def _schema(study: Study, config: PartyConfig) -> DoctorCheck:
    """Whether somebody will read a schema that the policy does not name."""
    unread = config.approval == "auto-within-budget" and not config.pins_schema(study)
    return DoctorCheck("schema", "unsure" if unread else "good", config.schema_news(study))


def _key(study: Study, config: PartyConfig) -> str:
    load_identity(config.key, config.name, study.certificates())
    mode = config.key.stat().st_mode & 0o777
    return f"{config.key} belongs to the pinned certificate (mode {mode:o})"


def _table(study: Study, config: PartyConfig) -> Iterator[DoctorCheck]:
    """Check the table, which is read once, and its keys if the study aligns people."""
    task, label = study.aligning, study.label_of(config.name)
    try:
        table = config.table(study.roster.schemas[config.name], None if task is None else task.plan, label)
    except ColonnadeError as error:
        cure = f': write id = "COLUMN" in {config.path.name}' if LACKS_ID in str(error) else ""
        yield DoctorCheck("table", "bad", f"{error}{cure}")
        return
    yield _fit(table, config, label)
    if label is not None:
        yield _labels(table, label, task)
    if task is None and study.task.rows_fixed:
        yield _count(table.rows, study.task.rows_limit)
    if task is not None:
        yield _try_check("keys", lambda: _keys(task, table, config))


def _labels(table: Table, label: str, task: AlignmentTask | None) -> DoctorCheck:
    """How many labels are missing; nobody but their owner is told."""
    lost, odd = (counts.get(label, 0) for counts in (table.report.missing, table.report.misfits))
    if not lost + odd:
        return DoctorCheck("labels", "good", f"every row has a label in {label!r}")
    what = (
        "the schema says what they become"
        if lost
        else "these rows stay off the list of keys, of which others see the length at most"
        if task is not None
        else "fill them; as they are, the study maps them as it maps cells outside a schema"
    )
    said = f"{lost + odd:,} of {table.rows:,} in {label!r} are missing, or not in the schema"
    return DoctorCheck("labels", "unsure", f"{said}: {what}")


def missing_labels(study: Study, config: PartyConfig) -> str | None:
    """How many labels this party's own column lacks, for its own eyes; ``None`` if none, or if it has no label here.

    One column is read; in lanes, where a table may be too long for that, the run itself says it.
    """
    if (label := study.label_of(config.name)) is None or study.content.lanes is not None:
        return None
    with suppress(ColonnadeError):  # a table that cannot be read is named where it is checked
        found = _labels(
            config.table(study.roster.schemas[config.name].select([label]), None, label), label, study.aligning
        )
        return None if found.level == "good" else f"{found.what}: {found.detail}"
    return None


def _fit(table: Table, config: PartyConfig, label: str | None = None) -> DoctorCheck:
    """Whether all cells fit the schema; a study maps the others, and only their owner is told."""
    if not (odd := [line for line in table.report.misfit_lines() if not line.startswith(f"{label}: ")]):
        return DoctorCheck("table", "good", f"{table.rows} rows of {config.source().name} fit the schema")
    found = "; ".join(odd)
    return DoctorCheck(
        "table", "unsure", f"{table.rows} rows of {config.source().name}; {found}: `colonnade schema check` names rows"
    )


def _kept(study: Study, config: PartyConfig) -> str:
    config.estimator(study)
    return f"{config.kept} belongs to {config.name} and to the model of the study"


def _count(rows: int, said: int) -> DoctorCheck:
    """Check the number of rows: bounds depend on it, so it must be exact."""
    if rows == said:
        return DoctorCheck("rows", "good", f"as many as the study says ({said})")
    return DoctorCheck(
        "rows", "bad", f"{rows}, and the study says {said}: set task.rows to the number of people all hold [CO039]"
    )


def _keys(task: AlignmentTask, table: Table, config: PartyConfig) -> str:
    found = keys_of(table)
    task.check_length(len(found))
    if not found:
        raise DataError(
            "no row has a key, so nobody is common: `colonnade keys` counts what is missing or repeated [DA134]"
        )
    named = ", ".join(f"{part} in column {held.column!r}" for part, held in config.key_columns(task.plan).items())
    return f"{len(found)} keys, {named} ({task.mode}); {alignment_counts(found)}"


def alignment_counts(found: TableKeys) -> str:
    """How many rows are left out, and why."""
    return f"rows left out: {', '.join(rows_left_out(found.missing, found.repeated, found.unlabelled)) or 'none'}"


def _ledger(config: PartyConfig) -> DoctorCheck:
    try:
        if (news := config.ledger_news) is not None:
            return DoctorCheck("ledger", "unsure", f"{news}; fine if you expect that, else restore a copy first")
    except ColonnadeError as error:
        return DoctorCheck("ledger", "bad", str(error))
    return _try_check("ledger", lambda: _whole(config.open_ledger()))


def _whole(book: Ledger) -> str:
    book.verify()
    noted = len(book.entries())
    counts = f"{noted} {'entry' if noted == 1 else 'entries'}, ended early: {book.count_aborted_studies()}"
    return f"{book.path} is whole, {counts}; head {book.head}"


def _budget(study: Study, config: PartyConfig) -> str:
    config.check_budget(study)
    return "the caps leave enough for this study"


def _address(address: str, attempt: float) -> Iterator[DoctorCheck]:
    host, _, port = address.rpartition(":")
    try:
        socket.getaddrinfo(host, int(port))
    except OSError:
        yield DoctorCheck("name", "bad", f"{host} cannot be resolved; check the spelling or the name server [CO040]")
        return
    try:
        socket.create_connection((host, int(port)), timeout=attempt).close()
        yield DoctorCheck("port", "good", f"something listens at {address}")
    except OSError:
        yield DoctorCheck(
            "port", "unsure", f"nothing listens at {address}: fine unless the coordinator should be up now"
        )


def _links(study: Study, config: PartyConfig) -> Iterator[DoctorCheck]:
    """Whether this party can listen for its peers, and how it reached them in its last run."""
    network = config.content.network
    if network.listen is None:
        said = "nowhere, so only peers that listen are reached directly; [network] listen says where"
        yield DoctorCheck("listening", "good" if network.dial else "unsure", said)
    else:
        yield _try_check("listening", lambda: _listening(network.direct))
        if study.content.lanes is not None:
            yield _ports_of_workers(network.listen, config.content.compute.workers or count_cores())
    try:
        last = read_facts(folder_of(Path("runs") / study.name, config.name))
    except StudyError:
        last = {}
    workers = last.get("lanes", {}).get("links", {})
    found = last.get("links", {}) | {f"workers of {peer}": facts for peer, facts in workers.items()}
    if not found:
        yield DoctorCheck("links", "good", "who is reached directly is known after a run: see links in its run.json")
        return
    said = "; ".join(f"{peer} {_way(facts)}" for peer, facts in found.items())
    everybody = all(facts.get("way") == "direct" for facts in found.values())
    yield DoctorCheck("links", "good" if everybody else "unsure", f"in the run of {last.get('started')}: {said}")


def _ports_of_workers(listen: str, workers: int) -> DoctorCheck:
    ports = PortRange.parse(listen)
    count = 1 + ports.last - ports.first
    several = "one port" if count == 1 else f"{count:,} ports"
    said = f"{listen} has {several}, and the head and each of {workers:,} workers take one"
    if count > workers:
        return DoctorCheck("ports of workers", "good", said)
    return DoctorCheck("ports of workers", "unsure", f"{said}: a worker that finds none only dials; name more ports")


def _listening(direct: DirectLinkSettings) -> str:
    from colonnade.wire.direct_links import open_link_sockets  # it takes long to load

    listen = direct.listen or ""
    sockets, port = open_link_sockets(listen)
    for listening in sockets:
        listening.close()
    return f"{listen} is free; peers are told {advertised_address(listen, direct.advertise, port)}"


def _way(facts: dict[str, Any]) -> str:
    reached = {"direct": "directly", "both": "in part directly, in part through the hub"}
    return reached.get(str(facts.get("way")), "through the hub") + (f" ({facts['why']})" if "why" in facts else "")


def _connection(study: Study, config: PartyConfig) -> DoctorCheck:
    away: list[str] = []  # one that is not up yet must not hide what is wrong with another
    try:
        certificates = study.certificates()
        identity = load_identity(config.key, config.name, certificates)
        for address in study.content.coordinator.lane_hubs:
            try:
                probe(address, identity, certificates[COORDINATOR], study.content.limits.attempt)
            except ConnectError as error:
                away.append(str(error))
        if away:
            return DoctorCheck("connection", "unsure", "; ".join(away))
    except ColonnadeError as error:
        return DoctorCheck("connection", "bad", str(error))
    return DoctorCheck("connection", "good", "the coordinator is who the study says, and accepts our certificate")
