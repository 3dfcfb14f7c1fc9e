"""After a run: collect the records of the participants, and write the report."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from colonnade.errors import StorageError
from colonnade.models import Estimator, files
from colonnade.models.kinds import section_of
from colonnade.protocols.roles import COORDINATOR
from colonnade.report import write_report
from colonnade.study import Study
from colonnade.study.record import as_text, read_facts

_COUNTS = {
    "sent": "payload_sent",
    "received": "payload_received",
    "sealed_sent": "sealed_sent",
    "sealed_received": "sealed_received",
    "messages": "messages_sent",
}
_ALIGNED = ("rows", "missing", "repeated", "matched")


def publish(
    study: Study, out: Path, folders: Mapping[str, Path], evaluation: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Add the records in ``folders`` to ``run.json``, and write ``report.html``; returns the facts for JSON."""
    run = read_facts(out)
    people: dict[str, Any] = {}
    for name, folder in folders.items():
        record = run if name == COORDINATOR else read_facts(folder)
        people[name] = {
            "columns": list(study.roster.schemas[name].names) if name != COORDINATOR else [],
            "seat": name in study.trust.committee,
            "phases": record.get("phases", {}),
            "traffic": _totals(record.get("traffic", {})) | {"rounds": record.get("rounds")},
            "seconds": record.get("seconds"),
            "processor_seconds": record.get("processor_seconds"),
        }
        if name != COORDINATOR and "alignment" in record:
            people[name]["alignment"] = {key: record["alignment"].get(key) for key in _ALIGNED}
    run[COORDINATOR] = people.pop(COORDINATOR)
    run["parties"] = people
    if evaluation:
        run["evaluation"] = dict(evaluation)
    model = Estimator.load(out / "model.json")
    try:
        files.replace_private(out / "run.json", as_text(run))
        write_report(out, run, study.statement, model, section_of(model.kind), evaluation)
    except StorageError as error:
        whole = f"the study ended well and {out / 'model.json'} is whole, but"
        raise StorageError(f"{whole} {error}: the result is paid for, so do not run the study again") from None
    return {"study": study.name, "out": str(out), "run": run, "privacy": study.statement.to_dict()}


def _totals(traffic: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    totals: dict[str, Any] = {name: sum(peer.get(key, 0) for peer in traffic.values()) for name, key in _COUNTS.items()}
    totals["cpu_seconds"] = round(sum(peer.get("cpu_seconds", 0.0) for peer in traffic.values()), 4)
    return totals
