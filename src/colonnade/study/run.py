"""A real run of a study: one participant in this process, connected by TLS through the coordinator's hub."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from threadpoolctl import threadpool_limits

from colonnade.errors import NO_PART, ColonnadeError, Interrupted, LedgerError, StorageError, StudyError
from colonnade.models.base import Estimator
from colonnade.models.serialization import replace_private
from colonnade.mpc.verification.claims import STUDY_ERROR
from colonnade.privacy import Ledger, LedgerEntry
from colonnade.protocols.roles import COORDINATOR, Progress, silent
from colonnade.protocols.session import run_role
from colonnade.study.alignment_session import OwnerAlignment, align_as_coordinator
from colonnade.study.connect import OWN_HUB, MeetingPoint, PresenceCallback, join, load_identity, watch_presence
from colonnade.study.party_config import Approval, EarlierRuns, PartyConfig, RerunDecision, check_rerun
from colonnade.study.party_file import DEFAULT_WORKERS, WorkerOptions, record_links
from colonnade.study.preflight import SecuritySummary
from colonnade.study.record import RunRecord
from colonnade.study.spec import Study, check_run_folder, digest_of
from colonnade.tables import Table
from colonnade.wire import Certificate, Endpoint, Hub, Identity
from colonnade.wire.link_offers import DIRECTLY, DirectLinkSettings, RouteCallback

if TYPE_CHECKING:
    from colonnade.study.lanes.crew import LanesHead

OperatorCallback = Callable[[str], None]
"""Is told a sentence for the operator."""


def quiet(sentence: str) -> None:
    """Tell nobody."""


def run_party(
    study: Study,
    config: PartyConfig,
    out: Path,
    progress: Progress = silent,
    *,
    approve: Approval | None = None,
    again: RerunDecision = False,
    place: MeetingPoint = OWN_HUB,
    watch: PresenceCallback | None = None,
    tell: OperatorCallback = quiet,
    workers: WorkerOptions = DEFAULT_WORKERS,
) -> Estimator:
    """Take part as an owner: check policy and budget, ask for approval, reserve the budget, open the table, then join.

    Nothing about the table is looked at before the study is approved and reserved, so that whoever wrote the study
    learns nothing about it for free; and whatever stops this party before its first share, the others are told the
    same sentence. ``approve`` is asked where the policy says ``approval = "ask"``, with the study and what it costs.
    ``again`` says whether a study that this party's ledger has seen end well may run once more, or is asked that.
    ``place`` is where the others are met, if not at a hub of this study alone; ``watch`` is told who is here, and
    ``tell`` a sentence for the operator when packets go through the hub that should go directly. ``workers`` are those
    of a study in lanes.
    """
    config.check_membership(study.runnable())
    check_run_folder(study.estimator(), config.kept, out)
    record = RunRecord(out, participant=config.name, study=study.name, digest=study.digest)
    record.add(**place.facts)
    with _record_end(record):
        certificates = study.certificates()
        identity = load_identity(config.key, config.name, certificates)
        with _excuse_on_error(study, identity, certificates, place):
            config.check(study)
            task, model, statement = study.task, config.estimator(study), study.statement
            # The hub and all parties count alike, so that all sign the same; where there is none, our ledger counts.
            attempts = place.attempt if place.room else 1 + len(EarlierRuns.of(config, study).charged)
            ledger, entry = _reserve_budget(study, config, record, approve, again)

        def spend() -> None:
            ledger.mark_sent(entry)
            record.mark_paid()
            record.record_public("first share")

        with _reservation(ledger, entry, record), ExitStack() as left:
            with _excuse_on_error(study, identity, certificates, place):
                record.record_public("budget reserved", entry=entry.id, ledger_head=ledger.head)
                if ledger.upgraded:
                    record.record_public(
                        "ledger upgraded: it was never chained before this study", ledger=str(ledger.path)
                    )
                record.add(ledger={"path": str(ledger.path), "new": ledger.created, "upgraded": ledger.upgraded})
                record.statement(statement, attempts)
                program: Callable[[Any], Any]
                head, told = None, _report_links_to(record, tell)
                if study.content.lanes is None:
                    matching = OwnerAlignment(study, config, _table(study, config, record), record)
                    program = lambda me: model.owner(me, matching.owner(me), task)  # noqa: E731
                else:
                    from colonnade.study.lanes.crew import OwnerLanesHead  # most studies have no lanes

                    made = OwnerLanesHead(study, config, model, identity, certificates, place, record, workers, told)
                    head = left.enter_context(made)
                    program = head.owner
            result = _run_session(
                study,
                join(study, identity, certificates, place, direct=config.content.network.direct, told=told),
                program,
                record,
                progress,
                spend,
                watch=watch,
                head=head,
            )
            model.conclude(study.roster, task, result)
            _save_own_part(model, record)
            _save(model, record, config.name)
        _finish(record)
        return model


def _table(study: Study, config: PartyConfig, record: RunRecord) -> Table:
    """The party's table, checked row by row; what did not fit its schema is recorded for this party alone."""
    plan = None if study.aligning is None else study.aligning.plan
    table = config.table(study.roster.schemas[config.name], plan, study.label_of(config.name))
    misfits = dict(table.report.misfits)
    listed = {} if table.keys is None else {"keys": len(table.keys)}
    record.record_public(
        "table checked", rows=table.rows, clipped=table.report.total_clipped, misfits=misfits, **listed
    )
    record.add(misfits=misfits, rows_held=table.rows)
    return table


