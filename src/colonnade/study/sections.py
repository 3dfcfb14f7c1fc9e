"""The sections of a study file, as they are written: each key with its type, its default and what it must fit."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import Field, SerializeAsAny, field_validator, model_validator

from colonnade.errors import PrivacyError
from colonnade.models import registry
from colonnade.models.parameters import LIMITS_ROWS, NAMES_MODEL
from colonnade.privacy import parse_budgets
from colonnade.privacy.observers import OTHERS, Inputs, Security, check_delta
from colonnade.protocols.roles import COORDINATOR
from colonnade.study.alignment.section import AlignPart
from colonnade.study.keys import Part, TaskKeys, checked_path
from colonnade.study.lanes.section import LanesPart
from colonnade.study.limits import LimitsPart
from colonnade.wire import check_name

_MOST_HUBS = 63


class BudgetPart(Part):
    """A budget: epsilon for everyone, or for observers by name."""

    epsilon: float | dict[str, float]
    delta: float = 1e-5

    @field_validator("epsilon", mode="before")
    @classmethod
    def _positive(cls, epsilon: Any) -> Any:
        return _as_written(lambda: parse_budgets(epsilon, 1e-5), epsilon)

    @field_validator("delta", mode="before")
    @classmethod
    def _probability(cls, delta: Any) -> Any:
        return _as_written(lambda: check_delta(delta), delta)


class PricePart(BudgetPart):
    """``[budget]``: a budget; without epsilon if the task sets the price (``epsilon_by_party``, ``exact``)."""

    epsilon: float | dict[str, float] | None = None  # type: ignore[assignment]

    @field_validator("epsilon", mode="after")
    @classmethod
    def _of_one_study(cls, epsilon: Any) -> Any:
        if isinstance(epsilon, dict) and OTHERS in epsilon:
            raise ValueError(
                f"has no {OTHERS!r} here: it means all but one party over all its studies, so it belongs into the "
                "[policy.budget] of a party; name party, pair, coalition or everyone [VA219]"
            )
        return epsilon


class CommitteePart(Part):
    """``[committee]``: who holds shares, and how many of them together learn nothing from their shares."""

    seats: tuple[str, ...] = ()
    threshold: int | None = None


class CoordinatorPart(Part):
    """``[coordinator]``: the address that the parties dial, further hubs, and whether parties connect to each other."""

    address: str
    hubs: tuple[str, ...] = Field(default=(), max_length=_MOST_HUBS)
    links: Literal["hub", "direct"] = "hub"

    @field_validator("address")
    @classmethod
    def _reachable(cls, address: str) -> str:
        return host_and_port(address)

    @field_validator("hubs")
    @classmethod
    def _all_reachable(cls, hubs: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(host_and_port(address) for address in hubs)

    @model_validator(mode="after")
    def _each_once(self) -> CoordinatorPart:
        all_hubs = [_place(address) for address in self.lane_hubs]
        if twice := [address for address in self.hubs if all_hubs.count(_place(address)) > 1]:
            raise ValueError(
                f"names the hub {twice[0]} twice: address is the first hub, and hubs are further ones [VA220]"
            )
        return self

    @property
    def lane_hubs(self) -> tuple[str, ...]:
        """The hubs over which lanes are spread: the coordinator's own, and the further ones."""
        return (self.address, *self.hubs)


class PartyPart(Part):
    """``[parties.NAME]``: the public schema of one party, and the columns this study uses."""

    schema_file: str = Field(alias="schema")
    columns: tuple[str, ...] | None = None

    @field_validator("schema_file")
    @classmethod
    def _path(cls, text: str) -> str:
        return checked_path(text)


