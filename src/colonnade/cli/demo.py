"""The demonstration: a bank, a shop and a clinic, and one private PCA of all columns about their common people."""

from __future__ import annotations

import shutil
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow.csv
import typer

from colonnade.cli import initialise, show
from colonnade.cli.forking import copied
from colonnade.cli.lean import without_pandas
from colonnade.cli.output import Json, emit, progress_bar, say, writing
from colonnade.cli.publish import publish
from colonnade.errors import StudyError
from colonnade.models import Roster, registry
from colonnade.protocols.align import NO_HELPER, Aligning, Mode
from colonnade.protocols.roles import Progress
from colonnade.study import Study, preflight, run_local
from colonnade.study.deviating import line_for
from colonnade.study.preflight import outlook
from colonnade.study.record import FILES
from colonnade.tables import population
from colonnade.tables.dataset import PERSON_ID, Dataset
from colonnade.tables.keys import Key

_MARK = ".colonnade-demo"
_OVERLAP = 0.9
_OT_SECONDS = 15.0
_EPSILONS = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
_STUDY = """\
# Three organisations, one private PCA. Everyone holds an equal copy of this file.
name = "people"
description = "Principal components of what a bank, a shop and a clinic know about the people whom all three hold."
{security}
[task]
kind = "pca"
n_components = 5
rows_at_most = 1_000_000

[budget]
epsilon = 1.0        # for everyone: alone, in pairs, and up to the threshold together
delta = 1e-5

[align]
on = "person_id"     # none of them holds everybody: first they find out, in private, whom all three hold
mode = "{mode}"

[committee]
threshold = 1        # of three: no two of them may pool what they hold

[coordinator]
address = "127.0.0.1:{port}"
{parties}"""


def demo(
    out: Annotated[Path, typer.Option("--out", help="Where to leave the study and its run.")] = Path("runs/demo"),
    rows: Annotated[int, typer.Option("--rows", min=100, help="How many people to make up.")] = 25_000,
    json: Json = False,
) -> None:
    """See it all once: three organisations and a private PCA."""
    without_pandas()
    with progress_bar(not json) as progress:
        facts = _run_demo(out, rows, progress)
    if json:
        emit(facts)
        return
    say("\nAFTER, what was spent:\n")  # once no progress bar would be drawn over it
    say(show.outcome(Study.load(out / "study" / "STUDY.toml"), out, facts["run"]))
    from colonnade.cli import showing

    if showing.can_be_shown():
        showing.show_in_browser(out / "study" / "STUDY.toml")


def _run_demo(out: Path, rows: int, progress: Progress) -> dict[str, Any]:
    """Invent people, write the study, run it in separate processes, and measure the quality of the result."""
    _make_room(out)
    forks = copied(kinds=("pca",))  # before there are tables and keys: nobody shall inherit those of others
    people = population(rows)
    mode = alignment_mode(people, rows)
    template = _STUDY.replace("{mode}", mode).replace("{security}\n", line_for("pca") + "\n")
    study = write_study(out / "study", people.feature_schemas, template, align=("ot", "helper"))
    held = _write_tables(people, study.parent)
    loaded = Study.load(study)
    say(_opening(rows, held, mode) + "\n")
    say("BEFORE, what it would cost:\n")
    say(show.preflight(preflight(loaded, max(len(ids) for ids in held.values()))) + "\n")
    say(show.forecast(outlook(loaded, max(len(ids) for ids in held.values())), loaded) + "\n")
    evaluated = _beside(lambda: _evaluation(people, loaded.roster, held))  # participants are processes of their own
    folders = run_local(loaded, out, progress=progress, forks=forks)
    progress("evaluate", 0, 1)
    evaluation = evaluated.result()
    progress("evaluate", 1, 1)
    return publish(loaded, out, folders, evaluation)


