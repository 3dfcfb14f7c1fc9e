"""Two results of the same mutants: what has changed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from research.mutation.mutants import Mutant
from research.mutation.running import CAUGHT, GONE, Result


@dataclass(frozen=True)
class Changes:
    """The mutants whose result is another one now."""

    survived: list[str]
    killed: list[str]
    gone: list[str]


def changes(before: Iterable[Result], after: Iterable[Result]) -> Changes:
    """Which mutants tests do not notice any more, which they do now, and which are not there any more."""
    old = {result.id: result.result for result in before}
    new = {result.id: result.result for result in after}
    both = [(name, old[name], new[name]) for name in old if name in new]
    return Changes(
        [name for name, was, now in both if was in CAUGHT and now not in (*CAUGHT, GONE)],
        [name for name, was, now in both if was not in CAUGHT and now in CAUGHT],
        [name for name, was, now in both if was != GONE and now == GONE],
    )


def told(found: Changes, mutants: Iterable[Mutant], after: Iterable[Result]) -> Iterator[str]:
    """The changes as lines for a person, who can look for the mutants by hand."""
    known = {mutant.id: mutant for mutant in mutants}
    now = {result.id: result for result in after}
    for title, names in (
        ("noticed before, not now", found.survived), ("noticed only now", found.killed), ("gone", found.gone),
    ):  # fmt: skip
        yield f"{title}: {len(names)}"
        for name in names:
            mutant = known[name]
            yield f"  {name} {mutant.module} {mutant.qualname}: {mutant.line}  ->  {mutant.becomes}"
            if name in now and now[name].killer:
                yield f"       by {now[name].killer}"
