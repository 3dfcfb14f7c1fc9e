"""An encoder that the label's owner trains on its own rows before a committee learns the head; all of it is charged.

The owner pulls the embedding of each row towards a public point of its class by whole sums of clipped gradients under
noise (docs/theory/private-updates.md). Every epoch is one sum over all rows, and steps divide by a public number, so
that a person more or less moves a sum by that person's own gradient only, and the analyst may be held to adding or
removing one (docs/theory/heads-from-moments.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from colonnade.errors import StudyError
from colonnade.kinds.split.committee_head import GAMMA, LENGTH, JointEmbeddings, Labels
from colonnade.kinds.split.embedding_programs import class_anchors, contrastive_slopes
from colonnade.kinds.split.encoder_base import Matrix, RowEncoder, TrainableEncoder
from colonnade.kinds.split.private_training import Places, PrivateTraining, train_encoder
from colonnade.privacy import Budget, Trust
from colonnade.privacy.noise_laws import DEFAULT_LAW, NormalLawName
from colonnade.protocols.moments.task import ChargedMoments
from colonnade.randomness import Stream

_MARGIN, _CONTRAST = 1.0, 0.1
MOST_SHARE = 0.95


def plan_training(
    joint: JointEmbeddings,
    parameters: int,
    rows: int,
    trust: Trust,
    budgets: Sequence[Budget],
    *,
    epochs: int,
    share: float,
) -> PrivateTraining:
    """Training that uses up about this share of every budget's epsilon; ``rows`` is a public guess of their number."""
    if not 0 < share <= MOST_SHARE:
        raise StudyError(f"the share of training lies above 0 and is at most {MOST_SHARE}, not {share!r:.40} [ST319]")
    part = [replace(budget, epsilon=share * budget.epsilon) for budget in budgets]
    draft = PrivateTraining(joint.label_party, rows, parameters, epochs)
    return draft.calibrate(trust, part)


def moments_after(
    joint: JointEmbeddings,
    training: PrivateTraining,
    trust: Trust,
    budgets: Sequence[Budget],
    *,
    rows_at_most: int = 2**24,
    law: NormalLawName = DEFAULT_LAW,
    hidden: bool = False,
) -> ChargedMoments:
    """One release of all moments, with the least noise that keeps the budgets together with the training before."""
    _check(joint, training)
    draft = ChargedMoments(
        blocks=joint.blocks,
        trust=trust,
        gamma=GAMMA,
        constant=joint.constant(GAMMA),
        rows_at_most=rows_at_most,
        noise=len(joint.widths),
        law=law,
        hidden=hidden,
        charged=training.events,
    )
    return draft.calibrate(budgets)


def train_own(
    encoder: TrainableEncoder,
    rows: Matrix,
    labels: Labels,
    joint: JointEmbeddings,
    plan: PrivateTraining,
    stream: Stream,
) -> None:
    """Train the encoder of the label's owner in place, from its own rows and labels."""
    _check(joint, plan)

    def slopes_of(places: Places, embeddings: Matrix) -> Matrix:
        return _slopes(embeddings, labels[places], joint.classes)

    train_encoder(RowEncoder(encoder, rows), slopes_of, plan, stream, rows=len(rows))


def _slopes(embeddings: Matrix, labels: Labels, classes: int) -> Matrix:
    """How the loss of each row, against public points alone, changes with its embedding."""
    width = embeddings.shape[1]
    if classes:
        known = np.clip(labels, 0, classes - 1).astype(np.int64)
        slopes = contrastive_slopes(embeddings, known, class_anchors(classes, width, LENGTH), _MARGIN, _CONTRAST)
        return np.asarray(np.where(np.asarray(labels)[:, None] >= 0, slopes, 0.0))
    target = np.zeros_like(embeddings)
    target[:, 0] = np.clip(labels, -1.0, 1.0)
    return embeddings - target


def _check(joint: JointEmbeddings, plan: PrivateTraining) -> None:
    if plan.owner != joint.label_party:
        raise StudyError(
            f"only {joint.label_party}, who has the label, can train its encoder before the head is learned [ST320]"
        )
    if plan.batches != 1 or plan.audience:
        raise StudyError(
            "training before a committee's head takes all rows in every sum, and everybody is charged [ST321]"
        )
