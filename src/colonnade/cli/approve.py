"""How a study is approved: by an answer at the terminal, or by the digest of the study."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from colonnade.cli.output import say
from colonnade.errors import ColonnadeError, LedgerError, PolicyError
from colonnade.privacy import Statement
from colonnade.privacy.ledger.approvers import Approver, read_approvers
from colonnade.sanitize import sanitize
from colonnade.study import PartyConfig, Study, ledger_view
from colonnade.study.party_config import (
    Approval,
    DigestApproval,
    EarlierRuns,
    RerunDecision,
    asks_before_rerun,
    rerun_refusal,
)


@dataclass(frozen=True)
class TerminalQuestion:
    """Asks at the terminal, after the policy and the budget have been checked."""

    configs: tuple[PartyConfig, ...]
    approvers: tuple[Approver, ...] = field(default_factory=lambda: (Approver.at_terminal(),))
    how = "an answer at the terminal"

    def __call__(self, study: Study, statement: Statement) -> bool:
        """True if the person says yes; asked before anything is reserved."""
        for config in self.configs:
            if config.ledger.is_file():
                left = config.open_ledger().remaining(config.caps, config.periods)
                say(f"{config.name}'s ledger before this study:\n{ledger_view.remaining_text(left)}\n")
            say(f"{config.schema_news(study)}\n")
            if (keys := config.key_news(study)) is not None:
                say(f"{keys}\n")
        who = ", ".join(config.name for config in self.configs)
        return ask_yes_or_no(f"Take part in {study.name!r} ({study.digest}) at this cost, as {who}?")


def say_news(study: Study, configs: Sequence[PartyConfig]) -> None:
    """Print warnings about ledgers and about schemas that nobody will be asked about.

    A ledger that cannot be read leads to an error later, and so does a study of others.
    """
    for config in configs:
        with suppress(LedgerError):
            for news in (config.ledger_news, EarlierRuns.of(config, study).unfinished):
                if news is not None:
                    say(news)
        unread = config.approval == "auto-within-budget" and config.name in study.schemas and not study.content.trial
        if unread and not config.pins_schema(study):
            say(config.schema_news(study))


def ask_yes_or_no(question: str) -> bool:
    """Whether a person at the terminal says yes."""
    return ask_for_text(f"{question} [y/N]").lower() in ("y", "yes")


def ask_for_text(question: str) -> str:
    """What a person types at the terminal."""
    sys.stderr.write(f"{sanitize(question)} ")
    sys.stderr.flush()
    return sys.stdin.readline().strip()


def rerun_decision(again: bool, *, mute: bool) -> RerunDecision:
    """Whether a study may run again: yes where ``--again`` was given, else a question, if there is a terminal."""
    if again or mute or not sys.stdin.isatty():
        return again
    return lambda said: ask_yes_or_no(f"study {said}: spend again?")


def say_rerun(study: Study, config: PartyConfig) -> None:
    """Say that a study runs again where the policy decides that and nobody is asked."""
    with suppress(LedgerError):
        if (said := EarlierRuns.of(config, study).sentence) is not None and not asks_before_rerun(config):
            say(f"study {study.name!r} {said}; {config.path.name} lets it run, and spend, again")


def rerun_for_all(study: Study, configs: Sequence[PartyConfig], again: RerunDecision) -> bool:
    """Whether any party on this machine runs this study again; an error if whoever starts them all does not want it.

    Here one person starts everybody, so an automatic policy does not answer for that person.
    """
    found = [(config, EarlierRuns.of(config, study).sentence) for config in configs]
    said = [sentence for config, sentence in found if sentence and config.content.policy.again is not True]
    if said and callable(again):
        if not again(f"{study.name!r} {said[0]}"):
            raise PolicyError(f"study {study.name!r} was not run again; nothing was started [PO001]")
    elif said and not again:
        raise PolicyError(rerun_refusal(study, said[0]))
    return any(sentence for _, sentence in found)


def approval(
    configs: Sequence[PartyConfig], digest: str | None, *, mute: bool, by: str | None = None
) -> Approval | None:
    """An approval by digest, if one was given; else a question, if the policy says to ask and there is a terminal."""
    if digest is not None and by is not None:
        return DigestApproval(digest, ", ".join(map(str, known := read_approvers(by))), known)
    if digest is not None:
        return DigestApproval(digest)
    asking = tuple(config for config in configs if config.approval == "ask")
    return TerminalQuestion(asking) if asking and not mute and sys.stdin.isatty() else None


def approval_for_all(
    study: Study, configs: Sequence[PartyConfig], digest: str | None, again: bool, *, mute: bool
) -> tuple[str | None, bool]:
    """The digest that approves the study for all parties on this machine, and whether it runs again.

    The digest is ``None`` if nobody approved it. Policies and budgets are checked first, so that nobody is asked about
    a study that a party refuses.
    """
    for config in configs:
        try:
            config.check(study)
            config.note_time()
            config.check_budget(study)
        except ColonnadeError as error:
            raise type(error)(f"{config.name}: {error}") from None
    repeated = rerun_for_all(study, configs, rerun_decision(again, mute=mute))
    given = approval(configs, digest, mute=mute)
    if given is None:
        return None, repeated
    if not given(study, study.statement):
        raise PolicyError(f"study {study.name!r} was not approved; nothing was started [PO002]")
    return study.digest, repeated
