"""The demonstration: people who have a bank, a shop and a clinic, and one private PCA of all their columns."""

from __future__ import annotations

import shutil
import socket
from pathlib import Path
from typing import Any

from colonnade.cli import initialise, show
from colonnade.cli.output import say
from colonnade.cli.publish import publish
from colonnade.errors import StudyError
from colonnade.models.evaluation import compare
from colonnade.protocols.roles import Progress
from colonnade.study import Study, preflight, run_local
from colonnade.study.record import FILES
from colonnade.tables import load_dataset

_MARK = ".colonnade-demo"
_EPSILONS = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
_STUDY = """\
# Three organisations, one private PCA. Everyone holds an equal copy of this file.
name = "people"
description = "Principal components of what a bank, a shop and a clinic know about the same people."

[task]
kind = "pca"
n_components = 5
rows_at_most = 1_000_000

[budget]
epsilon = 1.0        # for everyone: alone, in pairs, and up to the threshold together
delta = 1e-5

[committee]
threshold = 1        # of three: no two of them may pool what they hold

[coordinator]
address = "127.0.0.1:{port}"
{parties}"""


def run_demo(out: Path, rows: int, progress: Progress) -> dict[str, Any]:
    """Make up the people, write the study, run it in separate processes, and measure what it is worth."""
    _make_room(out)
    people = load_dataset("population", rows=rows)
    study = write_study(out / "study", people.feature_schemas, _STUDY)
    people.write(study.parent / "tables")
    for name in people.parties:
        (study.parent / "tables" / f"{name}.csv").rename(study.parent / name / f"{name}.csv")
    shutil.rmtree(study.parent / "tables")
    loaded = Study.load(study)
    say(f"{rows:,} people; {', '.join(people.parties)} each hold their own columns about them\n")
    say("BEFORE, what it would cost:\n")
    say(show.preflight(preflight(loaded, rows)) + "\n")
    folders = run_local(loaded, out, progress=progress)
    tables = {name: people.table(name).select(loaded.roster.schemas[name].names).matrix() for name in people.parties}
    progress("evaluate", 0, 1)
    evaluation = compare(tables, loaded.roster, n_components=5, epsilons=_EPSILONS, delta=1e-5, runs=5, local_runs=2)
    evaluation |= {
        "title": "Variance captured by five components",
        "note": "These people are made up, so all columns may lie in one place here and the private result can be "
        "compared with what a trusted curator, or no joint computation at all, would give.",
    }
    progress("evaluate", 1, 1)
    facts = publish(loaded, out, folders, evaluation)
    say("\nAFTER, what was spent:\n")
    say(show.outcome(loaded, out))
    return facts


def _make_room(out: Path) -> None:
    """Replace an earlier demonstration, and nothing else."""
    if out.is_dir() and any(out.iterdir()):
        if not (out / _MARK).is_file():
            raise StudyError(f"{out} is not empty and holds no earlier demonstration; choose another place with --out")
        for name in ("study", "parties", "earlier"):
            shutil.rmtree(out / name, ignore_errors=True)
        for name in FILES:
            (out / name).unlink(missing_ok=True)
    out.mkdir(parents=True, exist_ok=True)
    (out / _MARK).write_text("colonnade demo may replace what it wrote here\n", encoding="utf-8")


def write_study(folder: Path, schemas: dict[str, Any], template: str) -> Path:
    """A study folder with schemas, party configurations and everyone's keys."""
    (folder / "schemas").mkdir(parents=True)
    parties = ""
    for name, schema in schemas.items():
        schema.save(folder / "schemas" / f"{name}.toml")
        initialise.party(name, folder / name, f"{name}.csv", "person_id", "auto-within-budget")
        parties += f'\n[parties.{name}]\nschema = "schemas/{name}.toml"\n'
    study = folder / "STUDY.toml"
    study.write_text(template.format(port=_free_port(), parties=parties), encoding="utf-8")
    initialise.trial(study)
    return study


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
