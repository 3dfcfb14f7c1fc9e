"""Before a study: what it would cost, how many rounds or rows fit, a party's own keys, and a check of its files."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from colonnade.cli import run_estimates, text_output
from colonnade.cli.output import Json, StudyPath, emit, say
from colonnade.cli.participants import PartyPath
from colonnade.cli.text_output import binding, rules
from colonnade.errors import StudyError
from colonnade.models.alignment import keys_of
from colonnade.protocols.align import AlignmentTask
from colonnade.sanitize import sanitize
from colonnade.study import PartyConfig, Study, preflight
from colonnade.study.doctor import alignment_counts, examine
from colonnade.study.planning import NoiseAmount, PlanAnswer, epsilons, least_rows, most_rounds
from colonnade.study.preflight import outlook, rows_of
from colonnade.study.spec import is_party_file
from colonnade.tables.keys import TableKeys

_LEVEL_MARKS = {"good": "ok  ", "unsure": "?   ", "bad": "BAD "}


def keys(study: StudyPath, config: PartyPath, json: Json = False) -> None:
    """Show a party its own keys, as a study would compare them."""
    loaded, own = Study.load(study), PartyConfig.load(config)
    own.check_membership(loaded)
    task, found, rows = _read_keys(loaded, own)
    facts = {
        "study": loaded.name,
        "party": own.name,
        "on": [key.name for key in task.keys],
        "rows": rows,
        "keys": len(found),
        "missing": found.missing,
        "repeated": found.repeated,
        "unlabelled": found.unlabelled,
        "examples": list(found.examples),
    }
    emit(facts) if json else say(_keys_text(loaded, own, task, found, rows))


def doctor(
    study: Annotated[Path, typer.Argument(metavar="STUDY.toml", help="The study; or a PARTY.toml alone.")],
    config: Annotated[Path | None, typer.Argument(metavar="[PARTY.toml]", help="Check as this party.")] = None,
    json: Json = False,
) -> None:
    """Check files, keys, table, ledger, clock and connection."""
    if config is None and is_party_file(study):
        from colonnade.federation.checks import examine_member

        checks = list(examine_member(study))
    else:
        checks = list(examine(study, config))
    if json:
        emit({"checks": [asdict(check) for check in checks]})
    else:
        say("\n".join(sanitize(f"{_LEVEL_MARKS[check.level]} {check.what}: {check.detail}") for check in checks))
    if any(check.level == "bad" for check in checks):
        raise typer.Exit(1)


def _read_keys(study: Study, config: PartyConfig) -> tuple[AlignmentTask, TableKeys, int]:
    """The alignment of a study, a party's own keys, and the number of its rows."""
    task = study.aligning
    if task is None:
        raise StudyError(
            f"study {study.name!r} has no [align], so it compares ids as they stand: there are no keys [ST036]"
        )
    table = config.table(study.roster.schemas[config.name], task.plan, study.label_of(config.name))
    return task, keys_of(table), table.rows


def _keys_text(study: Study, config: PartyConfig, task: AlignmentTask, found: TableKeys, rows: int) -> str:
    where = config.source().name
    lines = [
        f"{config.name} in {study.name!r}: {rows:,} rows of {where}, {len(found):,} keys; {alignment_counts(found)}",
        "",
        *(f"  {key.name}: {rules(key)}" for key in task.keys),
        "",
        "some of them, as they would be compared (only for you: talk about the format, not about these people):",
        *(f"  {example}" for example in found.examples),
    ]
    return "\n".join(lines)


def privacy(
    study: StudyPath,
    rows: Annotated[int | None, typer.Option("--rows", min=1, help="Size the estimates for so many rows.")] = None,
    curve: Annotated[bool, typer.Option("--curve", help="Show delta at many epsilons too, for each observer.")] = False,
    json: Json = False,
) -> None:
    """What a study would cost, for whom, before anybody says yes."""
    loaded = Study.load(study)
    answer, expected = preflight(loaded, rows), outlook(loaded, rows)
    curves = text_output.curves(answer.statement) if curve else {}
    if json:
        more = {"description": loaded.content.description, "forecast": None if expected is None else expected.to_dict()}
        emit(answer.to_dict() | more | ({"curves": curves} if curve else {}))
    else:
        parts = [
            text_output.about(loaded),
            text_output.preflight(answer),
            text_output.curve_table(curves) if curve else "",
        ]
        say("\n\n".join(filter(None, [*parts, text_output.forecast(expected, loaded), text_output.wrong_pins(loaded)])))


