"""Our two heads on real data: a committee's, and one over told embeddings (AFE-R). Both are the product's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from colonnade import SplitClassifier
from colonnade.kinds.split.embedding_task import EmbeddingSender, NewEmbeddingTask
from colonnade.kinds.split.embeddings_strategy import EmbeddingsStrategy
from colonnade.privacy import parse_budgets
from colonnade.randomness import Stream
from colonnade.tables import Table
from research.afe import settings
from research.afe.cases import Case, Matrix, People
from research.reproduce.chance import gaussian, stream


def told(
    case: Case, seed: int, *, people: People | None = None, epsilon: float = settings.OURS_EPSILON
) -> SplitClassifier:
    """AFE-R: labels are told, each party trains a linear map alone under noise, and tells each person once."""
    model = SplitClassifier(
        label=case.label,
        head="embeddings",
        training="labels",
        epsilon=epsilon,
        delta=settings.OURS_DELTA,
        encoders={party: settings.learned(case, party) for party in case.passives},
    )
    chosen = case.train if people is None else people
    return model.simulate(chosen.tables, case.roster(committee=False), stream(seed, "told"))


def committee(
    case: Case, epsilon: float | Mapping[str, float], seed: int, *, people: People | None = None
) -> SplitClassifier:
    """A head that a committee learns from one noisy release of second moments; no embedding leaves anybody."""
    chosen = case.train if people is None else people
    model = SplitClassifier(
        label=case.label,
        head="committee",
        epsilon=epsilon,
        delta=settings.OURS_DELTA,
        rows=chosen.rows,
        encoders={party: {"shape": list(case.shapes[party])} for party in case.passives if party in case.shapes},
    )
    return model.simulate(chosen.tables, case.roster(committee=True), stream(seed, "committee", epsilon))


def scores(model: SplitClassifier, people: People) -> Matrix:
    """Scores of people who are asked about in the clear."""
    return model.scores({party: people.tables[party] for party in people.passives})


def noised_scores(model: SplitClassifier, people: People, coins: Stream) -> Matrix:
    """Scores of people each of whose parties tells its embedding with the noise of the same epsilon, once."""
    deviations = query_deviations(model)
    parts = {party: seen(model, party, people.tables[party], deviations[party], coins) for party in people.passives}
    fitted: Any = model
    return EmbeddingsStrategy().scores(fitted, parts, {name: each**2 for name, each in deviations.items()})


def seen(model: SplitClassifier, party: str, table: Table, deviation: float, coins: Stream) -> Matrix:
    """What a party tells of people: its embeddings, with noise."""
    exact = model.embedded(party, table)
    return exact + gaussian(deviation, exact.shape, coins) if deviation else exact


def query_deviations(model: SplitClassifier) -> dict[str, float]:
    """The noise on a number of a new person's embedding, whose whole epsilon is spent on this one release."""
    plan = model.plan_
    trust, active = model.privacy_.trust, plan["active"]
    senders = tuple(EmbeddingSender(party, width, plan["clips"][party]) for party, width in plan["widths"].items())
    draft = NewEmbeddingTask(trust, active, senders, rows=1, classes=plan["classes"])
    task = draft.calibrate(parse_budgets(model.parameters_["epsilon"], model.parameters_["delta"], trust))
    return {party: task.deviation(party) for party in task.passives}
