"""One thousand owners of one column each, a committee of five of them, in threads of one process."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from colonnade import Federation, LogisticRegression, Observer, Party, Schema, flag, number
from colonnade.privacy import epsilon
from colonnade.privacy.events import View, views
from colonnade.privacy.routes.gaussian import gaussian_epsilon

OWNERS, ROWS, SEATS, THRESHOLD = 1000, 60, 5, 2
DELTA = 1e-5


@pytest.fixture(scope="module")
def fitted():
    chance = np.random.default_rng(0)
    names = [f"owner{index:04}" for index in range(OWNERS)]
    ids = [f"p{index:04}" for index in range(ROWS)]
    parties = []
    for place, name in enumerate(names):
        columns = {"id": ids, "x": chance.uniform(-1, 1, ROWS)}
        schema = {"x": number(-1, 1)}
        if place == 0:
            columns["y"], schema["y"] = chance.random(ROWS) < 0.5, flag()
        parties.append(Party(name, pa.table(columns), schema=Schema(schema), id="id"))
    people = Federation(parties, committee=names[:SEATS], threshold=THRESHOLD)
    model = LogisticRegression(
        epsilon={"analyst": 1.0},
        delta=DELTA,
        label=f"{names[0]}.y",
        method="sqm",
        rows=ROWS,
        rate=0.5,
        epochs=2,
        sampling="disjoint",
        rows_at_most=1024,
    )
    return model.fit(people), model.plan(people.roster), people.roster


@pytest.mark.slow
def test_a_thousand_owners_learn_together(fitted):
    model, task, _ = fitted
    assert len(task.owners) == OWNERS
    assert model.coef_.shape == (1, OWNERS)
    assert np.isfinite(model.coef_).all()
    assert np.any(model.coef_)


@pytest.mark.slow
def test_the_printed_figure_of_each_observer_is_right(fitted):
    """Noise is a thousand equal shares and a person takes part twice: the exact Gaussian figures are near."""
    model, task, roster = fitted
    release = task.event.event
    share = 2 * float(task.noise) / OWNERS

    def gaussian(known, squared):
        return gaussian_epsilon((task.epochs * squared / (share * (OWNERS - known))) ** 0.5, DELTA)

    want = {
        Observer.analyst(): gaussian(0, release.l2_squared),
        Observer.coordinator(): gaussian(0, release.replace_l2_squared),
        Observer.party("owner0007"): gaussian(1, release.replace_l2_squared),
        Observer.party("owner0002"): gaussian(1, release.replace_l2_squared),
        Observer.coalition("owner0003", "owner0900"): gaussian(2, release.replace_l2_squared),
        Observer.coalition("owner0000", "owner0001", *(f"owner{k:04}" for k in range(500, 990))): gaussian(
            492, release.replace_l2_squared
        ),
    }
    for observer, figure in want.items():
        seen: tuple[View, ...] = views(task.events, observer, roster.trust)
        found = epsilon(seen, DELTA).epsilon
        assert figure * (1 - 1e-6) <= found <= figure * 1.02, observer.label
    assert model.privacy_.epsilon(Observer.analyst(), DELTA) <= 1.0
    above = Observer.coalition("owner0000", "owner0001", "owner0002")
    assert epsilon(views(task.events, above, roster.trust), DELTA).epsilon == float("inf")
    printed = {row.observer: row for row in model.privacy_.rows}
    single = [Observer.party(name) for name in ("owner0000", "owner0005")]
    for observer in (Observer.analyst(), Observer.coordinator(), *single):
        figure = want.get(observer, want[Observer.party("owner0007")])
        assert figure * (1 - 1e-6) <= printed[observer].epsilon <= figure * 1.02
    # One row stands for all owners without a seat.
    assert printed[Observer.party("owner0005")].others == OWNERS - SEATS - 1
