"""``colonnade privacy``: what a study would cost. ``colonnade plan``: how many rounds or rows fit, what a run takes."""

from __future__ import annotations

from typing import Annotated

import typer

from colonnade.cli import scaling, show
from colonnade.cli.groups import StudyPath
from colonnade.cli.output import Json, emit, say
from colonnade.cli.show import binding
from colonnade.errors import StudyError
from colonnade.study import Study, preflight
from colonnade.study.plan import Amount, Plan, epsilons, least_rows, most_rounds
from colonnade.study.preflight import outlook, rows_of


def privacy(
    study: StudyPath,
    rows: Annotated[int | None, typer.Option("--rows", min=1, help="Size the estimates for so many rows.")] = None,
    curve: Annotated[bool, typer.Option("--curve", help="Show delta at many epsilons too, for each observer.")] = False,
    json: Json = False,
) -> None:
    """What a study would cost, for whom, before anybody says yes."""
    loaded = Study.load(study)
    answer, expected = preflight(loaded, rows), outlook(loaded, rows)
    curves = show.curves(answer.statement) if curve else {}
    if json:
        more = {"description": loaded.content.description, "forecast": None if expected is None else expected.to_dict()}
        emit(answer.to_dict() | more | ({"curves": curves} if curve else {}))
    else:
        parts = [show.about(loaded), show.preflight(answer), show.curve_table(curves) if curve else ""]
        say("\n\n".join(filter(None, [*parts, show.forecast(expected, loaded), show.wrong_pins(loaded)])))


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
    workers: scaling.Workers = None,
    hubs: scaling.Hubs = None,
    bandwidth: scaling.Bandwidth = None,
    round_trip: scaling.RoundTrip = None,
    partitions: scaling.PartitionCount = None,
    table: scaling.TableOption = None,
    one_machine: scaling.OneMachine = False,
    links: scaling.LinksOption = None,
    bench: scaling.Bench = None,
    json: Json = False,
) -> None:
    """How many rows or rounds; what noise costs; what a run takes."""
    asked = scaling.Asked(workers, hubs, bandwidth, round_trip, partitions, table, one_machine, bench, links)
    if cost + rounds + rows + epsilon > 1 or not (asked.anything or cost + rounds + rows + epsilon):
        raise StudyError("ask one question at a time: --rounds, --rows, --epsilon or --cost [ST017]")
    if asked.anything and (rounds or rows or epsilon):
        raise StudyError("workers, hubs and lines are about --cost, and not about rounds, rows or epsilon [ST018]")
    if rows and rows_given is not None:
        raise StudyError("--rows asks how many rows are enough, so --rows-given has no meaning beside it [ST038]")
    loaded = Study.load(study)
    if asked.anything or cost:
        if error is not None or noise_multiplier is not None:
            raise StudyError(
                "what a run takes does not depend on its noise: leave out --error and --noise-multiplier [ST039]"
            )
        found = asked.estimated(loaded, rows_of(loaded, rows_given))
        emit(found.to_dict()) if json else say(scaling.show(found))
        return
    amount = _amount(loaded, error, noise_multiplier)
    if rounds:
        answer = most_rounds(loaded, amount, rows_given)
    elif rows:
        answer = least_rows(loaded, amount)
    else:
        answer = epsilons(loaded, amount, rows_given)
    emit(answer.to_dict()) if json else say(_show(answer))


def _amount(study: Study, error: float | None, multiplier: float | None) -> Amount:
    """The noise as it was given, or as the study states it."""
    stated = study.content.task.parameters_given.get("noise_multiplier")
    return Amount(error, stated if error is None and multiplier is None else multiplier)


def _show(answer: Plan) -> str:
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
