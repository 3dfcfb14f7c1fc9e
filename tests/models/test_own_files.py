"""Two organisations with their own files: semicolons, decimal commas, Latin-1 and UTF-16, dates, names as keys.

The noise is drawn anew each time; every figure is more than ten of its deviations away from where a test would fail.
"""

from __future__ import annotations

import datetime
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from colonnade import (
    PCA,
    Federation,
    Key,
    KeyColumn,
    LinearRegression,
    Party,
    Schema,
    Synthesizer,
    category,
    date,
    joint_scores,
    number,
    read_table,
)
from colonnade.errors import DataError, StudyError
from colonnade.tables.dates import MONTHS
from tests.support.errors import raises
from tests.support.models import simulated

PEOPLE = 1200
BANK = Schema(
    {
        "eröffnet": date("2015-01-01", "2024-12-31", parts=["days", "month", "weekday"], format="%d.%m.%Y"),
        "einkommen": number(0, 100, unit="tausend Euro"),
        "betrag": number(0, 100),
    },
    separator=";",
    encoding="latin-1",
    decimal=",",
)
SHOP = Schema({"Ort": category(["Köln", "Zürich"]), "seit": date("2020-01-01", "2023-12-31", missing="none")})


def comma(value: float) -> str:
    return f"{value:.2f}".replace(".", ",")


def files(folder: Path, seed: int, people: int = PEOPLE) -> tuple[Path, Path]:
    """The bank's file in Latin-1 and the shop's in UTF-16, each in its own order; the amount hangs on both."""
    drawn = np.random.default_rng(seed)
    opened = [datetime.date(2015, 1, 1) + datetime.timedelta(days=int(day)) for day in drawn.integers(0, 3653, people)]
    income, city = drawn.uniform(10, 90, people), drawn.integers(0, 2, people)
    age = np.array([(day - datetime.date(2015, 1, 1)).days / 3652 for day in opened])
    amount = np.clip(40 * age + 0.3 * income + 15 * city + drawn.normal(0, 2, people), 0, 100)
    names = [f"Jörg Größe-{number}" for number in range(people)]
    bank = [
        f"{name};{day:%d.%m.%Y};{comma(earned)};{comma(spent)}\r\n"
        for name, day, earned, spent in zip(names, opened, income, amount, strict=True)
    ]
    shop = [
        f"{name},{('Köln', 'Zürich')[lives]},{'' if place % 9 == 0 else f'202{place % 4}-0{1 + place % 9}-15'}\n"
        for place, (name, lives) in enumerate(zip(names, city.tolist(), strict=True))
    ]
    one, other = folder / f"bank{seed}.csv", folder / f"shop{seed}.csv"
    one.write_bytes(("Name;eröffnet;einkommen;betrag\r\n" + "".join(bank)).encode("latin-1"))
    other.write_bytes(("client,Ort,seit\n" + "".join(reversed(shop))).encode("utf-16"))
    return one, other


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Federation:
    bank, shop = files(tmp_path_factory.mktemp("files"), 1)
    parties = [
        Party("bank", bank, schema=BANK, keys={"name": "Name"}),
        Party("shop", shop, schema=SHOP, keys={"name": KeyColumn("client")}, encoding="utf-16"),
    ]
    return Federation(parties).align(on=Key("name"))


@pytest.fixture(scope="module")
def model(people: Federation) -> LinearRegression:
    return LinearRegression(label="bank.betrag", epsilon=20.0, delta=1e-6).fit(people)


