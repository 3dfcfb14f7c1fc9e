"""``colonnade plan``: how many rounds fit, how many rows are enough, what noise costs, or what a run takes."""

from __future__ import annotations

from pathlib import Path

from colonnade.cli.output import emit, say
from colonnade.cli.scaling import Asked, show
from colonnade.cli.show import binding
from colonnade.errors import StudyError
from colonnade.study import Study
from colonnade.study.plan import Amount, Plan, Question, epsilons, least_rows, most_rounds
from colonnade.study.preflight import rows_of


def plan(
    study: Path,
    question: Question,
    error: float | None,
    noise_multiplier: float | None,
    rows_given: int | None,
    json: bool,
) -> None:
    """Answer one question about a study."""
    if question == "rows" and rows_given is not None:
        raise StudyError("--rows asks how many rows are enough, so --rows-given has no meaning beside it [ST038]")
    loaded = Study.load(study)
    amount = _amount(loaded, error, noise_multiplier)
    if question == "rounds":
        answer = most_rounds(loaded, amount, rows_given)
    elif question == "rows":
        answer = least_rows(loaded, amount)
    else:
        answer = epsilons(loaded, amount, rows_given)
    emit(answer.to_dict()) if json else say(_show(answer))


def cost(
    study: Path,
    asked: Asked,
    error: float | None,
    noise_multiplier: float | None,
    rows_given: int | None,
    json: bool,
) -> None:
    """Say what a run would take, in time, bytes, memory and disk."""
    if error is not None or noise_multiplier is not None:
        raise StudyError(
            "what a run takes does not depend on its noise: leave out --error and --noise-multiplier [ST039]"
        )
    loaded = Study.load(study)
    found = asked.estimated(loaded, rows_of(loaded, rows_given))
    emit(found.to_dict()) if json else say(show(found))


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
