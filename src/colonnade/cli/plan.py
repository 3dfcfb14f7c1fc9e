"""``colonnade plan``: how many rounds fit, how many rows are enough, what would it cost."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from colonnade.cli.output import Json, emit, say, speak_json
from colonnade.cli.show import binding
from colonnade.errors import StudyError
from colonnade.study import Study
from colonnade.study.plan import Amount, Plan, epsilons, least_rows, most_rounds


def plan(
    study: Annotated[Path, typer.Argument(metavar="STUDY.toml", help="The study file.")],
    rounds: Annotated[bool, typer.Option("--rounds", help="Ask how many rounds fit the budget (sketch).")] = False,
    rows: Annotated[bool, typer.Option("--rows", help="Ask how many rows are enough for the budget.")] = False,
    epsilon: Annotated[bool, typer.Option("--epsilon", help="Ask what each observer would learn.")] = False,
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
    json: Json = False,
) -> None:
    """Ask a budget the other way round: how many rounds, how many rows, or what it would cost."""
    speak_json(json)
    if rounds + rows + epsilon != 1:
        raise StudyError("ask one question at a time: --rounds, --rows or --epsilon")
    if rows and rows_given is not None:
        raise StudyError("--rows asks how many rows are enough, so --rows-given has no meaning beside it")
    loaded = Study.load(study)
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
