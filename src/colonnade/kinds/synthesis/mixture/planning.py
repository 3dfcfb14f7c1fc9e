"""A mixture of products that parties fit together: from public settings to the task, and from the task to its learner.

All that decides how parameters follow from what is opened stands in the task's ``plan``: the schemas, the families of
the columns, how parameters are learned. So everybody who holds the task makes the same learner, and starts it at the
same parameters, which are drawn by public randomness.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from colonnade.errors import SchemaError, StudyError
from colonnade.kinds.synthesis.mixture.components import ColumnStatistics, OwnComponents
from colonnade.kinds.synthesis.mixture.learners import ExpectationLearner, MixtureLearner, VariationalLearner
from colonnade.kinds.synthesis.mixture.mixture_model import FittedMixture, MixtureModel, ParameterPosterior
from colonnade.kinds.synthesis.mixture.task import MixturePart, MixtureTask
from colonnade.models.design import columns_of, owner_of
from colonnade.models.planner import PlanDetails, Roster
from colonnade.randomness import Stream
from colonnade.tables import Schema
from colonnade.tables.wording import suggest_full_name

InferenceMethod = Literal["expectation", "variational"]
BatchSampling = Literal["poisson", "disjoint"]
ClippingMode = Literal["local", "joint"]
COMPONENTS = 20
ROUNDS: dict[InferenceMethod, int] = {"expectation": 20, "variational": 5000}
BITS, LINEAR_BITS = 14, 26  # fractional bits of what is summed
BATCH, CLIP, LEARNING_RATE = 100, 2.0, 0.02


def draft_mixture(given: Mapping[str, Any], roster: Roster) -> MixtureTask:
    """The task, before its noise is set, by a model's parameters and the usual ones."""
    roster.require_known_members('method="mixture"')
    families, rows, inference = dict(given["families"] or {}), int(given["rows"]), given["inference"]
    owns = {party: build_components(party, schema, families) for party, schema in roster.schemas.items()}
    _check_families(families, roster.schemas)
    every, clip = inference == "expectation", float(given["clip"] or CLIP)
    # Derivatives that are linear in statistics of the rows are many times quicker; those of Gaussian columns are not.
    linear = not every and all(own.linear for own in owns.values())
    parts = []
    for party, own in owns.items():
        held = ColumnStatistics(own)
        width, longest = (held.width, held.bound) if every else (own.width, clip)
        told = own.width + len(own.families) if linear else 0
        parts.append(MixturePart(party, own.schema.encoded_names, width, longest, told))
    plan = {
        "schemas": {party: schema.to_toml() for party, schema in roster.schemas.items()},
        "families": families,
        "inference": inference,
        "learning rate": float(given["learning_rate"] or LEARNING_RATE),
    }
    return MixtureTask(
        parts=tuple(parts),
        components=int(given["components"] or COMPONENTS),
        trust=roster.trust,
        sampling="all" if every else given["sampling"],
        rows=rows,
        batch=rows if every else int(given["batch"] or min(BATCH, rows)),
        rounds=int(given["iterations"] or ROUNDS[inference]),
        noise=len(owns),
        vectors="statistics" if every else "linear" if linear else "derivatives",
        vector_bits=LINEAR_BITS if linear else BITS,
        joint_clip=clip if given["clipping"] == "joint" else None,
        law=given["noise"],
        rows_at_most=int(given["rows_at_most"]),
        plan=json.dumps(plan, sort_keys=True, separators=(",", ":")),
    )


def make_learner(task: MixtureTask) -> MixtureLearner:
    """The learner of a task, as everybody makes it before the first round; it starts by public chance."""
    plan: dict[str, Any] = json.loads(task.plan)
    model = task_mixture(task)
    start = model.start(_public_stream(task, "start"))
    if plan["inference"] == "expectation":
        return ExpectationLearner(task.owners, model, start, task.noise_std)
    return VariationalLearner(
        task.owners,
        model,
        start,
        _public_stream(task, "coins"),
        rate=task.batch / task.rows,
        rounds=task.rounds,
        learning_rate=plan["learning rate"],
        linear=task.vectors == "linear",
    )


def task_mixture(task: MixtureTask) -> MixtureModel:
    """The mixture that a task is about."""
    plan = json.loads(task.plan)
    schemas = {party: Schema.from_toml(plan["schemas"][party]) for party in task.owners}
    return build_mixture(schemas, plan["families"], task.components)


def build_mixture(schemas: Mapping[str, Schema], families: Mapping[str, str], components: int) -> MixtureModel:
    """A mixture over the columns of these parties."""
    return MixtureModel([build_components(party, schema, families) for party, schema in schemas.items()], components)


def build_components(party: str, schema: Schema, families: Mapping[str, str]) -> OwnComponents:
    """The components as far as they are about one party's columns."""
    own = {name: families[full] for name in schema.names if (full := f"{party}.{name}") in families}
    try:
        return OwnComponents(schema, own)
    except (SchemaError, StudyError) as error:
        raise StudyError(f"families: {party}: {error} [ST371]") from None


def mixture_details(task: MixtureTask) -> PlanDetails:
    """How many rounds there are, and about whom."""
    whom = {
        "all": "all people",
        "poisson": f"a random batch of about {task.batch:,} of {task.rows:,} people",
        "disjoint": f"one of the fixed batches of about {task.batch:,} of {task.rows:,} people",
    }[task.sampling]
    line = f"{task.rounds:,} openings of sums for {task.components:,} components, each about {whom}"
    facts = {"iterations": task.rounds, "sampling": task.sampling, "batch": task.batch, "people": task.rows}
    return PlanDetails("mixture", facts | {"components": task.components}, brief=(line,))


def restore_mixture(
    schemas: Mapping[str, Schema], given: Mapping[str, Any], arrays: Mapping[str, Any]
) -> FittedMixture:
    """The mixture that a file holds; a ValueError if its numbers do not belong to these columns."""
    model = build_mixture(schemas, given["families"] or {}, int(given["components"] or COMPONENTS))
    posterior = ParameterPosterior(arrays["mean"], arrays["deviation"])
    for each in (posterior.mean, posterior.deviation):
        if each.shape != (model.components, model.width) or not np.isfinite(each).all():
            raise ValueError("a number for each component and parameter is expected [VA074]")
    return FittedMixture(tuple(schemas), model, posterior)


def _check_families(families: Mapping[str, str], schemas: Mapping[str, Schema]) -> None:
    known = columns_of(schemas)
    for name in families:
        owner, _ = owner_of(name, schemas)
        if owner is None or name not in known:
            raise StudyError(
                f"families names {name!r}, which is no column of this study{suggest_full_name(name, known)} [ST372]"
            )


def _public_stream(task: MixtureTask, what: str) -> Stream:
    """Public randomness that follows from the plan."""
    return Stream(hashlib.sha256(f"colonnade mixture {what} {task.components} {task.plan}".encode()).digest())