def run_coordinator(
    study: Study,
    key: Path,
    out: Path,
    progress: Progress = silent,
    *,
    listen: str | None = None,
    dial: bool = True,
    place: MeetingPoint = OWN_HUB,
    watch: PresenceCallback | None = None,
    tell: OperatorCallback = quiet,
    workers: WorkerOptions = DEFAULT_WORKERS,
) -> Estimator:
    """Relay messages between the parties and publish the result; with only two parties, also hold shares.

    ``listen`` is the address at which the hub listens, if the parties dial another one, for example that of a proxy.
    ``dial`` says whether it connects to parties that listen, where the study asks for direct links.
    With a ``place`` at a standing hub, this process relays nothing and meets the others there. ``workers`` are the
    coordinator's own, in a study in lanes.
    """
    digest = study.runnable().digest
    record = RunRecord(out, participant=COORDINATOR, study=study.name, digest=digest)
    record.add(**place.facts)
    with _record_end(record):
        certificates = study.certificates()
        identity = load_identity(key, COORDINATOR, certificates)
        record.statement(study.statement, place.attempt)
        model, task = study.estimator(), study.task

        def program(me: Any) -> Any:
            record.record_public("everyone is here, with the same study")
            record.mark_paid()
            if head is not None:
                return head.coordinator(me)
            align_as_coordinator(me, study, record)
            return model.coordinator(me, task)

        with ExitStack() as left:
            head, lanes, told = None, study.content.lanes is not None, _report_links_to(record, tell)
            if not place.room:
                address, limits = listen or study.content.coordinator.address, study.content.limits.of_hub
                hub = left.enter_context(Hub(identity, certificates, address, lanes=lanes, **limits))
                record.record_public("listening", address=hub.address)
                place = replace(place, hub=hub.own_address)
            if lanes:
                from colonnade.study.lanes.crew import CoordinatorLanesHead

                made = CoordinatorLanesHead(
                    study, model, identity, certificates, place, record, workers, told, dial=dial
                )
                head = left.enter_context(made)
            endpoint = join(study, identity, certificates, place, direct=DirectLinkSettings(dials=dial), told=told)
            result = _run_session(study, endpoint, program, record, progress, watch=watch, head=head)
        _save(model.conclude(study.roster, task, result), record, COORDINATOR)
        _finish(record, **public_facts(study))
        return model


