"""After a run: collect the records of the participants, and write the report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from colonnade.disk import reading
from colonnade.errors import StorageError
from colonnade.models import Estimator, serialization
from colonnade.models.assessment import Assessment
from colonnade.models.registry import section_of
from colonnade.models.serialization import finite_or_null
from colonnade.privacy import LedgerEntry
from colonnade.privacy.ledger.participants import CrossStudyViews
from colonnade.protocols.roles import COORDINATOR
from colonnade.report import write_report
from colonnade.report.privacy import people
from colonnade.study import PartyConfig, Study
from colonnade.study.preflight import outlook
from colonnade.study.record import as_text, read_facts
from colonnade.study.run import public_facts

_COUNTS = {
    "sent": "payload_sent",
    "received": "payload_received",
    "sealed_sent": "sealed_sent",
    "sealed_received": "sealed_received",
    "messages": "messages_sent",
}
_FEW_STUDIES = 100
_SHOWN_WEIGHTS = 10
_ALIGNED = ("rows", "missing", "repeated", "matched")


def publish_own(study: Study, config: PartyConfig, folder: Path, model: Estimator) -> None:
    """Write a party's own ``report.html``: what is public, and what this party alone may know."""
    record = read_facts(folder) if (folder / "run.json").exists() else fetched_record(study, config)
    name, kept = config.name, folder / model.kept_file
    book = config.open_ledger()
    own: dict[str, Any] = {"party": name, "ledger": str(config.ledger), "studies": book.studies}
    if own["studies"] <= _FEW_STUDIES:  # to read and compose more of them takes long
        counted = [entry for entry in book.entries() if entry.state != "released"]
        own["totals"] = learned_of(name, counted, study.statement.delta)
    if kept.exists():
        own |= {"kept": kept.name, "keeps": model.keeps, "lines": _strongest(kept)}
    run = record | public_facts(study) | {"parties": {name: _participant(study, name, record)}, "own": own}
    with _still_paid_for(folder):
        _write(study, folder, run | _page_facts(study, record), model, view=model.own_view())


def fetched_record(study: Study, config: PartyConfig) -> dict[str, Any]:
    """The record of a result that others have signed and this party took from the hub: it took no part in its end."""
    return {"study": study.name, "digest": study.digest, "participant": config.name, "status": "taken from the hub"}


def publish(
    study: Study, out: Path, folders: Mapping[str, Path], evaluation: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Add the records in ``folders`` to ``run.json``, and write ``report.html``; returns the facts for JSON."""
    run = read_facts(out)
    everyone: dict[str, Any] = {}
    for name, folder in folders.items():
        record = run if name == COORDINATOR else read_facts(folder)
        everyone[name] = _participant(study, name, record)
        if name != COORDINATOR and "alignment" in record:
            everyone[name]["alignment"] = {key: record["alignment"].get(key) for key in _ALIGNED}
    run[COORDINATOR] = everyone.pop(COORDINATOR)
    run["parties"] = everyone
    if evaluation:
        run["evaluation"] = dict(evaluation)
    run |= _page_facts(study, run)
    with _still_paid_for(out):
        _write(study, out, run, Estimator.load(out / "model.json"), evaluation)
    return {"study": study.name, "out": str(out), "run": run, "privacy": study.statement.to_dict()}


def learned_of(name: str, counted: Sequence[LedgerEntry], delta: float) -> dict[str, float | None]:
    """What everybody but a party, in groups without it, has learned from all studies in its ledger.

    What was told to the party itself is not in its ledger. A group above the threshold of a study has no figure; only
    all others together are counted as far as each threshold allows.
    """
    sight = CrossStudyViews([entry.content for entry in counted], name)
    others = [who for who in sight.standard_observers() if name not in who.label.split("+")]
    return {who.label: finite_or_null(sight.total(replace(who, held=who.others), delta).epsilon) for who in others}


def _strongest(kept: Path) -> list[str]:
    """The largest weights that a party keeps, for its own eyes; nothing where it keeps something else."""
    if kept.suffix != ".json":
        return []
    found = reading.read_json(kept)
    pairs = zip(found.get("columns", []), found.get("weights", []), strict=False)  # the last weight has no column
    ranked = sorted(pairs, key=lambda pair: -abs(pair[1]))
    named = ", ".join(f"{column} {weight:+.2f}" for column, weight in ranked[:_SHOWN_WEIGHTS])
    most = "" if len(ranked) <= _SHOWN_WEIGHTS else f" (the {_SHOWN_WEIGHTS} largest of {len(ranked)})"
    return [f"Own weights{most}: {named}."] if named else []


def _participant(study: Study, name: str, record: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "columns": list(study.roster.schemas[name].names) if name != COORDINATOR else [],
        "seat": name in study.trust.committee,
        "phases": record.get("phases", {}),
        "traffic": _totals(record.get("traffic", {})) | {"rounds": record.get("rounds")},
        "seconds": record.get("seconds"),
        "processor_seconds": record.get("processor_seconds"),
        **{key: record[key] for key in ("checks", "links", "lanes") if key in record},
    }


def _page_facts(study: Study, record: Mapping[str, Any]) -> dict[str, Any]:
    """What a page says besides: what the study is for, whether there were enough people, and which words mean what."""
    found = outlook(study, people(record) or None)
    told: dict[str, Any] = {"description": study.content.description} if study.content.description else {}
    return told | ({} if found is None else {"forecast": found.to_dict()}) | {"words": True}


def _write(
    study: Study,
    folder: Path,
    run: dict[str, Any],
    model: Estimator,
    evaluation: Mapping[str, Any] | None = None,
    view: Assessment | None = None,
) -> None:
    serialization.replace_private(folder / "run.json", as_text(run))
    write_report(folder, run, study.statement, model, section_of(model.kind), evaluation, view)


@contextmanager
def _still_paid_for(folder: Path) -> Iterator[None]:
    try:
        yield
    except StorageError as error:
        whole = f"the study ended well and {folder / 'model.json'} is whole, but"
        raise StorageError(f"{whole} {error}: the result is paid for, so do not run the study again [SO013]") from None


def _totals(traffic: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    totals: dict[str, Any] = {name: sum(peer.get(key, 0) for peer in traffic.values()) for name, key in _COUNTS.items()}
    totals["cpu_seconds"] = round(sum(peer.get("cpu_seconds", 0.0) for peer in traffic.values()), 4)
    return totals
