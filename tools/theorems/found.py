"""What the code itself says: the events that tasks reveal, where events are made, and where an epsilon is written.

Tasks are those of the studies in ``tests/fixtures/studies`` and of the audit games, and each of them again with every
other law, way of sampling or switch that its class knows. Places are found by reading the source.
"""

from __future__ import annotations

import ast
import inspect
import itertools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields, replace
from functools import cache
from importlib import import_module
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from colonnade.audit import registry as audits
from colonnade.errors import ColonnadeError
from colonnade.kinds.split.embedding_task import EmbeddingTask, NewEmbeddingTask
from colonnade.models import registry
from colonnade.privacy.events import Event, unwrap
from colonnade.privacy.noise_laws import NonPrivate, PoissonSampled, RepeatedRelease, drawn_laws
from colonnade.privacy.statement import format_html, format_text
from colonnade.protocols.task import RevealingTask
from colonnade.study.spec import Study

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src"
STUDIES = ROOT / "tests/fixtures/studies"
_MOST_WAYS = 64


# --- events


@dataclass(frozen=True)
class Emitted:
    """One kind of event of a class of tasks: what is released, with which words around it, by which theorem."""

    task: str
    release: str
    theorem: str
    shape: str

    @property
    def key(self) -> tuple[str, str, str]:
        """What links are declared for."""
        return self.task, self.release, self.theorem


def name_of(thing: Any) -> str:
    """A class or function as ``module:name``."""
    return f"{thing.__module__}:{thing.__qualname__}"


@cache
def emitted() -> dict[Emitted, Any]:
    """Every kind of event that tasks reveal, each with a task that does; in the order of kinds."""
    found: dict[Emitted, Any] = {}
    for task in tasks():
        for event in task.events:
            found.setdefault(_emitted(task, event), task)
    order = [name_of(task) for row in registry.rows() for task in registry.load(row.kind).tasks]
    place = {name: at for at, name in reversed(list(enumerate(order)))}
    return dict(sorted(found.items(), key=lambda pair: place.get(pair[0].task, len(place))))


def _emitted(task: Any, event: Event) -> Emitted:
    once = unwrap(event)
    release = re.sub(r", scale \d+$", ", each scale", once.name)
    for owner in task.trust.owners:
        release = re.sub(rf" of {re.escape(owner)}$", " of an owner", release)
    return Emitted(name_of(type(task)), release, getattr(once, "theorem", ""), shape_of(event))


def shape_of(event: Event) -> str:
    """The classes of an event from the outside in; what promises nothing says whether it is a published algorithm."""
    if isinstance(event, RepeatedRelease | PoissonSampled):
        return f"{type(event).__name__}({shape_of(event.event)})"
    if isinstance(event, NonPrivate) and event.reason.startswith("as published, not proven"):
        return "NonPrivate, as published"
    return type(event).__name__ + (", as published" if getattr(event, "unproven", "") else "")


@cache
def kinds_of(task: str) -> tuple[str, ...]:
    """The kinds of study that plan a class of tasks."""
    return tuple(row.kind for row in registry.rows() if task in map(name_of, registry.load(row.kind).tasks))


@cache
def tasks() -> tuple[Any, ...]:
    """All tasks from which events are read."""
    known = [study.task for study in _studies()]
    known += [subject.plan() for subject in audits.subjects()]
    known += [_new_people(task) for task in known if type(task) is EmbeddingTask]
    return tuple(way for task in known if isinstance(task, RevealingTask) for way in (task, *_other_ways(task)))


def _studies() -> Iterator[Study]:
    for path in sorted(STUDIES.glob("*.toml")):
        yield Study.load(path)


def _new_people(task: EmbeddingTask) -> NewEmbeddingTask:
    return NewEmbeddingTask(task.trust, task.active, task.senders, task.rows, new="noised", model=task.model)


def _other_ways(task: Any) -> Iterator[Any]:
    """The same task with every combination of its laws and ways, and with each of its switches turned."""
    hints = get_type_hints(type(task))
    named = {field.name: _choices(hints[field.name]) for field in fields(task)}
    several = {name: choices for name, choices in named.items() if len(choices) > 1 and bool not in map(type, choices)}
    ways = itertools.islice(itertools.product(*several.values()), _MOST_WAYS)
    changes: Iterable[dict[str, Any]] = [dict(zip(several, way, strict=True)) for way in ways]
    changes = [*changes, *({name: choice} for name, choices in named.items() for choice in choices)]
    switches = {name: False for name, choices in named.items() if bool in map(type, choices)}
    changes = [*changes, *([{"noise": 0}, {"noise": 0, **switches}] if "noise" in named else [])]
    for change in changes:
        try:
            other = replace(task, **change)
            other.events  # noqa: B018 - refused here if not before
        except (ColonnadeError, ValueError, ArithmeticError, AssertionError, TypeError):
            continue  # not a task: its class says so
        yield other


def _choices(hint: Any) -> tuple[Any, ...]:
    if get_origin(hint) is Literal:
        return get_args(hint)
    if hint is bool:
        return (False, True)
    if get_origin(hint) in (Union, UnionType):
        return tuple(choice for part in get_args(hint) for choice in _choices(part))
    return (None,) if hint is NoneType else ()


