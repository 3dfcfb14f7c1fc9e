"""How a study is approved: by an answer at the terminal, or by the digest of the study."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from colonnade.cli import ledger as book
from colonnade.cli.output import say
from colonnade.errors import ColonnadeError, LedgerError, PolicyError
from colonnade.harmless import harmless
from colonnade.privacy import Statement
from colonnade.study import PartyConfig, Study
from colonnade.study.policy import Approve, ByDigest


@dataclass(frozen=True)
class Question:
    """Asks at the terminal, after the policy and the budget have been checked."""

    configs: tuple[PartyConfig, ...]
    how = "an answer at the terminal"

    def __call__(self, study: Study, statement: Statement) -> bool:
        """True if the person says yes; asked before anything is reserved."""
        for config in self.configs:
            if config.ledger.is_file():
                left = config.book().left(config.caps, config.periods)
                say(f"{config.name}'s ledger before this study:\n{book.left(left)}\n")
            say(f"{config.schema_news(study)}\n")
            if (keys := config.key_news(study)) is not None:
                say(f"{keys}\n")
        who = ", ".join(config.name for config in self.configs)
        return answered(f"Take part in {study.name!r} ({study.digest}) at this cost, as {who}?")


def say_news(study: Study, configs: Sequence[PartyConfig]) -> None:
    """Print warnings about ledgers and about schemas that nobody will be asked about.

    A ledger that cannot be read leads to an error later, and so does a study of others.
    """
    for config in configs:
        with suppress(LedgerError):
            if (news := config.ledger_news) is not None:
                say(news)
        if config.approval == "auto-within-budget" and config.name in study.schemas and not config.pins_schema(study):
            say(config.schema_news(study))


def answered(question: str) -> bool:
    """Whether a person at the terminal says yes."""
    sys.stderr.write(f"{harmless(question)} [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def approval(configs: Sequence[PartyConfig], digest: str | None, *, mute: bool) -> Approve | None:
    """An approval by digest, if one was given; else a question, if the policy says to ask and there is a terminal."""
    if digest is not None:
        return ByDigest(digest)
    asking = tuple(config for config in configs if config.approval == "ask")
    return Question(asking) if asking and not mute and sys.stdin.isatty() else None


def approval_for_all(study: Study, configs: Sequence[PartyConfig], digest: str | None, *, mute: bool) -> str | None:
    """The digest that approves the study for all parties on this machine; ``None`` if nobody approved it.

    Policies and budgets are checked first, so that nobody is asked about a study that a party refuses.
    """
    for config in configs:
        try:
            config.check(study)
            config.note_time()
            config.check_budget(study)
        except ColonnadeError as error:
            raise type(error)(f"{config.name}: {error}") from None
    given = approval(configs, digest, mute=mute)
    if given is None:
        return None
    if not given(study, study.statement):
        raise PolicyError(f"study {study.name!r} was not approved; nothing was started")
    return study.digest
