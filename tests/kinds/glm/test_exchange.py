"""Generalised linear models over noised messages: the protocol against its reference, and what it refuses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from colonnade.errors import NO_PART, ColonnadeError, StudyError
from colonnade.kinds import Guarantees
from colonnade.kinds.glm.exchange import programs as exchange, sides
from colonnade.kinds.glm.exchange.bounds import Side
from colonnade.kinds.glm.exchange.sides import PassiveDescent, PassiveFit
from colonnade.kinds.glm.exchange.task import Exchange
from colonnade.privacy import Observer, Statement, epsilon, parse_budgets, views
from colonnade.privacy.additive import AdditiveNoise
from colonnade.protocols.roles import COORDINATOR
from colonnade.randomness import Stream
from tests.support import protocols as kit
from tests.support.errors import raises
from tests.support.protocols import Array, exchange_task as _task


def _data(task: Exchange, seed: int = 1) -> tuple[dict[str, Array], Array]:
    rng = np.random.default_rng(seed)
    tables = {name: rng.uniform(-0.7, 0.7, (task.rows, 2)) for name in task.owners}
    score = sum(table @ [2.0, -1.0] for table in tables.values())
    return tables, (rng.random(task.rows) < 1 / (1 + np.exp(-score))).astype(float)


def _run(task: Exchange, tables: dict[str, Array], labels: Array) -> dict[str, Any]:
    return kit.outcomes(task, kit.programs_of(exchange, task, tables, labels))


def _sides(ridge: float) -> tuple[Side, Side]:
    return Side("bank", 0.0, 1.0, 1.0), Side("shop", ridge, 1.0, 1.0)


def _fixed(name: str, variance: int, count: int) -> Array:
    """Noise that both runs can know: it depends on nothing but what it is for."""
    pattern = np.arange(count) % 7 - 3
    return (pattern * int(Fraction(variance) ** Fraction(1, 2)) // 4).astype(np.int64)


@pytest.mark.parametrize("method", ["alternating", "gradient"])
@pytest.mark.parametrize("release", [False, True])
@pytest.mark.parametrize("owners", [("bank", "shop"), ("clinic", "bank", "shop")])
def test_the_protocol_ends_with_the_numbers_of_its_reference(
    method: str, release: bool, owners: Sequence[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    task = _task(method, owners, active="bank", release=release, noise=1 << 14)
    tables, labels = _data(task)
    monkeypatch.setattr(AdditiveNoise, "draw", lambda noise, shape, _: _fixed("", noise.scale, shape[0]))
    done = _run(task, tables, labels)
    kept, released = exchange.reference(tables, labels, task, _fixed)
    assert len({played.result.fit for played in done.values()}) == 1  # everybody knows the fit by the same name
    assert done[COORDINATOR].revealed == ()
    for name in owners:
        outcome = done[name].result
        told = {task.message_event(name), *([task.weights_event(name)] if release else [])}
        assert set(done[name].revealed) == told  # every planned event, and nothing else
        assert np.array_equal(outcome.kept.weights, kept[name].weights)
        assert outcome.kept.factors == kept[name].factors
    everyone = [done[name].result.released for name in (*owners, COORDINATOR)]
    if not release:
        assert everyone == [None] * len(everyone)
        return
    for found in everyone:
        for name in owners:
            assert np.array_equal(found[name].weights, released[name].weights)
        assert found["bank"].factors == released["bank"].factors


def test_messages_are_charged_to_other_owners_and_a_release_to_everybody_beside_them() -> None:
    draft = _task(owners=("clinic", "bank", "shop"), active="bank")
    task = draft.calibrated(parse_budgets(1.0, 1e-5, draft.trust))
    statement = Statement.of(task.events, task.trust, 1e-5)
    assert statement.epsilon("coordinator") == statement.epsilon("analyst") == 0
    for name in task.owners:
        assert 0.9 < statement.epsilon(name) <= 1.0
    # Somebody who has seen less has learned less: a pair sees the messages of the third alone.
    assert statement.epsilon("bank+shop") < statement.epsilon("bank")
    kept, released = _task(), _task(release=True)
    assert len(released.events) == 2 * len(kept.events)
    analyst, bank = Observer.analyst(), Observer.party("bank")
    seen = [epsilon(views(released.events, who, released.trust), 1e-5).epsilon for who in (bank, analyst)]
    assert epsilon(views(kept.events, analyst, kept.trust), 1e-5).epsilon == 0 < seen[0] < seen[1]


def test_who_sees_when_messages_end_is_charged_for_them() -> None:
    tasks = [_task("gradient", epochs=3, patience=patience) for patience in (None, 2, 1)]
    quiet, endless, ending = (epsilon(views(t.events, Observer.coordinator(), t.trust), 1e-5).epsilon for t in tasks)
    assert quiet == endless == 0 < ending  # patience that cannot run out costs nothing
    said = [{row.what for row in Guarantees.of(Statement.of(t.events, t.trust, 1e-5))} for t in tasks[::2]]
    assert "nothing is released" in said[0]
    assert "all messages" in said[1]
    assert not any("released" in what for what in said[1])


def test_received_slopes_are_clipped_before_use() -> None:
    for kind, task in ((PassiveFit, _task()), (PassiveDescent, _task("gradient"))):
        tables, _ = _data(task)
        rows = sides.with_constant(tables["shop"], "shop", task)
        wild, tame = (kind(rows, "shop", task) for _ in range(2))
        size = len(rows[0 :: task.batches])
        slopes = np.linspace(-50.0, 60.0, size)
        wild.take(0, slopes)
        tame.take(0, np.clip(slopes, -2.0, 2.0))
        assert np.array_equal(wild.weights, tame.weights)
        assert np.linalg.norm(wild.weights) <= 1.0
        assert np.abs(wild.scores(0)).max() <= 0.7


def test_everybody_is_told_the_same_slopes() -> None:
    """With fresh noise for each, two parties could average it away."""
    task = _task(owners=("bank", "shop", "clinic"))
    seen: dict[str, list[Array]] = {"shop": [], "clinic": []}
    names = []

    class Noted(PassiveFit):
        def take(self, batch: int, slopes: Array) -> None:
            seen[self.side.owner].append(slopes)
            super().take(batch, slopes)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sides, "PassiveFit", Noted)
        for _ in range(2):
            names.append(_run(task, *_data(task))[COORDINATOR].result.fit)
    assert names[0] != names[1]  # no two fits share a name
    assert len(seen["shop"]) == 2 * task.epochs
    assert all(np.array_equal(one, other) for one, other in zip(seen["shop"], seen["clinic"], strict=True))


def test_more_budget_gives_a_better_model(stream: Stream) -> None:
    draft = _task(rows=4000, epochs=1, sides=(Side("bank", 0.01, 1.0, 1.0), Side("shop", 0.01, 6.0, 2.0, 1.5)))
    tables, labels = _data(draft, 3)
    found = []
    for budget in (0.05, 100.0):
        task = draft.calibrated(parse_budgets(budget, 1e-5, draft.trust))
        kept, _ = exchange.simulate(tables, labels, task, stream)
        score = sum(
            sides.with_constant(tables[name], name, task)
            @ each.weights
            * (1.0 if name == "bank" else kept["bank"].factors[name])
            for name, each in kept.items()
        )
        found.append(float(np.mean((score > 0) == (labels > 0.5))))
    truth = float(np.mean((sum(t @ [2.0, -1.0] for t in tables.values()) > 0) == (labels > 0.5)))
    assert found[0] < found[1] - 0.02
    assert found[1] > truth - 0.02


def test_stopping_early_follows_from_what_was_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    task = _task("gradient", epochs=30, patience=1, noise=1 << 14)
    tables, labels = _data(task)
    monkeypatch.setattr(AdditiveNoise, "draw", lambda noise, shape, _: _fixed("", noise.scale, shape[0]))
    done = _run(task, tables, labels)
    kept, _ = exchange.reference(tables, labels, task, _fixed)
    assert all(np.array_equal(done[name].result.kept.weights, kept[name].weights) for name in task.owners)
    full, _ = exchange.reference(tables, labels, replace(task, patience=None), _fixed)
    assert not np.array_equal(full["shop"].weights, kept["shop"].weights)


@pytest.mark.parametrize(
    ("method", "changes", "said"),
    [
        ("gradient", {"learning_rate": 9.0, "sides": _sides(0.0)}, ("ST452", "9", "4")),
        ("gradient", {"sides": _sides(2.0)}, ("ST453", "shop")),
        ("gradient", {"batches": 41}, ("ST449", "40", "41")),
        ("alternating", {"epochs": 2_000_000}, ("ST450", "2000000", "2,000,000", "100")),
        ("gradient", {"epochs": 1, "batches": 1}, "ST451"),
    ],
)
def test_bad_plans_are_refused_before_anything_is_sent(method: str, changes: dict[str, Any], said: Any) -> None:
    with raises(StudyError, said):
        _task(method, **changes)


@pytest.mark.parametrize(
    ("rows", "message"), [((40, 39), "shop has 39 rows and the study says 40"), ((40, 0), "shop has 0 rows")]
)
def test_unequal_numbers_of_rows_end_it_at_everyone(rows: tuple[int, int], message: str) -> None:
    task = _task()
    tables, labels = _data(task)
    done = _run(task, {name: tables[name][:size] for name, size in zip(task.owners, rows, strict=True)}, labels)
    assert all(isinstance(outcome, ColonnadeError) for outcome in done.values())
    assert message in str(done["shop"])
    for name in ("bank", COORDINATOR):
        assert str(done[name]) == f"shop stopped the study: {NO_PART} [PE019]"
