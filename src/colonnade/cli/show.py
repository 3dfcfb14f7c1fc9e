"""Results as text for a person."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from colonnade.cli.doctor import Check
from colonnade.models import PCA
from colonnade.privacy import Ledger
from colonnade.privacy.statement import rounded_up
from colonnade.study import Preflight, Study

_MARKS = {"good": "ok  ", "unsure": "?   ", "bad": "BAD "}


def size(count: float) -> str:
    """Bytes in a unit a person reads."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000 or unit == "GB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    raise AssertionError


def preflight(answer: Preflight) -> str:
    """What a study would cost."""
    lines = [
        f"study {answer.study!r}, digest {answer.digest[:12]}",
        "",
        str(answer.statement),
        "",
        f"for {answer.rows:,} rows of {answer.columns} encoded columns: about {answer.seconds:.1f} s, "
        f"{size(answer.bytes_total)} on the wire, {answer.rounds} rounds",
        f"values need {answer.value_bits} bits, {answer.primes} primes hold {answer.system_bits}; noise of deviation "
        f"{answer.noise_std:.4g} on an entry of X'X",
        "",
    ]
    width = max(len(load.participant) for load in answer.loads)
    for load in answer.loads:
        lines.append(
            f"  {load.participant:<{width}}  sends {size(load.bytes_sent):>9}  needs {size(load.memory):>9} of memory"
        )
    return "\n".join(lines)


def outcome(study: Study, folder: Path) -> str:
    """What came of a run."""
    model = PCA.load(folder / "model.json")
    ratios = ", ".join(f"{ratio:.3f}" for ratio in model.explained_variance_ratio_)
    lines = [str(study.statement), "", f"explained variance of the {model.n_components} components: {ratios}"]
    for index, component in enumerate(model.components_[:3]):
        strongest = abs(component).argsort()[::-1][:4]
        loadings = ", ".join(f"{model.feature_names_in_[i]} {component[i]:+.2f}" for i in strongest)
        lines.append(f"  component {index + 1}: {loadings}")
    lines += ["", f"report: {folder / 'report.html'}"]
    return "\n".join(lines)


def checks(found: Sequence[Check]) -> str:
    """What the doctor found."""
    return "\n".join(f"{_MARKS[check.level]} {check.what}: {check.detail}" for check in found)


def identity(made: Mapping[str, str]) -> str:
    """What was made for a participant."""
    lines = [f"{made['name']}: private key {made['key']} (keep it here)"]
    if "config" in made:
        lines.append(f"configuration {made['config']} (review it)")
    lines.append(f"certificate {made['certificate']} (send it to the coordinator)")
    lines.append(f"fingerprint {made['fingerprint']} (compare it over the telephone)")
    return "\n".join(lines)


def pins(study: Path, found: Mapping[str, str]) -> str:
    """What was pinned."""
    return "\n".join([f"pinned in {study}:", *(f"  {name}  {pin}" for name, pin in found.items())])


def ledger(book: Ledger, delta: float) -> str:
    """A ledger's entries, and the totals of every observer."""
    facts = ledger_facts(book, delta)
    if not facts["entries"]:
        return "no study yet"
    lines = [f"{e['created'][:19]}  {e['state']:<9}  {e['study']}  ({e['digest'][:12]})" for e in facts["entries"]]
    lines += ["", f"learned in all, at delta {delta:g}:"]
    lines += [f"  {who:<24} {rounded_up(total)}" for who, total in facts["totals"].items()]
    return "\n".join(lines)


def ledger_facts(book: Ledger, delta: float) -> dict[str, Any]:
    """A ledger as plain values."""
    entries = book.entries()
    seen = {o for entry in entries for o in entry.trust.standard_observers() if not entry.trust.broken(o)}
    return {
        "ledger": str(book.path),
        "delta": delta,
        "entries": [
            {"id": e.id, "study": e.study, "digest": e.digest, "created": e.created, "state": e.state} for e in entries
        ],
        "totals": {o.label: book.spent(o, delta) for o in sorted(seen)},
    }


def plain(report: Any) -> Any:
    """A dataclass as JSON values."""
    return json.loads(json.dumps(asdict(report), default=dict))
