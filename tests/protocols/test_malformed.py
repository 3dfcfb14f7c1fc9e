"""Whatever a participant sends, the honest ones end with a result or with a sentence about who sent what."""

from __future__ import annotations

import random
from itertools import groupby

import pytest

from colonnade.protocols.session import Played
from tests.support import malice

SCENES = pytest.mark.parametrize("name", malice.SCENES)
TRANSFERS = {"offer", "choices", "asked", "columns", "challenge", "sums"}
"""What is sent in ``ot`` alone, which takes long: everything else is also sent in ``dh``."""


def broken(scene, chosen):
    """What went wrong for anybody honest, of some mutations."""
    found = {}
    for who, at, kind, change in chosen:
        if wrong := malice.faults(malice.run(scene, who, at, change), who, change):
            found[f"{who} sent {kind!r}: {change.name}"] = wrong
    return found


@SCENES
def test_one_malformed_message_of_each_kind_is_refused_by_name(name):
    scene, chance = malice.SCENES[name](), random.Random(name)  # noqa: S311
    every = [m for m in malice.mutations(scene) if m[3].name != "not at all"]
    each = [chance.choice(list(group)) for _, group in groupby(every, key=lambda m: m[:3])]
    if name == "alignment, ot":
        each = [mutation for mutation in each if mutation[2] in TRANSFERS]
    assert len(each) >= 5
    assert not broken(scene, each)


def test_messages_of_one_kind_and_other_forms_are_not_alike():
    scene = malice.SCENES["moments"]()
    kinds, forms = ({m[:2] for m in malice.mutations(scene, alike)} for alike in (malice.by_kind, malice.by_form))
    assert kinds < forms


@pytest.mark.slow
@pytest.mark.timeout(3600)
@SCENES
def test_every_malformed_message_is_refused_by_name(name):
    scene = malice.SCENES[name]()
    every = list(malice.mutations(scene, malice.by_form))
    assert len(every) > 400
    assert not broken(scene, every)


@SCENES
def test_an_honest_run_ends_as_it_should(name):
    """What the mutations start from; an alignment with too few people ends alike for everybody."""
    ended = malice.run(malice.SCENES[name]()).ended
    if name == "alignment, dh, too few":
        assert {type(end).__name__ for end in ended.values()} == {"AlignmentError"}
    else:
        assert all(isinstance(end, Played) for end in ended.values()), ended
