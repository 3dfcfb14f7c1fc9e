"""A party with the label that has columns of its own: does a committee's head beat what it could learn alone?"""

from __future__ import annotations

from colonnade import SplitClassifier
from colonnade.models.planner import Roster
from colonnade.privacy import Trust
from research.afe import settings
from research.afe.cases import Parted
from research.reproduce.chance import stream

COORDINATOR = "coordinator"


def compared(data: Parted, epsilon: float, seed: int) -> tuple[float, float]:
    """Accuracy on test people: of a head that a committee learned, and of the first party's own, without noise.

    Epsilon is for the analyst. There are two parties, so a coordinator keeps a seat in the committee.
    """
    owners = tuple(data.train.schemas)
    labelled = data.labelled(owners[0])
    owners = tuple(labelled.train.schemas)
    model = SplitClassifier(
        label=f"{owners[0]}.{labelled.train.label_column}",
        head="committee",
        epsilon={"analyst": epsilon},
        delta=settings.OURS_DELTA,
        rows=labelled.train.rows,
        encoders={name: {"shape": list(data.shapes[name])} for name in owners if name in data.shapes},
    )
    train, test = (
        {party: table.unclipped() for party, table in part.tables().items()} for part in (labelled.train, labelled.test)
    )
    roster = Roster(dict(labelled.train.schemas), Trust(owners, (*owners, COORDINATOR), 1))
    model.simulate(train, roster, stream(seed, "own", epsilon))
    return model.score(test), model.score_alone(train, test)
