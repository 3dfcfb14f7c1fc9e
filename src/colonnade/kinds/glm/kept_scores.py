"""Scores of new people by kept weights; only the party with the label receives them, and every question is charged."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import KW_ONLY, dataclass
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import DataError, StudyError
from colonnade.kinds.glm import preflight
from colonnade.kinds.glm.fitted import FittedGLM, unit_of
from colonnade.kinds.glm.losses import Vector, estimate_scores
from colonnade.kinds.glm.sides import KeptWeights, blur_scores, clipped_normal
from colonnade.kinds.glm.task import STEPS
from colonnade.models.federation import Federation
from colonnade.models.planner import (
    LIMITS_ROWS,
    NAMES_MODEL,
    InFile,
    PlanDetails,
    Roster,
    at_least,
    at_most,
    check_whole,
)
from colonnade.models.score_result import (
    FILE_OF_MODEL,
    JointScores,
    ScoreContext,
    ScoreQuestion,
    budgets_against,
    check_columns,
    check_fitted,
    scored_features,
)
from colonnade.privacy import Event, Statement, Trust
from colonnade.privacy.events import audience_of
from colonnade.protocols.cost import BASE_MEMORY, NUMBER, SECONDS_PER_PRODUCT, ParticipantLoad, seconds_on_wire
from colonnade.protocols.roles import Coordinator, Owner
from colonnade.protocols.rows import KnownPeople, agree_on_rows, compare_rows
from colonnade.protocols.task import NOISE_UNIT, MessageTask, TaskPrograms, message_event, own_noise
from colonnade.randomness import Stream
from colonnade.tables import Table
from colonnade.tables.bins import Matrix

PROTOCOL = "exchange-ask 1"
_STEEPEST = 6


@dataclass(frozen=True)
class ScoreSender:
    """An owner whose scores are sent: how many weights it has, and its public bounds.

    ``drift`` is how far its weights move at most when one person was another in the fit, given all that the fit sent.
    """

    owner: str
    weights: int
    row_norm: float
    score_clip: float
    drift: float

    @property
    def lean(self) -> int:
        """The power of 2 by which noise on weights is larger than on scores, in units of squared sensitivity.

        At that ratio both together add the least noise to a score for the privacy that they cost together.
        """
        if not self.drift:
            return _STEEPEST
        square = (2 * Fraction(self.score_clip) / (Fraction(self.row_norm) * Fraction(self.drift))) ** 2
        # The nearest power of 2, by exact comparisons, which are the same on every machine.
        return sum(square >= Fraction(2) ** (2 * k - 1) for k in range(1 - _STEEPEST, 1 + _STEEPEST)) - _STEEPEST


@dataclass(frozen=True)
class KeptScoresTask(MessageTask):
    """The public task. All owners and the coordinator hold an equal one.

    Every owner but ``active`` is one of ``senders``, in the order of the owners, and sends one clipped score a person,
    in multiples of ``2^-bits``. The variance of the noise on scores is ``noise / 2^20`` times the square of what one
    person's columns can move. ``model`` is a digest of the model that is used, ``names`` are its encoded columns.
    """

    trust: Trust
    active: str
    senders: tuple[ScoreSender, ...]
    rows_at_most: int
    noise: int = NOISE_UNIT
    bits: int = 28
    model: str = ""
    names: tuple[str, ...] = ()

    programs = TaskPrograms("colonnade.kinds.glm.kept_scores")
    games = "glm-prediction"
    error_on = "score"
    rows_key = "rows_at_most"
    message_rounds = 7  # ready, go; salt, digests, verdict; scores

    def __post_init__(self) -> None:
        if self.active not in self.owners or tuple(sender.owner for sender in self.senders) != self.passives:
            raise ValueError("every owner but the active one is a sender, in order [VA134]")
        for sender in self.senders:
            if not (0 < sender.score_clip < math.inf and 0 <= sender.drift < math.inf):
                raise StudyError(
                    f"the bounds of {sender.owner} must be finite numbers, its clip of scores above 0 [ST454]"
                )

    # --- who

    @property
    def everyone(self) -> tuple[str, ...]:
        """Who learns the result."""
        return (self.active,)

    def sender(self, owner: str) -> ScoreSender:
        """One owner's bounds."""
        return self.senders[self.passives.index(owner)]

    # --- noise and events

    def _score_square(self, owner: str) -> int:
        """Given the blurred weights, only the person's own score moves."""
        return self.grid.sensitivity_squared(2 * Fraction(self.sender(owner).score_clip), 1)

    def _weights_square(self, owner: str) -> int:
        sender = self.sender(owner)
        return self.grid.sensitivity_squared(Fraction(sender.drift), sender.weights)

    def score_variance(self, owner: str) -> int:
        """The variance of the noise on each score, in squared steps of the grid."""
        return -(-self.noise * self._score_square(owner) // NOISE_UNIT)

    def weights_variance(self, owner: str) -> int:
        """The variance of the noise on each weight, in squared steps of the grid."""
        exact = self.noise * Fraction(2) ** self.sender(owner).lean * self._weights_square(owner) / NOISE_UNIT
        return math.ceil(exact)

    def deviation(self, owner: str) -> float:
        """The standard deviation of the noise on each score."""
        return self.deviation_of(self.score_variance(owner))

    def blur(self, owner: str) -> float:
        """About the deviation that blurred weights give to a score, for a row of half its largest squared norm."""
        each = self.deviation_of(self.weights_variance(owner))
        return float(self.sender(owner).row_norm * each * math.sqrt(0.5))

    def score_event(self, owner: str) -> Event:
        """The event that an owner's scores are sent, which tells about its columns of a new person."""
        square = self._score_square(owner)
        return self._event(f"new scores of {owner}", owner, self.rows_at_most, square, self.score_variance(owner))

    def weights_event(self, owner: str) -> Event:
        """The event of its blurred weights, which tell about people in the fit; only scores with them are sent."""
        size, square = self.sender(owner).weights, self._weights_square(owner)
        return self._event(f"blurred weights of {owner}", owner, size, square, self.weights_variance(owner))

    def _event(self, name: str, owner: str, numbers: int, square: int, variance: int) -> Event:
        return message_event(name, owner, numbers, square, variance, STEPS, (self.active,))

    @cached_property
    def events(self) -> tuple[Event, ...]:
        """The events of scores and of the weights in them; both count for a person who is new and in the fit."""
        return tuple(made(owner) for owner in self.passives for made in (self.weights_event, self.score_event))

    @property
    def openings(self) -> Mapping[Event, int]:
        """How often the numbers of each event are sent; blurred weights never are."""
        return {self.score_event(owner): 1 for owner in self.passives}

    # --- what sessions, studies and records ask

    @property
    def rows_limit(self) -> int:
        """As many as were allowed."""
        return self.rows_at_most

    @property
    def bound(self) -> int:
        """The largest magnitude of a number that is sent."""
        widest = max(max(self.score_variance(owner), self.weights_variance(owner)) for owner in self.passives)
        return self.bound_of(max(sender.score_clip for sender in self.senders), widest, "raise epsilon")

    @property
    def noise_std(self) -> float:
        """The largest standard deviation of the noise on one party's score."""
        return max(self.deviation(owner) for owner in self.passives)

    def load(self, name: str, rows: int, pace: float) -> ParticipantLoad:
        """Bytes, memory and seconds of one participant; one number of noise takes ``pace`` seconds."""
        widths = {sender.owner: sender.weights - 1 for sender in self.senders}
        widths[self.active] = len(self.names) - sum(widths.values())
        width = widths.get(name, 0)
        sent, drawn = (NUMBER * rows, rows + width) if name in self.passives else (0, 0)
        memory = BASE_MEMORY + (NUMBER * rows * (3 * width + 4) if name in self.owners else 0)
        seconds = pace * drawn + seconds_on_wire(sent, self.message_rounds)
        return ParticipantLoad(name, sent, memory, seconds + 2 * SECONDS_PER_PRODUCT * rows * width)

    @property
    def facts(self) -> dict[str, Any]:
        """Plain values for the record of a run."""
        return self.noise_facts | {
            "deviations": {owner: self.deviation(owner) for owner in self.passives},
            "blurs": {owner: self.blur(owner) for owner in self.passives},
            "to": self.active,
            "rows_at_most": self.rows_at_most,
        }

    @property
    def agreement(self) -> dict[str, Any]:
        """Everything that must be equal at every participant, in order and exactly."""
        return {
            "protocol": PROTOCOL,
            "owners": list(self.owners),
            "active": self.active,
            "senders": [
                [each.owner, each.weights, each.lean, *(v.hex() for v in (each.row_norm, each.score_clip, each.drift))]
                for each in self.senders
            ],
            "rows_at_most": self.rows_at_most,
            "bits": self.bits,
            "law": self.law,
            "noise": str(self.noise),
            "model": self.model,
        }


Integers = NDArray[np.int64]
_LONGER = 1.5  # of the usual blur: that of rows three quarters as long as their bound
_DOUBT = 0.1  # relative error of the usual variance of what is received
_SHIFT = 0.1  # as part of the variance of scores: how far the mean of new people may be from what was foreseen


@dataclass(frozen=True)
class NewRows(KnownPeople):
    """One owner's rows of new people, with the constant, and its own weights for them."""

    ids: Sequence[str]
    rows: Matrix
    weights: Vector
    own_ids: Sequence[str] | None = None

    @property
    def scores(self) -> Vector:
        """The exact scores, which never leave this owner."""
        found: Vector = self.rows @ self.weights
        return found


@dataclass(frozen=True)
class KeptScoreAnswers:
    """What the active party has in the end: its own rows, and the others' scores as received, with their noise."""

    task: KeptScoresTask
    new: NewRows
    received: Mapping[str, Vector]

    def estimate(self, kept: KeptWeights) -> JointScoreEstimate:
        """The joint scores with the variance that is left of what is not known, and both by own columns alone.

        They follow from the factors and the expectations that the active party kept.
        """
        scores, own = self.new.scores, self.new.scores
        hidden = unheard = 0.0
        for name, factor in kept.factors.items():
            clip = self.task.sender(name).score_clip
            foreseen, spread = self.new.rows @ kept.expected[name], kept.spreads.get(name)
            news = self.received[name] - foreseen
            noise, blur = self.task.deviation(name) ** 2, self.task.blur(name) ** 2
            if spread is None:
                expected = estimate_scores(news, clip, noise, blur)
                spread, middle, share, left = (clip / 2) ** 2, expected.middle, expected.share, 1 - expected.share
                left *= expected.signal
            else:
                middle, share, left = _weighed_again(news, clip, noise, blur, spread)
            scores = scores + factor * (foreseen + middle + share * (news - news.mean()))
            own = own + factor * foreseen
            hidden += factor**2 * left
            unheard += factor**2 * spread
        return JointScoreEstimate(scores, hidden, own, unheard)


@dataclass(frozen=True)
class JointScoreEstimate:
    """Joint scores and what is not known of them, as a variance; then the same by own columns alone."""

    scores: Vector
    hidden: float
    own: Vector
    unheard: float


def _weighed_again(news: Vector, clip: float, noise: float, blur: float, spread: float) -> tuple[float, float, float]:
    """What is believed of scores around what was foreseen, whose variance the fit told: middle, share, variance left.

    The blur is drawn once for all people, and what is received tells how large it is; ``blur`` is its usual variance.
    A clip lets only a part of blurred scores through.
    """
    passed, clipped = clipped_normal(clip, math.sqrt(spread + _LONGER * blur))
    usual = noise + clipped**2
    error, doubt = 2 * usual**2 / len(news), (blur + _DOUBT * usual) ** 2
    whole = max((float(news.var()) * doubt + usual * error) / (doubt + error), noise + passed * spread)
    middle = float(news.mean()) * _SHIFT * spread / (_SHIFT * spread + noise / len(news) + blur)
    share = passed * spread / whole
    return middle, share, spread * (1 - passed * share)


def noisy_scores(new: NewRows, name: str, task: KeptScoresTask, stream: Stream) -> Integers:
    """One owner's message: scores with blurred weights, clipped, on the grid, with its noise."""
    blur = own_noise(name, task.weights_variance(name)).draw((len(new.weights),), stream)
    blurred = task.grid.real(task.grid.quantise(new.weights) + blur)
    clip = task.sender(name).score_clip
    clipped = np.clip(new.rows @ blurred, -clip, clip)
    return task.grid.quantise(clipped) + own_noise(name, task.score_variance(name)).draw((len(clipped),), stream)


def owner(me: Owner, new: NewRows, task: KeptScoresTask) -> KeptScoreAnswers | None:
    """An owner's program; it returns the scores at the active party and ``None`` at the others."""
    if new.rows.shape != (len(new.ids), len(new.weights)) or not np.isfinite(new.scores).all():
        raise DataError(f"{me.name} must have one finite score for each of its rows [DA126]")
    told = None
    if me.name != task.active:
        with me.meter.phase("noise"):
            told = noisy_scores(new, me.name, task, Stream.fresh())
    rows = agree_on_rows(me, task, new)
    me.progress("scores", 0, 1)
    if told is not None:
        me.tell((task.active,), "scores", told, event=task.score_event(me.name))
        me.progress("scores", 1, 1)
        return None
    received = {name: task.grid.real(me.receive_message(name, "scores", rows, task.bound)) for name in task.passives}
    me.progress("scores", 1, 1)
    return KeptScoreAnswers(task, new, received)


def coordinator(me: Coordinator, task: KeptScoresTask) -> None:
    """The coordinator's program: it compares digests of ids."""
    compare_rows(me, task)


def simulate(new: Mapping[str, NewRows], task: KeptScoresTask, stream: Stream) -> KeptScoreAnswers:
    """What the active party would hold, computed in one place: the same rounding and noise.

    It is for evaluation on data that may be in one place; a study never calls it.
    """
    told = {name: task.grid.real(noisy_scores(new[name], name, task, stream)) for name in task.passives}
    return KeptScoreAnswers(task, new[task.active], told)


@dataclass(eq=False, repr=False)
class KeptScores(ScoreQuestion[KeptScoresTask, KeptScoreAnswers | None, FittedGLM]):
    """Scores of new people under a model whose weights were kept, told to the party with the label alone.

    Every other party adds noise to its weights and sends one number for each person: the score by these weights,
    clipped as in the fit, with noise. The party with the label adds its own scores. The costs of questions add up.

    Args:
        model: a fitted :class:`GLM`, or the path of its ``model.json``; each party needs its own kept weights in it.
        epsilon: what the party with the label (or a mapping of observers) may learn about one person's columns,
            whether the person is new, was in the fit, or both.
        delta: the delta of that promise.
        rows_at_most: a public limit on the number of people; ``fit`` counts them if it is not given.
    """

    kind = "glm-scores"
    tasks = (KeptScoresTask,)
    shares = False
    brings = "weights"

    model: Annotated[FittedGLM | str | Path | None, FILE_OF_MODEL, NAMES_MODEL] = None
    _: KW_ONLY
    epsilon: float | Mapping[str, float] = 1.0
    delta: float = 1e-5
    rows_at_most: Annotated[int | None, InFile(Annotated[int, at_least(1), at_most(2**31)], 2**20), LIMITS_ROWS] = None

    @property
    def recipient(self) -> str:
        """The party with the label, which alone is told the scores."""
        self._check_fitted()
        return audience_of(self.privacy_.events[0])[0]

    @property
    def to(self) -> str:
        """The same as ``recipient``, under the name that :class:`JointPrediction` uses."""
        return self.recipient

    def bring(self, path: str | Path, party: str) -> None:
        """Read the weights that one party kept, from its own file; this copy then has no weights of other parties."""
        own = copy(self.scorer)
        own.kept_ = {}
        if (found := own.load_kept(path)) != party:
            raise StudyError(
                f"{path} holds the weights of {found}, not those of {party}; use {party}'s own file [ST121]"
            )
        self._read = self.model, own

    def plan(self, roster: Roster) -> KeptScoresTask:
        """The task: every party without the label sends one score with noise for each person."""
        if self.rows_at_most is None:
            raise StudyError("rows_at_most is missing: say about how many people is asked, a public number [ST122]")
        return self.plan_for_rows(roster, self.rows_at_most)

    def plan_for_rows(self, roster: Roster, rows: int) -> KeptScoresTask:
        """The task for a public number of people, with the least noise that meets the budgets."""
        task = self.draft(roster, rows)
        return task.calibrate(budgets_against(task.active, self.epsilon, self.delta, task.trust))

    def draft(self, roster: Roster, rows: int) -> KeptScoresTask:
        """The task before its noise is known."""
        roster.require_known_members("joint prediction")
        check_whole("rows_at_most", rows, 1, 2**31)
        scorer = self.scorer
        if missing := [party for party in scorer.schemas_ if party not in roster.schemas]:
            raise StudyError(f"{missing[0]} keeps a part of the model and takes no part in the prediction [ST123]")
        check_columns(scorer, roster)
        if others := [party for party in roster.schemas if party not in scorer.schemas_]:
            raise StudyError(
                f"{others[0]} keeps no part of the model, so it cannot take part in the prediction [ST124]"
            )
        active, owners = scorer.plan_["active"], tuple(roster.schemas)
        sizes = {owner: len(scorer.design_.centred_columns(owner).feature_names) + 1 for owner in owners}
        bounds = scorer.plan_["senders"]
        sending = tuple(ScoreSender(owner, sizes[owner], **bounds[owner]) for owner in owners if owner != active)
        return KeptScoresTask(
            Trust(owners, (), 0), active, sending, int(rows), model=scorer.digest, names=tuple(scorer.feature_names_in_)
        )

    def owner(self, me: Owner, table: Table, task: KeptScoresTask) -> KeptScoreAnswers | None:
        """An owner's program: it computes its own scores with its own weights."""
        if self.scorer.digest != task.model:
            raise StudyError(
                "the model is not the one that the study was planned with; use the file all agreed on [ST125]"
            )
        return owner(me, self.new(me.name, table), task)

    def new(self, party: str, table: Table) -> NewRows:
        """One party's rows of the people in its table, and its weights."""
        ordered, used = table.sorted_by_id(), scored_features(self.scorer, party)
        rows, weights = self.scorer.kept_rows(party, ordered.select(used) if used else ordered)
        return NewRows(ordered.ids, rows, weights, ordered.own_ids)

    def plan_for(self, people: Federation) -> KeptScoresTask:
        """The task for these people; they are counted if ``rows_at_most`` is not given."""
        return self.plan_for_rows(
            people.roster, people.common_rows() if self.rows_at_most is None else self.rows_at_most
        )

    def outcome(self, outcomes: Mapping[str, Any], task: KeptScoresTask) -> KeptScoreAnswers | None:
        """What the party with the label received, where all participants run in one process."""
        answers: KeptScoreAnswers | None = outcomes[task.active]
        return answers

    def check_model(self, model: Any) -> FittedGLM:
        """This model, if it is a fitted one whose parties keep weights."""
        if not isinstance(model, FittedGLM):
            raise StudyError(
                f"joint scores of kept weights take a GLM or the path of its model.json, not {model!r:.60} [ST126]"
            )
        check_fitted(model)
        return model

    @classmethod
    def why_not_about(cls, model: Any) -> str | None:
        """Why such a study cannot use this model: its parties must have kept weights."""
        if isinstance(model, FittedGLM):
            return None
        return 'is no model of kind "glm", whose parties keep weights of their own'

    def details(self, task: KeptScoresTask, statement: Statement) -> PlanDetails:
        """Which party sends scores, and how much noise they have."""
        return preflight.question_details(task)

    def ask(self, people: Federation) -> JointScores:
        """Ask about these people, and return the answers as plain values."""
        if not isinstance(people, Federation):
            raise StudyError(f"joint scores are asked of a Federation, not of {type(people).__name__} [ST127]")
        return self.fit(people).joint

    def simulate_result(self, tables: Mapping[str, Table], task: KeptScoresTask, stream: Stream) -> KeptScoreAnswers:
        """What the party with the label would receive about these tables."""
        return simulate({party: self.new(party, tables[party]) for party in task.owners}, task, stream)

    def finish(self, result: KeptScoreAnswers | None) -> None:
        """Compute the scores from what was received, if this participant received anything."""
        if result is None:
            self.restore({})
            return
        model = self.scorer
        found = result.estimate(model.kept_[result.task.active])
        scores, own = (self._unit(each) for each in (found.scores, found.own))
        flat, flat_own = self.flat(found.scores, found.hidden), self.flat(found.own, found.unheard)
        classes = getattr(model, "classes_", None)
        unit, _ = unit_of(model.family_, model.design_)
        beside = ScoreContext(
            probabilities=None if classes is None else model.chances(flat),
            own_scores=own,
            own_predictions=model.answers(flat_own),
            own_probabilities=None if classes is None else model.chances(flat_own),
            deviations=np.full(scores.shape, abs(unit) * math.sqrt(found.hidden)),
            classes=None if classes is None else classes.tolist(),
        )
        self.store_answers(result.new.called, scores, model.answers(flat), beside)

    def flat(self, scores: Vector, hidden: float) -> Matrix:
        """The linear predictors with the means of scores that are known up to this variance."""
        return self._unit(blur_scores(self.scorer.family_, scores, hidden))

    def _unit(self, scores: Vector) -> Matrix:
        unit, zero = unit_of(self.scorer.family_, self.scorer.design_)
        return zero + unit * scores[:, None]

    def played(self, tables: Mapping[str, Table], stream: Stream) -> Matrix:
        """The linear predictors, (rows, 1), that a question would let the party with the label predict by.

        Nothing is charged. Rows of all tables are the same people. It is for evaluation where all weights are in one
        process.
        """
        rows = next(iter(tables.values())).rows
        model = self.scorer
        task = self.plan_for_rows(Roster.of(model.schemas_), rows)
        new = {}
        for party in task.owners:
            table = tables.get(party)
            held = np.zeros((rows, 0)) if table is None else table.select(scored_features(model, party))
            new[party] = NewRows([], *model.kept_rows(party, held))
        found = simulate(new, task, stream).estimate(model.kept_[task.active])
        return self.flat(found.scores, found.hidden)
