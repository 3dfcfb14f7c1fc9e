"""The ways to a head, by name and by the task that each plans."""

from __future__ import annotations

from colonnade.errors import StudyError
from colonnade.models.split.as_published import AsPublished
from colonnade.models.split.by_committee import ByCommittee
from colonnade.models.split.by_embeddings import ByEmbeddings
from colonnade.models.split.ways import Way
from colonnade.protocols.adaptive.task import Adaptive
from colonnade.protocols.embeddings.task import Embeddings
from colonnade.protocols.task import Task

WAYS: dict[str, Way] = {way.name: way for way in (ByCommittee(), ByEmbeddings(), AsPublished())}
NAMES = ("auto", *WAYS)


def named(name: str, *, committee: bool = True) -> Way:
    """The way of this name; ``auto`` is a committee where one can be had."""
    if name == "auto":
        return WAYS["committee" if committee else "embeddings"]
    if name not in WAYS:
        raise StudyError(f"head must be one of {', '.join(NAMES)}, not {name!r}")
    return WAYS[name]


def way_of(task: Task) -> Way:
    """The way that planned a task."""
    if isinstance(task, Adaptive):
        return WAYS["published"]
    return WAYS["embeddings" if isinstance(task, Embeddings) else "committee"]
