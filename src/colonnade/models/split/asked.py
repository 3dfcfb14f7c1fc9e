"""The two questions about new people: parts of scores that are added on shares, and embeddings that are told."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import StudyError
from colonnade.models.federation import Roster
from colonnade.models.split import by_embeddings
from colonnade.models.split.base import SplitModel
from colonnade.models.split.encoders import OverRows
from colonnade.privacy import Trust
from colonnade.protocols.embeddings import programs as telling
from colonnade.protocols.embeddings.task import NewEmbeddings, Sender
from colonnade.protocols.roles import Coordinator, Owner
from colonnade.protocols.scores import programs as summing
from colonnade.protocols.scores.programs import OpenedScores, Parts
from colonnade.protocols.scores.task import Part, Scores
from colonnade.randomness import Stream
from colonnade.tables import Table

Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class Told:
    """What the entitled party has in the end: the scores of the people in its own table."""

    ids: tuple[str, ...]
    scores: Matrix


def question(
    model: SplitModel, to: str, owners: tuple[str, ...], roster: Roster, gamma: int, rows: int
) -> Scores | NewEmbeddings:
    """The task before its noise is known; which one it is follows from who has the head."""
    if missing := [party for party in model.schemas_ if party not in owners]:
        raise StudyError(f"{missing[0]} keeps a part of the model and takes no part in the prediction")
    if strangers := [party for party in owners if party not in model.schemas_]:
        raise StudyError(f"{strangers[0]} keeps no part of the model, so it cannot take part in the prediction")
    if model.head_ == "committee":
        parts = tuple(part_of(model, party, gamma) for party in owners)
        return Scores(parts, roster.trust, to, gamma, rows, names=tuple(model.feature_names_in_), model=model.digest)
    if model.head_ == "published":
        raise StudyError(
            "a model as published answers no questions about new people, for which it promises nothing: predict where "
            "all encoders are in one process, or learn the head by a committee or over embeddings"
        )
    active = model.design_.owner
    if to != active:
        raise StudyError(
            f"{active} alone has the head of this model, so only {active} can be told scores: leave out to"
        )
    widths, clips = model.plan_["widths"], model.plan_["clips"]
    senders = tuple(Sender(party, widths[party], clips[party]) for party in owners if party != active)
    return NewEmbeddings(Trust(owners, (), 0), active, senders, rows, new="noised", model=model.digest)


def part_of(model: SplitModel, party: str, gamma: int) -> Part:
    """The least and the largest whole number that a party's part of each score can be: clip times the weights' norm."""
    weights, clip = weights_of(model, party), Fraction(model.plan_["clips"].get(party, 0.0))
    ends = []
    for row in weights.tolist():
        square = sum((Fraction(weight) ** 2 for weight in row), Fraction(0)) * (gamma * clip) ** 2
        ends.append(math.isqrt(math.ceil(square)) + 1 if square else 0)
    return Part(party, tuple(-end for end in ends), tuple(ends))


def weights_of(model: SplitModel, party: str) -> Matrix:
    """The public weights of one party's embeddings, (outputs, width)."""
    widths = model.plan_["widths"]
    start = sum(widths[other] for other in list(model.schemas_)[: list(model.schemas_).index(party)])
    found: Matrix = model.public_["weights"][:, start : start + widths[party]]
    return found


def told(task: Scores | NewEmbeddings) -> str:
    """Who is told the answers."""
    return task.to if isinstance(task, Scores) else task.active


def owner(me: Owner, model: SplitModel, table: Table, task: Scores | NewEmbeddings) -> Told | None:
    """An owner's program; it returns the scores at the entitled party and ``None`` at the others."""
    if isinstance(task, Scores):
        opened = summing.owner(me, parts(model, me.name, table, task), task)
        return None if opened is None else _summed(model, opened)
    if me.name == task.active:
        found = telling.owner(me, None, table.ids, None, task)
        return _received(model, table, found.received, task)
    telling.owner(me, _encoding(model, me.name, table), table.ids, None, task, by_embeddings.scaling_of(model, me.name))
    return None


def coordinator(me: Coordinator, task: Scores | NewEmbeddings) -> None:
    """The coordinator's program."""
    if isinstance(task, Scores):
        summing.coordinator(me, task)
    else:
        telling.coordinator(me, task)


def simulate(model: SplitModel, tables: Mapping[str, Table], task: Scores | NewEmbeddings, stream: Stream) -> Told:
    """What the entitled party would receive, computed in one place."""
    if isinstance(task, Scores):
        found = {party: parts(model, party, table, task) for party, table in tables.items()}
        return _summed(model, summing.simulate(found, task, stream))
    over = {party: _encoding(model, party, tables[party]) for party in task.passives}
    scalings = {party: by_embeddings.scaling_of(model, party) for party in task.passives}
    rows = tables[task.active].rows
    told = telling.simulate(over, None, task, stream, rows=rows, scalings=scalings)
    return _received(model, tables[task.active], told[task.active].received, task)


def parts(model: SplitModel, party: str, table: Table, task: Scores) -> Parts:
    """One party's parts of the scores of the people in its table."""
    if model.feature_schema(party) is None:
        return Parts(table.ids, np.zeros((table.rows, task.classes)), table.own_ids)
    values = model.embedded(party, table) @ weights_of(model, party).T
    return Parts(table.ids, values, table.own_ids)


def _encoding(model: SplitModel, party: str, table: Table) -> OverRows:
    return OverRows(model.own_encoder(party), model.encoded_rows(party, table))


def _summed(model: SplitModel, opened: OpenedScores) -> Told:
    return Told(opened.ids, opened.scores + model.public_["intercept"])


def _received(model: SplitModel, table: Table, received: Mapping[str, Matrix], task: NewEmbeddings) -> Told:
    """Scores by the head that the active party kept, which takes the noise of these embeddings into account."""
    own = {task.active: model.embedded(task.active, table)} if model.feature_schema(task.active) is not None else {}
    noise = {party: task.received_variance(party) for party in task.passives}
    scores = by_embeddings.ByEmbeddings().scores_of(model, {**received, **own}, noise)
    return Told(tuple(table.own_ids), scores)
