"""What a study would cost, before anybody says yes: epsilon per observer, bytes, rounds, memory, time, bits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from colonnade.errors import CapacityError, StudyError
from colonnade.models.glm.guarantees import Guarantees
from colonnade.models.glm.plan import multiplier
from colonnade.models.glm.tuning import suggest
from colonnade.models.regression.base import Regression, method_of
from colonnade.privacy import Statement
from colonnade.privacy.calibrate import Binding, binding
from colonnade.protocols.align import Aligning, Mode
from colonnade.protocols.align.fuzzy import ROWS_AT_MOST as FUZZY_ROWS_AT_MOST
from colonnade.protocols.directions.task import Directions
from colonnade.protocols.exchange.bounds import Side
from colonnade.protocols.exchange.task import Exchange
from colonnade.protocols.kept_scores.task import KeptScoresTask
from colonnade.protocols.sketch import Sketch
from colonnade.study.figures import (
    AlignLoad,
    Alignment,
    AskingPreflight,
    DirectionsPreflight,
    ExchangePreflight,
    IterativePreflight,
    Preflight,
    RunPreflight,
    SenderPreflight,
    SidePreflight,
    SketchPreflight,
)
from colonnade.study.loads import Load, asking_loads, loads
from colonnade.study.spec import Study
from colonnade.study.tasks import GlmPart

_OTHER_EXACT: dict[Mode, Mode] = {"dh": "helper", "helper": "dh"}


def preflight(study: Study, rows: int | None = None) -> Preflight:
    """Cost of a study, sized for tables of so many rows (default: the number it states, or the most it allows)."""
    task, budgets = study.task, study.budgets
    if isinstance(task, Sketch | Exchange) and rows is not None:
        raise StudyError(
            f"the number of rows of kind {study.content.task.kind} stands in the study file, where it decides the "
            "price: change task.rows, or ask `colonnade plan`"
        )
    sized = _rows(study) if rows is None else _checked(rows, study)
    deciding = binding(study.events, study.trust, budgets) if budgets else None
    common = (study.name, study.digest, _method(study), study.statement, deciding, _alignment(study, sized))
    if isinstance(task, Sketch):
        return _sketch(common, task)
    run = _run(common, task, study, sized)
    if isinstance(task, KeptScoresTask):
        return _asking(run, task)
    if isinstance(task, Exchange):
        return _exchange(run, task, study)
    if isinstance(task, Directions):
        return DirectionsPreflight(**vars(run), openings=task.rounds, directions=task.directions)
    return _iterative(run, task) if hasattr(task, "batch") else run


def _method(study: Study) -> str | None:
    if isinstance(study.task, Exchange):
        return study.task.method
    if isinstance(study.task, Directions):
        return "power"
    return method_of(study.task) if isinstance(study.planner(), Regression) else None


_Common = tuple[str, str, str | None, Statement, Binding | None, Alignment | None]


def _rows(study: Study) -> int:
    """How long the parties' lists may be."""
    most = int(getattr(study.task, "rows", None) or study.task.rows_at_most)
    shared = most // (len(study.content.parties) if study.roster.hidden else 1)
    return max(1, min(shared, _longest(study) or shared))


def _longest(study: Study) -> int | None:
    """The longest list that the alignment takes, where it has a limit."""
    if study.aligning is None:
        return None
    return FUZZY_ROWS_AT_MOST if study.aligning.mode == "fuzzy" else study.aligning.pad_to


def _checked(rows: int, study: Study) -> int:
    longest = _longest(study)
    if longest is not None and rows > longest:
        raise CapacityError(f"the alignment takes lists of at most {longest} rows, not of {rows}: ask for fewer rows")
    return rows


def _joint(study: Study, rows: int) -> int:
    """How long a joint table is: where nobody knows who matched, as long as all lists together."""
    if study.aligning is None or not study.roster.hidden:
        return rows
    return len(study.content.parties) * _length(study.aligning, rows)


def _length(task: Aligning, rows: int) -> int:
    """How long a list is on the wire."""
    return rows if task.pad_to is None else task.pad_to


def _alignment(study: Study, rows: int) -> Alignment | None:
    task, part = study.aligning, study.content.align
    if task is None or part is None:
        return None
    listed = _length(task, rows)
    loads = {name: task.load(name, listed) for name in study.participants}
    other = _OTHER_EXACT.get(task.mode)
    return Alignment(
        mode=task.mode,
        hidden=task.hidden,
        on=tuple(key.name for key in task.keys),
        keys=task.keys,
        duplicates=task.duplicates,
        at_least=task.at_least,
        similarity=task.similarity if task.mode == "fuzzy" else None,
        pad_to=task.pad_to,
        reuse=part.reuse,
        sentence=task.sentence,
        leakage=task.leakage,
        rows=listed,
        loads=tuple(AlignLoad(name, sent, seconds) for name, (seconds, sent) in loads.items()),
        instead=None if other is None else (other, _slowest(replace(task, mode=other), study.participants, listed)),
    )


