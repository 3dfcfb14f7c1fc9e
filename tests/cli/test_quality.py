"""``colonnade quality``: files of several parties beside a synthetic table."""

from __future__ import annotations

import stat
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from colonnade.errors import DataError
from tests.support.pages import Page
from tests.support.studies import check_words


def people(rows: int, seed: int) -> pa.Table:
    draw = np.random.default_rng(seed)
    age, job = draw.integers(18, 90, rows), draw.integers(1, 5, rows)
    smoker = draw.random(rows) < 0.1 + 0.1 * job
    return pa.table(
        {
            "person": [f"{seed}-{k:05d}" for k in range(rows)],
            "age": age,
            "job": pa.array([str(k) for k in job]),
            "income": pa.array(np.round(1000 * draw.gamma(1 + job), 2), mask=draw.random(rows) < 0.05),
            "smoker": smoker,
        }
    )


def write(folder: Path, name: str, table: pa.Table) -> list[str]:
    """The table as two parties hold it, in different orders."""
    first, second = folder / f"{name}-bank.csv", folder / f"{name}-clinic.csv"
    pyarrow.csv.write_csv(table.select(["person", "age", "income"]), first)
    mixed = table.take(pa.array(np.random.default_rng(0).permutation(table.num_rows)))
    cells = mixed.set_column(4, "smoker", pa.array(["yes" if cell else "no" for cell in mixed["smoker"].to_pylist()]))
    pyarrow.csv.write_csv(cells.select(["person", "job", "smoker"]), second)
    return [str(first), str(second)]


@pytest.fixture
def files(tmp_path: Path) -> dict[str, list[str]]:
    made_up = people(400, 1).drop_columns(["person"])
    made_up = made_up.set_column(1, "job", made_up["job"].combine_chunks().dictionary_encode())
    pyarrow.parquet.write_table(made_up, tmp_path / "synthetic.parquet")
    pyarrow.csv.write_csv(made_up, tmp_path / "synthetic.csv")
    real = write(tmp_path, "real", people(500, 2))
    return {
        "synthetic": [str(tmp_path / "synthetic.parquet")],
        "text": [str(tmp_path / "synthetic.csv")],
        "real": real,
        "part": real[:1],
        "aside": write(tmp_path, "aside", people(500, 3)),
        "twice": write(tmp_path, "twice", pa.concat_tables([people(5, 4), people(5, 4)])),
        "page": [str(tmp_path / "page.html")],
    }


def aside(files: dict[str, list[str]]) -> list[str]:
    return [word for path in files["aside"] for word in ("--held-out", path)]


def test_files_of_parties_are_joined_by_their_ids(colonnade, files) -> None:
    given = [*files["synthetic"], *files["real"], *aside(files), "--id", "person", "--label", "smoker"]
    text = colonnade("quality", *files["synthetic"], *files["real"], "--id", "person")
    assert "400 made-up people beside 500 real ones" in text
    assert "attack" not in text
    told = colonnade("quality", *given, "--page", *files["page"], "--json")
    assert (told["rows"], told["synthetic_rows"], told["held_out_rows"]) == (500, 400, 500)
    assert told["associations"]["names"] == ["age", "job", "income", "smoker"]
    assert told["distances"][1]["mean"] < 0.3
    # Rows that were joined by place instead of by id would not go together at all.
    jobs, incomes = 1, 2
    assert told["associations"]["real"][jobs][incomes] > 0.2
    page = Path(files["page"][0])
    assert told["page"] == str(page)
    assert stat.S_IMODE(page.stat().st_mode) == 0o600
    read = Page(page.read_text(encoding="utf-8"))
    check_words(" ".join(read.text), "not for publication", "Does it give people away?", "attack by density")
    assert {"columns-wide-title", "associations-narrow-title", "attacks-wide-title"} <= {
        attrs.get("id") for attrs in read.all("title")
    }


def test_whom_not_all_files_hold_is_left_out_and_counted(colonnade, files, tmp_path) -> None:
    bank, clinic = files["real"]
    pyarrow.csv.write_csv(pyarrow.csv.read_csv(bank).slice(0, 450), tmp_path / "fewer.csv")
    pyarrow.csv.write_csv(pyarrow.csv.read_csv(clinic).slice(30), tmp_path / "others.csv")
    held = [set(pyarrow.csv.read_csv(tmp_path / name)["person"].to_pylist()) for name in ("fewer.csv", "others.csv")]
    both, either = len(held[0] & held[1]), len(held[0] | held[1])
    given = ["quality", *files["synthetic"], tmp_path / "fewer.csv", tmp_path / "others.csv", "--id", "person"]
    told = colonnade(*given, "--json")
    assert (told["rows"], told["left_out"]) == (both, either - both)
    assert told["associations"]["real"][1][2] > 0.2
    assert f"{either - both} people were left out, because not all files hold them" in colonnade(*given)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["text", "real", "--id", "person"], "give the Parquet file"),
        (["synthetic", "real", "--id", "nobody"], "has no column 'nobody'"),
        (["synthetic", "synthetic", "--id", "person"], "has no column 'person'"),
        (["synthetic", "real", "aside", "--id", "person"], "have nobody in common by 'person'"),
        (["synthetic", "part", "--id", "person"], "lack 'job', 'smoker', which the synthetic table has"),
        (["synthetic", "twice", "--id", "person"], "has several rows for one person by 'person'"),
    ],
)
def test_mistakes_are_told_in_one_sentence(colonnade, files, arguments, sentence) -> None:
    given = [word for name in arguments for word in files.get(name, [name])]
    assert sentence in colonnade("quality", *given, code=DataError.exit_code)


def test_dates_are_compared_as_days(colonnade, tmp_path: Path) -> None:
    draw = np.random.default_rng(4)
    days = np.datetime64("2020-01-01") + draw.integers(0, 1000, (2, 300)).astype("m8[D]")
    made_up = pa.table({"seen": days[0], "x": draw.random(300)})
    pyarrow.parquet.write_table(made_up, tmp_path / "made.parquet")
    written = pa.array([f"{day.astype(object):%d.%m.%Y}" for day in days[1]])
    pyarrow.csv.write_csv(pa.table({"seen": written, "x": draw.random(300)}), tmp_path / "real.csv")
    found = colonnade("quality", tmp_path / "made.parquet", tmp_path / "real.csv", "--json")
    assert found["rows"] == 300
    assert found["associations"]["names"] == ["seen", "x"]
    assert found["distances"][0]["mean"] < 0.3