@cache
def revealing() -> tuple[type, ...]:
    """Every class of tasks of the framework that can be made: those of kinds, and what serves them."""
    for module, tree in sources().items():
        if any(isinstance(node, ast.FunctionDef) and node.name in {"event", "events"} for node in ast.walk(tree)):
            import_module(module)
    return tuple(dict.fromkeys(each for each in _below(RevealingTask) if not inspect.isabstract(each)))


def _below(one: type) -> Iterator[type]:
    each: type
    for each in one.__subclasses__():
        if each.__module__.startswith("colonnade."):
            yield each
            yield from _below(each)


# --- the source


@cache
def sources() -> dict[str, ast.Module]:
    """Every module of the framework by its name."""
    found = {}
    for path in sorted((SOURCE / "colonnade").rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = ast.parse(path.read_text(encoding="utf-8"))
    return found


def _calls(module: str, tree: ast.Module) -> Iterator[tuple[str, ast.AST]]:
    """Every node of a module with the function around it."""

    def below(node: ast.AST, around: str) -> Iterator[tuple[str, ast.AST]]:
        for child in ast.iter_child_nodes(node):
            here = around
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                here = f"{around}.{child.name}" if around else child.name
            yield f"{module}:{here}", child
            yield from below(child, here)

    return below(tree, "")


def made_in(sources: dict[str, ast.Module]) -> set[str]:
    """Every function that makes an event, outside of the games."""
    found = set()
    for module, tree in sources.items():
        if module.startswith(f"{audits.__package__}."):
            continue
        events = _imported(tree, (*get_args(Event), *(law.event_type for law in drawn_laws())))
        for where, node in _calls(module, tree):
            if isinstance(node, ast.Call) and _makes(node, events):
                found.add(where)
    return found


def _makes(call: ast.Call, events: set[str]) -> bool:
    made = call.func
    if isinstance(made, ast.Name):
        return made.id in events or made.id == "message_event"
    # The release of a ledger takes an entry, that of a run what it opens; those of noise take a theorem.
    starred = any(isinstance(given, ast.Starred) for given in call.args)
    return (
        isinstance(made, ast.Attribute)
        and made.attr in ("release", "event_type")
        and (starred or "theorem" in _keywords(call))
    )


def _keywords(call: ast.Call) -> set[str]:
    return {keyword.arg or "" for keyword in call.keywords}


def _imported(tree: ast.Module, things: Iterable[Any]) -> set[str]:
    """The names under which a module imports some of these classes or functions."""
    wanted = {thing.__name__: thing for thing in things}
    return {
        name.asname or name.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("colonnade")
        for name in node.names
        if name.name in wanted and getattr(import_module(str(node.module)), name.name, None) is wanted[name.name]
    }


_SAID = re.compile(r"epsilon[^.;,]{0,16}$", re.IGNORECASE)
_SHOWN = re.compile(r"\{\{[^}]*epsilon[^}]*\}\}")


def written_in(sources: dict[str, ast.Module]) -> set[str]:
    """Every function that writes an epsilon: as text, in a table of a statement, or under such a key of JSON.

    These are calls of ``format_rounded_up``, ``wording.epsilon`` and ``wording.times``, and of the tables in
    ``colonnade.privacy.statement``; texts that hold a value called epsilon, or one right behind that word; and
    dictionaries with such a key.
    """
    found = set()
    for module, tree in sources.items():
        tables = _imported(tree, (format_text, format_html))
        for where, node in _calls(module, tree):
            if (
                (isinstance(node, ast.Call) and _shows(node, tables))
                or (isinstance(node, ast.JoinedStr) and _tells(node))
                or (isinstance(node, ast.Dict) and any(_is_epsilon(key) for key in node.keys))
            ):
                found.add(where)
    return found


def templates() -> set[str]:
    """Every template of a page that shows an epsilon."""
    shown = (path for path in (SOURCE / "colonnade").rglob("*.html") if _SHOWN.search(path.read_text(encoding="utf-8")))
    return {path.relative_to(ROOT).as_posix() for path in shown}


def _shows(call: ast.Call, tables: set[str]) -> bool:
    made = call.func
    if isinstance(made, ast.Name):
        return made.id == "format_rounded_up" or made.id in tables
    return (
        isinstance(made, ast.Attribute)
        and made.attr in {"epsilon", "times"}
        and isinstance(made.value, ast.Name)
        and made.value.id == "wording"
    )


def _tells(text: ast.JoinedStr) -> bool:
    before = ""
    for part in text.values:
        if isinstance(part, ast.FormattedValue):
            if _SAID.search(before) or any(_is_epsilon(node) for node in ast.walk(part.value)):
                return True
            before = ""
        elif isinstance(part, ast.Constant):
            before = str(part.value)
    return False


def _is_epsilon(node: ast.AST | None) -> bool:
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str) and node.value.isidentifier() and "epsilon" in node.value
    return "epsilon" in getattr(node, "id", "") or "epsilon" in getattr(node, "attr", "")
