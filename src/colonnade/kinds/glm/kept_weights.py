"""Weights that parties kept: all of them as one linear model, and those of one party as a private file."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colonnade.disk import reading
from colonnade.errors import StudyError
from colonnade.kinds.glm.families import Family
from colonnade.kinds.glm.planning import INTERCEPT
from colonnade.kinds.glm.programs import ExchangeOutcome
from colonnade.kinds.glm.sides import KeptWeights, unblur_scores
from colonnade.kinds.glm.task import Exchange
from colonnade.models import serialization
from colonnade.models.design import LabelDesign
from colonnade.models.estimates import ErrorBars
from colonnade.models.new_rows import Matrix
from colonnade.protocols.roles import COORDINATOR

FORMAT = "colonnade kept weights 1"


@dataclass(frozen=True)
class AllKeptWeights:
    """The weights of all parties, where all of them run in one process."""

    kept: Mapping[str, KeptWeights]
    released: Mapping[str, KeptWeights] | None
    fit: str = ""
    in_sample: None = None
    """Nobody holds the label of another party, so there is nothing to look at here."""

    @property
    def held(self) -> Mapping[str, KeptWeights]:
        """The weights that this process has."""
        return self.kept

    @classmethod
    def of(cls, outcomes: Mapping[str, ExchangeOutcome], task: Exchange) -> AllKeptWeights:
        """Collect them from what the program of each participant returned."""
        kept = {name: weights for name in task.owners if (weights := outcomes[name].kept) is not None}
        return cls(kept, outcomes[COORDINATOR].released, outcomes[COORDINATOR].fit)


def unit_of(family: Family, design: LabelDesign) -> tuple[float, float]:
    """A factor and an offset: the linear predictor is factor times the family's own score, plus offset.

    For log-odds and margins both are the same number. The score of a logarithm of a mean is 0 in the middle of its
    region. For numbers the predictor is in the label's unit (after its transform).
    """
    if family.name == "linear":
        start, end = design.quantity.ends
        return (end - start) / 2, (start + end) / 2
    return 1.0, family.centre


def combine_weights(kept: Mapping[str, KeptWeights], family: Family, design: LabelDesign) -> tuple[Matrix, Matrix]:
    """All parties' weights as one row of weights of encoded columns, and an intercept."""
    factors = {**kept[design.owner].factors, design.owner: 1.0}
    slopes = [factors[party] * kept[party].weights[:-1] for party in design.schemas]
    constant = sum(factors[party] * INTERCEPT * float(kept[party].weights[-1]) for party in design.schemas)
    weights = np.concatenate(slopes)
    unit, zero = unit_of(family, design)
    offset = zero + unit * (constant - float(weights @ design.middles))
    return unit * weights[None, :], np.array([offset])


def release_bars(
    released: Mapping[str, KeptWeights], task: Exchange, design: LabelDesign
) -> tuple[ErrorBars, ErrorBars]:
    """How far the noise of the release moved weights and intercept; noise within messages is not in it.

    Other parties' weights are taken times their released factors. The weights of the party with the label were
    stretched after their noise was drawn; how far only that party knows, so the most that is possible is taken.
    """
    stretch = unblur_scores(task.family, math.inf)[0] if task.method == "alternating" else 1.0
    factors = {**released[design.owner].factors, design.owner: stretch}
    noise = {party: abs(factors[party]) * task.weights_deviation(party) for party in design.schemas}
    columns = [np.full(len(released[party].weights) - 1, noise[party]) for party in design.schemas]
    slopes, (weights, offset) = np.concatenate(columns), combine_weights(released, task.family, design)
    unit = abs(unit_of(task.family, design)[0])
    moved = math.hypot(INTERCEPT * math.hypot(*noise.values()), float(np.linalg.norm(slopes * design.middles)))
    return ErrorBars.normal(weights, unit * slopes[None, :]), ErrorBars.normal(offset, np.array([unit * moved]))


def write(path: Path, kept: KeptWeights, columns: tuple[str, ...], model: str) -> Path:
    """Write one party's weights to a file that only its user can read; another party's file is not replaced."""
    if path.exists() and _content(path).get("party") != kept.party:
        raise StudyError(
            f"{path} does not hold weights of {kept.party}: choose another path, or delete it yourself [ST112]"
        )
    serialization.replace_private(path, content(kept, columns, model))
    return path


def content(kept: KeptWeights, columns: tuple[str, ...], model: str) -> bytes:
    """One party's weights as the content of a file."""
    plain = {
        "format": FORMAT,
        "party": kept.party,
        "model": model,
        "columns": list(columns),
        "weights": kept.weights.tolist(),
        "factors": dict(kept.factors),
        "expected": {party: weights.tolist() for party, weights in kept.expected.items()},
    } | ({"spreads": dict(kept.spreads)} if kept.spreads else {})
    return (json.dumps(plain, indent=1) + "\n").encode()


def read(path: Path, columns: Mapping[str, tuple[str, ...]], active: str, model: str) -> KeptWeights:
    """The weights in a file; an error if they do not belong to the model with this digest."""
    found = _content(path)
    if found.get("format") != FORMAT:
        raise StudyError(f"{path} does not hold kept weights; save_kept writes such a file [ST113]")
    if found.get("model") != model:
        raise StudyError(
            f"{path} holds weights of another model or another fit of it; use the file of this one [ST114]"
        )
    try:
        party = str(found["party"])
        weights = np.array(found["weights"], dtype=np.float64)
        factors = {str(name): float(value) for name, value in found["factors"].items()}
        expected = {str(name): np.array(each, dtype=np.float64) for name, each in found["expected"].items()}
        spreads = {str(name): float(value) for name, value in found.get("spreads", {}).items()}
        fits = tuple(found["columns"]) == columns[party] and weights.shape == (len(columns[party]) + 1,)
    except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise StudyError(f"{path} is damaged: {type(error).__name__} while reading it [ST115]") from None
    if not fits or any(each.shape != weights.shape for each in expected.values()):
        raise StudyError(f"{path} is damaged: its weights do not belong to the columns of {party} [ST116]")
    if not np.isfinite(
        [*weights, *factors.values(), *spreads.values(), *(weight for each in expected.values() for weight in each)]
    ).all():
        raise StudyError(f"{path} is damaged: a weight in it is not a finite number [ST117]")
    others = set(columns) - {active} if party == active else set()
    if set(factors) != others or set(expected) != others:
        due = "one factor for each other party" if party == active else f"no factors, which only {active} has"
        raise StudyError(f"{path} is damaged: it must have {due} [ST118]")
    if not set(spreads) <= others or any(spread < 0 for spread in spreads.values()):
        raise StudyError(f"{path} is damaged: its spreads are not those of the other parties [ST119]")
    return KeptWeights(party, weights, factors, expected, spreads)


def _content(path: Path) -> dict[str, Any]:
    try:
        content = reading.read_json(path)
    except reading.MalformedFile:
        return {}
    except reading.UnreadableFile as error:
        raise StudyError(f"{path} cannot be read: {error} [ST120]") from None
    return content if isinstance(content, dict) else {}
