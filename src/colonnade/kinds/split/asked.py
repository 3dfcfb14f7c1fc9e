"""The two questions about new people: parts of scores that are added on shares, and embeddings that are told."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import StudyError
from colonnade.kinds.prediction import programs as summing
from colonnade.kinds.prediction.programs import OpenedScores, OwnScoreParts
from colonnade.kinds.prediction.task import ScorePart, Scores
from colonnade.kinds.split import by_embeddings
from colonnade.kinds.split.base import SplitModel
from colonnade.kinds.split.embeddings import programs as telling
from colonnade.kinds.split.embeddings.task import NewEmbeddings, Sender
from colonnade.kinds.split.encoders import OverRows
from colonnade.kinds.split.foretold import Foretold, centred
from colonnade.models.planner import Roster
from colonnade.privacy import Trust
from colonnade.protocols.roles import Owner
from colonnade.randomness import Stream
from colonnade.tables import Table

Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class Told:
    """What the entitled party has in the end: the scores of the people in its own table, heard and by it alone.

    ``left`` and ``unheard`` are the covariances, (outputs, outputs), of what of exact scores is not known after and
    before anything was heard; they are ``None`` for scores that are the chances' logarithms given what is known.
    """

    ids: tuple[str, ...]
    scores: Matrix
    alone: Matrix | None = None
    left: Matrix | None = None
    unheard: Matrix | None = None


def question(
    model: SplitModel, to: str, owners: tuple[str, ...], roster: Roster, gamma: int, rows: int, *, exact: bool
) -> Scores | NewEmbeddings:
    """The task before its noise is known; which one it is follows from who has the head."""
    if missing := [party for party in model.schemas_ if party not in owners]:
        raise StudyError(f"{missing[0]} keeps a part of the model and takes no part in the prediction [ST218]")
    if strangers := [party for party in owners if party not in model.schemas_]:
        raise StudyError(f"{strangers[0]} keeps no part of the model, so it cannot take part in the prediction [ST219]")
    if model.head_ == "committee":
        parts = tuple(part_of(model, party, gamma, exact=exact) for party in owners)
        return Scores(parts, roster.trust, to, gamma, rows, names=tuple(model.feature_names_in_), model=model.digest)
    if model.head_ == "published":
        raise StudyError(
            "a model as published answers no questions about new people, for which it promises nothing: predict where "
            "all encoders are in one process, or learn the head by a committee or over embeddings [ST220]"
        )
    active = model.design_.owner
    if to != active:
        raise StudyError(
            f"{active} alone has the head of this model, so only {active} can be told scores: leave out to [ST221]"
        )
    widths, clips = model.plan_["widths"], model.plan_["clips"]
    senders = tuple(Sender(party, widths[party], clips[party]) for party in owners if party != active)
    return NewEmbeddings(Trust(owners, (), 0), active, senders, rows, new="noised", model=model.digest)


def part_of(model: SplitModel, party: str, gamma: int, *, exact: bool) -> ScorePart:
    """The least and the largest whole number that a party's part of each score can be: clip times the weights' norm."""
    weights, clip = weights_of(model, party, exact=exact), Fraction(model.plan_["clips"].get(party, 0.0))
    ends = []
    for row in weights.tolist():
        square = sum((Fraction(weight) ** 2 for weight in row), Fraction(0)) * (gamma * clip) ** 2
        ends.append(math.isqrt(math.ceil(square)) + 1 if square else 0)
    return ScorePart(party, tuple(-end for end in ends), tuple(ends))


def weights_of(model: SplitModel, party: str, *, exact: bool) -> Matrix:
    """The public weights of one party's embeddings, (outputs, width).

    Scores with noise leave out what all classes have in common: no chance depends on it, and it would need noise.
    """
    widths = model.plan_["widths"]
    start = sum(widths[other] for other in list(model.schemas_)[: list(model.schemas_).index(party)])
    weights: Matrix = model.public_["weights"][:, start : start + widths[party]]
    return weights if exact else centred(weights)


def told(task: Scores | NewEmbeddings) -> str:
    """Who is told the answers."""
    return task.to


def owner(me: Owner, model: SplitModel, table: Table, task: Any) -> Told | None:
    """An owner's program; it returns the scores at the entitled party and ``None`` at the others."""
    if task.scheme is None:
        opened = summing.owner(me, parts(model, me.name, table, task), task)
        return None if opened is None else _summed(model, table, opened)
    if me.name == task.active:
        found = telling.owner(me, None, table.ids, None, task)
        return _received(model, table, found.received, task)
    telling.owner(me, _encoding(model, me.name, table), table.ids, None, task, by_embeddings.scaling_of(model, me.name))
    return None


def simulate(model: SplitModel, tables: Mapping[str, Table], task: Any, stream: Stream) -> Told:
    """What the entitled party would receive, computed in one place."""
    if task.scheme is None:
        found = {party: parts(model, party, table, task) for party, table in tables.items()}
        return _summed(model, tables[task.to], summing.simulate(found, task, stream))
    over = {party: _encoding(model, party, tables[party]) for party in task.passives}
    scalings = {party: by_embeddings.scaling_of(model, party) for party in task.passives}
    rows = tables[task.active].rows
    told = telling.simulate(over, None, task, stream, rows=rows, scalings=scalings)
    return _received(model, tables[task.active], told[task.active].received, task)


def parts(model: SplitModel, party: str, table: Table, task: Scores) -> OwnScoreParts:
    """One party's parts of the scores of the people in its table."""
    if model.feature_schema(party) is None:
        return OwnScoreParts(table.ids, np.zeros((table.rows, task.classes)), table.own_ids)
    values = model.embedded(party, table) @ weights_of(model, party, exact=task.exact).T
    return OwnScoreParts(table.ids, values, table.own_ids)


def _encoding(model: SplitModel, party: str, table: Table) -> OverRows:
    return OverRows(model.own_encoder(party), model.encoded_rows(party, table))


def _summed(model: SplitModel, table: Table, opened: OpenedScores) -> Told:
    """Scores by what was opened, weighed against what the party's own embeddings foretell of it."""
    task, has_columns = opened.task, model.feature_schema(opened.task.to) is not None
    embeddings = model.embedded(task.to, table) if has_columns else np.zeros((table.rows, 0))
    known = Foretold.read(model.public_, model.plan_["widths"], task.to)
    alone, others = known.scores(embeddings), opened.others / float(task.gamma)
    if task.exact:
        exact = opened.own + others + model.public_["intercept"]
        return Told(opened.ids, exact, alone, np.zeros_like(known.spread), known.spread)
    own = opened.own + centred(model.public_["intercept"])
    heard, left = known.weighed(alone - own, opened.own, others, task.noise_std)
    return Told(opened.ids, own + heard, alone, left, known.spread)


def _received(model: SplitModel, table: Table, received: Mapping[str, Matrix], task: NewEmbeddings) -> Told:
    """Scores by the head that the active party kept, which takes the noise of these embeddings into account."""
    own = {task.active: model.embedded(task.active, table)} if model.feature_schema(task.active) is not None else {}
    noise = {party: task.received_variance(party) for party in task.passives}
    way = by_embeddings.ByEmbeddings()
    scores = way.scores_of(model, {**received, **own}, noise)
    return Told(tuple(table.own_ids), scores, way.scores_alone(model, own.get(task.active, np.zeros((table.rows, 0)))))
