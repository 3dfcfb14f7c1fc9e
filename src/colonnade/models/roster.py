"""Who takes part in a study, as everybody may know it: each owner's schema, and the committee."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from colonnade.disk.reading import short
from colonnade.errors import StudyError
from colonnade.privacy import Trust
from colonnade.privacy.observers import INPUTS, SECURITIES, Inputs, Security
from colonnade.protocols.roles import COORDINATOR
from colonnade.tables import Schema


@dataclass(frozen=True)
class Roster:
    """The public description of who takes part: each owner's schema, and the committee.

    With ``hidden`` no owner knows which of its people the others hold too; only some protocols allow this.
    ``assumptions`` are sentences for the privacy statement, such as what an alignment told. ``security`` and ``inputs``
    are what was asked for, if anything was: ``None`` means what the task usually has (:meth:`Planner.as_asked`).
    """

    schemas: Mapping[str, Schema]
    trust: Trust
    hidden: bool = False
    assumptions: tuple[str, ...] = ()
    security: Security | None = "semi-honest"
    inputs: Inputs | None = None

    @classmethod
    def of(
        cls,
        schemas: Mapping[str, Schema],
        committee: Sequence[str] = (),
        threshold: int | None = None,
        hidden: bool = False,
        *,
        security: Security | None = "semi-honest",
        inputs: Inputs | None = None,
        noise_missing: int | None = None,
    ) -> Roster:
        """A roster; if no committee is given, it is the first seven owners, or two owners and the coordinator."""
        if security not in (None, *SECURITIES):
            raise StudyError(
                f"security is {' or '.join(map(repr, SECURITIES))}, not {short(repr(security), 40)} [ST078]"
            )
        if inputs not in (None, *INPUTS):
            raise StudyError(f"inputs is one of {', '.join(map(repr, INPUTS))}, not {short(repr(inputs), 40)} [ST079]")
        if inputs in ("covert", "proven") and security == "semi-honest":
            raise StudyError(
                f'inputs = "{inputs}" means that owners prove their bounds to seats that check: it needs '
                'security = "active" [ST080]'
            )
        owners = tuple(schemas)
        if len(owners) < 2:
            raise StudyError("a study needs at least two parties: one alone has nothing to compute together [ST081]")
        seats = tuple(committee) or (owners[:7] if len(owners) > 2 else (*owners, COORDINATOR))
        most = max(1, (len(seats) - 1) // 2)
        trust = Trust(owners, seats, most if threshold is None else threshold, noise_missing=noise_missing)
        return cls(dict(schemas), trust, hidden, security=security, inputs=inputs)

    def checked(self, inputs: Inputs) -> Roster:
        """The same with seats that check each other."""
        return replace(self, trust=replace(self.trust, security="active", inputs=inputs))

    def require_known_members(self, what: str) -> None:
        """Raise an error if the alignment was hidden: ``what`` needs to know which rows all parties hold."""
        if self.hidden:
            raise StudyError(
                f"{what} does not work after a hidden alignment, in which nobody learns whom all parties hold: hidden "
                "alignment works with pca, linear and logistic (one-shot, functional) and synthetic (marginals); use "
                "one of those, or hidden = false [ST082]"
            )
