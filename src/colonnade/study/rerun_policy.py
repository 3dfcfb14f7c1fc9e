"""A study that this party has taken part in before: when, how it ended, and whether it may run and spend once more.

The ledger knows it by the digest of the study. A study that ended well has given its result, so to run it again is
mostly a mistake; one that ended early has not, and is no repetition, though what it sent stays charged.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from colonnade.errors import PolicyError
from colonnade.privacy.ledger.storage import kept_open
from colonnade.study.party_config import Approval, DigestApproval, PartyConfig
from colonnade.study.spec import Study

RerunDecision = bool | Callable[[str], bool]
"""Whether a study may run again, or a function that asks, with a sentence about the earlier run."""


@dataclass(frozen=True)
class EarlierRuns:
    """What a ledger holds about earlier runs of one study, which ``party`` took part in."""

    party: str
    ended_well: tuple[str, ...]
    """When the runs were reserved that ended well."""
    charged: tuple[str, ...]
    """When those were reserved that did not end well, or have not ended, and count in full."""

    @classmethod
    def of(cls, config: PartyConfig, study: Study) -> EarlierRuns:
        """What is on record; nothing where there is no ledger yet."""
        with kept_open(config.ledger):
            found = config.open_ledger().runs_of(study.digest) if config.ledger.exists() else ()
        when = {state: tuple(at for at, now in found if now == state) for state in ("committed", "sent", "reserved")}
        return cls(config.name, when["committed"], tuple(sorted((*when["sent"], *when["reserved"]))))

    @property
    def sentence(self) -> str | None:
        """That the study already ran, and when; ``None`` if it never ended well."""
        if not self.ended_well:
            return None
        times = f", the last of {len(self.ended_well)} times" if len(self.ended_well) > 1 else ""
        return f"already ran on {_day(self.ended_well[-1])}{times}, as {self.party}'s ledger says"

    @property
    def unfinished(self) -> str | None:
        """What earlier runs cost that did not end well; ``None`` if there were none."""
        if not self.charged:
            return None
        runs = "a run" if len(self.charged) == 1 else f"{len(self.charged)} runs"
        return (
            f"{self.party}'s ledger holds {runs} of this study that did not end well, begun on "
            f"{_day(self.charged[-1])}: charged in full, and no reason not to run it now"
        )


def asks_before_rerun(config: PartyConfig) -> bool:
    """Whether somebody must say yes before a study runs again: as ``again`` says, or as every study is approved."""
    given = config.content.policy.again
    return config.approval != "auto-within-budget" if given is None else not given


def check_rerun(study: Study, config: PartyConfig, approve: Approval | None, again: RerunDecision) -> str | None:
    """A sentence about an earlier run, for the record; an error if this would be another and nobody agreed to it.

    A program that is asked about every study with ``approve`` is asked about this one too.
    """
    said = EarlierRuns.of(config, study).sentence
    if said is None or not asks_before_rerun(config) or again is True:
        return said
    if callable(again):
        if not again(f"{study.name!r} {said}"):
            raise PolicyError(
                f"study {study.name!r} was not run again by {config.name}'s operator; nothing was sent [PO027]"
            )
    elif approve is None or isinstance(approve, DigestApproval):
        raise PolicyError(rerun_refusal(study, said))
    return said


def rerun_refusal(study: Study, said: str) -> str:
    """The sentence for whoever can answer no question."""
    return (
        f"study {study.name!r} {said}: its result is in that run's folder; add `--again` to run, and "
        "spend, once more [PO028]"
    )


def _day(created: str) -> str:
    return f"{created[:16].replace('T', ' ')} UTC"