def plan(
    study: StudyPath,
    rounds: Annotated[bool, typer.Option("--rounds", help="Ask how many rounds fit the budget (sketch).")] = False,
    rows: Annotated[bool, typer.Option("--rows", help="Ask how many rows are enough for the budget.")] = False,
    epsilon: Annotated[bool, typer.Option("--epsilon", help="Ask what each observer would learn.")] = False,
    cost: Annotated[bool, typer.Option("--cost", help="Ask what a run takes: time, bytes, memory, disk.")] = False,
    error: Annotated[
        float | None,
        typer.Option("--error", metavar="E", help="The noise: deviation on a mean, entry of X'X/n, slope or score."),
    ] = None,
    noise_multiplier: Annotated[
        float | None,
        typer.Option("--noise-multiplier", metavar="M", help="The noise, as a multiple of the sensitivity."),
    ] = None,
    rows_given: Annotated[
        int | None,
        typer.Option("--rows-given", metavar="N", min=1, help="There are so many rows.  [default: as the study says]"),
    ] = None,
    workers: run_estimates.Workers = None,
    hubs: run_estimates.Hubs = None,
    bandwidth: run_estimates.Bandwidth = None,
    round_trip: run_estimates.RoundTrip = None,
    partitions: run_estimates.PartitionCount = None,
    table: run_estimates.TableOption = None,
    links: run_estimates.LinksOption = None,
    json: Json = False,
) -> None:
    """How many rows or rounds; what noise costs; what a run takes."""
    told = (workers, hubs, bandwidth, round_trip, partitions, table, links)
    any_told = any(value is not None for value in told)
    asked, noise = cost + rounds + rows + epsilon, error is not None or noise_multiplier is not None
    wrong = (
        (
            asked > 1 or not (any_told or asked),
            "ask one question at a time: --rounds, --rows, --epsilon or --cost [ST017]",
        ),
        (
            any_told and (rounds or rows or epsilon),
            "workers, hubs and lines are about --cost, and not about rounds, rows or epsilon [ST018]",
        ),
        (
            rows and rows_given is not None,
            "--rows asks how many rows are enough, so --rows-given has no meaning beside it [ST038]",
        ),
        (
            (any_told or cost) and noise,
            "what a run takes does not depend on its noise: leave out --error and --noise-multiplier [ST039]",
        ),
    )
    if said := next((sentence for found, sentence in wrong if found), None):
        raise StudyError(said)
    loaded = Study.load(study)
    if any_told or cost:
        found = run_estimates.estimate_for(loaded, rows_of(loaded, rows_given), *told)
        emit(found.to_dict()) if json else say(run_estimates.show(found))
        return
    amount = _amount(loaded, error, noise_multiplier)
    if rounds:
        answer = most_rounds(loaded, amount, rows_given)
    elif rows:
        answer = least_rows(loaded, amount)
    else:
        answer = epsilons(loaded, amount, rows_given)
    emit(answer.to_dict()) if json else say(_plan_text(answer))


def _amount(study: Study, error: float | None, multiplier: float | None) -> NoiseAmount:
    """The noise as it was given, or as the study states it."""
    stated = study.content.task.parameters.get("noise_multiplier")
    return NoiseAmount(error, stated if error is None and multiplier is None else multiplier)


def _plan_text(answer: PlanAnswer) -> str:
    heads = {
        "rounds": f"at most {answer.rounds:,} rounds fit the budget",
        "rows": f"{answer.rows:,} rows are enough for the budget",
        "epsilon": "what each observer would learn",
    }
    facts = (
        ("rounds", f"{answer.rounds:,}"),
        ("rows", f"{answer.rows:,}"),
        ("noise", f"{answer.noise_multiplier:.4g} times the sensitivity"),
        ("error", f"deviation {answer.error:.4g} on a {answer.error_on}"),
    )
    lines = [f"study {answer.study!r}: {heads[answer.question]}", ""]
    lines += [f"  {name:<6}  {value}" for name, value in facts]
    deciding = binding(answer.binding) if answer.binding else "the study states no budget for observers"
    also = ["", str(answer.guarantees.besides(answer.statement))] if answer.guarantees else []
    return "\n".join([*lines, "", str(answer.statement), "", deciding, *also])
