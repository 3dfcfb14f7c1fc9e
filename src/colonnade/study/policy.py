"""A party's own configuration: where its table and key are, and what it allows. Private to the party."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import ConfigDict, Field, ValidationError

from colonnade.errors import PolicyError, PrivacyError, StudyError
from colonnade.privacy import Budget, Ledger, parse_budgets
from colonnade.study.spec import Part, Study, first_problem, read_toml
from colonnade.tables import Schema, Table, read_table


class CapPart(Part):
    """``[policy.budget]``: the most that observers may ever learn about this party's people."""

    epsilon: float | dict[str, float]
    delta: float = 1e-5


class PolicyPart(Part):
    """``[policy]``: what this party takes part in."""

    tasks: tuple[str, ...]
    columns: tuple[str, ...] | Literal["all"]
    budget: CapPart


class PartyFile(Part):
    """The whole file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    data: str
    id: str = Field(min_length=1)
    key: str
    ledger: str
    policy: PolicyPart


class PartyConfig:
    """A party file, with its paths resolved."""

    def __init__(self, path: Path, content: PartyFile) -> None:
        self.path = path
        self.content = content
        self.name = content.name

    @classmethod
    def load(cls, path: str | Path) -> PartyConfig:
        """Read and check a party file."""
        path = Path(path)
        try:
            return cls(path, PartyFile.model_validate(read_toml(path, "party file")))
        except ValidationError as error:
            raise StudyError(f"{path}: {first_problem(error)}") from None

    @property
    def data(self) -> Path:
        """The party's table."""
        return self.path.parent / self.content.data

    @property
    def key(self) -> Path:
        """The party's private key; its certificate lies beside it."""
        return self.path.parent / self.content.key

    @property
    def ledger(self) -> Path:
        """The party's ledger."""
        return self.path.parent / self.content.ledger

    @property
    def caps(self) -> tuple[Budget, ...]:
        """The most that each observer may ever learn."""
        budget = self.content.policy.budget
        return parse_budgets(budget.epsilon, budget.delta)

    def table(self, schema: Schema) -> Table:
        """The party's table, checked row by row before anything is sent."""
        table = read_table(self.data, schema, id=self.content.id)
        table.check()
        return table

    def check_membership(self, study: Study) -> None:
        """Refuse a study that this party is not in."""
        if self.name not in study.content.parties:
            raise PolicyError(
                f"{self.name} is not a party of study {study.name!r}; those are {', '.join(study.content.parties)}"
            )

    def check(self, study: Study) -> None:
        """Refuse a study that the policy does not allow, before joining it."""
        self.check_membership(study)
        policy = self.content.policy
        for cap in self.caps:
            self._check_cap(cap, study)
        if study.content.task.kind not in policy.tasks:
            raise PolicyError(
                f"{self.name}'s policy allows the tasks {', '.join(policy.tasks)}, and study {study.name!r} asks for "
                f"{study.content.task.kind}; change {self.path.name} if you agree"
            )
        asked = study.roster.schemas[self.name].names
        beyond = [] if policy.columns == "all" else [c for c in asked if c not in policy.columns]
        if beyond:
            raise PolicyError(
                f"study {study.name!r} asks {self.name} for columns its policy does not allow: {', '.join(beyond)}; "
                f"add them to {self.path.name} if you agree"
            )

    def _check_cap(self, cap: Budget, study: Study) -> None:
        """A cap on nobody protects nobody: its name must occur in this study or in an earlier one."""
        try:
            cap.observers(study.roster.trust, alike=lambda _: 0)
        except PrivacyError as error:
            met = {o for e in (Ledger(self.ledger).entries() if self.ledger.exists() else ()) for o in e.trust.owners}
            if not set(cap.selector.split("+")) <= met | set(study.participants):
                raise PolicyError(f"{self.path.name}: the cap for {cap.selector!r} fits nobody: {error}") from None
