"""``[agent.scores]`` of a party file: which standing questions the party takes part in, and what it allows a day."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError, field_validator

from colonnade.errors import PolicyError, StudyError
from colonnade.models import registry
from colonnade.protocols.on_demand import OnDemandQuestion
from colonnade.study import Study
from colonnade.study.spec import first_problem
from colonnade.study.study_file import FileSection, check_path

_SECTION = "agent.scores"


class ScoredModelPart(FileSection):
    """One of ``models``: a study of kind "prediction", agreed to by its digest, that stands open for questions.

    ``per_person`` is how often a day the entitled party may be told about one person, and ``per_day`` about how many
    people it may ask a day, each time counted.
    """

    study: str
    digest: str
    per_person: int = Field(default=1, ge=1, le=10_000, strict=True)
    per_day: int = Field(default=10_000, ge=1, le=10**9, strict=True)

    @field_validator("study")
    @classmethod
    def _path(cls, text: str) -> str:
        return check_path(text)

    @field_validator("digest")
    @classmethod
    def _digits(cls, text: str) -> str:
        if not re.fullmatch("[0-9a-f]{64}", text):
            raise ValueError("must be the 64 hexadecimal digits that `colonnade privacy` prints for the study [VA165]")
        return text


class ScoresPart(FileSection):
    """The section: the standing questions, and where programs of this machine may ask."""

    models: tuple[ScoredModelPart, ...] = Field(min_length=1, max_length=16)
    token: str = "scores.token"  # noqa: S105 - the name of a file
    gather: float = Field(default=2.0, ge=0, le=1000)
    """Milliseconds for which a first question waits for others, which are then asked together."""

    @field_validator("token")
    @classmethod
    def _path(cls, text: str) -> str:
        return check_path(text)


@dataclass(frozen=True)
class StandingStudy:
    """A study that stands open for questions, checked."""

    study: Study
    question: OnDemandQuestion
    per_person: int = 1
    per_day: int = 10_000

    @classmethod
    def of(cls, study: Study, per_person: int = 1, per_day: int = 10_000) -> StandingStudy:
        """This study, if questions can be asked in it one by one; otherwise an error."""
        study.runnable()
        make = registry.part(study.content.task.kind, "standing")
        if make is None:
            raise StudyError(
                f'{study.path}: scores on demand need a study of kind = "prediction", and this one is of kind '
                f"{study.content.task.kind!r} [ST546]"
            )
        return cls(study, make(study.path, study.estimator(), study.task), per_person, per_day)

    @property
    def task(self) -> Any:
        """The public task of the question."""
        return self.question.task


def read_scores_section(said: Mapping[str, Any], path: Path) -> ScoresPart:
    """The section of the party file at ``path``."""
    try:
        return ScoresPart.model_validate(said)
    except ValidationError as error:
        raise StudyError(f"{path}: {first_problem(error, _SECTION)} [ST548]") from None


def load_standing_study(part: ScoredModelPart, path: Path) -> StandingStudy:
    """The study that one of ``models`` names, if it is the one that was agreed to."""
    study = Study.load(path.parent / part.study)
    if study.digest != part.digest:
        raise PolicyError(
            f"{path}: [{_SECTION}] agrees to another study than {part.study} is now: see what it costs with `colonnade "
            f"privacy {part.study}`, and write digest = {study.digest!r} if you agree [PO009]"
        )
    return StandingStudy.of(study, part.per_person, part.per_day)
