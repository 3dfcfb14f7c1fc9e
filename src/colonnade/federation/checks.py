"""Checks before anybody is asked: of a proposal against policy and budget, and of a member by the doctor.

The check of a proposal runs in a child process with limits, because whoever wrote the study is not trusted with our
memory or time. It opens no table: when it ends, others see how long it took. How many rows there are is counted when
a person of this party looks at the proposal.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from colonnade.errors import ColonnadeError, ConnectError, PolicyError, StudyError
from colonnade.federation.hub_protocol import FederationClient
from colonnade.federation.members import FederationMembers, find_new_members
from colonnade.federation.processes import ChildProcess, ProcessLimits, read_last_objects
from colonnade.models.serialization import finite_or_null
from colonnade.privacy.statement import log_odds_by_row
from colonnade.protocols.cost import ParticipantLoad
from colonnade.study.connect import load_identity
from colonnade.study.doctor import DoctorCheck, examine_party, missing_labels
from colonnade.study.fork_server import ForkServer
from colonnade.study.party_config import EarlierRuns, PartyConfig, asks_before_rerun, rerun_refusal
from colonnade.study.preflight import AlignmentLoad, Preflight, SecuritySummary, outlook, preflight
from colonnade.study.spec import Study
from colonnade.tables import Column

if TYPE_CHECKING:
    from colonnade.models.planner import SampleSizeForecast

_MOST = 1 << 23
_MOST_SAID = 200
"""Columns of which a person reads what the schema says."""
_NOT_CHECKED = (
    "the proposal could not be checked within the memory and time that a check may have here, so "
    "nobody was asked [PO008]"
)
_WATCHES = (
    "whoever proposes through a hub sees when attempts begin and end, which tells about how many rows there are: "
    "against that member the coordinator's row counts, not the analyst's, and a cap for the analyst is checked by both"
)
_UNKNOWN: dict[str, Any] = {
    **{"refused": None, "columns": [], "others": {}, "statement": None, "text": None, "left": [], "people": None},
    **{"forecast": None, "preflight": None, "align": None, "keys": None, "schema_news": None, "early_ends": None},
    **{
        "says": {},
        "odds": None,
        "again": None,
        "attempts": None,
        "security": None,
        "description": "",
        "trial": False,
        "ledger_news": None,
    },
}


def assess(study_file: Path, config: PartyConfig, name: str, digest: str) -> tuple[dict[str, Any], Study | None]:
    """What a party reads before it answers; ``refused`` is a sentence where it will not take part."""
    found = dict(_UNKNOWN)
    try:
        study = Study.load(study_file).runnable()
        if (study.name, study.digest) != (name, digest):
            raise StudyError(
                f"the study that came with this proposal has the digest {study.digest}, and its analyst signed another "
                "one; all must run the same release of Colonnade [ST538]"
            )
        study.certificates()
        config.check_membership(study)
        found |= _public_facts(study, config)
    except ColonnadeError as error:
        return found | {"refused": str(error)}, None
    try:
        found |= _own_facts(study, config)
        config.check(study)
        config.check_budget(study)
        config.estimator(study)
        _check_repeat(study, config)
    except ColonnadeError as error:
        found["refused"] = str(error)
    return found, study


def private_forecast(study: Study, config: PartyConfig) -> dict[str, Any]:
    """What follows from the party's rows and the labels among them, for its own eyes, when its own person asks."""
    rows = config.count_rows(study.roster.schemas[config.name])
    expected = outlook(study)
    if rows is not None and expected is not None and (expected.rows is None or expected.rows > rows):
        expected = outlook(study, rows)
    return {"people": rows, "labels": missing_labels(study, config), "forecast": _forecast_in_words(expected)}


def _forecast_in_words(expected: SampleSizeForecast | None) -> str | None:
    said = [] if expected is None else [expected.forecast, *([expected.warning] if expected.warning else [])]
    return "; ".join(said) or None


def start_check(
    study_file: Path,
    party_file: Path,
    proposal: Mapping[str, str],
    folder: Path,
    limits: ProcessLimits,
    forks: ForkServer | None = None,
) -> ChildProcess:
    """Start the check of a proposal; :func:`read_check` reads what it found."""
    said = ["--name", proposal["name"], "--digest", proposal["digest"], "--while-open"]
    return ChildProcess.start(["_assess", str(study_file), str(party_file), *said], folder, limits, forks)


def read_check(folder: Path) -> dict[str, Any]:
    """What a check that has ended has found; a refusal where it came to no end."""
    return _UNKNOWN | (read_verdict(folder) or {"refused": _NOT_CHECKED})


def read_verdict(folder: Path) -> dict[str, Any]:
    """What a check has found; nothing where it has come to no verdict."""
    found: dict[str, Any] = {}
    for line in read_last_objects(folder, _MOST):
        if isinstance(line.get("assessment"), dict):
            found = line["assessment"]
    return found


