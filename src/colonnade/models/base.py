"""What every model shares: a public plan, one program a role, free post-processing, save and load."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, Self

from colonnade.errors import StudyError
from colonnade.models.conventions import Conventions
from colonnade.models.federation import Federation, Roster
from colonnade.privacy import Event, Statement, Trust
from colonnade.protocols.roles import Coordinator, Owner
from colonnade.randomness import Stream
from colonnade.tables import Schema, Table

FORMAT = 1
MODELS: dict[str, type[Estimator]] = {}


class Estimator(Conventions, ABC):
    """A model in the manner of scikit-learn whose training is a joint computation.

    ``plan`` turns public parameters into a public task; ``owner`` and ``coordinator`` are the two programs that
    carry it out; ``finish`` makes the model of the published result and costs nothing. ``parameters_`` are the
    parameters that the fitted model was made with, whatever they are set to since.
    """

    kind: ClassVar[str]
    parameters_: dict[str, Any]
    privacy_: Statement
    schemas_: dict[str, Schema]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "kind" in cls.__dict__:
            MODELS[cls.kind] = cls

    @abstractmethod
    def plan(self, roster: Roster) -> Any:
        """The public task, with the least noise that meets the budgets."""

    @abstractmethod
    def owner(self, me: Owner, table: Table, task: Any) -> Any:
        """An owner's program."""

    @abstractmethod
    def coordinator(self, me: Coordinator, task: Any) -> Any:
        """The coordinator's program."""

    @abstractmethod
    def finish(self, result: Any) -> None:
        """Set the learned attributes from the published result alone."""

    @abstractmethod
    def learned(self) -> dict[str, Any]:
        """The learned attributes as plain values."""

    @abstractmethod
    def restore(self, learned: dict[str, Any]) -> None:
        """Set the learned attributes from plain values."""

    def fit(self, people: Federation) -> Self:
        """Learn from all parties of a federation, each in a thread of this process."""
        if not isinstance(people, Federation):
            raise StudyError(
                f"fit takes a Federation, not {type(people).__name__}: "
                "Federation([Party(name, table, schema=..., id=...), ...])"
            )
        task = self.plan(people.roster)
        played = people.run(task, lambda me, table: self.owner(me, table, task), lambda me: self.coordinator(me, task))
        return self.conclude(people.roster, task, played.result)

    def simulate(
        self, tables: Mapping[str, Table], roster: Roster, stream: Stream | None = None, *, task: Any = None
    ) -> Self:
        """Become a model as :meth:`fit` would publish it, computed in one place: same integers, same law of noise.

        For evaluation on data that may lie in one place; a study never calls it. The rows of all tables must be the
        same people in the same order. A ``task`` from :meth:`plan` saves planning again for every draw.
        """
        planned = self.plan(roster) if task is None else task
        return self.conclude(roster, planned, self.simulated(tables, planned, stream or Stream.fresh()))

    def simulated(self, tables: Mapping[str, Table], task: Any, stream: Stream) -> Any:
        """What the protocol would publish about these tables."""
        raise StudyError(f"a {type(self).__name__} cannot be simulated; fit it")

    def conclude(self, roster: Roster, task: Any, result: Any) -> Self:
        """Become the fitted model that a published result describes."""
        self.parameters_ = self.get_params()
        self.privacy_ = _statement(tuple(task.events), task.trust, self.parameters_["delta"], roster.assumptions)
        self.schemas_ = dict(roster.schemas)
        self.finish(result)
        return self

    def plain_parameters(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Parameters as a file holds them."""
        return dict(given)

    def save(self, path: str | Path) -> Path:
        """Write the model as JSON: parameters, learned values, schemas and the privacy statement."""
        self._check_fitted()
        content = {
            "format": FORMAT,
            "kind": self.kind,
            "parameters": self.plain_parameters(self.parameters_),
            "schemas": {name: schema.to_toml() for name, schema in self.schemas_.items()},
            "privacy": self.privacy_.to_dict(),
            "learned": self.learned(),
        }
        target = Path(path)
        try:
            target.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        except OSError as error:
            raise StudyError(f"{target} cannot be written: {error.strerror}") from None
        return target

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a model that :meth:`save` wrote."""
        content = _read(Path(path))
        kind = MODELS.get(str(content.get("kind")))
        if kind is None or not issubclass(kind, cls) or content.get("format") != FORMAT:
            raise StudyError(f"{path} is no {getattr(cls, 'kind', 'model')} of format {FORMAT}")
        try:
            model = kind(**content["parameters"])
            model.parameters_ = model.get_params()
            model.schemas_ = {
                name: Schema.from_toml(text, name=f"{path}: {name}") for name, text in content["schemas"].items()
            }
            model.privacy_ = Statement.from_dict(content["privacy"])
            model.restore(content["learned"])
        except (KeyError, TypeError, ValueError) as error:
            raise StudyError(f"{path} is damaged: {type(error).__name__} while reading it") from None
        return model

    def __repr__(self) -> str:
        given = ", ".join(f"{name}={value!r}" for name, value in self.plain_parameters(self.get_params()).items())
        return f"{type(self).__name__}({given})"

    def _check_fitted(self) -> None:
        if not hasattr(self, "privacy_"):
            raise StudyError(f"this {type(self).__name__} is not fitted yet; call fit first")


@lru_cache(maxsize=16)
def _statement(events: tuple[Event, ...], trust: Trust, delta: float, also: tuple[str, ...]) -> Statement:
    """The statement of these events; draws of one task have the same."""
    return Statement.of(events, trust, delta, also=also)


def _read(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise StudyError(f"{path} cannot be read: {error.strerror}") from None
    except ValueError:
        raise StudyError(f"{path} is not a model file: it is not JSON") from None
    if not isinstance(content, dict):
        raise StudyError(f"{path} is not a model file")
    return content