def public_facts(study: Study) -> dict[str, Any]:
    """What ``run.json`` says about the task and the parties."""
    task = study.task
    return {
        "participants": list(study.participants),
        "task": study.content.task.model_dump() | {"value_bits": task.bound.bit_length() + 1} | task.facts,
        "columns": {name: list(schema.names) for name, schema in study.roster.schemas.items()},
        "seats": list(task.trust.committee),
        "threshold": task.trust.threshold,
        "security": SecuritySummary.of(task).to_dict(),
    }


def _run_session(
    study: Study,
    place: Endpoint,
    program: Callable[[Any], Any],
    record: RunRecord,
    progress: Progress,
    before_sharing: Callable[[], None] | None = None,
    *,
    watch: PresenceCallback | None = None,
    head: LanesHead | None = None,
) -> Any:
    record.record_public("connected")
    with threadpool_limits(limits=1, user_api="blas"), watch_presence(place, watch):
        wait = study.content.limits.join
        played = run_role(
            place,
            study.task,
            program,
            progress,
            wait=wait,
            before_sharing=before_sharing,
            aligns=study.aligning is not None,
            processor=time.process_time,  # a participant is a process, whose threads all work for it
        )
    for event in played.revealed:
        record.record_public("revealed", event=event.to_dict())
    phases = {name: asdict(phase) for name, phase in played.phases.items()}
    traffic = {peer: asdict(counts) for peer, counts in place.counters.peers.items()}
    record.add(phases=phases, rounds=place.counters.tally.rounds, traffic=traffic)
    if place.routes:
        record.add(links=record_links(place.routes, place.counters.peers))
    if claims := played.settled + (0 if head is None else head.claims):
        record.add(checks={"claims": claims, "error": float(STUDY_ERROR)})
    if played.lost:
        record.record_public("went on without", lost=list(played.lost))
        record.add(lost=list(played.lost))
    return played.result


def _report_links_to(record: RunRecord, tell: OperatorCallback) -> RouteCallback:
    """Records by which way packets go to a peer, and tells the operator when that is the hub."""

    def told(peer: str, way: str) -> None:
        with suppress(StorageError):  # a line about the way is no reason to stop
            record.record_public("way to a peer", peer=peer, way=way)
        if way != DIRECTLY:
            tell(f"{peer}: {way}")

    return told


@contextmanager
def _record_end(record: RunRecord) -> Iterator[None]:
    """Record how the run ended, also after an error."""
    try:
        yield
    except ColonnadeError as error:
        record.fail(type(error).__name__, str(error), error.exit_code)
        raise
    except (KeyboardInterrupt, Interrupted):
        record.fail("Interrupted", "interrupted by the operator [CO041]", Interrupted.exit_code)
        raise
    except BaseException as error:
        record.fail(type(error).__name__, "stopped by an error that was not foreseen [CO042]", 70)
        raise


def _save(model: Estimator, record: RunRecord, me: str) -> None:
    """Write the model to its file; if that fails, the error holds the model, because its privacy budget is spent.

    The digest of what everybody may know is noted, so that it can be compared; not that of a result for us alone.
    """
    target = record.folder / "model.json"
    try:
        model.save(target)
    except (StudyError, OSError) as error:
        why = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else str(error)
        elsewhere = (
            "it was opened to nobody else, so the study must be run, and paid for, again"
            if model.recipient is not None
            else "ask another participant for its model.json, which holds the same result"
        )
        raise _result_lost(model, target, why, elsewhere) from None
    if model.recipient != me:
        record.add(result=digest_of(target))
    _publish(model, record)


def _publish(model: Estimator, record: RunRecord) -> None:
    """Write the files for the readers of the result; they follow from the model, which is saved already."""
    try:
        if names := [path.name for path in model.publish(record.folder)]:
            record.add(published=names)
    except StudyError as error:
        raise StorageError(
            f"the study ended well and {record.folder / 'model.json'} is whole, but {error}: mend that, load the model "
            "in Python, and call its publish with a folder; do not run the study again [SO040]"
        ) from None


