"""``colonnade audit``: attack the promises, and show that the attacks notice a broken one."""

from __future__ import annotations

import importlib
import itertools
import json as plain_json
import os
import tempfile
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import typer

from colonnade.audit import Game, games, subject, subjects, twins
from colonnade.audit.verdict import Verdict, judge
from colonnade.cli.output import emit, progress_bar, say
from colonnade.errors import StorageError
from colonnade.models import files
from colonnade.privacy.rows import rounded_up
from colonnade.randomness import new_key
from colonnade.report.audit_plot import NAME, write_audit
from colonnade.study import Study

_ALL = "all"
_FIGURES = "audit.json"
_Job = tuple[str, Game]
_Tasks = list[tuple[str, Any, str]]


def audit(name: str | None, samples: int, with_twins: bool, seed: int | None, out: Path, json: bool) -> None:
    """Play the games of one name, of all names or of a study, or list the names."""
    if name is None:
        emit({"games": _listing()}) if json else say(_list())
        return
    number = int.from_bytes(new_key()[:4], "little") if seed is None else seed
    title, tasks = _tasks(name)
    jobs, without = _jobs(tasks, with_twins)
    prepare(out, (NAME, _FIGURES))
    verdicts = []
    with progress_bar(not json) as progress:
        for index, (broken, game) in enumerate(jobs):
            progress("play", index, len(jobs))
            verdicts.append(judge(game, samples, number, broken))
        progress("play", len(jobs), len(jobs))
    facts = {"audited": name, "seed": number, "games": [verdict.to_dict() for verdict in verdicts]}
    facts |= {"without_twins": without} if with_twins else {}
    page = write_audit(out, f"Audit of {title}", verdicts)
    files.write_whole(out / _FIGURES, (plain_json.dumps(facts, indent=1) + "\n").encode())
    emit(facts | {"out": str(out)}) if json else say(_show(verdicts, without, page, number))
    if not all(verdict.good for verdict in verdicts):
        raise typer.Exit(1)


def _tasks(name: str) -> tuple[str, _Tasks]:
    """The title of the audit, and the tasks to attack: that of a study, or the registered ones."""
    names = [known.name for known in subjects()]
    if name == _ALL:
        return name, [(known, None, known) for known in names]
    if name not in names and (name.endswith(".toml") or os.path.basename(name) != name):
        study = Study.load(name)
        task = study.runnable().task
        return study.name, [(subject(task), task, study.content.task.kind)]
    return name, [(name, None, name)]


def _jobs(tasks: _Tasks, with_twins: bool) -> tuple[list[_Job], list[str]]:
    """All games to play, each with what is broken in it, and the subjects without a declared twin."""
    jobs = [("", replace(game, subject=called)) for subject, task, called in tasks for game in games(subject, task)]
    if not with_twins:
        return jobs, []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the module warns that it is broken on purpose
        importlib.import_module("colonnade.testing.twins")
    found = {
        called: [(broken, replace(game, subject=called)) for broken, game in twins(subject, task)]
        for subject, task, called in tasks
    }
    return [*jobs, *itertools.chain(*found.values())], [called for called, broken in found.items() if not broken]


def prepare(out: Path, names: Sequence[str]) -> None:
    """Make the folder for these files and test that it can be written, before an audit that may take hours."""
    for place in (out, *out.parents):
        if place.exists() and not place.is_dir():
            raise StorageError(
                f"{place} is a file and the audit is to be left in a folder: choose another --out [SO001]"
            )
    try:
        out.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=out).close()
    except OSError as error:
        raise StorageError(f"{out} cannot be written ({error.strerror}): choose another --out [SO002]") from None
    for name in names:
        if (out / name).is_dir():
            raise StorageError(f"{out / name} is a folder where the audit writes a file: choose another --out [SO003]")


def _listing() -> list[dict[str, Any]]:
    return [
        {"name": known.name, "summary": known.summary, "games": [game.name for game in games(known.name)]}
        for known in subjects()
    ]


def _list() -> str:
    wide = max(len(known.name) for known in subjects())
    lines = ["games that can be played, each against every observer it is about:", ""]
    lines += [f"  {known.name:<{wide}}  {known.summary}" for known in subjects()]
    return "\n".join([*lines, "", "colonnade audit NAME plays one, colonnade audit STUDY.toml a study's own"])


def _show(verdicts: Sequence[Verdict], without: Sequence[str], page: Path, seed: int) -> str:
    real = [verdict for verdict in verdicts if not verdict.broken]
    broken = [verdict for verdict in verdicts if verdict.broken]
    result = verdicts[0].result
    lines = [
        f"{result.samples[0]:,} samples of each table; confidence {result.confidence:g} a game; epsilon at delta "
        f"{result.delta:g}",
        "",
        *_lines("game", real),
    ]
    if broken:
        lines += ["", *_lines("broken on purpose", broken)]
    if without:
        lines += ["", *(f"no twins are declared for {subject}" for subject in without)]
    if any(verdict.broken and not verdict.good for verdict in verdicts):
        lines += ["", "a twin that escapes may need more --samples: small epsilons take many"]
    lines += [
        "",
        "reach: how much of the promised curve was shown; noise clearly below that share would have been seen",
    ]
    return "\n".join([*lines, "", f"pictures: {page} (repeat with --seed {seed})"])


def _lines(head: str, verdicts: Sequence[Verdict]) -> list[str]:
    wide = max(len(head), *(len(verdict.label) for verdict in verdicts))
    lines = [f"{head:<{wide}}  promised   shown  reach  verdict"]
    for verdict in verdicts:
        shown = f"{verdict.result.epsilon_lower_bound:.3f}"
        lines.append(
            f"{verdict.label:<{wide}}  {rounded_up(verdict.claimed):>8}  {shown:>6}  {verdict.reach:>5}  {verdict.word}"
        )
    return lines