def test_from_files_to_predictions_with_dates(tmp_path: Path, people: Federation, model: LinearRegression) -> None:
    assert people.common_rows() == PEOPLE
    weights = model.coefficients()["bank"]
    assert weights["eröffnet.days"] == pytest.approx(20, abs=3)  # half of the range of 40
    assert abs(weights["eröffnet.month=May"]) < 15
    bank, shop = files(tmp_path, 2, 50)
    new = {
        "bank": read_table(bank, BANK.without(["betrag"]), id="Name"),
        "shop": read_table(shop, SHOP, id="client", encoding="utf-16"),
    }
    aligned = {"bank": new["bank"].sorted_by_id(), "shop": new["shop"].sorted_by_id()}
    truth = read_table(bank, BANK.select(["betrag"]), id="Name").sorted_by_id()
    predicted = model.predict(aligned)
    actual = 50 * (truth.matrix()[:, 0] + 1)
    assert np.abs(predicted - actual).mean() < 5
    loaded = LinearRegression.load(model.save(tmp_path / "model.json"))
    assert np.array_equal(loaded.predict(aligned), predicted)
    assert loaded.schemas_["bank"].text == BANK.text
    ids = {"bank": "Name", "shop": "client"}
    by_name = loaded.predict({"bank": bank, "shop": new["shop"]}, id=ids)  # in the order of the bank's file
    assert np.array_equal(by_name[np.argsort(list(new["bank"].ids))], predicted)
    said = json.dumps(model.to_json(), ensure_ascii=False)
    assert "the days since its day from" in said
    assert '"as": "month"' in said


def test_one_frame_of_all_columns_may_hold_dates_and_joint_scores_hold_them_to_their_bounds(
    people: Federation, model: LinearRegression
) -> None:
    frame = pd.DataFrame(
        {
            "eröffnet": pd.to_datetime(["2016-02-01", "2024-12-31"]),
            "einkommen": ["12,5", "40"],
            "Ort": ["Köln", "Zürich"],
            "seit": [datetime.date(2020, 5, 1), None],
        }
    )
    early, late = model.predict(frame)
    assert late - early > 20
    with raises(DataError, "DA069", "bank.eröffnet"):
        model.predict(frame.rename(columns={"eröffnet": "opened"}))
    exact = joint_scores(model, people, to="bank", exact=True)
    assert np.asarray(exact.scores).reshape(-1) == pytest.approx(model.predict(people), abs=0.1)


def test_made_up_people_and_components_have_dates(tmp_path: Path, people: Federation) -> None:
    with raises(StudyError, "ST368"):
        Synthesizer(epsilon=20.0, delta=1e-6).fit(people)
    found = simulated(PCA(n_components=2, epsilon=20.0, delta=1e-6), people)
    assert f"bank.eröffnet.month={MONTHS[0]}" in found.feature_names_in_
    bank, shop = files(tmp_path, 1)
    parties = [
        Party("bank", bank, schema=BANK.select(["eröffnet.days", "betrag"]), id="Name"),
        Party("shop", shop, schema=SHOP, id="client", encoding="utf-16"),
    ]
    group = Federation(parties)
    made = simulated(Synthesizer(epsilon=20.0, delta=1e-6, size=200, components=8), group)
    table = made.sample(200)
    assert table["eröffnet.days"].type == pa.date32()
    assert table["seit"].null_count > 0
    assert min(table["seit"].drop_null().to_pylist()) >= datetime.date(2020, 1, 1)


@pytest.mark.parametrize(
    ("label", "said"),
    [
        ("bank.eröffnet.days", ("ST193", "'eröffnet.month', 'eröffnet.weekday'")),
        ("bank.eröffnet", ("ST189", "bank.eröffnet.days")),
        ("bank.Betrag", ("ST189", "bank.betrag")),
        ("Bank.betrag", ("ST188", "bank")),
        ("bank.betrg", ("ST189", "bank.betrag")),
        ("shop.betrag", ("ST189", "bank.betrag")),
    ],
)
def test_a_label_that_is_nearly_right(tmp_path: Path, label: str, said: str) -> None:
    bank, shop = files(tmp_path, 1, 5)
    people = Federation([Party("bank", bank, schema=BANK, id="Name"), Party("shop", shop, schema=SHOP, id="client")])
    with raises(StudyError, said):
        LinearRegression(label=label, epsilon=1.0, delta=1e-6).fit(people)
