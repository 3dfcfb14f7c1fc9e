"""Scores of new people by encoders that parties kept; only one party receives them, and every question is charged."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from colonnade.errors import StudyError
from colonnade.kinds.prediction.task import Scores
from colonnade.kinds.split import asked, foretold
from colonnade.kinds.split.asked import Told
from colonnade.kinds.split.base import SplitModel
from colonnade.kinds.split.embeddings.task import NewEmbeddings
from colonnade.kinds.split.given import OWN, supposed_of
from colonnade.models.classifier_mixin import ClassifierMixin
from colonnade.models.federation import Federation
from colonnade.models.new_rows import Matrix
from colonnade.models.parameters import NAMES_MODEL, NAMES_PARTIES, SETS_PRICE, Count, RowsAtMost, check_whole
from colonnade.models.planner import Roster
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
from colonnade.privacy.calibrate import add_least_noise
from colonnade.privacy.events import audience_of
from colonnade.protocols.roles import Owner
from colonnade.randomness import Stream
from colonnade.tables import Table

Question = Scores | NewEmbeddings


@dataclass(eq=False, repr=False)
class SplitScores(ScoreQuestion[Question, Told | None, SplitModel]):
    """Scores of new people under a split model, told to one party alone; each party brings the encoder it kept.

    With a head that a committee learned, each party computes its part of the scores by its encoder and the public
    weights, and the sums are opened to ``to`` on shares. With a head that the party with the label keeps, the others
    tell it embeddings of the new people. Answers with noise are weighed against what the receiver's own embeddings say,
    which stands beside them, so that they are not worse than that in expectation. Exactly one of ``epsilon`` and
    ``exact=True`` is given, and the costs of questions add up.

    Args:
        model: a fitted split model, or the path of its ``model.json``; each party needs its own kept encoder.
        to: the party that receives the scores; by default, and without a committee always, the one with the label.
        exact: tell ``to`` exact scores, or embeddings as they are; no epsilon against it is then finite.
        epsilon: instead, what ``to`` (or a mapping of observers) may learn about one person's columns held by others.
        delta: the delta of that promise.
        gamma: scores on shares are whole multiples of ``1 / gamma``.
        rows_at_most: a public limit on the number of people.
    """

    kind = "split-scores"
    tasks = (Scores, NewEmbeddings)
    brings = "encoder"
    kept_file = "kept.npz"

    model: Annotated[SplitModel | str | Path | None, FILE_OF_MODEL, NAMES_MODEL] = None
    _: KW_ONLY
    to: Annotated[str | None, NAMES_PARTIES] = None
    exact: Annotated[bool, SETS_PRICE] = False
    epsilon: float | Mapping[str, float] | None = None
    delta: float = 1e-5
    gamma: Count = 2**16
    rows_at_most: RowsAtMost = 2**20

    @property
    def recipient(self) -> str:
        """The party that alone receives the answers."""
        if self.to is not None:
            return self.to
        return audience_of(self.privacy_.events[0])[0] if self.fitted else self.scorer.design_.owner

    def equip(self, party: str, encoder: Mapping[str, Any] | None) -> None:
        """Remember what makes the module of a party's own, of whose weights alone there is a file."""
        self._make = None if encoder is None else encoder.get("make")

    def bring(self, path: str | Path, party: str) -> None:
        """Read the encoder that one party kept, from its own file; this copy then has no encoder of other parties."""
        own = copy(self.scorer)
        own.encoders_, own.own_ = {}, {}
        if (found := own.load_kept(path, module=getattr(self, "_make", None))) != party:
            raise StudyError(
                f"{path} holds the encoder of {found}, not that of {party}; use {party}'s own file [ST332]"
            )
        self._read = self.model, own

    # --- planning

    def plan(self, roster: Roster) -> Question:
        """Bounds from the public head and clips; the least noise that meets the budgets, or none."""
        roster.require_known_members("joint prediction")
        if (self.epsilon is None) != (self.exact is True):
            raise StudyError(
                "say what the scores may cost, by epsilon or by exact = true, and not by both: epsilon adds noise, and "
                f"exact = true tells {self.recipient} what no epsilon bounds [ST333]"
            )
        check_whole("gamma", self.gamma, 1, 2**40)
        check_whole("rows_at_most", self.rows_at_most, 1, 2**31)
        scorer = self.scorer
        check_columns(scorer, roster)  # type: ignore[arg-type]  # it asks for columns alone, not for weights
        owners, exact = tuple(roster.schemas), self.epsilon is None
        draft = asked.question(scorer, self.recipient, owners, roster, self.gamma, self.rows_at_most, exact=exact)
        if self.epsilon is None:
            return replace(draft, new="clear") if isinstance(draft, NewEmbeddings) else draft
        budgets = budgets_against(self.recipient, self.epsilon, self.delta, draft.trust)
        if isinstance(draft, NewEmbeddings):
            return draft.calibrate(budgets)
        parts = draft.additive.parts
        return add_least_noise(lambda noise: replace(draft, noise=noise), draft.trust, budgets, owners=parts)

    def suppositions(self, roster: Roster) -> tuple[str, ...]:
        """Which parties supplied encoders, which answer here too and which no code can check."""
        scorer = self.scorer
        return tuple(supposed_of(party) for party in scorer.schemas_ if scorer.encoder_kind(party) == OWN)

    def check_model(self, model: Any) -> SplitModel:
        """This model, if it is a fitted one whose parties keep encoders."""
        if not isinstance(model, SplitModel):
            raise StudyError(
                f"scores of kept encoders take a split model or the path of its model.json, not {model!r:.60} [ST334]"
            )
        check_fitted(model)
        return model

    @classmethod
    def why_not_about(cls, model: Any) -> str | None:
        """Why such a study cannot use this model: its parties must have kept encoders."""
        return None if isinstance(model, SplitModel) else "is no split model, whose parties keep encoders of their own"

    # --- the joint computation

    def owner(self, me: Owner, table: Table, task: Question) -> Told | None:
        """An owner's program: it embeds its own columns by its own encoder."""
        if self.scorer.digest != task.model:
            raise StudyError(
                "the model is not the one that the study was planned with; use the file all agreed on [ST335]"
            )
        return asked.owner(me, self.scorer, self._own_columns(me.name, table), task)

    def _own_columns(self, party: str, table: Table) -> Table:
        ordered, used = table.sorted_by_id(), scored_features(self.scorer, party)  # type: ignore[arg-type]  # columns alone
        return ordered.select(used) if used else ordered

    def outcome(self, outcomes: Mapping[str, Any], task: Question) -> Told | None:
        """What the party that is told received, where all participants run in one process."""
        received: Told | None = outcomes[asked.told(task)]
        return received

    def simulate_result(self, tables: Mapping[str, Table], task: Question, stream: Stream) -> Told:
        """What the party that is told would receive about these tables."""
        ordered = {party: self._own_columns(party, table) for party, table in tables.items()}
        return asked.simulate(self.scorer, ordered, task, stream)

    def finish(self, result: Told | None) -> None:
        """Compute the predictions, if this participant received anything."""
        if result is None:
            self.restore({})
            return
        found, alone = result.scores, result.alone
        flat = self._flat(found, result.left)
        beside = ScoreContext(
            probabilities=self._chances(flat),
            own_scores=alone,
            own_predictions=None if alone is None else self.scorer.answers(self._flat(alone, result.unheard)),
            own_probabilities=None if alone is None else self._chances(self._flat(alone, result.unheard)),
            deviations=None if result.left is None else np.sqrt(np.tile(np.diag(result.left), (len(found), 1))),
            classes=self.scorer.classes_.tolist() if isinstance(self.scorer, ClassifierMixin) else None,
        )
        self.store_answers(result.ids, found, self.scorer.answers(flat), beside)

    def _flat(self, scores: Matrix, unknown: Matrix | None) -> Matrix:
        """Scores whose chances allow for what is not known of them; of a number the scores themselves."""
        if unknown is None or not isinstance(self.scorer, ClassifierMixin):
            return scores
        return scores / foretold.flatter(unknown)

    def _chances(self, flat: Matrix) -> Matrix | None:
        return self.scorer.chances(flat) if isinstance(self.scorer, ClassifierMixin) else None

    def asked(self, people: Federation) -> JointScores:
        """Ask about these people, and return the answers as plain values."""
        return self.fit(people).joint