class StudyFile(Part):
    """The whole file."""

    name: str
    description: str = ""
    trial: bool = Field(default=False, strict=True)
    security: Security | None = None
    inputs: Inputs | None = None
    noise_missing: Annotated[int, Field(strict=True, ge=0)] | None = None
    task: SerializeAsAny[TaskKeys]
    budget: PricePart = PricePart()
    align: AlignPart | None = None
    lanes: LanesPart | None = None
    committee: CommitteePart = CommitteePart()
    coordinator: CoordinatorPart
    parties: dict[str, PartyPart] = Field(min_length=2)
    limits: LimitsPart = LimitsPart()
    pins: dict[str, str] = Field(default_factory=dict)

    @field_validator("name")
    @classmethod
    def _plain_name(cls, name: str) -> str:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9 _.-]{0,79}", name):
            raise ValueError(
                "must be 1 to 80 letters, digits, blanks, '_', '.' or '-', a letter or digit first [VA221]"
            )
        return name

    @model_validator(mode="after")
    def _known_participants(self) -> StudyFile:
        for name in self.parties:
            check_name(name)
            if name == OTHERS:
                raise ValueError(f"parties - {name!r} is a reserved word and cannot name a party [VA222]")
        holders: dict[str, str] = {}
        for name, pin in self.pins.items():
            if (other := holders.setdefault(pin.strip().lower(), name)) != name:
                raise ValueError(
                    f"pins gives {other} and {name} the same certificate: they would be one participant [VA223]"
                )
        if strangers := sorted(set(self.pins) - {*self.parties, COORDINATOR}):
            raise ValueError(f"pins names {', '.join(strangers)}, who takes no part in the study [VA224]")
        for key, names in self.task.parties_named.items():
            if strangers := sorted(set(names) - set(self.parties)):
                raise ValueError(f"task.{key} names {', '.join(strangers)}, who is no party of the study [VA225]")
        if (model := self.task.marked(NAMES_MODEL)) is not None:
            try:
                checked_path(model)
            except ValueError as error:
                raise ValueError(f"task.model {error} [VA226]") from None
        if not registry.load(self.task.kind).shares:
            self._check_without_shares()
        if self.align is not None:
            self.align.check_parties(len(self.parties))
            if (most := self.task.marked(LIMITS_ROWS)) is not None:
                self.align.check_rows(len(self.parties), most, self.partitions)
        return self

    @property
    def partitions(self) -> int:
        """In how many parts people are added up."""
        return 1 if self.lanes is None else self.lanes.partitions

    @model_validator(mode="after")
    def _can_have_lanes(self) -> StudyFile:
        """Raise an error where people cannot be divided among lanes."""
        if self.lanes is None:
            return self
        if self.align is None:
            raise ValueError("lanes needs [align]: people are divided by the keys that it names [VA227]")
        if self.align.mode == "fuzzy":
            raise ValueError(
                'lanes does not work with align.mode = "fuzzy": people who are alike may be in '
                "different partitions [VA228]"
            )
        return self

    def _check_without_shares(self) -> None:
        """Raise an error for sections that need shares, of numbers or of who matched."""
        kind = self.task.kind
        if "committee" in self.model_fields_set:
            raise ValueError(
                f'committee has no meaning with task.kind = "{kind}", where nobody holds shares: delete it [VA229]'
            )
        for key in ("security", "inputs", "noise_missing"):
            if key in self.model_fields_set:
                raise ValueError(
                    f'{key} has no meaning with task.kind = "{kind}", where nobody holds shares that others could '
                    "check: delete it [VA230]"
                )
        if self.align is not None and self.align.hidden:
            raise ValueError(
                f'align.hidden = true does not work with task.kind = "{kind}", whose parties must know which rows are '
                "common: delete it, or choose another kind of task [VA231]"
            )

    @model_validator(mode="after")
    def _proven_to_somebody(self) -> StudyFile:
        """Raise an error where owners would prove bounds and nobody checks."""
        if self.inputs in ("covert", "proven") and self.security != "active":
            raise ValueError(
                f'inputs = "{self.inputs}" means that owners prove their bounds to seats that check: it needs '
                'security = "active" [VA232]'
            )
        return self

    @model_validator(mode="after")
    def _one_price(self) -> StudyFile:
        """Raise an error unless epsilon is given in exactly one place: in the budget, or in the task."""
        own = self.task.own_price
        if own and self.budget.epsilon is not None:
            raise ValueError(f"budget.epsilon has no meaning beside task.{own}: leave one of them out [VA233]")
        if not own and self.budget.epsilon is None:
            raise ValueError("budget.epsilon is missing [VA234]")
        return self


def host_and_port(address: str) -> str:
    """The address, if it is one; otherwise a ValueError."""
    host, _, port = address.rpartition(":")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not bare or any(c.isspace() for c in host) or (":" in host and bare == host):
        raise ValueError("must be host:port, such as hub.example.org:7443 or [::1]:7443 [VA235]")
    if not (port.isdigit() and 0 < int(port) < 65536):
        raise ValueError("must end in a port from 1 to 65535 [VA236]")
    return address


def _place(address: str) -> tuple[str, int]:
    """Host and port, the same for every way to write them."""
    host, _, port = address.rpartition(":")
    return host.lower().rstrip("."), int(port)


def _as_written(check: Callable[[], object], value: Any) -> Any:
    """The value unchanged, after a check; a wrong one becomes a ValueError, so that pydantic names its key."""
    try:
        check()
    except PrivacyError as error:
        raise ValueError(f"- {error} [VA237]") from None
    return value