def _beside(work: Callable[[], dict[str, Any]]) -> Future[dict[str, Any]]:
    """Do something in a thread for which nobody waits if the demonstration is interrupted."""
    found: Future[dict[str, Any]] = Future()

    def run() -> None:
        try:
            found.set_result(work())
        except BaseException as error:
            found.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return found


def alignment_mode(people: Dataset, rows: int) -> Mode:
    """``ot`` if the work of all parties, which is done on this one machine, is expected to be short."""
    task = Aligning(Roster.of(people.feature_schemas).trust, (Key(PERSON_ID),), mode="ot")
    work = sum(task.load(name, round(_OVERLAP * rows))[0] for name in task.owners)
    return "ot" if work <= _OT_SECONDS else "helper"


def _write_tables(people: Dataset, folder: Path) -> dict[str, set[str]]:
    """Write each party's table, in its own order and without some of the people; returns the ids in each."""
    held = {}
    with tempfile.TemporaryDirectory() as place:
        for name, (table, _) in people.write(place, overlap=_OVERLAP).items():
            held[name] = set(pyarrow.csv.read_csv(table)[PERSON_ID].to_pylist())
            with writing(folder / name / table.name):
                shutil.copyfile(table, folder / name / table.name)
    return held


def _opening(rows: int, held: Mapping[str, set[str]], mode: Mode) -> str:
    each = ", ".join(f"{name} {len(ids):,}" for name, ids in held.items())
    lines = [
        f"{rows:,} people; none of the three holds all of them: {each}, each with its own columns and order",
        "first they find out, in private, whom all of them hold; then they compute about these",
    ]
    if mode == "helper":
        lines.append('mode "helper" here, because "ot" with so many people would keep this one machine busy for long')
    return "\n".join(lines)


def _evaluation(people: Dataset, roster: Roster, held: Mapping[str, set[str]]) -> Any:
    """How good the result is, measured on the people whom all parties hold."""
    ids = people.arrow[people.parties[0]][PERSON_ID].to_pylist()
    common = set.intersection(*held.values())
    rows = np.array([person in common for person in ids])
    tables = {name: people.table(name).select(roster.schemas[name].names).matrix()[rows] for name in people.parties}
    compare = registry.only("evaluation")
    return compare(tables, roster, n_components=5, epsilons=_EPSILONS, delta=1e-5, runs=5, local_runs=2) | {
        "title": "Variance captured by five components",
        "note": f"These {len(common):,} people are made up, so all columns may lie in one place here and the private "
        "result can be compared with what a trusted curator, or no joint computation at all, would give.",
    }


def _make_room(out: Path) -> None:
    """Replace an earlier demonstration, and nothing else."""
    if out.is_dir() and any(out.iterdir()):
        if not (out / _MARK).is_file():
            raise StudyError(
                f"{out} is not empty and holds no earlier demonstration; choose another place with --out [ST029]"
            )
        for name in ("study", "parties", "earlier"):
            shutil.rmtree(out / name, ignore_errors=True)
        for name in FILES:
            with writing(out / name):
                (out / name).unlink(missing_ok=True)
    with writing(out / _MARK):
        out.mkdir(parents=True, exist_ok=True)
        (out / _MARK).write_text("colonnade demo may replace what it wrote here\n", encoding="utf-8")


def write_study(folder: Path, schemas: dict[str, Any], template: str, align: Sequence[Mode] = NO_HELPER) -> Path:
    """A study folder with schemas, party configurations and everyone's keys."""
    with writing(folder / "schemas"):
        (folder / "schemas").mkdir(parents=True)
    parties = ""
    for name, schema in schemas.items():
        schema.save(folder / "schemas" / f"{name}.toml")
        initialise.party(name, folder / name, f"{name}.csv", PERSON_ID, "auto-within-budget", align)
        parties += f'\n[parties.{name}]\nschema = "schemas/{name}.toml"\n'
    study = folder / "STUDY.toml"
    with writing(study):
        study.write_text(template.format(port=initialise.free_port(), parties=parties), encoding="utf-8")
    initialise.trial(study)
    return study
