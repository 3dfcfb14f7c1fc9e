"""``colonnade audit``: attack the promises from below, and show that an attack would notice a broken one."""

from __future__ import annotations

import json as plain_json
import secrets
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from colonnade.audit import Game, games, rows
from colonnade.audit.verdict import SAMPLES, Verdict, judge
from colonnade.cli.output import Json, emit, progress_bar, say, speak_json
from colonnade.privacy.statement import rounded_up
from colonnade.report.audit_plot import write_audit
from colonnade.study import Study

_ALL = "all"
_Job = tuple[str, Game]
_Tasks = list[tuple[str, Any]]


def audit(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME | STUDY.toml]", help="What to attack; all, or nothing for a list.")
    ] = None,
    samples: Annotated[int, typer.Option("--samples", min=1000, help="Samples of each of the two tables.")] = SAMPLES,
    twins: Annotated[bool, typer.Option("--twins", help="Play the broken twins too; each must be caught.")] = False,
    seed: Annotated[int | None, typer.Option("--seed", min=0, help="Repeat an audit.  [default: a new one]")] = None,
    out: Annotated[Path, typer.Option("--out", help="Where to leave audit.html and audit.json.")] = Path("runs/audit"),
    json: Json = False,
) -> None:
    """Attack the promises from below: what can an observer show."""
    speak_json(json)
    if name is None:
        emit({"games": _listing()}) if json else say(_list())
        return
    number = secrets.randbits(32) if seed is None else seed
    title, tasks = _tasks(name)
    jobs = list(_jobs(tasks, twins))
    verdicts = []
    with progress_bar(not json) as progress:
        for index, (broken, game) in enumerate(jobs):
            progress("play", index, len(jobs))
            verdicts.append(judge(game, samples, number, broken))
        progress("play", len(jobs), len(jobs))
    facts = {"audited": name, "seed": number, "games": [verdict.to_dict() for verdict in verdicts]}
    page = write_audit(out, f"Audit of {title}", verdicts)
    (out / "audit.json").write_text(plain_json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    emit(facts | {"out": str(out)}) if json else say(_show(verdicts, page, number))
    if not all(verdict.good for verdict in verdicts):
        raise typer.Exit(1)


def _tasks(name: str) -> tuple[str, _Tasks]:
    """What to call the audit, and the tasks to attack: a study's own, or the registered ones."""
    if name.endswith(".toml") or Path(name).is_file():
        study = Study.load(name)
        return study.name, [(study.content.task.kind, study.runnable().task)]
    return name, [(row.name, None) for row in rows()] if name == _ALL else [(name, None)]


def _jobs(tasks: _Tasks, with_twins: bool) -> Iterator[_Job]:
    """Every game to play, with what is broken in it."""
    for subject, task in tasks:
        yield from (("", game) for game in games(subject, task))
    if with_twins:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it warns whoever imports what is broken on purpose
            from colonnade.testing.twins import twins
        for subject, task in tasks:
            yield from twins(subject, task)


def _listing() -> list[dict[str, Any]]:
    return [
        {"name": row.name, "summary": row.summary, "games": [game.name for game in games(row.name)]} for row in rows()
    ]


def _list() -> str:
    wide = max(len(row.name) for row in rows())
    lines = ["games that can be played, each against every observer it is about:", ""]
    lines += [f"  {row.name:<{wide}}  {row.summary}" for row in rows()]
    return "\n".join([*lines, "", "colonnade audit NAME plays one, colonnade audit STUDY.toml a study's own"])


def _show(verdicts: Sequence[Verdict], page: Path, seed: int) -> str:
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
    if any(verdict.broken and not verdict.good for verdict in verdicts):
        lines += ["", "a twin that escapes may need more --samples: small epsilons take many"]
    return "\n".join([*lines, "", f"pictures: {page} (repeat with --seed {seed})"])


def _lines(head: str, verdicts: Sequence[Verdict]) -> list[str]:
    names = [": ".join(filter(None, (verdict.game.name, verdict.broken))) for verdict in verdicts]
    wide = max(map(len, (head, *names)))
    lines = [f"{head:<{wide}}  promised   shown   margin at epsilon  verdict"]
    for name, verdict in zip(names, verdicts, strict=True):
        result = verdict.result
        lines.append(
            f"{name:<{wide}}  {rounded_up(verdict.claimed):>8}  {result.epsilon_lower_bound:>6.3f}  "
            f"{result.margin:>+7.4f} at {result.epsilon:<7g}  {verdict.word}"
        )
    return lines
