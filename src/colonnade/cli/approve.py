"""Who says yes: an answer at the terminal, or the digest of the very study that was looked at."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

from colonnade.cli import book
from colonnade.cli.output import say
from colonnade.errors import PolicyError
from colonnade.privacy import Ledger, Statement
from colonnade.study import PartyConfig, Study
from colonnade.study.policy import Approve, ByDigest


@dataclass(frozen=True)
class Answer:
    """What was answered at the terminal."""

    yes: bool
    how = "an answer at the terminal"

    def __call__(self, study: Study, statement: Statement) -> bool:
        """The answer, which was given before anything was reserved."""
        return self.yes


def approval(study: Study, configs: Sequence[PartyConfig], digest: str | None, *, mute: bool) -> Approve | None:
    """The digest if one was given; else the answer of a person, where one is asked and there is a terminal."""
    if digest is not None:
        return ByDigest(digest)
    asking = [config for config in configs if config.approval == "ask"]
    if not asking or mute or not sys.stdin.isatty():
        return None
    for config in asking:
        if config.ledger.is_file():
            left = Ledger(config.ledger).left(config.caps, config.periods)
            say(f"{config.name}'s ledger before this study:\n{book.left(left)}\n")
    who = ", ".join(config.name for config in asking)
    sys.stderr.write(f"Take part in {study.name!r} ({study.digest[:12]}) at this cost, as {who}? [y/N] ")
    sys.stderr.flush()
    return Answer(sys.stdin.readline().strip().lower() in ("y", "yes"))


def approval_for_all(study: Study, configs: Sequence[PartyConfig], digest: str | None, *, mute: bool) -> str | None:
    """One approval for all parties on this machine, as the digest that is passed on to them."""
    given = approval(study, configs, digest, mute=mute)
    if given is None:
        return None
    if not given(study, study.statement):
        raise PolicyError(f"study {study.name!r} was not approved; nothing was started")
    return study.digest
