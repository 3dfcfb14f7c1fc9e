"""All standing questions of one party, as its agent keeps them: it asks in some and answers in others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from colonnade.errors import StudyError
from colonnade.federation.scores.kept_answers import KeptAnswers
from colonnade.federation.scores.session import (
    PersistentSession,
    QuestionQueue,
    StandingStudy,
    load_standing_study,
    make_joiner,
    make_owner,
    read_scores_section,
)
from colonnade.federation.token_file import private_token
from colonnade.study import PartyConfig


@dataclass(frozen=True)
class OpenQuestion:
    """One standing question: the session that is kept open, and where to ask if this party may."""

    standing: StandingStudy
    stay: PersistentSession
    questions: QuestionQueue | None
    answers: KeptAnswers | None

    @property
    def ready(self) -> bool | None:
        """Whether it can be asked in now; ``None`` where this party answers."""
        return None if self.questions is None else self.questions.ready


class ScoresService:
    """The standing questions of one party, from ``[agent.scores]`` of its file; ``folder`` is the agent's."""

    def __init__(
        self,
        config: PartyConfig,
        said: Mapping[str, Any],
        folder: Path,
        *,
        hub: str | None = None,
        scored: Callable[[int], None] = lambda people: None,
    ) -> None:
        """``scored`` is told how many scores were told, to this party or by it."""
        self.scored = scored
        self.part, self.hub = read_scores_section(said, config.path), hub
        self.token_file = folder / self.part.token
        self.kept: dict[str, OpenQuestion] = {}
        for model in self.part.models:
            standing = load_standing_study(model, config.path)
            name = standing.study.name
            if name in self.kept:
                raise StudyError(f"{config.path}: [agent.scores] names two studies that are called {name!r} [ST543]")
            self.kept[name] = self._kept(standing, config, folder, hub)

    def _kept(self, standing: StandingStudy, config: PartyConfig, folder: Path, hub: str | None) -> OpenQuestion:
        enter = make_joiner(standing, config.name, config.key, hub=hub)
        if standing.task.to == config.name:
            questions = QuestionQueue(gather=self.part.gather / 1000, period=standing.period)
            return OpenQuestion(
                standing, PersistentSession(enter, make_owner(standing, config, questions)), questions, None
            )
        answers = KeptAnswers(standing, config, folder, told=lambda people: self.scored(people))
        answering = make_owner(standing, config, answers.open_session)
        return OpenQuestion(standing, PersistentSession(enter, answering), None, answers)

    @property
    def asked_here(self) -> dict[str, OpenQuestion]:
        """The questions that this party may ask."""
        return {name: kept for name, kept in self.kept.items() if kept.questions is not None}

    def start(self) -> Self:
        """Meet the others, and stay."""
        for kept in self.kept.values():
            kept.stay.start()
        return self

    def stop(self) -> None:
        """Leave all sessions."""
        for kept in self.kept.values():
            kept.stay.stop()
            if kept.answers is not None:
                kept.answers.close()

    def token(self) -> str:
        """The token with which programs of this machine ask, made if there is none; its owner alone can read it."""
        return private_token(self.token_file)
