"""``python -m research cheats``: participants that deviate, played against a real committee."""

from __future__ import annotations

import csv
import io
import os
import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any

import typer

from colonnade.cli.attacks import prepare_folder
from colonnade.cli.output import Json, emit, progress_bar, say
from colonnade.errors import StudyError
from colonnade.models import serialization
from research.cheats import equivocation, known
from research.cheats.catalogue import CHEATS, Cheat
from research.cheats.known import Attack
from research.cheats.scenes import COMMITTEES, Scene
from research.cheats.trials import Row, all_scenes, jobs, play_all

_COLUMNS = (
    "protocol", "seats", "threshold", "deviating", "cheat", "checked", "trials", "caught", "no_effect", "misses", "by",
)  # fmt: skip
_TABLE, _PAGE = "cheats.csv", "cheats.md"
_SEMI_HONEST, _ACTIVE = "seats that do not check each other", "seats that do"


def cheats(
    trials: Annotated[int, typer.Option("--trials", min=1, max=1_000_000, help="Trials of each cheat.")] = 1,
    protocol: Annotated[
        list[str] | None, typer.Option("--protocol", help="Only this protocol; may be given again.  [default: all]")
    ] = None,
    cheat: Annotated[
        list[str] | None, typer.Option("--cheat", help="Only cheats with these words in their names.  [default: all]")
    ] = None,
    committee: Annotated[
        list[str] | None,
        typer.Option("--committee", metavar="SEATS/THRESHOLD", help="3/1, 4/1, 5/2 or 7/3.  [default: 3/1]"),
    ] = None,
    processes: Annotated[
        int | None, typer.Option("--jobs", min=1, max=256, help="Processes side by side.  [default: one per core]")
    ] = None,
    twins: Annotated[
        bool, typer.Option("--twins", help="Play the cheats where nobody checks too, to see that they work there.")
    ] = False,
    seed: Annotated[int, typer.Option("--seed", min=0, help="What is changed, and where, follows from it.")] = 0,
    out: Annotated[Path | None, typer.Option("--out", help="A folder for cheats.md and cheats.csv.")] = None,
    json: Json = False,
) -> None:
    """Play participants that deviate against a real committee, and count how many are caught."""
    protocols, named, committees = protocol or [], cheat or [], committee or ["3/1"]
    scenes, chosen = _scenes(protocols), _cheats(named)
    todo = jobs(
        scenes, trials, committees=[_committee(text) for text in committees], cheats=chosen, twins=twins, seed=seed
    )
    if out is not None:
        prepare_folder(out, (_TABLE, _PAGE))
    lists = (("--protocol", protocols), ("--cheat", named), ("--committee", committees))
    options = [word for option, values in lists for value in values for word in (option, value)]
    typed = shlex.join(["python", "-m", "research", "cheats", "--trials", str(trials), *options, "--seed", str(seed)])
    rows = [job.row for job in todo]
    with progress_bar(not json) as progress:
        done, total = 0, sum(job.trials for job in todo)
        for number, row in play_all(todo, processes or os.cpu_count() or 1):
            rows[number].add(row)
            done += todo[number].trials and min(todo[number].trials, max(1, row.trials))
            progress("play", min(done, total), total)
    rows = [row for row in rows if row.trials]
    attacks = list(_attacks()) if not protocols and not named else []
    if out is not None:
        serialization.write_whole(out / _TABLE, _csv(rows).encode())
        serialization.write_whole(out / _PAGE, "\n".join([*_page(rows, attacks, typed), ""]).encode())
    good = all(row.good for row in rows) and all(one["good"] for one in attacks)
    facts = {"seed": seed, "good": good, "rows": [row.to_dict() for row in rows], "attacks": attacks}
    emit(facts) if json else say("\n".join(_show(rows, attacks)))
    if not good:
        raise typer.Exit(1)


def _scenes(names: Sequence[str]) -> list[Scene]:
    known = all_scenes()
    for name in names:
        if name not in known:
            raise StudyError(f"no protocol {name!r} is played: choose among {', '.join(known)} [ST021]")
    return [known[name] for name in names or known]


def _cheats(named: Sequence[str]) -> list[Cheat]:
    found = [cheat for cheat in CHEATS if not named or any(text in cheat.name for text in named)]
    if not found:
        raise StudyError(
            f"no cheat has these words in its name: choose among {'; '.join(cheat.name for cheat in CHEATS)} [ST022]"
        )
    return found


def _committee(text: str) -> tuple[int, int]:
    known = {f"{seats}/{threshold}": (seats, threshold) for seats, threshold in COMMITTEES}
    if text not in known:
        raise StudyError(f"a committee is one of {', '.join(known)} (seats/threshold), not {text!r} [ST023]")
    return known[text]


def _attacks() -> Iterator[dict[str, Any]]:
    """Each known attack where nobody checks, where it must succeed, and where seats check, where it must not."""
    for name, attack in (known.ATTACKS | equivocation.ATTACKS).items():
        open_, closed = attack(), attack(security="active", inputs="proven")
        yield {
            "attack": name,
            _SEMI_HONEST: _read(open_),
            _ACTIVE: _read(closed),
            "stopped_by": "" if closed.outcome.reason is None else str(closed.outcome.reason),
            "good": open_.succeeded and not closed.succeeded and not closed.outcome.accepted,
        }


