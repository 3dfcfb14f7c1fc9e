"""All standing questions of one party, as its agent keeps them: it asks in some and answers in others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from colonnade.errors import ConnectError, FederationError, IdentityError, StudyError
from colonnade.federation.hub_protocol import FederationClient
from colonnade.federation.members import FederationMembers
from colonnade.federation.notices import take_notices
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
from colonnade.protocols.roles import COORDINATOR
from colonnade.study import PartyConfig
from colonnade.study.connect import load_identity


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


def make_key_check(standing: StandingStudy, config: PartyConfig) -> Callable[[], None]:
    """What asks the hub for news of keys, and raises an error unless everybody's still stands in FEDERATION.toml."""
    agent, everybody = config.content.agent, standing.study.certificates()
    identity = load_identity(config.key, config.name, everybody)

    def check() -> None:
        if agent is None or not (federation := config.path.parent / agent.federation).exists():
            return  # there is no federation
        members, unheard = FederationMembers.load(federation), (ConnectError, FederationError, IdentityError)
        with suppress(*unheard), FederationClient(members, identity) as line:  # a list that is too old is an error
            take_notices(federation, line.notices(), datetime.now(UTC))
        members = FederationMembers.load(federation)
        members.check_listed(datetime.now(UTC))
        members.check_keys(each for name, each in everybody.items() if name != COORDINATOR)

    return check


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
        enter, check = make_joiner(standing, config.name, config.key, hub=hub), make_key_check(standing, config)
        if standing.task.to == config.name:
            questions = QuestionQueue(gather=self.part.gather / 1000, period=standing.period)
            return OpenQuestion(
                standing, PersistentSession(enter, make_owner(standing, config, questions), check), questions, None
            )
        answers = KeptAnswers(standing, config, folder, told=lambda people: self.scored(people))
        answering = make_owner(standing, config, answers.open_session)
        return OpenQuestion(standing, PersistentSession(enter, answering, check), None, answers)

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