def _slowest(task: Aligning, participants: tuple[str, ...], rows: int) -> float:
    return max(task.load(name, rows)[0] for name in participants)


def _sketch(common: _Common, task: Sketch) -> SketchPreflight:
    return SketchPreflight(
        *common,
        rounds=task.rounds,
        sampling=task.sampling,
        rows=task.rows,
        batch=task.batch,
        participations=task.participations,
        dimension=task.dimension,
        noise=task.law,
        noise_std=task.deviation,
        noise_multiplier=task.multiplier,
        error=task.error,
    )


def _run(common: _Common, task: Any, study: Study, rows: int) -> RunPreflight:
    names, taken = _taken(task, study, _joint(study, rows))
    return RunPreflight(
        *common,
        rows=rows,
        columns=len(names),
        rounds=task.message_rounds,
        value_bits=task.bound.bit_length() + 1,
        system_bits=task.committee.system.bits if task.committee.seats else 0,
        primes=len(task.committee.system.primes) if task.committee.seats else 0,
        law=task.law,
        noise_std=task.noise_std,
        noise_on=_noise_on(task, study.content.task.kind),
        loads=taken,
    )


def _taken(task: Any, study: Study, rows: int) -> tuple[Sequence[str], tuple[Load, ...]]:
    """The encoded columns, and what each participant takes."""
    if not isinstance(task, KeptScoresTask):
        return task.names, loads(task, study.participants, rows)
    names: Sequence[str] = getattr(study.model, "feature_names_in_", ())
    widths = {sender.owner: sender.weights - 1 for sender in task.senders}
    widths[task.active] = len(names) - sum(widths.values())
    return names, asking_loads(task, study.participants, widths, rows)


def _asking(run: RunPreflight, task: KeptScoresTask) -> AskingPreflight:
    senders = tuple(
        SenderPreflight(each.owner, each.weights, each.score_clip, task.blur(each.owner), task.deviation(each.owner))
        for each in task.senders
    )
    return AskingPreflight(**vars(run), to=task.active, model=task.model, senders=senders)


def _iterative(run: RunPreflight, task: Any) -> IterativePreflight:
    return IterativePreflight(
        **vars(run), steps=task.rounds, sampling=task.sampling, batch=task.batch, people=task.rows
    )


def _exchange(run: RunPreflight, task: Exchange, study: Study) -> ExchangePreflight:
    agreement = _agreement(task, study)
    return ExchangePreflight(
        **vars(run),
        family=task.family.name,
        active=task.active,
        epochs=task.epochs,
        batches=task.batches,
        message_clip=task.message_clip,
        learning_rate=task.learning_rate if task.method == "gradient" else None,
        release=task.release,
        sides=tuple(_side(task, side, agreement.get(side.owner)) for side in task.sides),
        guarantees=Guarantees.of(run.statement),
    )


def _side(task: Exchange, side: Side, agreement: float | None) -> SidePreflight:
    active = side.owner == task.active
    return SidePreflight(
        party=side.owner,
        ridge=side.ridge,
        weight_bound=None if active and task.method == "alternating" else side.weight_bound,
        score_clip=None if active else side.score_clip,
        noise_std=task.message_deviation(side.owner),
        agreement=agreement,
    )


def _agreement(task: Exchange, study: Study) -> dict[str, float]:
    """What is expected of the others' scores; only of parameters that were chosen by this very guess."""
    part = study.content.task
    own = isinstance(part, GlmPart) and (part.strength, part.weight_bound, part.score_clip) != (None, None, None)
    if task.method != "alternating" or own:
        return {}
    found = suggest(
        task.blocks,
        task.active,
        task.family,
        task.rows,
        multiplier(task),
        intercept=task.intercept,
        epochs=task.epochs,
        message_clip=task.message_clip,
    )
    return found.agreement


def _noise_on(task: Any, kind: str) -> str:
    """Which number the deviation of the noise belongs to."""
    if isinstance(task, KeptScoresTask):
        return "a score that is told"
    if not task.committee.seats:
        return "a slope that is told"
    if hasattr(task, "batch"):
        return "a number of one batch's mean gradient"
    if isinstance(task, Directions):
        return "an entry of X'X times a direction"
    return {"polynomial": "a sum", "prediction": "a score"}.get(kind, "an entry of X'X")