def _read(attack: Attack) -> dict[str, Any]:
    return {"cells": attack.cells, "read_exactly": attack.read, "correlation": round(attack.correlation, 6)}


def _csv(rows: Sequence[Row]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_COLUMNS)
    for row in rows:
        writer.writerow(
            (row.scene, row.seats, row.threshold, row.deviating, row.cheat, int(row.checked), row.trials, row.caught,
             row.idle, row.missed, row.reason)
        )  # fmt: skip
    return text.getvalue()


def _page(rows: Sequence[Row], attacks: Sequence[dict[str, Any]], typed: str) -> Iterator[str]:
    """The same as a page: sums by protocol and committee, and by cheat."""
    yield from (
        "# Participants that deviate",
        "",
        f"Made by `{typed} --out FOLDER`. `{_TABLE}` beside this page has a line",
    )
    yield "for each cheat, protocol and committee; [auditing](../../docs/how-to/auditing.md) says how to read it."
    yield from ("", _total(rows))
    checked = [row for row in rows if row.checked and not row.allowed]
    lines = [row for row in checked if not row.honest]
    idle = Counter(row.cheat for row in lines if row.without_effect)
    if idle:
        named = "; ".join(f"{cheat} ({count})" for cheat, count in idle.most_common())
        yield from (
            "",
            f"In {idle.total():,} of {len(lines):,} lines no trial had any effect, so they show nothing: {named}.",
        )
    keys: tuple[tuple[str, Callable[[Row], str]], ...] = (
        ("protocol and committee", _where),
        ("cheat", lambda row: row.cheat),
    )
    for title, key in keys:
        yield from (
            "",
            f"| {title} | trials | caught | no effect | misses | most often caught by |",
            "|---|---|---|---|---|---|",
        )
        for name in dict.fromkeys(map(key, checked)):
            sums = Row("", name, 0, 0, True)
            for row in checked:
                if key(row) == name and (not row.honest or title == "cheat"):
                    sums.add(row)
            yield f"| {name} | {sums.trials:,} | {sums.caught:,} | {sums.idle:,} | {sums.missed:,} | {sums.reason} |"
    if attacks:
        yield from ("", f"| attack | {_SEMI_HONEST} | {_ACTIVE} |", "|---|---|---|")
    for one in attacks:
        reads = [f"{one[how]['read_exactly']} of {one[how]['cells']} cells read" for how in (_SEMI_HONEST, _ACTIVE)]
        yield f"| {one['attack']} | {reads[0]} | {reads[1]}: {one['stopped_by']} |"


def _show(rows: Sequence[Row], attacks: Sequence[dict[str, Any]]) -> list[str]:
    lines = []
    wide = max((len(row.cheat) for row in rows), default=0)
    for checked, title in ((True, ""), (False, ", where nobody checks")):
        those = [row for row in rows if row.checked is checked]
        for where, found in groupby(those, _where):
            head = where + title
            lines += ["", f"{head:<{wide + 2}}  trials  caught  no effect  misses  by"]
            lines += [_line(row, wide) for row in found]
    for one in attacks:
        reads = [f"{one[how]['read_exactly']} of {one[how]['cells']} cells read" for how in (_SEMI_HONEST, _ACTIVE)]
        lines += ["", f"{one['attack']}:", f"  {_SEMI_HONEST}: {reads[0]}", f"  {_ACTIVE}: {reads[1]}"]
        lines += [f"  {one['stopped_by']}"] if one["stopped_by"] else []
    return [*lines[1:], "", _total(rows)]


def _where(row: Row) -> str:
    """A protocol and a committee, and how many of its seats deviate."""
    return f"{row.scene}, {row.seats}/{row.threshold}" + (f", {row.deviating} deviate" if row.deviating > 1 else "")


def _total(rows: Sequence[Row]) -> str:
    """What came of all trials; of those that changed nothing nobody can say that they were caught."""
    cheats = [row for row in rows if row.checked and not row.honest and not row.allowed]
    honest = [row for row in rows if row.honest]
    played, caught, idle, missed = (
        sum(getattr(row, name) for row in cheats) for name in ("trials", "caught", "idle", "missed")
    )
    runs, alarms = sum(row.trials for row in honest), sum(row.trials - row.idle for row in honest)
    allowed = sum(row.trials for row in rows if row.checked and row.allowed)
    faults = sum(row.faults for row in cheats)
    return (
        f"{played:,} cheats: {caught:,} caught, {idle:,} without effect, {missed:,} missed"
        + (f", {faults:,} faults" if faults else "")
        + (f"; {allowed:,} that are allowed" if allowed else "")
        + f"; {runs:,} honest runs, {alarms:,} false alarms"
    )


def _line(row: Row, wide: int) -> str:
    by = "allowed: the table of privacy has a row for it" if row.allowed else row.reason
    bad = (
        "FALSE ALARM  "
        if row.honest
        else "MISSED  "
        if row.missed
        else "CAUGHT AFTER OPENING  "
        if row.early
        else "FAULT  "
    )
    marks = "" if row.good else bad
    return (
        f"  {row.cheat:<{wide}}  {row.trials:>6}  {row.caught:>6}  {row.idle:>9}  {row.missed:>6}  {marks}{by}".rstrip()
    )
