"""An owner that leaves out its noise, or deals another number in its place."""

from __future__ import annotations

from itertools import count
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from colonnade import PCA, Federation, Party, Schema, number
from colonnade.errors import PeerLost, PeerStopped, ShareError
from colonnade.kinds.pca.directions import programs as directions
from colonnade.kinds.polynomial import programs as polynomial
from colonnade.kinds.prediction.scores import programs as scores
from colonnade.kinds.prediction.scores.programs import Parts
from colonnade.kinds.regression.gradients import programs as gradients
from colonnade.kinds.tables.marginals import programs as marginals
from colonnade.protocols.moments import programs as moments
from tests.support import protocols as kit
from tests.support.errors import raises

Array = np.ndarray[Any, Any]


def one_cheats(patch: pytest.MonkeyPatch, programs: ModuleType, offset: int | None = None) -> list[Array]:
    """The first owner that draws noise deals none or, with an offset, adds that; the list gets what the others drew."""
    name = "noise_shares" if hasattr(programs, "noise_shares") else "noise_share"
    real, turns, drawn = getattr(programs, name), count(), []

    def draw(*given: Any, **named: Any) -> Array:
        noise = real(*given, **named)
        if next(turns) == 0:
            return np.zeros_like(noise) if offset is None else noise + offset
        drawn.append(noise)
        return noise

    patch.setattr(programs, name, draw)
    return drawn


def beyond(task: Any) -> int:
    """A number between the largest that honest owners could open and half of the modulus, where it would wrap."""
    half = task.committee.system.modulus // 2
    assert half > 2 * task.bound
    return (half + task.bound) // 2


@pytest.mark.parametrize("owners", [2, 3])
def test_what_is_opened_has_the_noise_of_all_others(monkeypatch, owners):
    kit.nearest(monkeypatch)
    task = kit.moments_task((2,) * owners, noise=50 * owners)
    tables = kit.tables_of(task, 30)
    drawn = one_cheats(monkeypatch, moments)
    found = kit.execute(moments, task, tables)
    want = moments.reference(kit.integers(task, tables), task) + np.sum(drawn, axis=0)
    assert len(drawn) == owners - 1
    assert all(np.array_equal(one.opened, want) for one in found.values())


def codes(task: Any) -> dict[str, Any]:
    return {name: kit.Rows(values) for name, values in kit.codes_of(task, 20).items()}


def parts(task: Any) -> dict[str, Parts]:
    ids = tuple(f"p{k:06d}" for k in range(20))
    return {name: Parts(ids, np.zeros((20, task.classes))) for name in task.owners}


def rows(task: Any) -> dict[str, Array]:
    return kit.tables_of(task, 40)


SCENES = {
    "moments": (moments, kit.moments_task, rows),
    "directions": (directions, kit.directions_task, rows),
    "gradients": (gradients, kit.gradients_task, rows),
    "polynomial": (polynomial, lambda: kit.polynomial_task((1, 1, 1), ["o0.c0 * o1.c0"]), rows),
    "marginals": (marginals, kit.marginals_task, codes),
    "scores": (scores, lambda: kit.scores_task(3, noise=100), parts),
}


@pytest.mark.parametrize("scene", SCENES)
def test_a_number_that_no_honest_noise_could_give_is_refused_by_everybody(monkeypatch, scene):
    programs, make, hold = SCENES[scene]
    task = make()
    one_cheats(monkeypatch, programs, beyond(task))
    labels = np.zeros((40, 1)) if scene == "gradients" else None
    ended = kit.outcomes(task, kit.programs_of(programs, task, hold(task), labels))
    refused = [error for error in ended.values() if isinstance(error, ShareError)]
    assert refused
    assert all("larger than any honest one could be" in str(error) for error in refused)
    # Whoever opens nothing itself hears of it, and has no result either.
    assert all(
        isinstance(found, ShareError | PeerStopped | PeerLost) for found in ended.values() if found not in refused
    )


def test_what_was_opened_and_refused_is_counted(monkeypatch):
    rng, ids = np.random.default_rng(5), [f"p{k}" for k in range(60)]
    tables = {name: pa.table({"id": ids, name: rng.uniform(-1, 1, 60)}) for name in ("bank", "shop", "clinic")}
    people = Federation(
        [Party(name, table, schema=Schema({name: number(-1, 1)}), id="id") for name, table in tables.items()]
    )
    model = PCA(1, epsilon=1.0, rows_at_most=100)
    offset = beyond(model.plan(people.roster))
    with monkeypatch.context() as patch:
        one_cheats(patch, moments, offset)
        with raises(ShareError, "SH005"):
            model.fit(people)
    assert people.privacy_.computations == 1
    spent = people.privacy_.epsilon("analyst")
    assert spent == model.fit(people).privacy_.epsilon("analyst")
    assert people.privacy_.epsilon("analyst") > spent