def _save_own_part(model: Estimator, record: RunRecord) -> None:
    """Write what this party keeps for itself, before the ledger records that the study succeeded."""
    if model.keeps is None:
        return
    target = record.folder / model.kept_file
    try:
        replace_private(target, model.kept_content())
    except (StudyError, StorageError) as error:
        why = str(error).removeprefix(f"{target} cannot be written: ")
        again = f"run the study, and pay for it, again: nobody else has these {model.keeps}"
        raise _result_lost(model, target, why, again) from None
    record.record_public(f"own {model.keeps} kept", file=model.kept_file)


def _result_lost(model: Estimator, target: Path, why: str, elsewhere: str) -> StorageError:
    lost = StorageError(
        f"the study ended well and stays spent, but {target} cannot be written ({why}): make room, "
        f"and {elsewhere} [SO041]"
    )
    lost.model = model
    return lost


def _finish(record: RunRecord, **facts: Any) -> None:
    """End a run whose model is saved; an error tells if some lines of its record could not be written."""
    record.finish(**facts)
    if record.lost:
        raise StorageError(
            f"the study ended well and {record.folder / 'model.json'} is whole, but its record has "
            f"gaps: {record.lost} [SO042]"
        )


def _reserve_budget(
    study: Study, config: PartyConfig, record: RunRecord, approve: Approval | None, again: RerunDecision
) -> tuple[Ledger, LedgerEntry]:
    """Check the budget, ask for approval, and reserve the budget in the ledger."""
    events, trust, limits = config.charged_events(study), study.trust, (config.caps, config.periods)
    if config.note_time():
        record.record_public(
            "the ledger holds an entry dated later than now; it counts as old as this moment from here on"
        )
    config.check_budget(study)
    if (before := check_rerun(study, config, approve, again)) is not None:
        record.record_public("runs again", before=before)
    how, by = config.approve(study, study.statement, approve)
    record.record_public("approved", mode=config.approval, by=how)
    record.add(approval={"mode": config.approval, "by": how})
    keys = config.ledger_keys(study)
    ledger = config.open_ledger()
    if ledger.created:
        record.record_public("new ledger: nothing on record before this study", ledger=str(ledger.path))
    entry = ledger.reserve(study.name, study.digest, events, trust, *limits, keys, early=config.failures, approvers=by)
    return ledger, entry


@contextmanager
def _reservation(ledger: Ledger, entry: LedgerEntry, record: RunRecord) -> Iterator[None]:
    """Spend the reservation; give it back only if the study ended before this party's first share."""
    try:
        yield
    except BaseException:
        record.mark_paid()  # so that the first error is reported, and no later one
        with suppress(LedgerError):
            record.record_public(_given_back(ledger, entry), entry=entry.id, ledger_head=ledger.head)
        raise
    try:
        ledger.commit(entry)
        head = ledger.head
        record.record_public("budget spent", entry=entry.id, ledger_head=head)
        record.add(ledger_head=head)
    except LedgerError as error:
        raise LedgerError(
            f"the study ended well and {record.folder / 'model.json'} is whole; it stays spent, so do not run it "
            f"again; but the ledger does not say how it ended: {error} [LE039]"
        ) from None


def _given_back(ledger: Ledger, entry: LedgerEntry) -> str:
    """Release the reservation if no share was sent; returns a sentence for the record."""
    state = ledger.state(entry)
    if state == "reserved":
        ledger.release(entry)
        return "budget released: no share had left"
    if state == "released":
        return "budget had been released by hand: no share had left"
    return "budget stays spent: shares had left"


@contextmanager
def _excuse_on_error(
    study: Study, identity: Identity, certificates: Mapping[str, Certificate], place: MeetingPoint
) -> Iterator[None]:
    """If this party cannot join, tell the others that it takes no part, so that nobody waits for it, and never why."""
    try:
        yield
    except Exception:
        with suppress(ColonnadeError):  # nobody is there to be told
            patience = study.content.limits.excuse
            endpoint = join(study, identity, certificates, place, wait=patience)
            try:
                with suppress(ColonnadeError):  # whoever stopped first, this party has a reason of its own
                    endpoint.wait_for_peers([COORDINATOR], timeout=patience)
                endpoint.abort(NO_PART)
            finally:
                endpoint.close()
        raise
