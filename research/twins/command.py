"""``python -m research twins``: games that are broken on purpose, each of which an audit must catch."""

from __future__ import annotations

import json as plain_json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from colonnade.audit import MOST_SAMPLES, SAMPLES
from colonnade.cli.attacks import audited_tasks, conditions, new_seed, prepare_folder, verdict_table
from colonnade.cli.output import Json, emit, progress_bar, say
from colonnade.drawing.canvas import Html, tag
from colonnade.models import serialization
from colonnade.report import wording
from colonnade.report.audit_pages import audit_document, audit_section
from colonnade.report.page import write_document
from research.twins.registry import TwinVerdict, judge_twin, twins as twins_of

_PAGE, _FIGURES = "twins.html", "twins.json"


def twins(
    name: Annotated[str, typer.Argument(metavar="[NAME | STUDY.toml]", help="Whose games are broken.")] = "all",
    samples: Annotated[
        int, typer.Option("--samples", min=1000, max=MOST_SAMPLES, help="Samples of each of the two tables.")
    ] = SAMPLES,
    seed: Annotated[int | None, typer.Option("--seed", min=0, help="Repeat an audit.  [default: a new one]")] = None,
    out: Annotated[Path, typer.Option("--out", help="Where to leave twins.html and twins.json.")] = Path("runs/twins"),
    json: Json = False,
) -> None:
    """Play games that are broken on purpose; an audit must catch each of them."""
    number = new_seed() if seed is None else seed
    title, tasks = audited_tasks(name)
    found = {
        called: [(broken, replace(game, subject=called)) for broken, game in twins_of(subject, task)]
        for subject, task, called in tasks
    }
    played = [pair for pairs in found.values() for pair in pairs]
    without = [called for called, pairs in found.items() if not pairs]
    prepare_folder(out, (_PAGE, _FIGURES))
    verdicts = []
    with progress_bar(not json) as progress:
        for index, (broken, game) in enumerate(played):
            progress("play", index, len(played))
            verdicts.append(judge_twin(game, samples, number, broken))
        progress("play", len(played), len(played))
    facts = {
        "audited": name, "seed": number, "without_twins": without,
        "games": [verdict.to_dict() for verdict in verdicts],
    }  # fmt: skip
    if verdicts:
        section = audit_section("twins", "Broken on purpose", verdicts)
        write_document(out / _PAGE, audit_document(f"Twins of {title}", _lead(verdicts), [section]))
    serialization.write_whole(out / _FIGURES, (plain_json.dumps(facts, indent=1) + "\n").encode())
    emit(facts | {"out": str(out)}) if json else say(_show(verdicts, without, out / _PAGE, number))
    if not all(verdict.good for verdict in verdicts):
        raise typer.Exit(1)


def _lead(verdicts: Sequence[TwinVerdict]) -> Html:
    if escaped := [verdict.label for verdict in verdicts if not verdict.good]:
        text = (
            f"{wording.count_noun(len(escaped), 'broken twin')} escaped, so this audit would not have seen such a "
            f"fault: {'; '.join(escaped)}. That says nothing against a promise; play with more samples."
        )
        return tag("p", text, class_="note")
    return tag("p", f"{wording.count_noun(len(verdicts), 'broken twin')}, and every one was caught.", class_="lead")


def _show(verdicts: Sequence[TwinVerdict], without: Sequence[str], page: Path, seed: int) -> str:
    lines = [f"no twins are declared for {subject}" for subject in without]
    if verdicts:
        lines = [conditions(verdicts), "", *verdict_table("broken on purpose", verdicts), "", *lines]
        lines += [f"pictures: {page} (repeat with --seed {seed})"]
    if not all(verdict.good for verdict in verdicts):
        lines += ["a twin that escapes may need more --samples: small epsilons take many"]
    return "\n".join(lines)
