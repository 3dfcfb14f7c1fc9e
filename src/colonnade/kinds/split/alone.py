"""What the party with the label can learn from its own columns alone: the same head, without noise, for comparison."""

from __future__ import annotations

import numpy as np

from colonnade.kinds.split import committee
from colonnade.kinds.split.committee import Joint
from colonnade.kinds.split.encoders import Encoder
from colonnade.kinds.split.heads import Head
from colonnade.kinds.split.labels import targets
from colonnade.kinds.split.ways import Matrix, Model
from colonnade.tables import Table


def head(model: Model, encoder: Encoder, table: Table) -> Head:
    """The head over the party's own embeddings, by the solver of the model; nothing of it is published."""
    design = model.design_
    joint = Joint(((design.owner, encoder.width),), design.owner, len(design.declared.classes))
    centred = model.centred(design.owner, table)
    labels = targets(centred, table, joint.classes)
    rows = joint.rows(design.owner, centred.centre_features(table), encoder, labels).matrix()
    constant = joint.constant(committee.GAMMA) / committee.GAMMA
    whole = np.hstack([rows, np.full((len(rows), 1), constant)])
    gram: Matrix = whole.T @ whole
    return joint.head(gram, np.zeros_like(gram), constant, solver=model.solver)


def embedded(model: Model, encoder: Encoder, table: Table) -> Matrix:
    """The party's embeddings as that head takes them."""
    owner = model.design_.owner
    return committee.embedded(encoder, model.centred(owner, table).centre_features(table).matrix(), owner)
