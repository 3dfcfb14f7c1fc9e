"""What is missing in the tables, in sentences; nothing is said where every link leads somewhere."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache

from colonnade.audit import registry
from colonnade.privacy import accountant
from colonnade.privacy.events import view

from . import found
from .links import (
    ROOT,
    WHY_NO_GAME,
    Charged,
    Figure,
    Links,
    Tables,
    TestFile,
    Theorem,
    resolve,
    test_file,
)


def missing(tables: Tables) -> list[str]:
    """Everything that is missing."""
    return [
        *_events(tables),
        *_makers(tables),
        *_writers(tables),
        *_routes(tables),
        *_games(tables),
        *(said for row in tables.charged for said in _links(_name(row), row.links, row.task)),
        *(said for row in tables.figures for said in _links(_name(row), row.links)),
    ]


def _name(row: Charged | Figure) -> str:
    return row.name if isinstance(row, Figure) else f"{row.task}, {row.release!r}, theorem {row.theorem!r}"


# --- what the code has must be in the tables


def _events(tables: Tables) -> Iterator[str]:
    declared = {row.key for row in tables.charged}
    made = {event.key for event in found.emitted()}
    for key in sorted(made - declared):
        yield f"no row for an event that is charged: {key}"
    for key in sorted(declared - made):
        yield f"a row for an event that no task reveals: {key}"
    tasks = {task for task, _, _ in made} | set(tables.serving)
    for task in found.revealing():
        if found.name_of(task) not in tasks:
            yield f"no row for the task {found.name_of(task)}"
    for row in tables.charged:
        cited = {Theorem.read(name).page for name in row.links.theorems}
        if left := [page for page in filter(None, row.theorem.split(", ")) if page not in cited]:
            yield f"{_name(row)}: the event rests on {', '.join(left)}, and the row does not link there"
        if not row.theorem and row.links.no_game != "nothing promised":
            yield f"{_name(row)}: an event without a theorem promises nothing, and the row must say so"


@cache
def _made() -> set[str]:
    return found.made_in(found.sources())


@cache
def _written() -> set[str]:
    return found.written_in(found.sources()) | found.templates()


def _makers(tables: Tables) -> Iterator[str]:
    made = _made()
    declared = {row.made for row in tables.charged} | set(tables.passed_on)
    for place in sorted(made - declared):
        yield f"{place} makes events and stands in no row"
    for place in sorted(declared - made):
        yield f"{place} stands in a row and makes no events"
    names = {figure.name for figure in tables.figures}
    yield from (f"no figure {name!r}" for name in sorted(set(tables.passed_on.values()) - names))


def _writers(tables: Tables) -> Iterator[str]:
    places = _written()
    declared = {place.where for place in tables.printed}
    for place in sorted(places - declared - set(tables.no_figure)):
        yield f"{place} writes an epsilon and stands in no row"
    for place in sorted(set(tables.no_figure) - places):
        yield f"{place} is exempted and writes no epsilon"
    names = {figure.name for figure in tables.figures}
    for each in tables.printed:
        if left := sorted(set(each.figures) - names):
            yield f"{each.where}: no figure {', '.join(left)}"
        if not each.figures:
            yield f"{each.where}: which figure stands there?"
        if not _exists(each.where):
            yield f"{each.where} does not exist"


def _routes(tables: Tables) -> Iterator[str]:
    named = {route for figure in tables.figures for route in figure.routes}
    cited = {Theorem.read(name).page for figure in tables.figures for name in figure.links.theorems}
    for name, theorem in sorted(routes()):
        if name not in named:
            yield f"the accountant has a route {name!r} that stands in no row"
        yield from (
            f"route {name!r} rests on {page}, where no row links" for page in theorem.split(", ") if page not in cited
        )
    known = {name for name, _ in routes()}
    yield from (f"the accountant has no route {name!r}" for name in sorted(named - known))


@cache
def routes() -> frozenset[tuple[str, str]]:
    """The accountant's routes and their theorems, for every observer of every task."""
    seen = set()
    for task in dict.fromkeys(found.emitted().values()):
        for observer in task.trust.standard_observers():
            views = [view(event, observer, task.trust) for event in task.events]
            if not any(one.reason for one in views) and not all(one.empty for one in views):
                seen |= {(route.name, route.theorem) for route in accountant.routes(views)}
    return frozenset(seen)


def _games(tables: Tables) -> Iterator[str]:
    known = {subject.name for subject in registry.subjects()}
    listed: set[str] = set()
    for row in tables.rows:
        games = games_of(row) if isinstance(row, Charged) else row.games
        listed |= set(games)
        reason = row.links.no_game
        if left := sorted(set(games) - known):
            yield f"{_name(row)}: no games called {', '.join(left)}"
        if not games and reason not in WHY_NO_GAME:
            yield f"{_name(row)}: neither a game nor one of the reasons {', '.join(WHY_NO_GAME)}"
        if games and reason:
            yield f"{_name(row)}: it has games, so it needs no reason for having none"
    yield from (f"the games {name!r} stand in no row" for name in sorted(known - listed))


@cache
def games_of(row: Charged) -> tuple[str, ...]:
    """The games that play a task with this event, as the registry says; none where nothing is promised."""
    if row.links.no_game:
        return ()
    played = {task.games for event, task in found.emitted().items() if event.key == row.key}
    return tuple(subject.name for subject in registry.subjects() if subject.name in played)


# --- what the tables say must be there


def _links(name: str, links: Links, task: str = "") -> Iterator[str]:
    yield from (f"{name}: no {what}" for what in ("theorems", "functions", "tests") if not getattr(links, what))
    yield from (f"{name}: {said}" for said in _theorems(links.theorems))
    for function in links.functions:
        if not _exists(function):
            yield f"{name}: {function} does not exist"
    for test in (*links.tests, *links.besides):
        path, _, function = test.partition("::")
        if not (ROOT / path).is_file():
            yield f"{name}: there is no file {path}"
        elif function not in test_file(path).functions:
            yield f"{name}: there is no test {test}"
    paths = [test.partition("::")[0] for test in links.tests]
    files = {path: test_file(path) for path in paths if (ROOT / path).is_file()}
    for function in links.functions:
        if not any(_speaks_of(file, function, task) for file in files.values()):
            yield f"{name}: no test named there imports or names {function}"
    for path, file in files.items():
        if not any(_speaks_of(file, function, task) for function in links.functions):
            yield f"{name}: {path} speaks of none of the functions"


def _speaks_of(file: TestFile, function: str, task: str) -> bool:
    """Whether tests speak of a function; what lies beside a task is also reached by the task, or by its base."""
    if file.speaks_of(function):
        return True
    bases = [found.name_of(base) for base in resolve(task).__mro__] if task else []
    beside = [base for base in bases if _package(base) == _package(function)]
    return any(map(file.speaks_of, beside))


def _package(name: str) -> str:
    return name.partition(":")[0].rpartition(".")[0]


def _theorems(theorems: Iterable[str]) -> Iterator[str]:
    for written in theorems:
        theorem = Theorem.read(written)
        if theorem.section is None:
            yield f"no page or section {theorem.page}#{theorem.anchor}"
        elif theorem.name and not theorem.named:
            yield f"{theorem.page}#{theorem.anchor} does not name {theorem.name}"


def _exists(name: str) -> bool:
    if "/" in name:
        return (ROOT / name).is_file()
    try:
        resolve(name)
    except (ImportError, AttributeError):
        return False
    return True
