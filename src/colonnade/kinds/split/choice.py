"""The ways to a head, by name and by the task that each plans."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from colonnade.errors import StudyError
from colonnade.kinds.split.as_published import AsPublished
from colonnade.kinds.split.by_committee import ByCommittee
from colonnade.kinds.split.by_embeddings import ByEmbeddings
from colonnade.kinds.split.ways import Way
from colonnade.protocols.task import Task

WAYS: dict[str, Way] = {way.name: way for way in (ByCommittee(), ByEmbeddings(), AsPublished())}
NAMES = ("auto", *WAYS)
BELONGS: dict[str, tuple[str, ...]] = {
    "epsilon": ("committee", "embeddings"),
    "solver": ("committee",),
    "training": ("committee", "embeddings"),
    "epochs": ("committee", "embeddings", "published"),
    "batches": ("embeddings", "published"),
    "learning_rate": ("embeddings", "published"),
    "label_epsilon": ("embeddings",),
    "head_module": ("embeddings", "published"),
    "constants": ("embeddings", "published"),
    "per_release": ("published",),
    "unprotected": ("published",),
    "rescale": ("published",),
    "adjust": ("published",),
}
"""The heads with which each parameter has a meaning; all others belong to every head."""
TRAININGS = {"own": "committee", "labels": "embeddings", "rounds": "embeddings"}
_OF_TRAINING = ("epochs", "batches", "learning_rate")
_INSTEAD = {
    "epsilon": "nothing is proven about it: give per_release, the epsilon of one release by itself, or unprotected",
    "label_epsilon": 'labels are told in training with head = "embeddings" alone',
    "training": "as published, encoders always learn",
    "head_module": "a committee's head is linear and follows from noisy moments",
}


def check_parameters(model: Any, way: Way) -> None:
    """Refuse what was given and has no meaning with the chosen head, rather than ignore it."""
    defaults = {each.name: each.default for each in fields(model)}
    given = [name for name in BELONGS if name in defaults and getattr(model, name) is not defaults[name]]
    for name in (each for each in given if getattr(model, each) != defaults[each]):
        if way.name not in BELONGS[name]:
            heads = " or ".join(f'"{each}"' for each in BELONGS[name])
            why = _INSTEAD.get(name, f"it is for head = {heads}")
            raise StudyError(f'{name} has no meaning with head = "{way.name}": {why}; leave it out [ST231]')
        if name in _OF_TRAINING and way.name != "published" and model.training == "none":
            raise StudyError(
                f'{name} is about training, and training is "none": choose one, or leave {name} out [ST232]'
            )
    needed = TRAININGS.get(model.training, way.name)
    if needed != way.name:
        others = " or ".join(f'"{each}"' for each, head in TRAININGS.items() if head == way.name)
        raise StudyError(
            f'training = "{model.training}" is for head = "{needed}"; with head = "{way.name}" it is '
            f'"none" or {others} [ST233]'
        )


def named(name: str, *, committee: bool = True) -> Way:
    """The way of this name; ``auto`` is a committee where one can be had."""
    if name == "auto":
        return WAYS["committee" if committee else "embeddings"]
    if name not in WAYS:
        raise StudyError(f"head must be one of {', '.join(NAMES)}, not {name!r} [ST234]")
    return WAYS[name]


def way_of(task: Task) -> Way:
    """The way that planned a task."""
    return WAYS.get(str(task.scheme), WAYS["committee"])