def _public_facts(study: Study, config: PartyConfig) -> dict[str, Any]:
    schemas = study.roster.schemas
    cost = preflight(study)
    return {
        "description": study.content.description,
        "watches": _WATCHES,
        "trial": study.content.trial,
        "columns": list(schemas[config.name].names),
        "others": {name: len(schema.names) for name, schema in schemas.items() if name != config.name},
        "says": {
            name: _what_is_read(name, each) for name, each in islice(schemas[config.name].columns.items(), _MOST_SAID)
        },
        "odds": log_odds_by_row(study.statement),
        "statement": study.statement.to_dict(),
        "text": str(study.statement),
        "preflight": _cost_figures(cost, config.name),
        "align": None if study.aligning is None else study.aligning.sentence,
        "security": SecuritySummary.of(study.task).sentence,
        "forecast": _forecast_in_words(outlook(study)),
    }


def _what_is_read(name: str, column: Column) -> str:
    """What the schema says of a column, and which one of our file it is where the study calls it otherwise."""
    source = column.source(name)
    return column.summary() if source == name else f"read from our column {source!r}; {column.summary()}"


def _own_facts(study: Study, config: PartyConfig) -> dict[str, Any]:
    attempts = 1 + (0 if config.content.agent is None else config.content.agent.retries)
    failures = config.failures
    return {
        "left": [
            {
                "observer": each.before.who,
                "cap": each.before.epsilon,
                "delta": each.before.delta,
                "period": each.before.days,
                "spent": finite_or_null(each.before.spent),
                "after": finite_or_null(each.after),
                "at_most": finite_or_null(each.at_most),
            }
            for each in config.foresee(study, attempts)
        ],
        "attempts": attempts,
        "keys": config.key_news(study),
        "schema_news": config.schema_news(study),
        "early_ends": {"ended": config.failed_count, "at_most": failures.at_most, "days": failures.days},
        "again": EarlierRuns.of(config, study).sentence,
        "ledger_news": config.ledger_news,
    }


def _cost_figures(cost: Preflight, party: str) -> dict[str, Any] | None:
    if cost.run is None:
        return None
    loads: list[ParticipantLoad | AlignmentLoad] = [
        *cost.run.loads,
        *(() if cost.alignment is None else cost.alignment.loads),
    ]
    own = [load for load in loads if load.participant == party]
    return {
        "rows": cost.run.rows,
        "seconds": cost.run.seconds + (0.0 if cost.alignment is None else cost.alignment.seconds),
        "bytes": sum(load.bytes_sent for load in own),
        "rounds": cost.run.rounds,
        "memory": max((load.memory for load in cost.run.loads if load.participant == party), default=0),
        **({"partitions": cost.partitions} if cost.partitions > 1 else {}),
    }


def _check_repeat(study: Study, config: PartyConfig) -> None:
    """Where a person is asked, the sentence about an earlier run is shown, and a yes means once more."""
    said = EarlierRuns.of(config, study).sentence
    if said is not None and asks_before_rerun(config) and config.approval != "ask":
        raise PolicyError(rerun_refusal(study, said))


def examine_member(path: Path) -> Iterator[DoctorCheck]:
    """All checks of a party by its own file, whether or not somebody has proposed a study."""
    try:
        config = PartyConfig.load(path)
    except ColonnadeError as error:
        yield DoctorCheck("party", "bad", str(error))
        return
    yield DoctorCheck("party", "good", f"{config.name}, approval {config.approval!r}, {len(config.caps)} caps")
    yield from examine_party(config)
    if config.content.agent is not None:
        yield from _check_federation(config)


def _check_federation(config: PartyConfig) -> Iterator[DoctorCheck]:
    try:
        members = FederationMembers.load(config.path.parent / config.agent_section.federation)
        members.check([config.name])
        identity = load_identity(config.key, config.name, members.certificates)
    except ColonnadeError as error:
        yield DoctorCheck("federation", "bad", str(error))
        return
    try:
        members.check_listed(datetime.now(UTC))
    except ColonnadeError as error:
        yield DoctorCheck("revocations", "bad", str(error))
    yield DoctorCheck(
        "federation", "good", f"{members.name!r} with {len(members.roles)} members, and our key is pinned in it"
    )
    try:
        with FederationClient(members, identity) as line:
            there = line.members()
    except ConnectError as error:
        yield DoctorCheck("hub", "bad", str(error))
        return
    except ColonnadeError as error:
        yield DoctorCheck("hub", "bad", f"{members.address} answers otherwise than our hub would: {error} [CO025]")
        return
    yield DoctorCheck("hub", "good", f"{members.address} is who {members.path.name} says, and knows us")
    if new := find_new_members(members, there):
        named = ", ".join(each.name for each in new)
        yield DoctorCheck(
            "members", "unsure", f"not accepted here: {named}; `colonnade federation members {config.path}` shows words"
        )
