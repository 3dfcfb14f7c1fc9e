"""``[task]`` of a study file: its keys are the parameters of the kind's model."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import is_dataclass
from functools import lru_cache
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import annotated_types
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, Strict, create_model, model_validator

from colonnade.errors import StudyError
from colonnade.models import registry
from colonnade.models.parameters import (
    FINITE,
    NAMES_PARTIES,
    REQUIRED,
    SETS_PRICE,
    STRICT,
    Checked,
    InFile,
    Limit,
    Mark,
)
from colonnade.tables.wording import suggestion

_LONGEST_PATH, _LONGEST_NAME = 4096, 255
_BUDGET = ("epsilon", "delta")  # these are keys of [budget]


class Part(BaseModel):
    """A piece of a study file in which every key must be known."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _meant(cls, given: Any) -> Any:
        """Name the key that an unknown one resembles; one of the budget, or like none, is refused without."""
        if isinstance(given, Mapping) and (known := [field.alias or name for name, field in cls.model_fields.items()]):
            for key in given:
                if key not in (*known, *_BUDGET) and (hint := suggestion(str(key), known)):
                    raise ValueError(f"has no key {key!r}{hint} [VA195]")
        return given


def checked_path(text: str) -> str:
    """The text, if it can be the path of a file; raises a ValueError."""
    if not text.strip() or not text.isprintable():
        raise ValueError("must be a path: not empty, and without control characters [VA196]")
    if len(text) > _LONGEST_PATH or max(len(part.encode()) for part in text.split("/")) > _LONGEST_NAME:
        raise ValueError("must be a path: no file has so long a name [VA197]")
    return text


class TaskKeys(Part):
    """``[task]``: the kind, and the keys of that kind."""

    kind: str

    @property
    def parameters_given(self) -> dict[str, Any]:
        """All keys but the kind, defaults included."""
        return self.model_dump(exclude={"kind"})

    @property
    def unsaid(self) -> set[str]:
        """Keys that came later and have their defaults: a study without them is the study that it was."""
        fields, given = type(self).model_fields, self.parameters_given
        return {key for key in registry.load(self.kind).later if key in fields and given[key] == fields[key].default}

    @property
    def parties_named(self) -> dict[str, tuple[str, ...]]:
        """For each key whose value names parties, the parties that it names."""
        marked = ((key, self.parameters_given[key]) for key in _marked(self.kind, NAMES_PARTIES))
        return {key: (value,) if isinstance(value, str) else tuple(value or ()) for key, value in marked}

    @property
    def own_price(self) -> str | None:
        """The key by which the task sets the price; ``None`` if the budget sets it."""
        found = next((key for key in _marked(self.kind, SETS_PRICE) if self.parameters_given[key]), None)
        return found if found is None or self.parameters_given[found] is not True else f"{found} = true"

    def marked(self, mark: Mark) -> Any:
        """The value of the key whose parameter has this mark; nothing if no key has it."""
        return next((self.parameters_given[key] for key in _marked(self.kind, mark)), None)


def parse_task(raw: Any, where: object) -> TaskKeys:
    """Read ``[task]``; raises a pydantic error that names the key, or a StudyError where the kind is not known."""
    if not isinstance(raw, Mapping):
        return TaskKeys.model_validate(raw)
    if "kind" not in raw:
        raise StudyError(f"{where}: task.kind is missing [ST556]")
    known = [row.kind for row in registry.rows()]
    if raw["kind"] not in known:
        hint = suggestion(str(raw["kind"]), known)
        raise StudyError(f"{where}: task.kind - Input should be one of {', '.join(map(repr, known))}{hint} [ST557]")
    return keys_of(raw["kind"]).model_validate(raw)


@lru_cache(maxsize=64)
def keys_of(kind: str) -> type[TaskKeys]:
    """The keys of a kind: the parameters of its model's constructor, without the budget."""
    model = registry.load(kind)
    signature = inspect.signature(model.__init__).parameters
    fields: dict[str, Any] = {}
    for name, hint in get_type_hints(model.__init__, include_extras=True).items():
        if name not in (*_BUDGET, "return"):
            fields[name] = _field(hint, signature[name].default)
    return create_model(f"{model.__name__}Keys", __base__=TaskKeys, **fields)


def _field(hint: Any, default: Any) -> tuple[Any, Any]:
    """The type and the default of a parameter in a file, as pydantic takes them."""
    instead = next((mark for mark in _marks(hint) if isinstance(mark, InFile)), None)
    if instead is not None:
        hint, default = instead.type, instead.default
    return _readable(hint), ... if default in (inspect.Parameter.empty, REQUIRED) else default


def _readable(hint: Any) -> Any:
    """The type with our marks replaced by those of pydantic; dataclasses become sections with known keys."""
    if hint is None:
        return NoneType  # an older pydantic takes None itself for a field without a type
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        marks = [mark for mark in map(_validator, arguments[1:]) if mark is not None]
        return Annotated[(_readable(arguments[0]), *marks)] if marks else _readable(arguments[0])
    if origin in (Union, UnionType):
        return Union[tuple(map(_readable, arguments))]  # noqa: UP007 - the members are only known here
    if is_dataclass(hint) and isinstance(hint, type):
        names = {
            name: (_readable(each), getattr(hint, name))
            for name, each in get_type_hints(hint, include_extras=True).items()
        }
        return create_model(hint.__name__, __base__=Part, **names)  # type: ignore[call-overload]
    return hint


def _validator(mark: Any) -> Any:
    if mark is FINITE:
        return Field(allow_inf_nan=False)
    if mark is STRICT:
        return Strict()
    if isinstance(mark, Limit):
        return getattr(annotated_types, mark.name)(mark.value)
    if isinstance(mark, Checked):
        return BeforeValidator(_checking(mark))
    return None if isinstance(mark, Mark) else mark


def _checking(mark: Checked) -> Any:
    def check(value: Any) -> Any:
        mark.check(value)
        return value

    return check


def _marks(hint: Any) -> tuple[Any, ...]:
    return get_args(hint)[1:] if get_origin(hint) is Annotated else ()


@lru_cache(maxsize=64)
def _marked(kind: str, mark: Mark) -> tuple[str, ...]:
    """The keys of a kind that have this mark."""
    hints = get_type_hints(registry.load(kind).__init__, include_extras=True)
    return tuple(name for name, hint in hints.items() if mark in _marks(hint))
