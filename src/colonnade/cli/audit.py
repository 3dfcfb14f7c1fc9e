"""``colonnade audit``: attack the promises of a study, or of a model or mechanism by its name."""

from __future__ import annotations

import json as plain_json
import os
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import typer

from colonnade.audit import games, subject, subjects
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
Tasks = list[tuple[str, Any, str]]


def audit(name: str | None, samples: int, seed: int | None, out: Path, json: bool) -> None:
    """Play the games of one name, of all names or of a study, or list the names."""
    if name is None:
        emit({"games": _listing()}) if json else say(_list())
        return
    number = new_seed() if seed is None else seed
    title, tasks = audited_tasks(name)
    played = [replace(game, subject=called) for subject, task, called in tasks for game in games(subject, task)]
    prepare(out, (NAME, _FIGURES))
    verdicts = []
    with progress_bar(not json) as progress:
        for index, game in enumerate(played):
            progress("play", index, len(played))
            verdicts.append(judge(game, samples, number))
        progress("play", len(played), len(played))
    facts = {"audited": name, "seed": number, "games": [verdict.to_dict() for verdict in verdicts]}
    page = write_audit(out, f"Audit of {title}", verdicts)
    files.write_whole(out / _FIGURES, (plain_json.dumps(facts, indent=1) + "\n").encode())
    emit(facts | {"out": str(out)}) if json else say(_show(verdicts, page, number))
    if not all(verdict.good for verdict in verdicts):
        raise typer.Exit(1)


def new_seed() -> int:
    """A seed by which an audit can be repeated."""
    return int.from_bytes(new_key()[:4], "little")


def audited_tasks(name: str) -> tuple[str, Tasks]:
    """The title of the audit, and the tasks to attack: that of a study, or the registered ones.

    Of each task: whose games are played, the task itself unless it is the registered one, and what to call it.
    """
    names = [known.name for known in subjects()]
    if name == _ALL:
        return name, [(known, None, known) for known in names]
    if name not in names and (name.endswith(".toml") or os.path.basename(name) != name):
        study = Study.load(name)
        task = study.runnable().task
        return study.name, [(subject(task), task, study.content.task.kind)]
    return name, [(name, None, name)]


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


def _show(verdicts: Sequence[Verdict], page: Path, seed: int) -> str:
    lines = [
        conditions(verdicts),
        "",
        *verdict_table("game", verdicts),
        "",
        "reach: how much of the promised curve was shown; noise clearly below that share would have been seen",
    ]
    return "\n".join([*lines, "", f"pictures: {page} (repeat with --seed {seed})"])


def conditions(verdicts: Sequence[Verdict]) -> str:
    """How many samples were drawn, and what is said with which confidence."""
    result = verdicts[0].result
    return (
        f"{result.samples[0]:,} samples of each table; confidence {result.confidence:g} a game; epsilon at delta "
        f"{result.delta:g}"
    )


def verdict_table(head: str, verdicts: Sequence[Verdict]) -> list[str]:
    """What was promised and shown, a line for each game."""
    wide = max(len(head), *(len(verdict.label) for verdict in verdicts))
    lines = [f"{head:<{wide}}  promised   shown  reach  verdict"]
    for verdict in verdicts:
        shown = f"{verdict.result.epsilon_lower_bound:.3f}"
        lines.append(
            f"{verdict.label:<{wide}}  {rounded_up(verdict.claimed):>8}  {shown:>6}  {verdict.reach:>5}  {verdict.word}"
        )
    return lines
